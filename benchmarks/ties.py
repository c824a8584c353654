"""Does a kernel tie with itself? The health of the clock, on a GPU.

    python benchmarks/ties.py [--trials 100] [--seconds 0.1]

Enters one kernel as both arms of a race, `--trials` times at each of the lengths that calibration
knows, and counts the outcomes by the margin that verdicts use here: 95 of 100 must be ties. Prints
a table last, with the machine and the versions; ends with 1 where there are too few.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent.parent))

from evaluator.calibrate import SIZES, calibrate, same_twice
from evaluator.errors import LabError
from evaluator.play.job import gpu
from evaluator.play.statistics import versus
from evaluator.play.timing import Clock
from kernel_library.device import Device
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


def main() -> None:
    """Race, count, and print what came of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=0.1)
    asked = parser.parse_args()
    try:
        device = known_device(Settings().device_path) or calibrate()
    except LabError as error:
        sys.exit(str(error))
    clock = Clock(gpu(), device.l2_bytes)
    rows = [row(clock, device, size, asked.trials, asked.seconds) for size in SIZES]
    versions = " ".join(f"{name} {v}" for name, v in device.versions.items())
    print(f"{device.name}; {versions}; {asked.trials} A/A races of {asked.seconds} s")
    print("\n".join(line for line, _ in rows))
    sys.exit(0 if all(enough for _, enough in rows) else 1)


if __name__ == "__main__":
    main()
