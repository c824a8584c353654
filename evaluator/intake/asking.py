"""The judge's side of the intake job: asks, and turns what went wrong into a problem's error."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

from evaluator.errors import LabError, ProblemError
from evaluator.intake.wire import (
    Ask,
    Call,
    Exported,
    Exports,
    Failure,
    Meta,
    Reply,
    Shown,
    Slot,
    ask_json,
    reply_json,
)
from evaluator.isolate import Died, Isolate
from kernel_library.spec import OpSpec, Workload

JOB = "evaluator.intake.job:main"
#: How long a stranger's file may take to describe itself, or to be exported at so many sizes: an
#: optimiser's step over lists of up to 129 tensors takes 1.5 s each (two CPU cores).
SECONDS, TOGETHER = 60.0, 12


def ask(isolate: Isolate, request: Ask) -> Reply:
    """The job's answer. Raises `ProblemError` where the stranger's code is at fault."""
    outcome = isolate(JOB, ask_json.dump_json(request), SECONDS)
    if isinstance(outcome, Died):
        raise _blame(outcome)
    try:
        reply = reply_json.validate_json(outcome.body)
    except ValidationError as error:
        raise ProblemError("its answer is not what a problem can be", request.path) from error
    if isinstance(reply, Failure):
        raise ProblemError(reply.message, reply.where)
    return reply


def _blame(died: Died) -> Exception:
    if died.how == "timeout":
        return ProblemError(f"the reference did not finish in {SECONDS:.0f} s: make it smaller")
    if died.how == "overflow":
        return ProblemError("the reference's graph is too large: split the problem")
    if died.how == "killed":
        return ProblemError(
            "the reference's process was killed: too much memory, or an exit of its own"
        )
    if died.error in ("SystemExit", "KeyboardInterrupt", "MemoryError", "RecursionError"):
        return ProblemError(f"the reference raised {died.error}")
    return LabError(f"the intake job failed: {died.text[-1500:]}")


def exports(
    isolate: Isolate, source: str, entry: str, calls: Sequence[Call]
) -> tuple[Exported | Failure, ...]:
    """The graph of each call, or why it has none."""
    parts = [tuple(calls[i : i + TOGETHER]) for i in range(0, len(calls), TOGETHER)]
    requests = [Ask("export", "reference", source, entry, part) for part in parts]
    told = [each for request in requests for each in _each(isolate, request)]
    return tuple(each for each in told if not isinstance(each, Shown))


def shapes(
    isolate: Isolate, source: str, entry: str, calls: Sequence[Call]
) -> tuple[Shown | Failure, ...]:
    """What each call returns, or why it cannot be made."""
    request = Ask("shapes", "reference", source, entry, tuple(calls))
    return tuple(each for each in _each(isolate, request) if not isinstance(each, Exported))


def _each(isolate: Isolate, request: Ask) -> tuple[Exported | Shown | Failure, ...]:
    reply = ask(isolate, request)
    strange = Shown if request.task == "export" else Exported
    if not isinstance(reply, Exports) or len(reply.each) != len(request.calls):
        raise ProblemError("its answer is not what a problem can be", "reference")
    if any(isinstance(each, strange) for each in reply.each):
        raise ProblemError("its answer is not what a problem can be", "reference")
    return reply.each


def call_at(op: OpSpec, at: Workload) -> Call:
    """How the reference is called at a workload."""
    names = op.names(at)
    slots = (
        Slot(
            tuple(Meta(shape, op.dtype(tensor, at)) for shape in tensor.shapes(names)),
            listed=tensor.count is not None,
        )
        for tensor in op.inputs.values()
    )
    return Call(tuple(slots), op.option_values(at))
