"""The aten calls that a tape may make between its launches, from names alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from pydantic import JsonValue

from evaluator.errors import CandidateError
from kernel_library.tape import FREE_CALLS, Call

#: Copies, whatever they are called: written straight to their result.
COPIES = frozenset({"clone", "_to_copy"})
#: Fills, likewise.
FILLS = {
    "zeros": 0, "zeros_like": 0, "new_zeros": 0, "ones": 1, "ones_like": 1, "new_ones": 1
}  # fmt: skip


def resolve(op: str, allows: Sequence[str] = ()) -> torch._ops.OpOverload:
    """The aten overload named `aten.<name>.<overload>`. `allows` adds to the free ones.

    Raises `CandidateError` for any other: a tape is a stranger's, and a name is all it may give.
    """
    parts = op.split(".")
    if len(parts) != 3 or parts[0] != "aten" or not is_allowed(op, allows):
        raise CandidateError("record", f"calls {op}, which this problem does not allow")
    overload = getattr(getattr(torch.ops.aten, parts[1], None), parts[2], None)
    if not isinstance(overload, torch._ops.OpOverload):
        raise CandidateError("record", f"calls {op}, which torch {torch.__version__} does not have")
    return overload


def is_allowed(op: str, allows: Sequence[str]) -> bool:
    """Whether an op may be called: `allows` spells it `mm`, `aten.mm` or `aten.mm.default`."""
    name = op.split(".")[1]
    return name in FREE_CALLS or not {op, name, f"aten.{name}"}.isdisjoint(allows)


def prepare(
    call: Call,
    views: Sequence[torch.Tensor],
    results: Sequence[torch.Tensor],
    allows: Sequence[str],
) -> Callable[[], object]:
    """The call as a function without arguments that writes its results where the tape says."""
    op = resolve(call.op, allows)
    device = results[0].device if results else views[0].device
    args = [_value(arg, views, device) for arg in call.args]
    kwargs = {name: _value(arg, views, device) for name, arg in call.kwargs.items()}
    kwargs.pop("pin_memory", None)
    if op._schema.is_mutable:
        return lambda: op(*args, **kwargs)
    name = call.op.split(".")[1]
    if name in COPIES and len(results) == 1:
        return lambda: results[0].copy_(args[0])
    if name in FILLS and len(results) == 1:
        return lambda: results[0].fill_(FILLS[name])
    out = _into(op) if len(results) == 1 else None
    if out is not None:
        known = {argument.name for argument in out._schema.arguments}
        given = {name: value for name, value in kwargs.items() if name in known}
        return lambda: out(*args, **given, out=results[0])
    return lambda: _copy(op(*args, **kwargs), results)


def _copy(made: Any, results: Sequence[torch.Tensor]) -> None:  # noqa: ANN401
    for value, result in zip([made] if torch.is_tensor(made) else made, results, strict=True):
        result.copy_(value)


def _into(op: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """The overload that writes to a tensor it is given, which saves an allocation and a copy."""
    packet = getattr(torch.ops.aten, op._schema.name.split("::")[1])
    wanted = [a.name for a in op._schema.arguments if a.name not in _MADE]
    for name in packet.overloads():
        overload: torch._ops.OpOverload = getattr(packet, name)
        names = [a.name for a in overload._schema.arguments if a.name not in _MADE]
        if names == [*wanted, "out"] and _same_types(op, overload):
            return overload
    return None


#: What says how to allocate a result, and is left out where there is one already.
_MADE = frozenset({"dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking"})


def _same_types(op: torch._ops.OpOverload, out: torch._ops.OpOverload) -> bool:
    types = {a.name: str(a.type) for a in out._schema.arguments}
    return all(types.get(a.name) == str(a.type) for a in op._schema.arguments if a.name in types)


def _value(value: JsonValue, views: Sequence[torch.Tensor], device: torch.device) -> Any:  # noqa: ANN401
    match value:
        case {"view": int(index)}:
            return views[index]
        case {"dtype": str(name)}:
            return getattr(torch, name)
        case {"float": str(name)}:
            return float(name)
        case {"torch": str(name)}:
            known = getattr(torch, name, None)
            return known if isinstance(known, torch.layout | torch.memory_format) else device
        case dict():
            raise CandidateError("record", "a call has an argument of no known form")
        case list():
            return [_value(item, views, device) for item in value]
    return value
