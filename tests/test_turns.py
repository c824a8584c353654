"""Checks share the GPU; a measurement has it alone; among threads as among processes."""

import multiprocessing
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from evaluator.turns import Turns

spawn = multiprocessing.get_context("spawn")


def test_a_measurement_is_never_beside_anything_and_checks_are_beside_each_other(tmp_path: Path):
    turns, lock = Turns(tmp_path), threading.Lock()
    now, seen = {"check": 0, "measure": 0}, []

    def use(kind: str) -> None:
        with turns.alone() if kind == "measure" else turns.shared():
            with lock:
                now[kind] += 1
                seen.append(dict(now))
            time.sleep(0.005)
            with lock:
                now[kind] -= 1

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(use, ["check", "check", "measure"] * 20))
    assert all(n["measure"] <= 1 and not (n["measure"] and n["check"]) for n in seen)
    assert max(n["check"] for n in seen) >= 2
    assert len(seen) == 60


def test_a_measurement_that_waits_is_not_starved_by_checks(tmp_path: Path):
    turns, done = Turns(tmp_path), []
    stop = threading.Event()

    def check() -> None:
        while not stop.is_set():
            with turns.shared():
                time.sleep(0.002)

    def measure() -> None:
        with turns.alone():
            done.append(1)

    checks = [threading.Thread(target=check) for _ in range(4)]
    measured = threading.Thread(target=measure)
    for thread in (*checks, measured):
        thread.start()
    measured.join(5)
    stop.set()
    for thread in checks:
        thread.join(5)
    assert done == [1]


def hold(folder: Path, held: "multiprocessing.synchronize.Event") -> None:
    with Turns(folder).alone():
        held.set()
        time.sleep(60)


def test_a_turn_holds_against_other_processes_and_ends_with_its_own(tmp_path: Path):
    held = spawn.Event()
    other = spawn.Process(target=hold, args=(tmp_path, held), daemon=True)
    other.start()
    assert held.wait(30)
    mine = threading.Event()

    def check() -> None:
        with Turns(tmp_path).shared():
            mine.set()

    thread = threading.Thread(target=check)
    thread.start()
    assert not mine.wait(0.2)
    os.kill(other.pid, signal.SIGKILL)
    assert mine.wait(5)
    thread.join()
    other.join()


def test_a_turn_that_fails_is_given_back(tmp_path: Path):
    turns = Turns(tmp_path)
    for turn in (turns.alone, turns.shared):
        with pytest.raises(ValueError, match="as asked"), turn():
            raise ValueError("as asked")
    with turns.alone():
        pass
