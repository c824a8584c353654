"""What a call gives back: the contract's shapes and dtypes, whichever path made them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kernel_library.spec import DTYPES

from ._bind import described, free_dtypes, misfit, shapes, sizes
from ._contract import Op


def parts(op: Op, result: Any) -> list[Any]:
    """The outputs in order: tensors, or lists of tensors. Raises ValueError for another number."""
    single = isinstance(result, torch.Tensor)
    listed = len(op.spec.outputs) == 1 and next(iter(op.spec.outputs.values())).count is not None
    found = [] if result is None else [result] if single or listed else list(result)
    if len(found) != len(op.spec.outputs):
        raise ValueError(f"{op.name} returned {len(found)} outputs, not {len(op.spec.outputs)}")
    return found


def settled(op: Op, args: Sequence[Any], result: Any) -> Any:
    """The outputs as the contract has them. Raises ValueError if their shapes are not its own.

    Outside the contract's ranks and dtypes the reference alone says what comes out.
    """
    seen = described(op, args)
    outputs = parts(op, result)
    if misfit(op.spec, seen) is None:
        names = sizes(op.spec, seen)
        free = free_dtypes(op.spec, seen)
        outputs = [
            _fitted(op, name, part, (shapes(tensor, names), free.get(tensor.dtype, tensor.dtype)))
            for (name, tensor), part in zip(op.spec.outputs.items(), outputs, strict=True)
        ]
    taken = {_home(t) for a in args for t in _flat(a)}
    clean = [_owned(part, taken) for part in outputs]
    return None if not clean else clean[0] if len(clean) == 1 else tuple(clean)


def _fitted(op: Op, name: str, part: Any, expected: tuple[list[tuple[int, ...]], str]) -> Any:
    found, (wanted, dtype) = _flat(part), expected
    if [tuple(t.shape) for t in found] != wanted:
        got = ", ".join(str(tuple(t.shape)) for t in found)
        raise ValueError(f"{op.name}: {name} came out as {got}, the contract says {wanted}")
    if dtype not in DTYPES:
        return part
    cast = [t.to(getattr(torch, dtype)) for t in found]
    return cast[0] if isinstance(part, torch.Tensor) else cast


def _owned(part: Any, taken: set[int]) -> Any:
    """The same values, contiguous and in storage that nothing in `taken` has; adds its own."""
    clean = []
    for t in _flat(part):
        clean.append(
            t.clone(memory_format=torch.contiguous_format) if _home(t) in taken else t.contiguous()
        )
        taken.add(_home(clean[-1]))
    return clean[0] if isinstance(part, torch.Tensor) else clean


def _home(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _flat(part: Any) -> list[torch.Tensor]:
    return [part] if isinstance(part, torch.Tensor) else list(part)
