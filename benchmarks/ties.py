"""Does a kernel tie with itself? The health of the clock, on a GPU.

    python benchmarks/ties.py [--trials 100] [--seconds 0.1] [--beside]

Enters one kernel as both arms of a race, `--trials` times at each of the lengths that calibration
knows, and counts the outcomes by the margin that verdicts use here: 95 of 100 must be ties. With
`--beside`, other processes make their contexts on the GPU all the while, as players do, who take no
turn for that. Prints a table last, with the machine and the versions; ends with 1 where there are
too few.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from itertools import count
from pathlib import Path
from statistics import median
from threading import Event

sys.path.insert(0, str(Path(__file__).parent.parent))

import seeds
from evaluator.calibrate import SIZES, calibrate, same_twice
from evaluator.errors import LabError
from evaluator.labs import open_rooms
from evaluator.play.job import gpu
from evaluator.play.judge import START_S, ask
from evaluator.play.statistics import versus
from evaluator.play.timing import Clock
from evaluator.play.wire import Request
from kernel_library.device import Device
from kernel_library.unit import discover
from worker.judging import known_device
from worker.settings import Settings

#: The share of ties that a clock must give to be trusted.
LEAST = 0.95


def row(clock: Clock, device: Device, size: int, trials: int, seconds: float) -> tuple[str, bool]:
    """A line for one length, and whether there were ties enough."""
    heats = [same_twice(clock, size, seconds) for _ in range(trials)]
    us = median(median(heat.samples[0]) for heat in heats)
    margin = device.margin(us)
    found = [versus(*heat.samples, margin) for heat in heats]
    counts = Counter(one.outcome for one in found)
    widest = max(one.high / one.low - 1 for one in found)
    told = ", ".join(f"{counts[name]} {name}" for name in ("win", "tie", "loss"))
    line = f"{us:8.1f} us   margin {margin:.2%}   widest interval {widest:.2%}   {told}"
    return line, counts["tie"] >= LEAST * trials


@contextmanager
def starts() -> Iterator[Iterator[int]]:
    """Players start, one after another, and end at once; what is next of this is their number."""
    made, ended = count(), Event()
    op = next(iter(discover(seeds))).spec
    with open_rooms() as rooms, ThreadPoolExecutor(1) as pool:
        request = Request(op, (), {}, str(rooms.turns.folder))

        def start_on() -> None:
            while not ended.is_set():
                ask(request, (), rooms.player, START_S)
                next(made)

        ask(request, (), rooms.player, START_S)  # its zygote starts
        running = pool.submit(start_on)
        try:
            yield made
        finally:
            ended.set()
            running.result()


def main() -> None:
    """Race, count, and print what came of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--beside", action="store_true")
    asked = parser.parse_args()
    try:
        device = known_device(Settings().device_path) or calibrate()
    except LabError as error:
        sys.exit(str(error))
    with starts() if asked.beside else nullcontext(count()) as made:
        clock = Clock(gpu(), device.l2_bytes)
        rows = [row(clock, device, size, asked.trials, asked.seconds) for size in SIZES]
    versions = " ".join(f"{name} {v}" for name, v in device.versions.items())
    print(f"{device.name}; {versions}; {asked.trials} A/A races of {asked.seconds} s")
    print(f"contexts made meanwhile: {next(made)}")
    print("\n".join(line for line, _ in rows))
    sys.exit(0 if all(enough for _, enough in rows) else 1)


if __name__ == "__main__":
    main()
