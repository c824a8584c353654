"""The trusted half of the interpreter path: draws, sends, takes the outputs, then the truth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from pydantic import ValidationError

from evaluator import unsaid
from evaluator.compare import Errors, Mismatch, compare
from evaluator.errors import CandidateError, LabError
from evaluator.inputs import draw, flat
from evaluator.interpret import wire
from evaluator.interpret.wire import RULES
from evaluator.isolate import BREAKS, CONTROL, Died, Isolate, works
from evaluator.matrix import Point, describe, shown, tally
from evaluator.meaningful import excused, holds, said, told
from evaluator.picked import Answers, answers
from kernel_library.candidate import Candidate
from kernel_library.spec import OpSpec
from kernel_library.verdict import Checked, Stage

JOB = "evaluator.interpret.job:main"
#: Calls and input bytes in one job.
CALLS, BYTES = 16, 1 << 26
#: Seconds to start a job: importing torch and Triton where no zygote has done it.
START = 20.0
#: Characters of a reason: what a job sends may be forged, and go on for megabytes.
LONGEST = 2000


def check_interpreted(
    op: OpSpec,
    candidate: Candidate,
    points: Sequence[Point],
    isolate: Isolate,
    *,
    seconds: float = 10.0,
) -> tuple[Checked, ...]:
    """The candidate's errors at these points, the first of which is the smoke test.

    `op` has a graph exported for each workload in `points`; `seconds` is what one call may take.
    Raises `CandidateError` (stage "smoke" or "correct") at the first wrong answer, `LabError` where
    we failed.
    """
    found: list[tuple[Point, Errors]] = []
    for stage, batch in _batches(op, points):
        answer, blobs = _ask(op, candidate, batch, isolate, (stage, seconds))
        found += _judge(op, batch, answer, blobs, stage)
    return tally(op, [(point[0], errors) for point, errors in found])


def _batches(op: OpSpec, points: Sequence[Point]) -> Iterator[tuple[Stage, list[Point]]]:
    """The smoke test by itself, then as many points as one job may have."""
    yield "smoke", list(points[:1])
    rest = list(points[1:])
    for first in range(0, len(rest), CALLS):
        yield "correct", rest[first : first + CALLS]


CONTROL_REQUEST = wire.pack(
    wire.asked_json.dump_json(
        wire.Asked(CONTROL, "entry", (), (), (), (wire.Call((), {}, {}, 0, False),))
    ),
    [],
)


def _ask(
    op: OpSpec,
    candidate: Candidate,
    batch: Sequence[Point],
    isolate: Isolate,
    limits: tuple[Stage, float],
) -> tuple[wire.Answer, memoryview]:
    stage, seconds = limits
    request = _request(op, candidate, batch)
    reply = isolate(JOB, request, START + seconds * len(batch))
    if isinstance(reply, Died):
        raise _blame(reply, stage, seconds, isolate)
    try:
        return wire.unpack(reply.body, wire.answer_json)
    except (ValueError, ValidationError) as error:
        raise CandidateError(stage, "the candidate's process gave no answer") from error


def _blame(died: Died, stage: Stage, seconds: float, isolate: Isolate) -> Exception:
    """Whose fault it is that a job died: only an exception without the candidate is surely ours."""
    match died.how:
        case "timeout":
            return CandidateError(stage, f"takes more than {seconds:g} s a call when interpreted")
        case "killed":
            return CandidateError(stage, "its process was killed: memory, or a forbidden call")
        case "overflow":
            return CandidateError(stage, "returns more data than its outputs can hold")
        case "raised":
            if works(isolate, JOB, CONTROL_REQUEST):
                told = f"the interpreter fails ({unsaid.kind(died.error)}), and {BREAKS}"
                return CandidateError(stage, told)
            return LabError(f"the interpreter job raised {died.error}: {died.text}")


def _request(op: OpSpec, candidate: Candidate, batch: Sequence[Point]) -> bytes:
    calls: list[wire.Call] = []
    blobs: list[bytes] = []
    for at, case in batch:
        drawn = draw(op, at, case, "cpu")
        sent = tuple(tuple(map(_sent, _each(one))) for one in drawn.values())
        blobs += [wire.buffer_of(tensor) for tensor in flat(drawn)]
        calls.append(
            wire.Call(sent, op.option_values(at), candidate.config_at(at), case.poison, case.repeat)
        )
    asked = wire.Asked(
        candidate.source,
        candidate.entry,
        names=tuple(op.inputs),
        lists=tuple(name for name, t in op.inputs.items() if t.count is not None),
        mutates=op.mutates,
        calls=tuple(calls),
        allows=op.allows,
        pick=candidate.pick,
    )
    return wire.pack(wire.asked_json.dump_json(asked), blobs)


def _each(one: torch.Tensor | list[torch.Tensor]) -> list[torch.Tensor]:
    return one if isinstance(one, list) else [one]


def _sent(tensor: torch.Tensor) -> wire.Sent:
    return wire.Sent(
        tuple(tensor.shape),
        tensor.stride(),
        int(tensor.storage_offset()),
        str(tensor.dtype).removeprefix("torch."),
        tensor.untyped_storage().nbytes(),
    )


def _judge(
    op: OpSpec, batch: Sequence[Point], answer: wire.Answer, blobs: memoryview, stage: Stage
) -> Iterator[tuple[Point, Errors]]:
    """The errors of each call that says anything."""
    taken = 0
    for point, result in zip(batch, answer.results, strict=False):
        if result.fault is not None:
            raise _faulty(op, point, result.fault, stage)
        try:
            got, size = wire.tensors(result.tensors, blobs[taken:])
        except ValueError as error:
            raise CandidateError(stage, "the candidate's process gave half an answer") from error
        taken += size
        errors = _compare(op, point, got, stage)
        if errors is not None:
            yield point, errors
    if len(answer.results) < len(batch):
        raise CandidateError(stage, "the candidate's process left calls unanswered")


def _compare(op: OpSpec, point: Point, got: Sequence[torch.Tensor], stage: Stage) -> Errors | None:
    """One call's errors; none where nobody can say what is right (`evaluator.meaningful`)."""
    at, case = point
    graph = op.reference.graphs.get(str(at))
    if graph is None:
        raise LabError(f"the reference has not been exported at {at}")
    args = flat(draw(op, at, case, "cpu"))

    def ask() -> Answers:
        return answers(graph, args)

    wanted = told(op, point, ask, ask)
    if wanted is None:
        return None
    got, wanted = said(got, wanted, op, point)
    try:
        return compare(got, wanted, op.tolerance, names=labels(op, point), poison=case.poison)
    except Mismatch as wrong:
        if not holds(op, point, wanted):
            return None
        if excused(wrong.reason, got, wanted, op, point, args):
            return None
        where = describe(op, at, case)
        reason = f"{wrong.reason} {where}".strip()
        raise CandidateError(stage, reason, shown(op, at)) from None


def labels(op: OpSpec, point: Point) -> list[str]:
    """A name for each tensor that a call gives: outputs, then mutated inputs in call order."""
    names = op.names(point[0])
    written = {n: op.inputs[n] for n in op.inputs if n in op.mutates}
    return [
        name if tensor.count is None else f"{name}[{i}]"
        for name, tensor in [*op.outputs.items(), *written.items()]
        for i in range(len(tensor.shapes(names)))
    ]


def _faulty(op: OpSpec, point: Point, fault: wire.Fault, stage: Stage) -> CandidateError:
    """The fault as a reason; at a hidden workload, in our own words and without its line."""
    at, case = point
    public = shown(op, at)
    line = f"line {fault.line}: " if fault.line and public else ""
    what = fault.what if public else unsaid.fault(fault.what, RULES)
    details = f": {fault.details}" if fault.details and public else ""
    where = describe(op, at, case)
    told = f"{line}{what}{details}"[:LONGEST]
    return CandidateError(stage, f"{told} {where}".strip(), public)
