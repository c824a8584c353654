"""How many candidates a minute does the judge handle, and where does the time go?

    python benchmarks/judge.py [--candidates 12] [--op rms_norm] [--jobs 1] [--seconds 600]

Judges the same kernel under as many digests, `--jobs` of them at a time, through every stage of a
quick verdict: each class of sizes, layouts and values, at half of the hidden sizes that a verdict
for the library has and at smaller ones where values or layouts are others (`QUICK_CASES`), and, on
a GPU, quick timing (no baselines). The first one warms the zygotes and the reference's graphs, and
is left out; none begins after `--seconds`. Prints a table last, with the machine and the versions.
A stage's seconds leave out what was spent waiting for others, for a player's seat or a turn at the
GPU: that is `wait`; `start` is a player's context.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import median

import seeds
from evaluator.cores import cores
from kernel_library.unit import discover
from kernel_library.verdict import Passed
from worker.judging import open_judge
from worker.settings import Settings


def main() -> None:
    """Judge, and print what it took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--candidates", type=int, default=12)
    parser.add_argument("--op", default="rms_norm")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=600.0)
    asked = parser.parse_args()
    unit = next(unit for unit in discover(seeds) if unit.op.name == asked.op)
    with open_judge(Settings().device_path) as judge:
        device = judge.device.name if judge.device else "no GPU (interpreted)"
        candidate = unit.candidate(device=judge.device.name if judge.device else None)

        def one(number: int) -> Passed:
            verdict = judge(
                unit.spec, replace(candidate, source=f"{candidate.source}\n# {number}\n")
            )
            if not isinstance(verdict, Passed):
                raise SystemExit(f"{asked.op} was rejected at {verdict.stage}: {verdict.reason}")
            return verdict

        one(0)
        started, worked = time.perf_counter(), busy()

        def in_time(number: int) -> Passed | None:
            return one(number) if time.perf_counter() - started < asked.seconds else None

        with ThreadPoolExecutor(asked.jobs) as pool:
            verdicts = [v for v in pool.map(in_time, range(1, asked.candidates + 1)) if v]
        took, worked = time.perf_counter() - started, busy() - worked
    last = verdicts[-1]
    cases = sum(checked.cases for checked in last.checked)
    versions = " ".join(f"{name} {v}" for name, v in last.record.versions.items())
    print(f"{asked.op}, {cases} cases and {len(last.measured)} timed workloads a candidate")
    print(f"{device}; {cores()} CPU cores, {platform.machine()}; {versions}")
    for stage in last.record.seconds:
        times = sorted(verdict.record.seconds[stage] for verdict in verdicts)
        print(f"  {stage:8s} median {median(times):7.2f} s   {times[0]:.2f} to {times[-1]:.2f}")
    print(f"{worked / took:.1f} cores of the machine were busy, by all that ran on it")
    rate = f"{60 * len(verdicts) / took:.1f} candidates a minute"
    print(f"{rate}: {len(verdicts)} in {took:.0f} s, {asked.jobs} at a time")


def busy() -> float:
    """Seconds that the machine's cores have worked since its start."""
    user, nice, system, _, _, irq, softirq, *_ = map(
        int, Path("/proc/stat").read_text().split("\n")[0].split()[1:]
    )
    return sum((user, nice, system, irq, softirq)) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
