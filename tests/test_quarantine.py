"""A kernel in quarantine as people meet it: in the shell, over HTTP, in a job."""

import json
from dataclasses import replace

import candidates
import httpx
import pytest
from api_world import a_world, is_problem
from test_cli import home, run

from evaluator.intake import read
from kernel_library.candidate import Candidate
from kernel_library.verdict import Checked, Passed, Record, Rejected
from worker.retrieval import known_kernels
from worker.settings import Settings

__all__ = ["home"]
REJECTED = Rejected("deep", "reads past the end of a buffer", Record("replayed", "namespaces"))


@pytest.fixture
def served(tmp_path):
    with a_world(tmp_path) as served:
        yield served


def test_it_is_shown_and_not_exported(served):
    served.store.add_verdict("rms_norm", 1, REJECTED)
    (summary,) = served.http.get("/v1/kernels").json()["items"]
    assert summary["quarantine"]["reason"] == "deep: reads past the end of a buffer"
    asked = {"kernels": ["rms_norm"], "package": "mine"}
    body = is_problem(served.http.post("/v1/exports", json=asked), 409, "in-quarantine")
    assert "kernelwright library verify rms_norm" in body["detail"]
    listed = httpx.get(f"{served.url}/kernels").text
    assert "quarantined" in listed and 'aria-label="Export rms_norm" disabled' in listed
    assert "reads past the end of a buffer" in httpx.get(f"{served.url}/kernels/rms_norm").text


def test_a_kernel_that_stands_is_shown_without_a_word_of_it(served):
    assert served.http.get("/v1/kernels/rms_norm").json()["quarantine"] is None
    for page in ("/kernels", "/kernels/rms_norm"):
        assert "uarantine" not in httpx.get(f"{served.url}{page}").text


def test_verify_puts_what_fails_in_quarantine_and_lifts_it(home, judge):
    op = read("affine.py", candidates.PROBLEM, judge.rooms.recorder).op
    old = Record("interpreted", "namespaces", versions={"torch": "2.0", "triton": "2.0"})
    verdict = Passed((Checked(op.workloads[0], 0.0, 0.0, 1),), old)
    store = Settings().store()
    store.migrate()
    for name, source in (("right", candidates.RIGHT), ("wrong", candidates.MASK_BUG)):
        kernel = Candidate(name, source, "entry")
        store.add_kernel(replace(op, name=name), kernel, verdict=verdict, origin="job")

    told = run("library", "verify", "--json")
    found = {each["name"]: each for each in json.loads(told.stdout)}
    assert told.exit_code == 1, told.stderr
    assert {name: each["outcome"] for name, each in found.items()} == {
        "right": "holds",
        "wrong": "quarantined",
    }
    assert "torch 2.0, now" in found["right"]["why"]
    assert "never written" in found["wrong"]["why"]
    assert "2 of 2: wrong quarantined" in told.stderr

    assert [k.op.name for k in known_kernels(store, None) if k.op.name in found] == ["right"]
    assert "in quarantine" in run("library", "list").stdout
    assert "library verify wrong" in run("library", "show", "wrong").stdout
    refused = run("export", "wrong", "--out", home / "dist")
    assert refused.exit_code == 2 and "in quarantine since" in refused.stderr

    store.add_verdict("wrong", 1, verdict)
    assert store.kernel("wrong").quarantine is None
    assert {"right", "wrong"} <= {k.op.name for k in known_kernels(store, None)}
    assert "without a GPU, not looked into" in run("library", "show", "right").stdout
    again = run("library", "verify", "right")
    assert again.exit_code == 0 and "current" in again.stdout
    store.close()


def test_verify_names_what_is_not_there_and_says_when_there_is_nothing_to_do(home):
    assert run("library", "verify", "nothing").exit_code == 2
    told = run("library", "verify")
    assert told.exit_code == 0 and "nothing to verify" in told.stdout


def test_a_seed_in_quarantine_is_not_proposed(tmp_path):
    from worker.working import stock

    store = Settings(home=tmp_path).store()
    store.migrate()
    stock(store)
    assert "softmax" in {k.op.name for k in known_kernels(store, None)}
    store.add_verdict("softmax", 1, REJECTED)
    assert "softmax" not in {k.op.name for k in known_kernels(store, None)}
    store.close()
