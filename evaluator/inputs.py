"""Draws what an op is called with: values by recipe, bent by a value class, laid out in memory.

Only the judge draws. The same op, workload and case give the same bits on the same kind of device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from math import prod
from typing import Literal, get_args

import torch

from evaluator.values import INFINITE, Names, Values, bend, draw_values
from kernel_library.recipe import Index, Normal, Offsets, Recipe, Scales, Simplex, Uniform
from kernel_library.spec import OpSpec, Shape, Tensor, Workload

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
#: What inputs of unlike layouts have by turns, so that no stride of one is another's.
_UNLIKE: tuple[Layout, ...] = ("contiguous", "transposed", "padded", "step2")
#: What some classes bend beside normal and uniform inputs.
_ALSO: Mapping[Values, tuple[type[Recipe], ...]] = {
    "tiny": (Scales,), "zeros": (Scales,), "onehot": (Simplex,),
}  # fmt: skip
#: The number that stands for all inputs that can be bent.
ALL = -1
Inputs = dict[str, torch.Tensor | list[torch.Tensor]]


@dataclass(frozen=True, slots=True)
class Case:
    """One way to call an op at a workload.

    `values` bends the input number `on` among those that can be bent, or `ALL`; `expanded`, `still`
    and `wide` lay out one alone, `permuted`, `sliced` and `unlike` each in its own way, other
    layouts all alike. `poison` picks what unwritten memory shows. A `repeat` runs twice and must
    give the same bits.
    """

    seed: int
    layout: Layout = "contiguous"
    values: Values = "recipe"
    poison: int = 0
    on: int = 0
    repeat: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor lies in its own buffer of `room` elements; stride and offset in elements."""

    shape: Shape
    stride: tuple[int, ...]
    offset: int
    room: int


def draw(op: OpSpec, at: Workload, case: Case, device: torch.device | str) -> Inputs:
    """The inputs by name, each in the dtype of the contract; a list argument is a list.

    Values are drawn in float32 and rounded, so that the rounding is nobody's error. The gaps of a
    strided layout hold NaN, or the largest integer.
    """
    where = places(op, at, case)
    return {
        name: drawn if tensor.count is not None else drawn[0]
        for name, tensor in op.inputs.items()
        for drawn in [list(_draw_each(op, at, case, name, where[name], torch.device(device)))]
    }


def places(op: OpSpec, at: Workload, case: Case) -> dict[str, tuple[Place, ...]]:
    """The memory layout of each input, without drawing it: what a recording needs to know."""
    names, first = op.names(at), case.on if case.layout in NUMBERED else 0
    alone = case.layout in ONE_ALONE
    if alone:
        first //= max(1, len(spreadable(op, case.layout)))
    return {
        name: tuple(
            place(shape, _layout(op, name, case, i), first if alone else number + i)
            for i, shape in enumerate(tensor.shapes(names))
        )
        for number, (name, tensor) in enumerate(op.inputs.items(), first)
    }


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


def bendable(op: OpSpec, at: Workload, values: Values = "recipe") -> list[str]:
    """The inputs that a value class can bend: floating, with a normal or uniform recipe.

    Those with infinities bend masks of bools as well. Scales stay positive, but may be small;
    weights that sum to one may all be 0 but one; indices may crowd. What is changed in place stays
    finite, for the order of an update decides what becomes of an infinity.
    """
    if values == "crowded":
        drawn = {name: tensor.recipe for name, tensor in op.inputs.items()}
        return [
            n for n, recipe in drawn.items() if isinstance(recipe, Index) and not recipe.distinct
        ]
    recipes = (Normal, Uniform, *_ALSO.get(values, ()))
    masks = ("bool",) if values in INFINITE else ()
    return [
        name
        for name, tensor in op.inputs.items()
        if op.dtype(tensor, at).startswith(("float", "bfloat", *masks))
        and isinstance(tensor.recipe, recipes)
        and not (name in op.mutates and values in INFINITE)
    ]


def _layout(op: OpSpec, name: str, case: Case, i: int = 0) -> Layout:
    if isinstance(op.inputs[name].recipe, Offsets):
        return "contiguous"
    if case.layout == "unlike":
        return _UNLIKE[(list(op.inputs).index(name) + i + case.on) % len(_UNLIKE)]
    if case.layout not in ONE_ALONE:
        return case.layout
    spread = spreadable(op, case.layout)
    hit = spread and spread[case.on % len(spread)] == name
    return case.layout if hit else "contiguous"


def spreadable(op: OpSpec, layout: Layout = "expanded") -> list[str]:
    """The inputs of which one alone is laid out: writing through a stride of 0 has no meaning.

    Nor has one value for all of a permutation, or of what else a recipe ties together.
    """
    loose = layout != "still"
    return [
        name
        for name, tensor in op.inputs.items()
        if name not in op.mutates and (loose or isinstance(tensor.recipe, Normal | Uniform))
    ]


def _draw_each(
    op: OpSpec, at: Workload, case: Case, name: str, where: tuple[Place, ...], device: torch.device
) -> Iterator[torch.Tensor]:
    tensor, can = op.inputs[name], bendable(op, at, case.values)
    dtype: torch.dtype = getattr(torch, op.dtype(tensor, at))
    bent = name in can and (case.on == ALL or can[case.on % len(can)] == name)
    for i, spot in enumerate(where):
        random = torch.Generator(device).manual_seed(
            _mixed(case.seed, list(op.inputs).index(name), i)
        )
        kept = tuple(
            1 if s == 0 and n > 1 else n for n, s in zip(spot.shape, spot.stride, strict=True)
        )
        values = draw_values(tensor.recipe, kept, _names(tensor, op.names(at), i), dtype, random)
        if _layout(op, name, case) == "still":
            # what the gradient of a sum is; any other number has a mean that is not quite itself
            values = torch.ones_like(values) if _takes_one(tensor.recipe) else values
        if bent:
            values = bend(values, case.values, dtype, random)
            if isinstance(tensor.recipe, Simplex):
                values = values / values.sum(-1, keepdim=True)
        yield _lay(values.to(dtype), spot)


def _takes_one(recipe: Recipe) -> bool:
    within = isinstance(recipe, Uniform) and recipe.low <= 1 <= recipe.high
    return within or isinstance(recipe, Normal)


def _mixed(*numbers: int) -> int:
    """A seed that depends on all bits of all numbers: a host's generator takes 32 bits of one."""
    return int.from_bytes(blake2b(repr(numbers).encode(), digest_size=8).digest(), "big")


def _lay(values: torch.Tensor, spot: Place) -> torch.Tensor:
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


def _names(tensor: Tensor, names: Mapping[str, object], i: int) -> Names:
    """The names that formulas see: for a list argument, the i-th entry of each tuple."""
    if tensor.count is None:
        return names
    return {k: v[i] if isinstance(v, tuple) else v for k, v in names.items()}


def _row_major(shape: Shape) -> tuple[int, ...]:
    return tuple(prod(max(1, n) for n in shape[i + 1 :]) for i in range(len(shape)))


def flat(inputs: Inputs) -> list[torch.Tensor]:
    """The tensors in call order, a list argument's items in a row: a graph's placeholders."""
    return [
        tensor for one in inputs.values() for tensor in (one if isinstance(one, list) else [one])
    ]


def size_of(op: OpSpec, at: Workload) -> int:
    """The elements of the largest input or output: what a case costs to run."""
    names = op.names(at)
    tensors = [*op.inputs.values(), *op.outputs.values()]
    return max((prod(shape) for t in tensors for shape in t.shapes(names)), default=0)
