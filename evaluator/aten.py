"""The aten ops that a graph may call, its arguments as plain data, and float64 stand-ins.

A graph may come from a sandbox, so an op is callable here only if its schema says that it takes
no file name, writes to none of its arguments and gives back nothing but tensors.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from itertools import pairwise
from math import inf, isfinite, prod
from typing import Any

import torch
from pydantic import JsonValue
from torch.fx import Node as FxNode

from evaluator.errors import ProblemError
from kernel_library.graph import Constant
from kernel_library.spec import DTYPES

Operator = Callable[..., Any]
#: The most that the tensors a reference closes over may weigh, all together.
MOST_CONSTANT_BYTES = 1 << 20

_NAME = re.compile(r"aten\.([A-Za-z0-9_]+)\.([A-Za-z0-9_]+)")
_GIVES = {"Tensor", "List[Tensor]"}
_FLOATS = {"inf": inf, "-inf": -inf, "nan": float("nan")}
#: Dtypes that may stand in a graph as an argument: those of a contract, and complex for FFTs.
GRAPH_DTYPES: Mapping[str, torch.dtype] = {
    name: getattr(torch, name) for name in [*DTYPES, "complex64", "complex128"]
}


def resolve(op: str) -> Operator:
    """The aten overload of this name. Raises `ProblemError` unless it is safe to run."""
    match = _NAME.fullmatch(op)
    if match is None:
        raise ProblemError(f"{op!r} is not an aten op; write the reference in PyTorch's own ops")
    if match[1] == "item":
        raise ProblemError("what it does depends on values (`.item()`), so it has no graph")
    overload = getattr(getattr(torch.ops.aten, match[1], None), match[2], None)
    if not isinstance(overload, torch._ops.OpOverload):
        raise ProblemError(f"torch {torch.__version__} has no op {op!r}")
    if match[1].startswith("sym_"):
        raise ProblemError(
            "the size of something depends on values, which no contract can say: use `torch.where`"
            " for `x[mask]`, `scatter_add` into a tensor of a known size for `bincount`"
        )
    schema = overload._schema
    gives = {str(result.type) for result in schema.returns}
    takes = {argument.name for argument in schema.arguments}
    if schema.is_mutable or not gives or gives - _GIVES or "filename" in takes:
        raise ProblemError(f"{op!r} is not allowed in a graph: it does more than compute tensors")
    return overload


def packet(op: str) -> str:
    """The name of an op without its namespace and its overload."""
    return op.removeprefix("aten.").partition(".")[0]


def draws(op: Operator, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether this call takes random numbers: dropout that is switched off does not."""
    if torch.Tag.nondeterministic_seeded not in op.tags:  # type: ignore[attr-defined]
        return False
    given = bound(op, args, kwargs)
    switched_off = given.get("train", given.get("training")) is False
    chances = (given.get(name) for name in ("dropout_p", "dropout", "p"))
    return not (switched_off or 0 in chances)


def bound(op: Operator, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The call's arguments by name, defaults included."""
    arguments = op._schema.arguments  # type: ignore[attr-defined]
    defaults = {a.name: a.default_value for a in arguments if a.has_default_value()}
    return defaults | {a.name: v for a, v in zip(arguments, args, strict=False)} | dict(kwargs)


def encode(value: Any) -> JsonValue:  # noqa: ANN401
    """An argument of an fx node as plain data. Raises `ProblemError` for what has no plain form."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if isfinite(value) else {"float": str(value)}
        case FxNode():
            return {"ref": value.name}
        case list() | tuple():
            return [encode(item) for item in value]
        case torch.dtype():
            return {"dtype": str(value).removeprefix("torch.")}
        case torch.device() | torch.layout() | torch.memory_format():
            return {"torch": str(value).removeprefix("torch.")}
    raise ProblemError(f"the graph holds a {type(value).__name__}, which has no plain form")


def decode(
    value: JsonValue, values: Mapping[str, Any], device: torch.device, widen: bool = False
) -> Any:  # noqa: ANN401
    """The argument that plain data stands for; devices become `device`, floats widen if asked."""
    match value:
        case list():
            return [decode(item, values, device, widen) for item in value]
        case dict() if len(value) == 1:
            [(kind, name)] = value.items()
            return _decode_named(kind, str(name), values, device, widen)
        case dict():
            raise ProblemError(f"the graph holds an argument of no known form: {str(value)[:80]}")
    return value


def _decode_named(
    kind: str, name: str, values: Mapping[str, Any], device: torch.device, widen: bool
) -> Any:  # noqa: ANN401
    if kind == "ref" and name in values:
        return values[name]
    if kind == "dtype" and name in GRAPH_DTYPES:
        return wide_dtype(GRAPH_DTYPES[name]) if widen else GRAPH_DTYPES[name]
    if kind == "float" and name in _FLOATS:
        return _FLOATS[name]
    if kind == "torch":
        known = getattr(torch, name, None)
        return known if isinstance(known, torch.layout | torch.memory_format) else device
    raise ProblemError(f"the graph holds an argument of no known form: {kind} {name[:80]}")


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the oracle: every floating dtype becomes float64, the rest stays."""
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else dtype


def in_rows(tensor: torch.Tensor) -> torch.Tensor:
    """As where the graph was traced: of another layout or offset there may be no such view."""
    plain = tensor.contiguous()
    return plain.clone() if plain.storage_offset() else plain


def pack(tensor: torch.Tensor) -> Constant:
    """A small tensor as plain data."""
    # contiguous() keeps the stride of a single element, which no view as bytes may have
    plain = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
    raw = plain.reshape(-1).view(torch.uint8).numpy().tobytes()
    dtype = str(tensor.dtype).removeprefix("torch.")
    return Constant(dtype, tuple(tensor.shape), b64encode(raw).decode())


def unpack(name: str, constant: Constant) -> torch.Tensor:
    """The tensor that a constant holds. Raises `ProblemError` where size and bytes disagree."""
    dtype = GRAPH_DTYPES.get(constant.dtype)
    try:
        raw = b64decode(constant.data, validate=True)
    except (Base64Error, ValueError) as error:
        raise ProblemError(f"constant {name!r} is not base64") from error
    count = prod(constant.shape)
    if dtype is None or min(constant.shape, default=0) < 0 or count * dtype.itemsize != len(raw):
        raise ProblemError(f"constant {name!r} does not hold what its shape and dtype say")
    flat = torch.frombuffer(bytearray(raw), dtype=dtype) if raw else torch.empty(0, dtype=dtype)
    return flat.reshape(constant.shape)


def _scaled_mm(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    bias: torch.Tensor | None = None,
    scale_result: torch.Tensor | None = None,
    *_: object,
    **__: object,
) -> torch.Tensor:
    """`(a * scale_a) @ (b * scale_b) + bias`: tensor-wise, row-wise and block-wise scales alike."""
    y = (a * _spread(scale_a, a)) @ (b * _spread(scale_b, b))
    y = y if bias is None else y + bias
    return y if scale_result is None else y * scale_result


def _spread(scale: torch.Tensor, over: torch.Tensor) -> torch.Tensor:
    """A scale per tensor, row, column or block, repeated to the size of what it scales."""
    if scale.dim() < 2:
        return scale
    for axis, (many, size) in enumerate(zip(scale.shape, over.shape, strict=True)):
        if many > 1:
            scale = scale.repeat_interleave(-(-size // many), axis).narrow(axis, 0, size)
    return scale


def _grouped_mm(
    a: torch.Tensor,
    b: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Rows `offs[g - 1] .. offs[g]` of a times `b[g]`; a batched product without offsets."""
    if offs is None:
        return a @ b
    ends = [0, *offs.tolist()]
    spans = list(pairwise(ends))
    if a.dim() == 2 and b.dim() == 3:
        return torch.cat([a[lo:hi] @ b[g] for g, (lo, hi) in enumerate(spans)])
    if a.dim() == 3:
        return torch.cat([a[g] @ b[:, lo:hi] for g, (lo, hi) in enumerate(spans)], dim=1)
    return torch.stack([a[:, lo:hi] @ b[lo:hi] for lo, hi in spans])


def _reinterpret(*_: object) -> torch.Tensor:
    raise ProblemError("the reference reinterprets bits (`.view(dtype)`), which has no true value")


#: What stands in for ops that have no float64 kernel, or whose meaning changes with the dtype.
WIDE: Mapping[str, Operator] = {
    "aten._scaled_mm.default": _scaled_mm,
    "aten._grouped_mm.default": _grouped_mm,
    "aten.view.dtype": _reinterpret,
    "aten.view_copy.dtype": _reinterpret,
}
