"""Does the judge stay the same after hundreds of candidates, some of which want to ruin it?

    python benchmarks/soak.py [--evaluations 200] [--every 10] [--limit 10]

Judges one honest kernel again and again, and every so often a hostile one, in a row, through the
judge that a worker opens. Only the screen is left out, for what is spelled around it must not do
harm either, and a sandboxed job may take `--limit` seconds, so that what hangs does not take most
of the time. Prints what was left behind and each change of verdict, last; ends with 1 for any of
these, and with 2 on a host without namespaces, where nothing hostile is run.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from itertools import cycle
from statistics import median

from benchmarks.held import adopt_orphans, held, leaks, rows, settled
from benchmarks.villains import hostile
from evaluator.errors import LabError
from evaluator.evaluate import Lab, evaluate
from evaluator.isolate import Died, Done, Isolate
from evaluator.labs import interpreted_lab, replayed_lab
from evaluator.redteam import trials
from kernel_library.candidate import Candidate
from kernel_library.spec import OpSpec
from kernel_library.verdict import Verdict
from worker.judging import QUICK, Judge, open_judge
from worker.settings import Settings

(HONEST,) = trials("honest/plain")


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
    parser.add_argument("--limit", type=float, default=10.0)
    asked = parser.parse_args()
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        nothing = held(gpu=False)
        with open_judge(Settings().device_path) as judge:
            if judge.rooms.level != "namespaces":
                print("no namespaces here, so nothing hostile is run: see `kernelwright doctor`")
                raise SystemExit(2)
            gpu = judge.device is not None
            lab = hasty(judge, asked.limit)
            alone = told(lab, HONEST.op, HONEST.candidate)
            before = held(gpu)
            started = time.perf_counter()
            tally = soak(lab, alone, asked.evaluations, asked.every)
            spent = time.perf_counter() - started
            after = settled(before, gpu)
            where = judge.device.name if judge.device else "no GPU (interpreted)"
        # the judge itself may keep a context on the GPU, and torch its memory
        start = replace(nothing, gpu_mib=before.gpu_mib, host_mib=before.host_mib)
        closed = settled(start, gpu)
    left = [*leaks(before, after), *(f"closed: {leak}" for leak in leaks(start, closed))]
    versions = " ".join(f"{name} {v}" for name, v in lab.record_of.versions.items())
    print(f"{where}; {os.cpu_count()} CPU cores, {platform.machine()}; {versions}")
    print(f"sandbox: {', '.join(lab.record_of.confinement)}")
    print(f"{asked.evaluations} evaluations in {spent:.0f} s")
    print("\n".join([*tally.rows(), *rows(before, after, closed)]))
    print(
        "\n".join([*tally.faults, *left]) or "the same verdict each time, and nothing left behind"
    )
    raise SystemExit(bool(tally.faults or left))


def soak(lab: Lab, alone: tuple[str, str], evaluations: int, every: int) -> Tally:
    """Judge so many in a row; each honest one must be told what it was told `alone`."""
    tally, villains = Tally(), cycle(hostile(HONEST.source))
    if alone[0] != "passed":
        tally.faults.append(f"alone: {alone}")
    for number in range(1, evaluations + 1):
        villain = next(villains) if number % every == 0 else None
        # the same kernel under another digest, which no cache knows
        source = villain.source if villain else HONEST.source + "\n" * number
        name = villain.name if villain else "honest"
        started = time.perf_counter()
        got = told(lab, HONEST.op, replace(HONEST.candidate, source=source))
        tally.seconds[name].append(time.perf_counter() - started)
        if (got[0] != villain.due) if villain else (got != alone):
            tally.faults.append(f"evaluation {number}, {name}: {got[0]} {got[1][:300]}")
    return tally


def told(lab: Lab, op: OpSpec, candidate: Candidate) -> tuple[str, str]:
    """A verdict without its times: what must be the same whenever it is reached."""
    try:
        verdict: Verdict = evaluate(op, candidate, lab)
    except LabError as error:
        return "failed", str(error)
    if verdict.kind == "passed":
        return "passed", f"{verdict.checked} {verdict.kernels} {verdict.record.checks}"
    return "rejected", f"{verdict.stage}: {verdict.reason}"


def hasty(judge: Judge, limit: float) -> Lab:
    """The judge's quick lab without its screen, that waits for no sandboxed job longer.

    The player keeps its own limits, by which it tells a hang of the device from a loss of the GPU.
    """

    def within(isolate: Isolate) -> Isolate:
        def run(job: str, request: bytes, seconds: float) -> Done | Died:
            return isolate(job, request, min(seconds, limit))

        return run

    rooms = judge.rooms
    rooms = replace(rooms, recorder=within(rooms.recorder), interpreter=within(rooms.interpreter))
    lab = replayed_lab(rooms, judge.device, QUICK) if judge.device else interpreted_lab(rooms)
    return replace(lab, screen=lambda op, candidate: None)


if __name__ == "__main__":
    main()
