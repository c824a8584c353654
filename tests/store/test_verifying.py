"""Which kernels of the library are judged again, and what comes of it."""

from dataclasses import replace

import pytest
from sample import OP, candidate, passed, rejected

from evaluator.errors import LabError
from kernel_library.verdict import Record
from worker.verifying import chosen, verify

HERE = Record(
    "replayed", "namespaces", (), "H200", {"torch": "2.11", "triton": "3.6", "driver": "580"}
)


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """What is verified is the same over either database; SQLite will do."""
    return f"sqlite:///{tmp_path_factory.mktemp('store')}/store.db"


def judged_as(record):
    return replace(passed(4.0), record=record)


def shelved(store, name, verdict, origin="job"):
    return store.add_kernel(replace(OP, name=name), candidate(name), verdict=verdict, origin=origin)


def run(store, confirm, names=(), every=False, here=HERE):
    kernels = chosen(store.kernels(), names, all_=every)
    return {v.name: (v.outcome, v.why) for v in verify(kernels, store, confirm, here, all_=every)}


def holds(op, candidate):
    return judged_as(HERE)


def fails(op, candidate):
    return rejected()


def never(op, candidate):
    pytest.fail(f"{op.name} need not be judged again")


@pytest.mark.parametrize(
    ("then", "why"),
    [
        (replace(HERE, versions={**HERE.versions, "triton": "3.5"}), "triton 3.5, now 3.6"),
        (replace(HERE, versions={**HERE.versions, "driver": "570"}), "driver 570, now 580"),
        (replace(HERE, device="A100"), "it was replayed on A100"),
        (replace(HERE, evidence="interpreted", device=None), "it was interpreted on no GPU"),
    ],
    ids=["triton", "driver", "device", "evidence"],
)
def test_a_verdict_from_elsewhere_is_made_again_and_then_holds(store, then, why):
    shelved(store, "a", judged_as(then))
    assert run(store, holds) == {"a": ("holds", why)}
    assert run(store, never) == {"a": ("current", "judged with what is here now")}


def test_what_fails_is_put_in_quarantine_and_judged_at_every_turn_until_it_passes(store):
    shelved(store, "a", judged_as(replace(HERE, device="A100")))
    assert run(store, fails)["a"] == ("quarantined", "correct: wrong in the last rows")
    assert run(store, fails)["a"][0] == "quarantined"
    assert run(store, holds)["a"] == ("holds", "it was in quarantine")
    assert store.kernel("a").quarantine is None


def test_a_replayed_kernel_is_not_judged_without_a_gpu(store):
    shelved(store, "a", judged_as(HERE))
    outcome, why = run(store, never, every=True, here=Record("interpreted", "namespaces"))["a"]
    assert outcome == "not judged" and "no GPU" in why
    assert store.kernel("a").quarantine is None


def test_names_and_all_choose(store):
    shelved(store, "a", judged_as(HERE)), shelved(store, "b", judged_as(HERE))
    shelved(store, "seed", None, "seed")
    assert set(run(store, never)) == {"a", "b"}
    assert set(run(store, never, ["b"])) == {"b"}
    assert run(store, holds, ["seed"])["seed"] == ("holds", "it was never judged here")
    assert set(run(store, holds, every=True)) == {"a", "b", "seed"}


def test_our_own_failure_puts_nothing_in_quarantine(store):
    def breaks(op, candidate):
        raise LabError("the GPU is gone")

    shelved(store, "a", judged_as(replace(HERE, device="A100")))
    with pytest.raises(LabError):
        run(store, breaks)
    assert store.kernel("a").quarantine is None
