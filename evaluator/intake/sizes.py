"""Which sizes a problem is checked at: small and odd ones that its reference allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from math import prod

from evaluator.intake.axes import Size
from kernel_library.spec import OpSpec, Workload

#: Steps that an axis may have to keep (heads, groups, blocks); 1 is the free axis.
STEPS = (1, 8, 32, 128)
#: The largest tensor of a check is smaller than this, so that an interpreter can run it, and has no
#: more rows along its last axis: an interpreter runs one program after another, and one for each
#: row is common. An RMS norm checked at 7808 rows of nine took 149 s (two CPU cores).
MOST_ELEMENTS, MOST_ROWS = 1 << 17, 1 << 8
#: Sizes of the first axis, of the one along which rows lie, and of all others.
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
        sizes = dict(zip(_rows_second(op, axes), cycle(row), strict=False))
        kept = {axis: -(-size // free[axis]) * free[axis] for axis, size in sizes.items()}
        at = {**user, **_short_lists(user, free, row), **kept}
        small = _shrunk(op, at, {axis: free[axis] for axis in axes})
        if small not in found:
            found.append(small)
    return found


def telling(found: Sequence[Mapping[str, Size]], free: Mapping[str, int]) -> list[int]:
    """Which of these sizes can stand alone for a dtype: none of their free axes is a single one.

    A softmax along an axis of one is 1 whatever goes in. All of them, where each has such an axis.
    """
    whole = [i for i, at in enumerate(found) if not any(at[axis] == 1 for axis in free)]
    return whole or list(range(len(found)))


def _rows_second(op: OpSpec, axes: list[str]) -> list[str]:
    """The axes, the last one of the first tensor of more than two as the second of them."""
    deep = (t.axes.split() for t in op.inputs.values() if len(t.axes.split()) > 2)
    last = next((names[-1] for names in deep if names[-1] in axes[1:]), None)
    if last is None:
        return axes
    rest = [axis for axis in axes if axis != last]
    return [rest[0], last, *rest[1:]]


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
    """Halve the longest axes until rows are few and tensors small, or as small as they can be."""
    for inner, bound in ((1, MOST_ROWS), (0, MOST_ELEMENTS)):
        most = max(bound, *_counts(op, {**at, **steps}, inner))
        while max(now := _counts(op, at, inner)) > most:
            fewer = {axis: _halved(at, axis, step) for axis, step in steps.items()}
            # of those that are counted: halving another would help nothing
            counted = [a for a in fewer if sum(_counts(op, {**at, a: fewer[a]}, inner)) < sum(now)]
            longest = max(counted, key=lambda axis: _steps(at, axis, steps[axis]))
            at = {**at, longest: fewer[longest]}
    return at


def _halved(at: Mapping[str, Size], axis: str, step: int) -> int:
    return max(1, _steps(at, axis, step) // 2) * step


def _steps(at: Mapping[str, Size], axis: str, step: int) -> int:
    size = at[axis]
    return size // step if isinstance(size, int) else 1


def _counts(op: OpSpec, at: Mapping[str, Size], inner: int) -> list[int]:
    """How many elements each tensor has, or with one `inner` axis left out, how many rows."""
    names = op.names(Workload(at, {}))
    shapes = (shape for tensor in op.inputs.values() for shape in tensor.shapes(names))
    return [prod(shape[: max(0, len(shape) - inner)]) for shape in shapes]
