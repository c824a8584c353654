"""From the tensors of a call to the contract's words: a size for each axis, the free dtypes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from kernel_library.formula import FormulaError, evaluate, names_in
from kernel_library.spec import DTYPES, OpSpec, Tensor

from ._contract import Op


class Seen(NamedTuple):
    """What there is to know of a tensor without reading it."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


#: The tensors of each argument, by its name: one, or the entries of a list.
Args = Mapping[str, tuple[Seen, ...]]


def described(op: Op, args: Sequence[Any]) -> dict[str, tuple[Seen, ...]]:
    """What the guards may know of the arguments. Raises TypeError for a wrong number of them."""
    if len(args) != len(op.spec.inputs):
        raise TypeError(f"{op.name} takes {', '.join(op.spec.inputs)}; got {len(args)} arguments")
    return {
        name: tuple(
            Seen(tuple(t.shape), t.stride(), t.dtype, t.device)
            for t in ([arg] if isinstance(arg, torch.Tensor) else arg)
        )
        for name, arg in zip(op.spec.inputs, args, strict=True)
    }


def misfit(spec: OpSpec, args: Args) -> str | None:
    """How ranks or dtypes differ from the contract, if they do. Compares no sizes."""
    free = free_dtypes(spec, args)
    for name, tensor in spec.inputs.items():
        rank = len(tensor.axes.split())
        dtype = tensor.dtype if tensor.dtype in DTYPES else free.get(tensor.dtype)
        for seen in args[name]:
            if len(seen.shape) != rank:
                return f"{name} has {len(seen.shape)} axes, not {rank} ({tensor.axes or 'scalar'})"
            if name_of(seen.dtype) != dtype:
                return f"{name} is {name_of(seen.dtype)}, not {dtype}"
    return None


def name_of(dtype: torch.dtype) -> str:
    """The dtype as the contract writes it: `"bfloat16"`."""
    return str(dtype).removeprefix("torch.")


def free_dtypes(spec: OpSpec, args: Args) -> dict[str, str]:
    """Each free dtype as the first argument that has it fills it in."""
    found: dict[str, str] = {}
    for name, tensor in spec.inputs.items():
        if tensor.dtype not in DTYPES and args[name]:
            found.setdefault(tensor.dtype, name_of(args[name][0].dtype))
    return found


def sizes(spec: OpSpec, args: Args) -> dict[str, Any]:
    """A size for each axis, read off the first argument that names it; compares nothing.

    Sizes may be symbolic, so none is turned into an int.
    """
    found: dict[str, Any] = {}
    plain = [(name, t) for name, t in spec.inputs.items() if t.count is None]
    lists = [(name, t) for name, t in spec.inputs.items() if t.count is not None]
    ragged = {a for w in spec.workloads for a, size in w.dims.items() if isinstance(size, tuple)}
    for name, tensor in plain + lists:
        if tensor.count is not None and tensor.count.isidentifier():
            found.setdefault(tensor.count, len(args[name]))
        columns = zip(*(seen.shape for seen in args[name]), strict=True)
        for axis, column in zip(tensor.axes.split(), columns, strict=True):
            if axis.isidentifier():
                found.setdefault(axis, tuple(column) if axis in ragged else column[0])
    for name, tensor in plain:
        for axis, size in zip(tensor.axes.split(), args[name][0].shape, strict=True):
            found |= _solved(axis, size, found)
    return found


def _solved(formula: str, size: Any, known: Mapping[str, Any]) -> dict[str, Any]:
    """The one unknown of a formula that rises evenly, such as the B of `B + 1`."""
    unknown = names_in(formula) - known.keys()
    if len(unknown) != 1:
        return {}
    (name,) = unknown
    try:
        at_zero, at_one = (evaluate(formula, {**known, name: n}) for n in (0, 1))
    except FormulaError:
        return {}
    slope = at_one - at_zero
    return {name: (size - at_zero) // slope} if slope else {}


def disagreement(spec: OpSpec, args: Args, names: Mapping[str, Any]) -> str | None:
    """How the sizes contradict each other or the contract's constraints, if they do."""
    try:
        for name, tensor in spec.inputs.items():
            expected, actual = tensor.shapes(names), tuple(seen.shape for seen in args[name])
            if expected != actual:
                return f"{name} is {_text(actual)}, where {tensor.axes!r} means {_text(expected)}"
        for constraint in spec.constraints:
            if not evaluate(constraint, names):
                return f"the contract asks for {constraint}"
    except FormulaError as error:
        return str(error)
    return None


def shapes(tensor: Tensor, names: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """The shapes of an output, with sizes as symbolic as they came."""
    count = 1 if tensor.count is None else int(evaluate(tensor.count, names))
    picked = (
        {k: v[i] if isinstance(v, tuple) else v for k, v in names.items()} for i in range(count)
    )
    return [tuple(evaluate(axis, each) for axis in tensor.axes.split()) for each in picked]


def _text(shapes: Sequence[tuple[int, ...]]) -> str:
    return ", ".join(map(str, shapes))
