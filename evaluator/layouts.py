"""Where a tensor lies in memory: the strides and gaps that a kernel must not have by heart."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal, get_args

import torch

from kernel_library.spec import Shape

Layout = Literal[
    "contiguous", "transposed", "permuted", "padded", "sliced", "step2", "expanded", "still",
    "unaligned", "unlike", "wide",
]  # fmt: skip
#: Those that every candidate meets; `wide` takes gigabytes.
LAYOUTS: tuple[Layout, ...] = get_args(Layout)[:-1]
#: Elements that a wide tensor spans: from its last row on, offsets do not fit in 32 bits.
WIDE = 1 << 31
#: Layouts of one input alone, and those that differ by the number that a case is `on`.
ONE_ALONE = frozenset({"expanded", "still", "wide"})
NUMBERED = ONE_ALONE | {"permuted", "sliced", "unlike"}
#: Layouts that `place` has in two ways, by turns.
TWO_WAYS = frozenset({"expanded", "permuted"})


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor lies in its own buffer of `room` elements; stride and offset in elements."""

    shape: Shape
    stride: tuple[int, ...]
    offset: int
    room: int


def place(shape: Shape, layout: Layout, number: int = 0) -> Place:
    """The layout's strides for a shape; contiguous where the shape has no room for it.

    Padded rows of one input are longer than those of the one `number`ed before it; of sliced ones,
    each has more along another axis between the first and the last. By turns, permuted ones are
    as images of which the channels lie last, and expanded ones as the gradient of a sum of rows is.
    """
    stride, size = _row_major(shape), prod(shape)
    if layout == "transposed" and len(shape) > 1:
        *outer, rows, columns = shape
        *_, a, b = _row_major((*outer, columns, rows))
        return Place(shape, (*stride[:-2], b, a), 0, size)
    if layout == "permuted" and len(shape) > 2:
        return _permuted(shape, channels_last=number % 2 == 1)
    if layout == "padded" and len(shape) > 1:
        # a multiple of 16 more, by which Triton compiles aligned rows and others apart
        longer = _row_major((*shape[:-1], shape[-1] + 16 * (number + 1)))
        return Place(shape, longer, 0, longer[0] * shape[0])
    if layout == "sliced" and len(shape) > 2:
        # as a third of a fused projection has more heads in memory, or a cache more tokens
        axis = -2 - number % (len(shape) - 2)
        wider = _row_major((*shape[:axis], shape[axis] + 1, *shape[axis + 1 :]))
        return Place(shape, wider, 0, wider[0] * shape[0])
    if layout == "still" and size > 1:
        return Place(shape, (0,) * len(shape), 0, 1)
    if layout == "step2" and shape:
        return Place(shape, tuple(2 * s for s in stride), 0, 2 * size)
    if layout == "unaligned":
        return Place(shape, stride, 1, size + 1)
    if layout == "expanded":
        return _expanded(shape, along_rows=number % 2 == 1)
    if layout == "wide":
        return _wide(shape)
    return Place(shape, stride, 0, size)


def _permuted(shape: Shape, channels_last: bool) -> Place:
    """All axes but the last in reverse; or the second of four or more innermost."""
    if channels_last and len(shape) > 3:
        outer, *middle, inner = _row_major((shape[0], *shape[2:], shape[1]))
        return Place(shape, (outer, inner, *middle), 0, prod(shape))
    turned = _row_major((*shape[-2::-1], shape[-1]))
    return Place(shape, (*turned[-2::-1], 1), 0, prod(shape))


def _expanded(shape: Shape, along_rows: bool) -> Place:
    """One value for all of the first axis that has several, or for all of each of several rows."""
    outer = [i for i, n in enumerate(shape[:-1]) if n > 1]
    if not outer or (along_rows and shape[-1] < 2):
        return place(shape, "contiguous")
    axis = len(shape) - 1 if along_rows else outer[0]
    kept = tuple(1 if i == axis else n for i, n in enumerate(shape))
    stride = tuple(0 if i == axis else s for i, s in enumerate(_row_major(kept)))
    return Place(shape, stride, 0, prod(kept))


def _wide(shape: Shape) -> Place:
    """The first axis of three or more spread until its last step begins at 2^31 elements.

    Of three or more, so that its stride itself still fits in 32 bits: the product is what must not.
    """
    axis = next((i for i, n in enumerate(shape[:-1]) if n > 2 and 0 not in shape), None)
    if axis is None:
        return place(shape, "contiguous")
    kept = tuple(1 if i == axis else n for i, n in enumerate(shape))
    # a multiple of 16, as the strides of aligned rows are: Triton compiles others apart
    step = -(-WIDE // (16 * (shape[axis] - 1))) * 16
    stride = tuple(step if i == axis else s for i, s in enumerate(_row_major(kept)))
    return Place(shape, stride, 0, (shape[axis] - 1) * step + prod(kept))


def lay(values: torch.Tensor, spot: Place) -> torch.Tensor:
    """The values in a buffer of their own at this place."""
    dtype, device = values.dtype, values.device
    if spot == place(tuple(values.shape), "contiguous"):
        return values.contiguous()
    wide = torch.float32 if dtype.is_floating_point else dtype
    gap = float("nan") if dtype.is_floating_point else _largest(dtype)
    buffer = torch.full((spot.room,), gap, dtype=wide, device=device).to(dtype)
    buffer.as_strided(values.shape, spot.stride, spot.offset).copy_(values)
    return buffer.as_strided(spot.shape, spot.stride, spot.offset)


def _largest(dtype: torch.dtype) -> int:
    return 1 if dtype == torch.bool else torch.iinfo(dtype).max


def _row_major(shape: Shape) -> tuple[int, ...]:
    return tuple(prod(max(1, n) for n in shape[i + 1 :]) for i in range(len(shape)))
