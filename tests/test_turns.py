"""Checks share the GPU; a measurement has it alone; among threads as among processes."""

import multiprocessing
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from evaluator.errors import HangError
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


def test_contexts_are_made_one_at_a_time_whoever_has_a_turn(tmp_path: Path):
    turns, lock, now, most = Turns(tmp_path), threading.Lock(), [0], [0]

    def start(_: int) -> None:
        with turns.starting():
            with lock:
                now[0] += 1
                most[0] = max(most[0], now[0])
            time.sleep(0.005)
            with lock:
                now[0] -= 1

    with turns.alone(), ThreadPoolExecutor(6) as pool:
        list(pool.map(start, range(12)))
    assert most == [1]


def test_what_was_waited_for_a_turn_is_counted(tmp_path: Path):
    mine, others = Turns(tmp_path), Turns(tmp_path)
    with others.shared(), mine.shared():
        pass
    assert mine.waited < 0.1
    holding = threading.Event()

    def hold() -> None:
        with others.alone():
            holding.set()
            time.sleep(0.2)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(hold)
        holding.wait()
        with mine.shared():
            assert mine.waited >= 0.1


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


def hang(folder: Path) -> None:
    with pytest.raises(HangError), Turns(folder).shared():
        raise HangError("smoke", "does not finish")
    time.sleep(60)


def test_a_turn_whose_device_code_hangs_is_given_back_by_the_end_of_its_process(tmp_path: Path):
    other = spawn.Process(target=hang, args=(tmp_path,), daemon=True)
    other.start()
    assert eventually(lambda: (tmp_path / "gpu.lock").exists())
    got = threading.Event()

    def measure() -> None:
        with Turns(tmp_path).alone():
            got.set()

    thread = threading.Thread(target=measure)
    thread.start()
    assert not got.wait(0.5)
    os.kill(other.pid, signal.SIGKILL)
    assert got.wait(5)
    thread.join()
    other.join()


def eventually(is_so, seconds: float = 30.0) -> bool:
    until = time.monotonic() + seconds
    while not is_so() and time.monotonic() < until:
        time.sleep(0.01)
    return is_so()


def test_a_turn_is_not_held_by_a_process_that_was_forked_within_it(tmp_path: Path):
    with Turns(tmp_path).alone():
        # as a fork would have it: another descriptor of the same opening
        opened = next(
            int(fd.name)
            for fd in Path("/proc/self/fd").iterdir()
            if fd.is_symlink() and fd.readlink() == tmp_path / "gpu.lock"
        )
        copy = os.dup(opened)
    with Turns(tmp_path).alone():
        os.close(copy)


def test_a_process_in_another_folder_is_told_of_the_same_locks(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Turns(Path("turns")).folder == tmp_path / "turns"


def test_a_turn_that_fails_is_given_back(tmp_path: Path):
    turns = Turns(tmp_path)
    for turn in (turns.alone, turns.shared):
        with pytest.raises(ValueError, match="as asked"), turn():
            raise ValueError("as asked")
    with turns.alone():
        pass
