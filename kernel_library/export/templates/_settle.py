"""What a call gives back: the contract's shapes and dtypes, whichever path made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ._bind import Args, free_dtypes, misfit, shapes, sizes
from ._contract import Op

#: For each output, the shapes of its tensors and their dtype.
Expected = list[tuple[list[tuple[Any, ...]], torch.dtype]]


def expected(op: Op, args: Args, options: Mapping[str, Any]) -> Expected | None:
    """The outputs as the contract has them; None where ranks or dtypes are not the contract's."""
    if misfit(op.spec, args) is not None:
        return None
    bound, free = sizes(op.spec, args) | dict(options), free_dtypes(op.spec, args)
    return [
        (shapes(tensor, bound), getattr(torch, free.get(tensor.dtype, tensor.dtype)))
        for tensor in op.spec.outputs.values()
    ]


def parts(op: Op, result: Any) -> list[Any]:
    """The outputs in order: tensors, or lists of tensors. Raises ValueError for another number."""
    single = isinstance(result, torch.Tensor)
    listed = len(op.spec.outputs) == 1 and next(iter(op.spec.outputs.values())).count is not None
    found = [] if result is None else [result] if single or listed else list(result)
    if len(found) != len(op.spec.outputs):
        raise ValueError(f"{op.name} returned {len(found)} outputs, not {len(op.spec.outputs)}")
    return found


def settled(op: Op, args: Sequence[Any], result: Any, wanted: Expected | None) -> Any:
    """The outputs, contiguous and in storage of their own.

    Raises ValueError where shapes are not the contract's; outside its ranks and dtypes there are
    none, and the reference alone says what comes out.
    """
    outputs = parts(op, result)
    if wanted is not None:
        for name, part, (each, _) in zip(op.spec.outputs, outputs, wanted, strict=True):
            if [tuple(t.shape) for t in _flat(part)] != each:
                got = ", ".join(str(tuple(t.shape)) for t in _flat(part))
                raise ValueError(f"{op.name}: {name} is {got}, where the contract says {each}")
    dtypes = [None] * len(outputs) if wanted is None else [dtype for _, dtype in wanted]
    taken = {_home(t) for arg in args for t in _flat(arg)}
    clean = [_owned(part, dtype, taken) for part, dtype in zip(outputs, dtypes, strict=True)]
    return packed(clean)


def packed(outputs: Sequence[Any]) -> Any:
    """Outputs as an op returns them: nothing, the one, or a tuple."""
    return None if not outputs else outputs[0] if len(outputs) == 1 else tuple(outputs)


def _owned(part: Any, dtype: torch.dtype | None, taken: set[int]) -> Any:
    """The same values at this dtype, contiguous and in no storage of `taken`; adds its own."""
    clean = []
    for tensor in _flat(part):
        t = tensor if dtype is None else tensor.to(dtype)
        aliased = _home(t) in taken
        t = t.clone(memory_format=torch.contiguous_format) if aliased else t.contiguous()
        taken.add(_home(t))
        clean.append(t)
    return clean[0] if isinstance(part, torch.Tensor) else clean


def _home(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _flat(part: Any) -> Sequence[torch.Tensor]:
    return (part,) if isinstance(part, torch.Tensor) else part
