"""What does the stage before the library see of each seed, and how long does it look?

    python benchmarks/deep.py [NAME ...] [--jobs 1] [--seconds 600] [--sanitize]

Has each seed looked into as deeply as what enters the library, `--jobs` at a time, under a secret
of its own; without `--sanitize` the sanitizers are left out. None begins after `--seconds`. Wants a
GPU. Prints the notes of each with its seconds, then the machine and the
versions, and ends with 1 for any that is rejected.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import seeds
from evaluator.deep.running import Log, sanitize
from evaluator.errors import CandidateError
from evaluator.labs import replayed_lab
from kernel_library.unit import Unit, discover
from worker.judging import QUICK, open_judge
from worker.settings import Settings


def main() -> int:
    """Look, and tell."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--sanitize", action="store_true")
    asked = parser.parse_args()
    tool = sanitize if asked.sanitize else lambda *_: Log(why="left out")
    units = [unit for unit in discover(seeds) if not asked.names or unit.op.name in asked.names]
    started = time.perf_counter()
    with open_judge(Settings().device_path) as judge:
        device = judge.device
        if device is None:
            raise SystemExit("nothing is looked into deeply without a GPU")

        def one(unit: Unit) -> str:
            began = time.perf_counter()
            if began - started > asked.seconds:
                return "not begun"
            lab = replayed_lab(judge.rooms, device, QUICK, sanitizer=tool)
            try:
                notes = lab.deep(unit.spec, unit.candidate(device=device.name))
            except CandidateError as error:
                notes = (f"rejected: {error.reason}",)
            took = f"{unit.op.name}, {time.perf_counter() - began:.1f} s"
            print(took, *notes, sep="\n    ", flush=True)
            return notes[0].partition(":")[0]

        with ThreadPoolExecutor(asked.jobs) as pool:
            told = list(pool.map(one, units))
        print(device.name, *(f"{name} {version}" for name, version in device.versions.items()))
    began, rejected = len(told) - told.count("not begun"), told.count("rejected")
    took = time.perf_counter() - started
    print(f"{rejected} of {began} rejected, {took:.0f} s, {asked.jobs} at a time")
    return 1 if rejected else 0


if __name__ == "__main__":
    sys.exit(main())
