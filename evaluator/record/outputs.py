"""Where a tape's outputs may lie: each in memory of its own, in the order that was promised.

An installed op gives contiguous tensors that share nothing. What is returned otherwise is copied
there, in time that no measurement here would have seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from math import prod

from kernel_library.spec import ITEMSIZE
from kernel_library.tape import View


def misplaced(outputs: Mapping[str, View], *, contiguous: bool) -> Iterator[str]:
    """What is wrong with where the outputs lie, in words; shapes are as they must be.

    With `contiguous` inputs, outputs are asked to be so as well; a launcher may hand on any other
    layout of its inputs.
    """
    for name, view in outputs.items():
        if contiguous and not _row_major(view):
            yield f"{name} is not contiguous where the inputs are: write it in order"
        elif _steps_on_itself(view):
            yield f"{name} has elements that share memory: write each of them"
    for (one, a), (other, b) in combinations(outputs.items(), 2):
        if a.buffer == b.buffer and max(a.offset, b.offset) < min(_end(a), _end(b)):
            yield f"{one} and {other} share memory: write both"


def _steps(view: View) -> list[tuple[int, int]]:
    """Stride and size of each axis along which there is a step to take; none if it is empty."""
    if 0 in view.shape:
        return []
    return [(s, n) for n, s in zip(view.shape, view.stride, strict=False) if n > 1]


def _row_major(view: View) -> bool:
    at = 1
    for stride, size in reversed(_steps(view)):
        if stride != at:
            return False
        at *= size
    return True


def _steps_on_itself(view: View) -> bool:
    """Whether some axis steps to where a shorter one has been."""
    reach = 1
    for stride, size in sorted(_steps(view)):
        if stride < reach:
            return True
        reach += stride * (size - 1)
    return False


def _end(view: View) -> int:
    if not prod(view.shape):
        return view.offset
    reach = 1 + sum(stride * (size - 1) for stride, size in _steps(view))
    return view.offset + reach * ITEMSIZE[view.dtype]
