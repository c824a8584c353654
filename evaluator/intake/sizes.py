"""Which sizes a problem is checked at: small and odd ones that its reference allows."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from evaluator.intake.axes import Size
from kernel_library.spec import OpSpec, Workload

#: Steps that an axis may have to keep (heads, groups, blocks); 1 is the free axis.
STEPS = (1, 8, 32, 128)
#: The largest tensor of a check is smaller than this, so that an interpreter can run it.
MOST_ELEMENTS = 1 << 17
_POINTS = (
    (3, 127, 5, 33, 7, 9),
    (1, 64, 2, 16, 3, 4),
    (61, 257, 9, 17, 5, 3),
    (32, 96, 16, 24, 12, 8),
    (130, 200, 40, 66, 36, 34),
)


def probe(size: Size, step: int, others: frozenset[int]) -> Size:
    """Another size that keeps the step, and that no other axis has."""
    if isinstance(size, tuple):
        return tuple(n + step for n in size)
    tried = size - 3 if step == 1 and size > 8 else size + (2 if step == 1 else step)
    while tried in others:
        tried += step
    return tried


def points(op: OpSpec, free: Mapping[str, int], user: Mapping[str, Size]) -> list[dict[str, Size]]:
    """Sizes to check at, most wanted first; `free` maps each free axis to its step."""
    axes = [axis for axis in free if isinstance(user[axis], int)]
    found = []
    for row in _POINTS:
        sizes = {axis: row[i % len(row)] for i, axis in enumerate(axes)}
        kept = {axis: -(-size // free[axis]) * free[axis] for axis, size in sizes.items()}
        at = {**user, **_short_lists(user, free, row), **kept}
        small = _shrunk(op, at, {axis: free[axis] for axis in axes})
        if small not in found:
            found.append(small)
    return found


def _short_lists(
    user: Mapping[str, Size], free: Mapping[str, int], row: tuple[int, ...]
) -> dict[str, Size]:
    """Other lengths for the items of a list argument."""
    return {
        axis: tuple(row[i % len(row)] for i in range(len(size)))
        for axis, size in user.items()
        if axis in free and isinstance(size, tuple)
    }


def _shrunk(op: OpSpec, at: dict[str, Size], steps: Mapping[str, int]) -> dict[str, Size]:
    """Halve the longest axes until the largest tensor is small, or as small as it can be."""
    most = max(MOST_ELEMENTS, _largest(op, {**at, **steps}))
    while _largest(op, at) > most:
        sizes = {axis: n for axis in steps if isinstance(n := at[axis], int)}
        longest = max(sizes, key=lambda axis: sizes[axis] // steps[axis])
        step = steps[longest]
        at = {**at, longest: max(1, sizes[longest] // 2 // step) * step}
    return at


def _largest(op: OpSpec, at: Mapping[str, Size]) -> int:
    names = op.names(Workload(at, {}))
    return max(prod(shape) for tensor in op.inputs.values() for shape in tensor.shapes(names))
