"""The intake job: a stranger's Python runs here and nowhere else, and is told nothing secret."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch._dynamo
import torch._functorch.aot_autograd  # these two take 3.6 s: a zygote that imports this has them
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

from evaluator.errors import ProblemError
from evaluator.graphs import Traced, trace_writes
from evaluator.intake.describe import describe_model, describe_plain
from evaluator.intake.examples import meta
from evaluator.intake.loading import failure, loaded, on_cpu
from evaluator.intake.wire import (
    Ask,
    Call,
    Exported,
    Exports,
    Failure,
    ReadUnit,
    Reply,
    Shown,
    Slot,
    ask_json,
    reply_json,
)
from kernel_library.unit import Unit

Function = Callable[..., Any]


def main(request: bytes) -> bytes:
    """Answer an `Ask` with a `Reply`, both as JSON; the stranger's exceptions are `Failure`s."""
    ask = ask_json.validate_json(request)
    # torch logs each size that an op refuses; here that is an answer
    logging.disable(logging.ERROR)
    try:
        reply = _answer(ask)
    # the edge of the process: whatever the stranger's code raises is an answer
    except Exception as error:
        reply = failure(error)
    finally:
        logging.disable(logging.NOTSET)
    return reply_json.dump_json(reply)


def _answer(ask: Ask) -> Reply:
    match ask.task:
        case "model":
            return describe_model(ask.source)
        case "plain":
            return describe_plain(ask.source)
        case "unit":
            return _read_unit(ask.source)
        case "export" | "shapes":
            return _export(ask)


def _read_unit(source: str) -> ReadUnit:
    with loaded(source) as module:
        unit = module.UNIT
        if not isinstance(unit, Unit):
            raise ProblemError("`UNIT` is not a `kernel_library.unit.Unit`")
        return ReadUnit(unit.spec, unit.candidate())


def _export(ask: Ask) -> Exports:
    with loaded(ask.source) as module:
        if not callable(getattr(module, ask.entry, None)):
            raise ProblemError(f"there is no function `{ask.entry}`")
        function = on_cpu(getattr(module, ask.entry))
        answer = _export_one if ask.task == "export" else _show_one
        return Exports(tuple(_guarded(answer, function, call) for call in ask.calls))


def _guarded(
    answer: Callable[[Function, Call], Exported | Shown], function: Function, call: Call
) -> Exported | Shown | Failure:
    try:
        return answer(function, call)
    # one call that cannot be made must not hide the others
    except Exception as error:
        return failure(error)


def _show_one(function: Function, call: Call) -> Shown:
    outputs = [tensor for tensor, written in _returned(function, call) if not written]
    return Shown(tuple(meta(f"output {i}", tensor) for i, tensor in enumerate(outputs)))


def _returned(function: Function, call: Call) -> list[tuple[torch.Tensor, bool]]:
    """What a call returns, and whether each is an argument that it wrote to, handed back."""
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        args = [_empty(slot) for slot in call.args]
        before = [(each, each._version) for each in tree_leaves(args)]
        returned = tree_leaves(function(*args, **call.options))
    written = [each for each, version in before if each._version > version]
    return [
        (value, any(value is each for each in written)) for value in returned if value is not None
    ]


def _export_one(function: Function, call: Call) -> Exported:
    with FakeTensorMode():
        args = [_empty(slot) for slot in call.args]
    traced = trace_writes(function, args, call.options)
    if traced.mutated:
        traced = _without_written(traced, [written for _, written in _returned(function, call)])
    outputs = tuple(meta(f"output {i}", tensor) for i, tensor in enumerate(traced.returned))
    return Exported(traced.graph, outputs, traced.mutated)


def _without_written(traced: Traced, written: Sequence[bool]) -> Traced:
    """The trace without outputs that are written arguments: their new values are in it as such."""
    kept = [i for i, is_written in enumerate(written) if not is_written]
    names, after = traced.graph.outputs, traced.graph.outputs[len(traced.returned) :]
    graph = replace(traced.graph, outputs=(*(names[i] for i in kept), *after))
    return replace(traced, graph=graph, returned=tuple(traced.returned[i] for i in kept))


def _empty(slot: Slot) -> torch.Tensor | list[torch.Tensor]:
    tensors = [torch.empty(t.shape, dtype=getattr(torch, t.dtype)) for t in slot.tensors]
    return tensors if slot.listed else tensors[0]
