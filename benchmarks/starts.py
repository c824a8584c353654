"""What does a candidate cost before it plays: its recorder, and a player that plays nothing?

    python benchmarks/starts.py [--each 16] [--op rms_norm]

Starts `--each` of both, 1, 4, 8 and 16 at a time: how long one takes, and how many a minute. The
judge cannot be faster than that: a candidate takes a recorder for each dozen sizes, and one player.
A player's part needs a GPU. Prints a table last.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from statistics import median

import seeds
from evaluator import matrix
from evaluator.cores import cores
from evaluator.labs import DEFAULT_ARCH, open_rooms
from evaluator.play.judge import START_S, ask
from evaluator.play.wire import Request
from evaluator.record import record
from kernel_library.unit import discover
from worker.judging import has_gpu

TOGETHER = (1, 4, 8, 16)


def row(what: str, act: Callable[[int], object], each: int, together: int) -> str:
    """A line for so many at a time."""

    def one(number: int) -> float:
        started = time.perf_counter()
        act(number)
        return time.perf_counter() - started

    started = time.perf_counter()
    with ThreadPoolExecutor(together) as pool:
        took = list(pool.map(one, range(each)))
    rate = 60 * each / (time.perf_counter() - started)
    return (
        f"  {what:9s} {together:3d} at a time   median {median(took):6.2f} s   {rate:7.1f} a minute"
    )


def main() -> None:
    """Start them, and print what it took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--each", type=int, default=16)
    parser.add_argument("--op", default="rms_norm")
    asked = parser.parse_args()
    unit = next(unit for unit in discover(seeds) if unit.op.name == asked.op)
    op, candidate, point = unit.spec, unit.candidate(), matrix.smoke(unit.spec)
    with open_rooms() as rooms:
        turns = str(rooms.turns.folder)

        def recorder(number: int) -> None:
            fresh = replace(candidate, source=f"{candidate.source}\n# {number}\n")
            record(op, fresh, [point], rooms.recorder, DEFAULT_ARCH)

        def player(_: int) -> None:
            ask(Request(op, (), {}, turns), (), rooms.player, START_S)

        kinds = {"recorder": recorder} | ({"player": player} if has_gpu() else {})
        for act in kinds.values():
            act(-1)  # its zygote starts
        lines = [
            row(what, act, asked.each, together)
            for what, act in kinds.items()
            for together in TOGETHER
        ]
    print(f"{cores()} CPU cores, {platform.machine()}")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
