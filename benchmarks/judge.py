"""How many candidates a minute does the judge handle, and where does the time go?

    python benchmarks/judge.py [--candidates 12] [--op rms_norm]

Judges the same kernel under as many digests, one after another, through every stage: full
correctness and, on a GPU, quick timing (no baselines). The first one warms the zygotes and the
reference's graphs, and is left out. Prints a table last, with the machine and the versions.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from dataclasses import replace
from statistics import median

import seeds
from kernel_library.unit import discover
from kernel_library.verdict import Passed
from worker.judging import open_judge
from worker.settings import Settings


def main() -> None:
    """Judge, and print what it took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--candidates", type=int, default=12)
    parser.add_argument("--op", default="rms_norm")
    asked = parser.parse_args()
    unit = next(unit for unit in discover(seeds) if unit.op.name == asked.op)
    with open_judge(Settings().device_path) as judge:
        device = judge.device.name if judge.device else "no GPU (interpreted)"
        candidate = unit.candidate(device=judge.device.name if judge.device else None)
        seconds: list[dict[str, float]] = []
        for number in range(asked.candidates + 1):
            fresh = replace(candidate, source=f"{candidate.source}\n# {number}\n")
            started = time.perf_counter()
            verdict = judge(unit.spec, fresh)
            took = time.perf_counter() - started
            if not isinstance(verdict, Passed):
                raise SystemExit(f"{asked.op} was rejected at {verdict.stage}: {verdict.reason}")
            cases = sum(checked.cases for checked in verdict.checked)
            if number:
                seconds.append({**verdict.record.seconds, "all": took})
    versions = " ".join(f"{name} {v}" for name, v in verdict.record.versions.items())
    print(f"{asked.op}, {cases} cases and {len(verdict.measured)} timed workloads a candidate")
    print(f"{device}; {os.cpu_count()} CPU cores, {platform.machine()}; {versions}")
    for stage in seconds[0]:
        times = sorted(s[stage] for s in seconds)
        print(f"  {stage:8s} median {median(times):7.2f} s   {times[0]:.2f} to {times[-1]:.2f}")
    print(f"{60 * len(seconds) / sum(s['all'] for s in seconds):.1f} candidates a minute")


if __name__ == "__main__":
    main()
