"""Which sizes a problem is checked at: small and odd ones that its reference allows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from math import prod

from evaluator.intake.axes import Size
from kernel_library.spec import OpSpec, Workload

#: Steps that an axis may have to keep (heads, groups, blocks); 1 is the free axis.
STEPS = (1, 2, 4, 8, 32, 128)
#: The first multiples of a step that are tried, for the least; beyond, it doubles.
_FIRST = 8
#: How much longer than the author's an axis is tried: a window of the second is often too long for
#: what it slides over, and one of the first seldom.
_FAR = (32, 300)
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


@dataclass(frozen=True, slots=True)
class Axis:
    """How a free axis can move: in multiples of `step`, from `least` on."""

    step: int = 1
    least: int = 1

    def constraints(self, name: str) -> Iterator[str]:
        """What a contract says of it; nothing where any size will do."""
        if self.step > 1:
            yield f"{name} % {self.step} == 0"
        if self.least > self.step:
            yield f"{name} >= {self.least}"

    def kept(self, size: int) -> int:
        """The size, or the next larger one that the axis can have."""
        return max(self.least, -(-size // self.step) * self.step)

    def halved(self, size: int) -> int:
        """About half of a size that the axis has."""
        return max(self.least, max(1, size // self.step // 2) * self.step)


def probes(size: Size, step: int, others: frozenset[int]) -> list[Size]:
    """Other sizes that keep the step: one that no other axis has, and the very next one.

    Any longer step that the reference asks for would miss the second.
    """
    if isinstance(size, tuple):
        return [tuple(n + step for n in size)]
    tried = size - 3 if step == 1 and size > 8 else size + (2 if step == 1 else step)
    while tried in others:
        tried += step
    return list(dict.fromkeys([tried, size + step]))


def beyond(size: Size, step: int) -> list[Size]:
    """Sizes far above this one that keep the step; none for the items of a list."""
    return [size + -(-by // step) * step for by in _FAR] if isinstance(size, int) else []


def smaller(size: Size, step: int) -> list[int]:
    """Sizes below this one that keep the step, the least first; none for the items of a list."""
    if isinstance(size, tuple):
        return []
    far = (_FIRST << n for n in range(1, size.bit_length()))
    return [step * n for n in (*range(1, _FIRST + 1), *far) if step * n < size]


def points(op: OpSpec, free: Mapping[str, Axis], user: Mapping[str, Size]) -> list[dict[str, Size]]:
    """Sizes to check at, most wanted first."""
    axes = [axis for axis in free if isinstance(user[axis], int)]
    found = []
    for row in _POINTS:
        sizes = dict(zip(_rows_second(op, axes), cycle(row), strict=False))
        kept = {axis: free[axis].kept(size) for axis, size in sizes.items()}
        at = {**user, **_short_lists(user, free, row), **kept}
        small = _shrunk(op, at, {axis: free[axis] for axis in axes})
        if small not in found:
            found.append(small)
    return found


def telling(found: Sequence[Mapping[str, Size]], free: Iterable[str]) -> list[int]:
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
    user: Mapping[str, Size], free: Mapping[str, Axis], row: tuple[int, ...]
) -> dict[str, Size]:
    """Other lengths for the items of a list argument."""
    return {
        axis: tuple(row[i % len(row)] for i in range(len(size)))
        for axis, size in user.items()
        if axis in free and isinstance(size, tuple)
    }


def _shrunk(op: OpSpec, at: dict[str, Size], free: Mapping[str, Axis]) -> dict[str, Size]:
    """Halve the longest axes until rows are few and tensors small, or as small as they can be."""
    least = {axis: each.least for axis, each in free.items()}
    for inner, bound in ((1, MOST_ROWS), (0, MOST_ELEMENTS)):
        most = max(bound, *_counts(op, {**at, **least}, inner))
        while max(now := _counts(op, at, inner)) > most:
            fewer = {axis: each.halved(_size(at, axis)) for axis, each in free.items()}
            # of those that are counted: halving another would help nothing
            counted = [a for a in fewer if sum(_counts(op, {**at, a: fewer[a]}, inner)) < sum(now)]
            longest = max(counted, key=lambda axis: _size(at, axis) // free[axis].step)
            at = {**at, longest: fewer[longest]}
    return at


def _size(at: Mapping[str, Size], axis: str) -> int:
    size = at[axis]
    return size if isinstance(size, int) else 1


def _counts(op: OpSpec, at: Mapping[str, Size], inner: int) -> list[int]:
    """How many elements each tensor has, or with one `inner` axis left out, how many rows."""
    names = op.names(Workload(at, {}))
    shapes = (shape for tensor in op.inputs.values() for shape in tensor.shapes(names))
    return [prod(shape[: max(0, len(shape) - inner)]) for shape in shapes]
