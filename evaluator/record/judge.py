"""The judge's end of recording: asks, checks what comes back, and says whose fault a failure is."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256

from pydantic import ValidationError

from evaluator.aten import packet
from evaluator.errors import CandidateError, LabError
from evaluator.inputs import Case, places
from evaluator.isolate import BREAKS, CONTROL, Died, Isolate, works
from evaluator.matrix import describe
from evaluator.record.flow import adrift
from evaluator.record.image import fault, waits
from evaluator.record.outputs import misplaced
from evaluator.record.request import Answer, Asked, Failed, Placed, Point, dump_asked, load_answer
from evaluator.unsaid import kind
from kernel_library.candidate import Candidate
from kernel_library.spec import OpSpec, Shape, Workload
from kernel_library.tape import FREE_CALLS, Call, Recording, Tape
from kernel_library.verdict import Stage

JOB = "evaluator.record.job:main"
#: Settings of a candidate's own autotuner that are judged.
MOST_SETTINGS = 64
#: A first compile takes about half a second, a large matmul several; a machine may be busy.
SECONDS, SECONDS_A_POINT = 60.0, 5.0
#: Characters of a reason: what a recorder sends may be forged, and go on for megabytes.
LONGEST = 2000
#: What is told of a failure where it is not told at which point.
HIDDEN = "at a hidden size or memory layout"

Request = tuple[Workload, Case]


def record(
    op: OpSpec, candidate: Candidate, requests: Sequence[Request], isolate: Isolate, arch: int = 90
) -> tuple[Recording, ...]:
    """A recording for each request, compiled for the architecture; no GPU and no data needed.

    Raises CandidateError (stages `record`, `resources`) and LabError. What is raised at hidden
    sizes keeps its message to itself.
    """
    # all of them twice, in one process: a launcher that remembers shows it
    answer = _ask(op, candidate, [*requests, *requests], isolate, arch)
    public = [(at, case) for at, case in requests if at in op.workloads]
    if answer.failed and len(public) == len(requests):
        raise _theirs(answer.failed)
    if answer.failed:
        if public:
            record(op, candidate, public, isolate, arch)
        classes = {describe(op, at, case) for at, case in requests}
        raise _unsaid(answer.failed, classes.pop() if len(classes) == 1 else HIDDEN)
    if len(answer.tapes) != 2 * len(requests):
        raise CandidateError("record", "the recorder's answer was tampered with")
    binaries = _binaries(answer)
    tapes, again = answer.tapes[: len(requests)], answer.tapes[len(requests) :]
    for tape, (at, case) in zip(tapes, requests, strict=True):
        _check(op, at, case, tape)
    # not by value, for NaN is not itself
    if repr(tapes) != repr(again):
        told = "does something else when it is called again on inputs of the same sizes"
        raise CandidateError("record", told)
    return tuple(
        Recording(tape, {launch.binary: binaries[launch.binary] for launch in tape.launches})
        for tape in tapes
    )


def variants(op: OpSpec, candidate: Candidate, isolate: Isolate) -> tuple[Candidate, ...]:
    """One candidate for each setting of its own autotuner; itself where it has none.

    As many as there are where its pruning leaves the most of them. Raises `CandidateError`.
    """
    asked = [(at, Case(seed=0)) for at in op.workloads]
    count = _ask(op, candidate, asked, isolate, 90).configs
    if count < 2:
        return (candidate,)
    return tuple(
        replace(candidate, pick=pick, why=f"setting {pick + 1} of {count} of its own autotuner")
        for pick in range(min(count, MOST_SETTINGS))
    )


def _ask(
    op: OpSpec, candidate: Candidate, requests: Sequence[Request], isolate: Isolate, arch: int
) -> Answer:
    asked = Asked(
        candidate.source,
        candidate.entry,
        tuple(_point(op, candidate, at, case) for at, case in requests),
        lists=tuple(name for name, t in op.inputs.items() if t.count is not None),
        arch=arch,
        pick=candidate.pick,
    )
    seconds = SECONDS + SECONDS_A_POINT * len(requests)
    outcome = isolate(JOB, dump_asked(asked), seconds)
    if isinstance(outcome, Died):
        raise _died(outcome, seconds, isolate)
    try:
        return load_answer(outcome.body)
    except ValidationError as error:
        raise CandidateError("record", "the recorder's answer was tampered with") from error


def _point(op: OpSpec, candidate: Candidate, at: Workload, case: Case) -> Point:
    inputs = {
        name: tuple(
            Placed(p.shape, p.stride, p.offset, p.room, op.dtype(op.inputs[name], at))
            for p in where
        )
        for name, where in places(op, at, case).items()
    }
    return Point(inputs, op.option_values(at), candidate.config_at(at))


def _died(died: Died, seconds: float, isolate: Isolate) -> Exception:
    match died.how:
        case "timeout":
            return CandidateError("record", f"the launcher did not return within {seconds:.0f} s")
        case "overflow":
            return CandidateError("record", "the launcher wrote more than the recorder accepts")
        case "raised":
            if works(isolate, JOB, dump_asked(Asked(CONTROL, "entry", (Point({}, {}, {}),)))):
                told = f"the recorder fails ({kind(died.error)}), and {BREAKS}"
                return CandidateError("record", told)
            return LabError(f"the recorder failed: {died.error}: {died.text}")
    return CandidateError("record", "the launcher ended its own process, or ran out of memory")


def _theirs(failed: Failed) -> CandidateError:
    stage: Stage = "resources" if failed.error == "OutOfResources" else "record"
    where = f"line {failed.line}: " if failed.line else ""
    return CandidateError(stage, f"{where}{failed.error}: {failed.message}"[:LONGEST])


def _unsaid(failed: Failed, where: str) -> CandidateError:
    """The same where a size is hidden: no more than its kind."""
    return _theirs(replace(failed, error=kind(failed.error), message=where, line=0))


def _binaries(answer: Answer) -> dict[str, bytes]:
    try:
        binaries = {digest: b64decode(text) for digest, text in answer.binaries.items()}
    except ValueError as error:
        raise CandidateError("record", "the recorder's answer was tampered with") from error
    used = {launch.binary for tape in answer.tapes for launch in tape.launches}
    honest = all(sha256(body).hexdigest() == digest for digest, body in binaries.items())
    if not honest or not used <= binaries.keys():
        raise CandidateError("record", "the recorder's answer was tampered with")
    for binary in binaries.values():
        if (told := fault(binary)) is not None:
            raise CandidateError("record", f"a kernel {told}")
    early = {launch.binary for tape in answer.tapes for launch in tape.launches if launch.dependent}
    if not all(waits(binaries[digest]) for digest in early):
        told = "a launch may start before the one ahead of it ends (launch_pdl), and its kernel"
        remedy = "call tl.extra.cuda.gdc_wait() before it touches memory, or leave launch_pdl out"
        raise CandidateError("record", f"{told} never waits: {remedy}")
    return binaries


def _check(op: OpSpec, at: Workload, case: Case, tape: Tape) -> None:
    """The tape keeps the contract: it launches, returns what it must, calls only what it may."""
    public = at if at in op.workloads else None
    for step in tape.steps:
        if isinstance(step, Call) and not _may_call(step.op, op.allows):
            own = not step.op.startswith("aten.")
            remedy = "launch a kernel for it, or have the problem allow it"
            remedy = "call the function that it wraps" if own else remedy
            called = step.op if public else "an op"
            told = f"calls {called}, which this problem bars: {remedy}"
            raise CandidateError("record", told[:LONGEST], public)
    if not any(min(launch.grid) > 0 for launch in tape.launches) and not _is_empty(op, at):
        told = ", for a side of each grid is 0" if tape.launches else ""
        raise CandidateError("record", f"no Triton kernel was launched{told}", public)
    wanted = _wanted(op, at)
    if len(tape.outputs) != len(wanted):
        count = str(len(tape.outputs)) if public else "another number of"
        told = f"returns {count} tensors where the contract has {len(wanted)}"
        raise CandidateError("record", told, public)
    for view, (name, (shape, dtype)) in zip(tape.outputs, wanted.items(), strict=True):
        if view.shape != shape or view.dtype != dtype:
            told = f"{name} is {view.dtype} {list(view.shape)}, not {dtype} {list(shape)}"
            hidden = f"{name} has a wrong shape or dtype at some sizes"
            raise CandidateError("record", told if public else hidden, public)
        if not 0 <= view.buffer < len(tape.buffers):
            raise CandidateError("record", "the recorder's answer was tampered with")
        if tape.buffers[view.buffer].role == "input":
            raise CandidateError("record", f"{name} shares memory with an input", public)
    placed = dict(zip(wanted, tape.outputs, strict=True))
    contiguous = case.layout == "contiguous"
    for told in (*misplaced(placed, contiguous=contiguous), *adrift(op, at, tape, placed)):
        raise CandidateError("record", told, public)


def _wanted(op: OpSpec, at: Workload) -> dict[str, tuple[Shape, str]]:
    """Shape and dtype of each tensor that is returned, by name; those of a list are numbered."""
    names = op.names(at)
    return {
        name if tensor.count is None else f"{name}[{i}]": (shape, op.dtype(tensor, at))
        for name, tensor in op.outputs.items()
        for i, shape in enumerate(tensor.shapes(names))
    }


def _is_empty(op: OpSpec, at: Workload) -> bool:
    """Whether there is nothing to write, or nothing in some input to read."""
    names = op.names(at)
    written = [shape for t in op.written().values() for shape in t.shapes(names)]
    given = [t.shapes(names) for t in op.inputs.values()]
    return any(all(0 in shape for shape in shapes) for shapes in [written, *given])


def _may_call(name: str, allows: Sequence[str]) -> bool:
    return packet(name) in FREE_CALLS or packet(name) in allows or name in allows
