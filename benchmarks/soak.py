"""Does the judge stay the same after hundreds of candidates, some of which want to ruin it?

    python benchmarks/soak.py [--evaluations 200] [--every 10] [--limit 15] [--jobs 1]

Judges one honest kernel again and again, and every so often a hostile one, `--jobs` at a time,
through the judge that a worker opens, but for three things. There is no screen, for what is spelled
around it must not do harm either. A sandboxed job may take `--limit` seconds, so that what hangs
does not take most of the time. And the first cases of the matrix will do. Prints what was left
behind and each change of verdict, last, and ends with 1 for any. On a host without namespaces the
bombs are not set off, and it says so.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import cycle
from statistics import median

from benchmarks.held import adopt_orphans, descendants, held, leaks, rows, settled
from benchmarks.villains import Hostile, hostile
from evaluator.cores import cores
from evaluator.errors import LabError
from evaluator.evaluate import Lab, evaluate
from evaluator.isolate import Died, Done, Isolate
from evaluator.labs import interpreted_lab, replayed_lab
from evaluator.redteam import trials
from kernel_library.verdict import Verdict
from worker.judging import QUICK, Judge, open_judge
from worker.settings import Settings

(HONEST,) = trials("honest/plain")
#: Cases of the matrix for each candidate: plain ones, at public and at hidden sizes.
CASES = 8
#: How it ended, and what was said.
Told = tuple[str, str]


@dataclass(slots=True)
class Tally:
    """What came of each kind of candidate, how long it took, and what was not as due."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    faults: list[str] = field(default_factory=list)

    def rows(self) -> list[str]:
        """A line for each kind."""
        return [
            f"  {name:22s} {len(took):4d}   median {median(took):6.2f} s   most {max(took):6.2f} s"
            for name, took in self.seconds.items()
        ]


def main() -> None:
    """Judge, and print what is left."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--evaluations", type=int, default=200)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--limit", type=float, default=15.0)
    parser.add_argument("--jobs", type=int, default=1)
    asked = parser.parse_args()
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        with open_judge(Settings().device_path):
            pass  # the GPU's driver, once asked, keeps a context and its descriptors for good
        nothing = held(gpu=False)
        with open_judge(Settings().device_path) as judge:
            gpu, within = judge.device is not None, judge.rooms.level == "namespaces"
            lab = hasty(judge, asked.limit)
            kinds = [v for v in hostile(HONEST.source) if v.harmless or within]
            alone = told(lab, HONEST.source)
            before, zygotes = held(gpu), set(descendants(os.getpid()))
            started = time.perf_counter()
            tally = soak(lab, alone, plan(asked.evaluations, asked.every, kinds), asked.jobs)
            spent = time.perf_counter() - started
            after, lost = settled(before, gpu), zygotes - set(descendants(os.getpid()))
            where = judge.device.name if judge.device else "no GPU (interpreted)"
        # the judge itself may keep a context on the GPU, and torch its memory
        start = replace(nothing, gpu_mib=before.gpu_mib, host_mib=before.host_mib)
        closed = settled(start, gpu)
    left = ["a zygote was lost, and started again"] if lost else []
    left += [*leaks(before, after), *(f"closed: {leak}" for leak in leaks(start, closed))]
    versions = " ".join(f"{name} {v}" for name, v in lab.record_of.versions.items())
    print(f"{where}; {cores()} CPU cores, {platform.machine()}; {versions}")
    print(f"sandbox: {', '.join(lab.record_of.confinement)}")
    if not within:
        print("no namespaces here, so no bomb was set off: see `kernelwright doctor`")
    print(f"{asked.evaluations} evaluations in {spent:.0f} s, {asked.jobs} at a time")
    for line in (*tally.rows(), *rows(before, after, closed), *tally.faults, *left):
        print(line)
    if tally.faults or left:
        raise SystemExit(1)
    print("the same verdict each time, and nothing left behind")


def plan(evaluations: int, every: int, kinds: Sequence[Hostile]) -> list[Hostile | None]:
    """Who is judged when; None stands for the honest kernel."""
    villains = cycle(kinds)
    return [None if n % every else next(villains) for n in range(1, evaluations + 1)]


def soak(lab: Lab, alone: Told, turns: Sequence[Hostile | None], jobs: int = 1) -> Tally:
    """Judge them all; each honest one must be told what it was told `alone`."""
    tally = Tally()
    if alone[0] != "passed":
        tally.faults.append(f"alone: {alone}")

    def judged(number: int) -> tuple[Told, float]:
        villain, started = turns[number - 1], time.perf_counter()
        # the same kernel under another digest, which no cache knows
        source = villain.source if villain else HONEST.source + "\n" * number
        return told(lab, source), time.perf_counter() - started

    with ThreadPoolExecutor(jobs) as pool:
        results = pool.map(judged, range(1, len(turns) + 1))
        for number, (villain, (got, took)) in enumerate(zip(turns, results, strict=True), 1):
            name = villain.name if villain else "honest"
            tally.seconds[name].append(took)
            if (got[0] != villain.due) if villain else (got != alone):
                tally.faults.append(f"evaluation {number}, {name}: {got[0]} {got[1][:300]}")
            if number % 10 == 0:
                print(f"{number} of {len(turns)}, {len(tally.faults)} not as due", file=sys.stderr)
    return tally


def told(lab: Lab, source: str) -> Told:
    """A verdict without its times: what must be the same whenever it is reached."""
    try:
        verdict: Verdict = evaluate(HONEST.op, replace(HONEST.candidate, source=source), lab)
    except LabError as error:
        return "failed", str(error)
    if verdict.kind == "passed":
        return "passed", f"{verdict.checked} {verdict.kernels}"
    return "rejected", f"{verdict.stage}: {verdict.reason}"


def hasty(judge: Judge, limit: float) -> Lab:
    """The judge's quick lab: no screen, fewer cases, and no sandboxed job that takes longer.

    The player keeps its own limits, by which it tells a hang of the device from a loss of the GPU.
    """

    def within(isolate: Isolate) -> Isolate:
        def run(job: str, request: bytes, seconds: float) -> Done | Died:
            return isolate(job, request, min(seconds, limit))

        return run

    rooms = judge.rooms
    rooms = replace(rooms, recorder=within(rooms.recorder), interpreter=within(rooms.interpreter))
    lab = replayed_lab(rooms, judge.device, QUICK) if judge.device else interpreted_lab(rooms)
    return replace(
        lab,
        screen=lambda op, candidate: None,
        matrix=lambda op, candidate: lab.matrix(op, candidate)[:CASES],
    )


if __name__ == "__main__":
    main()
