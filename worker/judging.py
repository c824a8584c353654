"""The judge of a worker process: its rooms, its device, and the two labs that use them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import triton
from pydantic import ValidationError

from evaluator.admission import admit
from evaluator.calibrate import driver_version
from evaluator.errors import LabError
from evaluator.evaluate import Lab, evaluate
from evaluator.hidden import REPLAYED
from evaluator.intake import export
from evaluator.isolate import Died
from evaluator.labs import Rooms, interpreted_lab, open_rooms, replayed_lab
from evaluator.play.baselines import ALL
from evaluator.play.wire import Pace
from kernel_library.candidate import Candidate
from kernel_library.codec import device_json
from kernel_library.device import Device
from kernel_library.spec import OpSpec
from kernel_library.verdict import Verdict

#: How each candidate of a job is timed, and what its winner is raced against. Some hundred samples
#: of a kernel of 40 us take 0.02 s. All others wait meanwhile: with sixteen at a time it is this,
#: at each workload, that bounds how many candidates a minute are judged.
QUICK = Pace(seconds=0.02)
#: Each free axis still meets each kind of edge over the settings of an op; compiling for a size is
#: the larger part of what a candidate costs. With hidden sizes eight times as large in most cases,
#: the rest cost as much: 67 candidates a minute were judged (16 cores and an H200).
QUICK_CASES = replace(REPLAYED, hidden=4, bent=1 << 17)
CALIBRATE_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class Judge:
    """`quick` judges every candidate, `full` the winner, beside every baseline that runs here."""

    rooms: Rooms
    device: Device | None
    quick: Lab
    full: Lab

    def __call__(self, op: OpSpec, candidate: Candidate) -> Verdict:
        """A quick verdict."""
        return evaluate(op, candidate, self.quick)

    def admit(self, op: OpSpec) -> tuple[str, ...]:
        """The null answers that fail on the problem, as they must. Raises ProblemError."""
        checks = [at for at in op.workloads if at.role == "check"]
        return admit(export(op, checks or op.workloads[:1], self.rooms.recorder))

    def deeply(self, op: OpSpec, candidate: Candidate) -> Verdict:
        """A quick verdict, looked into as deeply as one for the library, without baselines."""
        return evaluate(op, candidate, self.quick, deep=True)

    def confirm(self, op: OpSpec, candidate: Candidate) -> Verdict:
        """A verdict for the library, on hidden sizes and seeds of its own.

        Every baseline is timed beside, and what is too dear for each candidate is looked into.
        """
        return evaluate(op, candidate, self.full, deep=True)


@contextmanager
def open_judge(device_path: Path, arms: tuple[str, ...] = ALL) -> Iterator[Judge]:
    """A judge for this machine: replaying where there is a GPU, else interpreting.

    Calibrates the GPU if that was never done. Raises LabError where the GPU cannot be measured.
    """
    with rooms_beside(device_path) as rooms:
        device = known_device(device_path) or (calibrate(rooms, device_path) if has_gpu() else None)
        if device is None:
            lab = interpreted_lab(rooms)
            yield Judge(rooms, None, lab, lab)
        else:
            quick = replayed_lab(rooms, device, QUICK, budget=QUICK_CASES)
            full = replayed_lab(rooms, device, Pace(arms))
            yield Judge(rooms, device, quick, full)


def rooms_beside(device_path: Path) -> AbstractContextManager[Rooms]:
    """Rooms that take turns at their GPU with every judge that knows its device from this file."""
    gpu = str(torch.cuda.get_device_properties(0).uuid) if has_gpu() else "none"
    return open_rooms(device_path.parent / "turns" / gpu)


def has_gpu() -> bool:
    """Whether this process sees a CUDA GPU."""
    return torch.cuda.is_available()


def known_device(path: Path) -> Device | None:
    """What was measured of this machine's GPU, if it is still the same GPU, driver and software."""
    if not has_gpu() or not path.exists():
        return None
    try:
        device = device_json.validate_json(path.read_text())
    except ValidationError:
        # written by another version of this package: it is measured again
        return None
    now = {"torch": torch.__version__, "triton": triton.__version__, "driver": driver_version()}
    same = now.items() <= device.versions.items()
    return device if same and device.name == torch.cuda.get_device_name(0) else None


def calibrate(rooms: Rooms, path: Path) -> Device:
    """Measure the GPU, and keep what was found. Raises LabError."""
    with rooms.turns.alone():
        outcome = rooms.player("evaluator.calibrate:main", b"", CALIBRATE_SECONDS)
    if isinstance(outcome, Died):
        raise LabError(f"the GPU could not be measured ({outcome.how}): {outcome.text}")
    device = device_json.validate_json(outcome.body)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(device_json.dump_python(device, mode="json"), indent=2))
    return device
