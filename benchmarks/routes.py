"""Does a kernel take as long from its tape as by its own launcher? The fairness of a race.

    python benchmarks/routes.py [--ops softmax,layer_norm,swiglu] [--trials 5] [--seconds 1]

A candidate is played from its tape, on guarded memory that is poisoned before each sample; its
rivals are called as anybody calls them, and allocate as torch does. Here one kernel goes both ways:
a seed, at each workload that is measured, with its setting for this device, in a race on the
judge's clock. Prints a table last, with the machine and the versions; ends with 1 unless nearly all
are ties.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent.parent))

import seeds
from evaluator.calibrate import calibrate
from evaluator.errors import LabError
from evaluator.inputs import Case
from evaluator.intake import export
from evaluator.labs import Rooms, open_rooms
from evaluator.play.check import Players
from evaluator.play.job import gpu
from evaluator.play.race import captured, lay
from evaluator.play.statistics import versus
from evaluator.play.timing import Arm, Clock, capture
from evaluator.play.wire import Take
from evaluator.record import record
from kernel_library.device import Device
from kernel_library.spec import Workload
from kernel_library.unit import Unit, discover
from worker.judging import known_device
from worker.settings import Settings

CASE = Case(seed=7)
#: The share of ties that both routes must give to be the same.
LEAST = 0.95


def routes(unit: Unit, at: Workload, clock: Clock, device: Device, rooms: Rooms) -> list[Arm]:
    """The kernel from its tape, as a race has it, and by its launcher on the inputs of rivals."""
    op, candidate = export(unit.spec, [at], rooms.recorder), unit.candidate(device=device.name)
    (tape,) = record(op, candidate, [(at, CASE)], rooms.recorder, device.target.arch)
    take = Take(at, CASE, tape)
    track = lay(take, Players(op, clock.device).of(take), clock, device, nullcontext)
    call = partial(unit.kernel, **op.option_values(at), **candidate.config_at(at))
    acts = [partial(call, *bound.given.values()) for bound in track.bounds]
    return [captured(track.bounds, track.plan), capture("launcher", acts, track.plan)]


def main() -> None:
    """Race, count, and print what came of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ops", default="softmax,layer_norm,swiglu")
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    asked = parser.parse_args()
    names, known = asked.ops.split(","), {unit.op.name: unit for unit in discover(seeds)}
    if missing := set(names) - known.keys():
        sys.exit(f"there is no seed named {', '.join(sorted(missing))}")
    lines, outcomes = list[str](), Counter[str]()
    try:
        device = known_device(Settings().device_path) or calibrate()
        clock = Clock(gpu(), device.l2_bytes)
    except LabError as error:
        sys.exit(str(error))
    with open_rooms() as rooms:
        for unit in (known[name] for name in names):
            for at in (at for at in unit.op.workloads if at.role == "measure"):
                arms = routes(unit, at, clock, device, rooms)
                heats = [clock.race(arms, asked.seconds) for _ in range(asked.trials)]
                tape, launcher = (median(median(h.samples[i]) for h in heats) for i in (0, 1))
                margin = device.margin(tape)
                found = [versus(*heat.samples, margin).outcome for heat in heats]
                outcomes.update(found)
                told = f"{tape:9.2f} {launcher:9.2f} us   {', '.join(found)}"
                lines.append(f"{unit.op.name:12s} {at!s:28s} {told}")
    versions = " ".join(f"{name} {v}" for name, v in device.versions.items())
    print(f"{device.name}; {versions}; races of {asked.seconds} s; from its tape, by its launcher")
    print("\n".join(lines))
    print(", ".join(f"{outcomes[name]} {name}" for name in ("win", "tie", "loss")))
    sys.exit(0 if outcomes["tie"] >= LEAST * outcomes.total() else 1)


if __name__ == "__main__":
    main()
