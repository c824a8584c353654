"""How often does the judge refuse a right kernel?

    python benchmarks/refusals.py [--times 6] [--jobs 1] [--only NAME] [--seconds 600]

Judges each seed and each honest trial of the red team `--times` times, `--jobs` at once: each time
under another secret, and so at other hidden sizes, options, layouts and values. They are as many as
a verdict for the library has, but nothing is raced and no deep check is made. None begins after
`--seconds`. Prints each refusal as it comes, a line for each kernel refused last, with the machine
and the versions, and ends with 1 for any.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import seeds
from evaluator.evaluate import Lab, evaluate
from evaluator.labs import interpreted_lab, replayed_lab
from evaluator.redteam import trials
from kernel_library.candidate import Candidate
from kernel_library.spec import OpSpec
from kernel_library.unit import discover
from kernel_library.verdict import Passed
from worker.judging import QUICK, Judge, open_judge
from worker.settings import Settings


def right(device: str | None) -> Iterator[tuple[str, OpSpec, Candidate]]:
    """The kernels that must pass, by name, each with its op."""
    for unit in discover(seeds):
        yield f"seeds/{unit.op.name}", unit.spec, unit.candidate(device=device)
    for trial in trials("honest/"):
        yield str(trial), trial.op, trial.candidate


def lab_of(judge: Judge) -> Lab:
    """Every case that a verdict for the library has, of a secret of its own; the shortest times."""
    if judge.device:
        return replayed_lab(judge.rooms, judge.device, QUICK)
    return interpreted_lab(judge.rooms)


def main() -> int:
    """Judge, and count."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=6)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=600.0)
    asked = parser.parse_args()
    started, refused = time.perf_counter(), Counter[str]()
    with open_judge(Settings().device_path) as judge:
        device = judge.device.name if judge.device else None
        labs = [lab_of(judge) for _ in range(asked.times)]
        kernels = [kernel for kernel in right(device) if asked.only in kernel[0]]

        def one(kernel: tuple[str, OpSpec, Candidate], lab: Lab) -> Passed | None:
            if time.perf_counter() - started > asked.seconds:
                return None
            name, op, candidate = kernel
            verdict = evaluate(op, candidate, lab)
            if isinstance(verdict, Passed):
                return verdict
            refused[name] += 1
            print(f"{name} was rejected at {verdict.stage}: {verdict.reason}", flush=True)
            return None

        with ThreadPoolExecutor(asked.jobs) as pool:
            told = [pool.submit(one, kernel, lab) for lab in labs for kernel in kernels]
            passed = [verdict for each in told if (verdict := each.result())]
    cases = sum(checked.cases for verdict in passed for checked in verdict.checked)
    versions = " ".join(f"{n} {v}" for n, v in labs[0].record_of.versions.items())
    print(f"{device or 'no GPU (interpreted)'}; {versions}")
    for kernel, count in refused.most_common():
        print(f"  {kernel}: {count} of {asked.times} refused")
    ran, took = len(passed) + refused.total(), time.perf_counter() - started
    print(f"{refused.total()} of {ran} right answers refused, of {len(kernels)} kernels")
    print(f"{cases} cases passed, in {took:.0f} s, {asked.jobs} at a time")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
