"""The judge's labs: with a GPU, candidates are recorded and replayed; without one, interpreted.

A lab holds the zygotes and the secret from which hidden sizes and seeds follow; nothing that a
candidate can reach holds either.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from threading import BoundedSemaphore, Lock
from time import perf_counter

import torch
import triton

from evaluator import matrix, screen
from evaluator.cores import cores
from evaluator.deep.points import everywhere, ragged
from evaluator.deep.running import Sanitize, sanitize
from evaluator.deep.stage import Bench, look
from evaluator.evaluate import (
    LEFT_OUT,
    Finish,
    Finished,
    Lab,
    Recordings,
    Timed,
    one_by_one,
)
from evaluator.hidden import INTERPRETED, REPLAYED, Budget, setting
from evaluator.inputs import Case, size_of
from evaluator.intake import Graphs
from evaluator.interpret.judge import check_interpreted
from evaluator.isolate import Isolate
from evaluator.layouts import LAYOUTS, NUMBERED
from evaluator.matrix import Point
from evaluator.play.judge import replay
from evaluator.play.wire import Pace, Race, Reply, Take
from evaluator.record import record
from evaluator.sandbox import Zygote
from evaluator.turns import Turns
from kernel_library.candidate import Candidate
from kernel_library.device import Device
from kernel_library.spec import OpSpec
from kernel_library.tape import Recording
from kernel_library.verdict import Checked, Mechanism, Record, SandboxLevel

#: What a machine without a GPU compiles for: Hopper.
DEFAULT_ARCH = 90
INTERPRETER = ("torch", "torch._dynamo", "triton", "evaluator.primed", "evaluator.interpret.job")
PLAYER = ("torch", "triton", "evaluator.play.job")
#: Players at a time, each with a CUDA context and the memory of a candidate's workloads.
MOST_PLAYERS, MEMORY_EACH = 16, 6 << 30
NOT_DEEP = (
    "without a GPU, not looked into: accesses outside buffers, races, reads of unwritten memory,"
    " repeats, bent values and layouts at real sizes, launches without an effect,"
    " offsets beyond 2^31 elements"
)
#: Points that one recorder compiles for, about: for a few more there is none of their own. Of
#: rms_norm, 40 with 33 kernels took 4.6 s of a core by twelves as they came, 4.3 alike ones
#: together, 3.9 by twenties (two CPU cores, Triton 3.8.0).
TOGETHER = 20
#: Candidates whose recordings are kept between their stages: as many as are judged at a time.
REMEMBERED = 32


@dataclass(frozen=True, slots=True)
class Rooms:
    """The processes of one judge: for strangers' Python, for its interpreter, for the GPU.

    `seats` bounds the players at a time, `desks` the recorders: they compile, a core each.
    """

    recorder: Isolate
    interpreter: Isolate
    player: Isolate
    level: SandboxLevel
    turns: Turns
    confinement: tuple[Mechanism, ...] = ()
    seats: BoundedSemaphore = field(default_factory=lambda: BoundedSemaphore(players()))
    desks: BoundedSemaphore = field(default_factory=lambda: BoundedSemaphore(cores()))


def players(most: int | None = None, memory: int | None = None) -> int:
    """How many players may run at a time: one a core, as far as the GPU's memory goes."""
    if memory is None:
        here = torch.cuda.is_available()
        memory = torch.cuda.get_device_properties(0).total_memory if here else 0
    return max(1, min(MOST_PLAYERS, most or cores(), memory // MEMORY_EACH))


@contextmanager
def open_rooms(turns: Path | None = None) -> Iterator[Rooms]:
    """The zygotes, each started when it is first asked, and all ended at the end.

    `turns` is the folder by which all judges of this host take turns at its GPU; without one, this
    judge takes turns with itself alone.
    """
    with ExitStack() as stack:
        folder = turns or Path(stack.enter_context(TemporaryDirectory(prefix="kernelwright-")))
        recorder = stack.enter_context(Zygote())
        interpreter = stack.enter_context(Zygote(INTERPRETER, {"TRITON_INTERPRET": "1"}))
        # one queue a context, for nothing here runs beside itself: 408 contexts a minute for 270
        quiet = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1", "CUDA_DEVICE_MAX_CONNECTIONS": "1"}
        player = stack.enter_context(Zygote(PLAYER, quiet, confined=False))
        yield Rooms(
            recorder, interpreter, player, recorder.level, Turns(folder), recorder.walls
        )  # fmt: skip


class Tapes:
    """Recordings of the last candidates: each point once, all that are missing at once."""

    def __init__(self, rooms: Rooms, arch: int) -> None:
        self._isolate, self._desks, self._arch = rooms.recorder, rooms.desks, arch
        self._known: OrderedDict[str, dict[str, Recording]] = OrderedDict()
        self._lock = Lock()

    def __call__(self, op: OpSpec, candidate: Candidate, points: Sequence[Point]) -> Recordings:
        """A recording for each point, in order."""
        known = self._of(candidate.digest)
        missing = {_key(p): p for p in points if _key(p) not in known}
        # what fails at a public size may be told, so those come first; then alike points, for a
        # recorder compiles once what they share
        first = sorted(
            missing.values(),
            key=lambda p: (not matrix.is_public(op, p[0]), setting(p[0]), size_of(op, p[0])),
        )
        size = -(-len(first) // max(1, round(len(first) / TOGETHER))) or 1
        parts = [first[i : i + size] for i in range(0, len(first), size)]

        def made(part: Sequence[Point]) -> Recordings:
            with self._desks:
                return record(op, candidate, part, self._isolate, self._arch)

        with ThreadPoolExecutor(max(1, len(parts))) as pool:
            for part, recordings in zip(parts, pool.map(made, parts), strict=True):
                known.update(zip(map(_key, part), recordings, strict=True))
        return tuple(known[_key(p)] for p in points)

    def _of(self, digest: str) -> dict[str, Recording]:
        with self._lock:
            known = self._known.setdefault(digest, {})
            self._known.move_to_end(digest)
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
            return known


def interpreted_lab(rooms: Rooms, secret: int | None = None) -> Lab:
    """A lab without a GPU: right or not on small data, compiled for sm_90, and no times."""
    secret = secrets.randbits(62) if secret is None else secret
    graphs, tapes = Graphs(rooms.recorder), Tapes(rooms, DEFAULT_ARCH)

    def run(op: OpSpec, candidate: Candidate, points: Sequence[Point]) -> tuple[Checked, ...]:
        whole = graphs(op, [at for at, _ in points])
        return check_interpreted(whole, candidate, points, rooms.interpreter)

    told = Record(
        "interpreted", rooms.level, versions=versions(), checks=_checks(INTERPRETED),
        layouts=LAYOUTS, confinement=rooms.confinement,
    )  # fmt: skip
    lab = _lab(told, secret, INTERPRETED, tapes, one_by_one(run, _untimed))
    return replace(lab, able=graphs.able)


def replayed_lab(
    rooms: Rooms, device: Device, pace: Pace, secret: int | None = None, budget: Budget = REPLAYED,
    sanitizer: Sanitize = sanitize,
) -> Lab:  # fmt: skip
    """A lab for a calibrated GPU, which times at this pace and tries as much as the budget allows.

    Several threads may judge in it at once: they compile and check side by side, and a measurement
    has the GPU to itself.
    """
    secret = secrets.randbits(62) if secret is None else secret
    graphs, tapes = Graphs(rooms.recorder), Tapes(rooms, device.target.arch)

    def taken(
        op: OpSpec, candidate: Candidate, points: Sequence[Point]
    ) -> tuple[OpSpec, list[Take]]:
        recordings = tapes(op, candidate, points)
        return graphs(op, [at for at, _ in points]), _takes(points, recordings)

    def look_deep(op: OpSpec, candidate: Candidate) -> tuple[str, ...]:
        able, smoke = partial(graphs.able, op), matrix.smoke(op, secret)
        tiny = able(_points(op, candidate, secret, INTERPRETED))
        whole = [smoke, *able(_points(op, candidate, secret, budget))]
        drawn = everywhere(op, secret, [smoke, *ragged(op, tiny)], whole)
        asked = drawn.bent, drawn.long, drawn.vast
        bent, long, vast = map(able, asked)
        lost = sum(map(len, asked)) - len(bent) - len(long) - len(vast)
        with rooms.seats:
            bench = Bench(taken, rooms.recorder, rooms.player, sanitizer, rooms.turns)
            notes = look(op, candidate, replace(drawn, bent=bent, long=long, vast=vast), bench)
        return (*notes, f"{lost} of these sizes {LEFT_OUT}") if lost else notes

    def raced(op: OpSpec, points: Sequence[Point], takes: Sequence[Take], timed: int) -> Reply:
        whole, asked = graphs(op, [at for at, _ in points]), perf_counter()
        with rooms.seats:
            waited = perf_counter() - asked
            reply = replay(whole, takes, rooms.player, rooms.turns, Race(timed, device, pace))
        spent = {**reply.seconds, "wait": reply.seconds.get("wait", 0.0) + waited}
        return replace(reply, seconds=spent)

    def measure(op: OpSpec, points: Sequence[Point], recordings: Recordings) -> Timed:
        reply = raced(op, points, _takes(points, recordings), len(points))
        return reply.measured, reply.notes

    def finish(
        op: OpSpec, candidate: Candidate, points: Sequence[Point],
        timed: Sequence[Point], recordings: Recordings,
    ) -> Finished:  # fmt: skip
        began = perf_counter()
        takes = [*_takes(points, tapes(op, candidate, points)), *_takes(timed, recordings)]
        recorded = perf_counter() - began
        reply = raced(op, [*points, *timed], takes, len(timed))
        spent = {"record": recorded, **reply.seconds}
        return reply.checked, (reply.measured, reply.notes), spent

    told = Record(
        "replayed", rooms.level, device=device.name,
        versions={**versions(), **device.versions}, checks=_checks(budget),
        layouts=LAYOUTS, confinement=rooms.confinement,
    )  # fmt: skip
    lab = _lab(told, secret, budget, tapes, finish)
    return replace(lab, able=graphs.able, measure=measure, deep=look_deep)


def _lab(told: Record, secret: int, budget: Budget, tapes: Tapes, finish: Finish) -> Lab:
    """A lab that times nothing by itself, and looks into nothing deeply."""

    def timed(op: OpSpec) -> Sequence[Point]:
        random = Random(f"timed {secret}")
        real = [at for at in op.workloads if at.role == "measure"]
        return [(at, Case(random.getrandbits(31))) for at in real]

    return Lab(
        record_of=told,
        screen=screen.screen,
        smoke=lambda op: [matrix.smoke(op, secret)],
        matrix=lambda op, candidate: _points(op, candidate, secret, budget),
        timed=timed,
        record=tapes,
        measure=_untimed,
        finish=finish,
        deep=lambda op, candidate: (NOT_DEEP,),
    )


def _untimed(op: OpSpec, points: Sequence[Point], recordings: Recordings) -> Timed:
    return (), ()


def _points(op: OpSpec, candidate: Candidate, secret: int, budget: Budget) -> Sequence[Point]:
    """The matrix, with the candidate's settings among the sizes that its tiles may have."""
    settings = (candidate.config, *(row.config for row in candidate.tuned))
    knobs = [value for setting in settings for value in setting.values()]
    return matrix.matrix(op, candidate.source, secret, budget, hints=knobs)


def versions() -> dict[str, str]:
    """What the verdict depends on."""
    return {"torch": torch.__version__, "triton": triton.__version__}


def _checks(budget: Budget) -> tuple[str, ...]:
    return (
        f"{budget.seeds} seed{'s' * (budget.seeds > 1)} a public size, all from a secret",
        "offset, large, negative, tiny, mixed, zero, tied, one-hot and infinite values",
        "unwritten outputs poisoned, inputs guarded and compared after, repeats equal to the bit",
    )


def _takes(points: Sequence[Point], recordings: Recordings) -> list[Take]:
    return [Take(at, case, tape) for (at, case), tape in zip(points, recordings, strict=True)]


def _key(point: Point) -> str:
    """What a recording depends on: sizes and memory layout, not values."""
    at, case = point
    spread = case.on if case.layout in NUMBERED else 0
    return f"{at} {case.layout} {spread}"
