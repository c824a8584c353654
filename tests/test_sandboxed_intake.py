"""A stranger's file is read in the real sandbox, and what it does there stays there."""

import time
from pathlib import Path

import pytest

from evaluator.errors import ProblemError
from evaluator.intake import read
from evaluator.sandbox.host import Zygote

ROOT = Path(__file__).parent.parent
TAIL = "\ndef reference(x): return x\nINPUTS = []\n"


@pytest.fixture(scope="module")
def sandbox():
    with Zygote(preload=("torch", "evaluator.intake.job")) as zygote:
        yield zygote


def test_a_problem_is_read_in_the_sandbox(sandbox):
    op = read("softmax.json", (ROOT / "examples/softmax.json").read_text(), sandbox).op
    assert len(op.reference.graphs) == len(op.workloads) == 4


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import os\nos._exit(3)", "killed"),
        ("import sys\nsys.exit(0)", "SystemExit"),
        ("open('/etc/shadow').read()", "line 1"),
        ("import socket\nsocket.create_connection(('127.0.0.1', 22), 1)", "line 2"),
    ],
)
def test_what_a_hostile_file_tries_is_the_problems_error(sandbox, source, says):
    began = time.monotonic()
    with pytest.raises(ProblemError, match=says):
        read("p.py", source + TAIL, sandbox)
    assert time.monotonic() - began < 30
