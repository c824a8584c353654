from dataclasses import replace

import pytest
from sample import OP, candidate, passed, rejected
from sqlalchemy import inspect
from test_store_migrations import downgrade

from kernel_library.store.errors import NotAcceptable, NotFound


def shelved(store, name="gather_scale"):
    return store.add_kernel(replace(OP, name=name), candidate(name), verdict=passed(4.0))


def test_a_kernel_that_fails_when_judged_again_goes_into_quarantine(store, clock):
    assert shelved(store).quarantine is None
    clock.turn(60)
    seen = store.add_verdict(OP.name, 1, rejected())
    assert (seen.verdict, seen.version) == (rejected(), 1)
    assert (seen.quarantine.reason, seen.quarantine.at) == (
        "correct: wrong in the last rows",
        clock.time,
    )
    assert store.kernel(OP.name) == store.kernel(OP.name, 1) == seen
    assert store.kernels() == [seen]


def test_passing_again_lifts_it_and_the_newest_verdict_is_told(store):
    shelved(store)
    store.add_verdict(OP.name, 1, rejected())
    seen = store.add_verdict(OP.name, 1, passed(3.0))
    assert (seen.quarantine, seen.verdict) == (None, passed(3.0))
    assert store.add_kernel(OP, candidate(OP.name)) == seen


def test_quarantine_is_of_one_version_of_one_kernel(store):
    shelved(store), shelved(store, "softmax")
    store.add_verdict(OP.name, 1, rejected())
    store.add_kernel(OP, candidate("better"), verdict=passed(2.0))
    assert store.kernel(OP.name, 1).quarantine and not store.kernel(OP.name).quarantine
    assert [k.quarantine for k in store.kernels()] == [None, None]


def test_a_pass_in_a_weak_sandbox_lifts_nothing(store):
    shelved(store)
    store.add_verdict(OP.name, 1, rejected())
    with pytest.raises(NotAcceptable, match="namespaces"):
        store.add_verdict(OP.name, 1, passed(3.0, "rlimits"))
    assert store.kernel(OP.name).quarantine


@pytest.mark.parametrize(("name", "version"), [("nothing", 1), (OP.name, 2)])
def test_what_is_not_in_the_library_is_not_found(store, name, version):
    shelved(store)
    with pytest.raises(NotFound):
        store.add_verdict(name, version, rejected())


def test_a_library_from_before_quarantine_keeps_its_kernels(store):
    before = shelved(store)
    downgrade(store, "v1")
    assert "checkup" not in inspect(store.database.engine).get_table_names()
    store.migrate()
    assert store.kernel(OP.name) == before
