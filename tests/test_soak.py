"""The soak: what it would see if something leaked, and a short one."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from benchmarks.held import held, leaks
from benchmarks.soak import plan, soak
from benchmarks.villains import GUARD, OWN, Hostile, hostile
from evaluator.errors import CandidateError
from evaluator.evaluate import Lab, one_by_one
from evaluator.sandbox import sandbox_level
from kernel_library.verdict import Record

ROOT = Path(__file__).parent.parent


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    """So that nobody else's files are counted."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_nothing_has_leaked_where_nothing_was_left(own_folder):
    before = held(gpu=False)
    assert leaks(before, held(gpu=False)) == []


def test_a_process_a_descriptor_and_a_file_that_are_left_are_each_seen(own_folder):
    before = held(gpu=False)
    (own_folder / "left").mkdir()
    (own_folder / "left" / "file").touch()
    with socket.socket(socket.AF_UNIX):
        left = subprocess.Popen(["/bin/sleep", "60"])
        found = leaks(before, held(gpu=False))
        left.kill()
        left.wait()
    assert [leak.partition(":")[0] for leak in found] == ["processes", "descriptors", "files"]


def test_a_child_that_nobody_waited_for_is_seen_even_dead(own_folder):
    before = held(gpu=False)
    # its own child dies at once, and is never asked how
    left = subprocess.Popen(
        [sys.executable, "-c", "import os, time\nif os.fork() == 0: os._exit(0)\ntime.sleep(60)"]
    )
    time.sleep(0.5)
    now = held(gpu=False)
    left.kill()
    left.wait()
    assert now.processes == before.processes + 2


def test_nothing_of_ours_does_harm_outside_a_namespace_of_its_own():
    kinds = hostile("")
    assert {kind.name for kind in kinds if not kind.harmless} == OWN.keys()
    # the guard alone: what follows it is not to be tried here
    assert os.getpid() != 1
    with pytest.raises(SystemExit, match="harm a host"):
        exec(GUARD)


def lab(passes: Callable[[int], bool]) -> Lab:
    """A judge's stages without a judge: the n-th candidate passes, or does not."""
    seen = count()

    def run(op, candidate, points):
        if not passes(next(seen)):
            raise CandidateError("smoke", "as asked")
        return ()

    return Lab(
        Record("interpreted", "namespaces"),
        screen=lambda op, candidate: None,
        smoke=lambda op: [],
        matrix=lambda op, candidate: [],
        timed=lambda op: [],
        record=lambda op, candidate, points: (),
        measure=lambda op, points, recordings: ((), ()),
        finish=one_by_one(run, lambda op, points, recordings: ((), ())),
        deep=lambda op, candidate: (),
    )


def test_an_honest_kernel_that_is_told_otherwise_once_is_a_fault():
    alone, turns = ("passed", "() ()"), plan(3, 99, [])
    assert soak(lab(lambda n: True), alone, turns).faults == []
    (fault,) = soak(lab(lambda n: n != 1), alone, turns).faults
    assert fault.startswith("evaluation 2, honest: rejected smoke")


def test_a_villain_that_is_let_through_is_a_fault():
    turns = plan(3, 3, [Hostile("bomb", "", "rejected")])
    (fault,) = soak(lab(lambda n: True), ("passed", "() ()"), turns, jobs=2).faults
    assert fault.startswith("evaluation 3, bomb: passed")


@pytest.mark.slow
@pytest.mark.skipif(sandbox_level() != "namespaces", reason="no namespaces: nothing hostile is run")
def test_after_hostile_candidates_the_verdict_is_the_same_and_nothing_is_left(tmp_path):
    command = [sys.executable, "benchmarks/soak.py", "--evaluations", "6", "--every", "3"]
    done = subprocess.run(
        [*command, "--limit", "8"], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "KERNELWRIGHT_HOME": str(tmp_path)}, timeout=280,
    )  # fmt: skip
    told = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout + done.stderr
    assert told[-1] == "the same verdict each time, and nothing left behind"
    kinds = {line.split("  ")[1].strip() for line in told if " median " in line}
    assert kinds == {"honest", "fork bomb", "memory bomb"}
