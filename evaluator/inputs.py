"""Draws what an op is called with: values by recipe, bent by a value class, laid out in memory.

Only the judge draws. The same op, workload and case give the same bits on the same kind of device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from math import prod

import torch

from evaluator.layouts import NUMBERED, ONE_ALONE, Layout, Place, lay, place
from evaluator.values import INFINITE, Names, Values, bend, draw_values, tied
from kernel_library.formula import evaluate, names_in
from kernel_library.recipe import (
    Index,
    Normal,
    Offsets,
    Permutation,
    Recipe,
    Scales,
    Simplex,
    Structured,
    Uniform,
    plain,
)
from kernel_library.spec import OpSpec, Tensor, Workload

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
            place(shape, _layout(op, name, case, i), turn if alone else number + i)
            for i, shape in enumerate(tensor.shapes(names))
        )
        for number, (name, tensor) in enumerate(op.inputs.items(), first)
        for turn in [first if _is_loose(tensor.recipe) else 0]
    }


def bendable(op: OpSpec, at: Workload, values: Values = "recipe") -> list[str]:
    """The inputs that a value class can bend: floating, with a normal or uniform recipe.

    Those with infinities bend masks of bools as well. Scales stay positive, but may be small;
    weights that sum to one may all be 0 but one; indices may crowd. What is changed in place stays
    finite, for the order of an update decides what becomes of an infinity.
    """
    if values == "crowded":
        drawn = {name: plain(tensor.recipe) for name, tensor in op.inputs.items()}
        return [n for n, of in drawn.items() if isinstance(of, Index) and not of.distinct]
    recipes = (Normal, Uniform, *_ALSO.get(values, ()))
    masks = ("bool",) if values in INFINITE else ()
    return [
        name
        for name, tensor in op.inputs.items()
        if op.dtype(tensor, at).startswith(("float", "bfloat", *masks))
        and isinstance(plain(tensor.recipe), recipes)
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

    Nor has one value for all of a permutation, or of what else a recipe ties together, nor one row
    for all of a triangular matrix.
    """

    def may(recipe: Recipe) -> bool:
        if layout == "still":
            return isinstance(recipe, Normal | Uniform)
        return not (layout == "expanded" and isinstance(recipe, Structured))

    return [name for name, t in op.inputs.items() if name not in op.mutates and may(t.recipe)]


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
            values = tied(tensor.recipe, values)
        yield lay(values.to(dtype), spot)


def _is_loose(recipe: Recipe) -> bool:
    """Whether a row may be one value throughout: a permutation may not, nor weights of sum one."""
    of = plain(recipe)
    return not (isinstance(of, Permutation | Simplex) or (isinstance(of, Index) and of.distinct))


def _takes_one(recipe: Recipe) -> bool:
    within = isinstance(recipe, Uniform) and recipe.low <= 1 <= recipe.high
    return within or isinstance(recipe, Normal)


def _mixed(*numbers: int) -> int:
    """A seed that depends on all bits of all numbers: a host's generator takes 32 bits of one."""
    return int.from_bytes(blake2b(repr(numbers).encode(), digest_size=8).digest(), "big")


def _names(tensor: Tensor, names: Mapping[str, object], i: int) -> Names:
    """The names that formulas see: for a list argument, the i-th entry of each tuple."""
    if tensor.count is None:
        return names
    return {k: v[i] if isinstance(v, tuple) else v for k, v in names.items()}


def flat(inputs: Inputs) -> list[torch.Tensor]:
    """The tensors in call order, a list argument's items in a row: a graph's placeholders."""
    return [
        tensor for one in inputs.values() for tensor in (one if isinstance(one, list) else [one])
    ]


def size_of(op: OpSpec, at: Workload) -> int:
    """The elements of the largest input or output: what a case costs to run.

    Where indices go over several axes, as lengths go over the pages of a cache, as many for each.
    """
    names = op.names(at)
    tensors = [*op.inputs.values(), *op.outputs.values()]
    reached = [
        prod(shape) * int(evaluate(of.below, names))
        for tensor in op.inputs.values()
        if isinstance(of := plain(tensor.recipe), Index) and len(names_in(of.below)) > 1
        for shape in tensor.shapes(names)
    ]
    return max([*reached, *(prod(shape) for t in tensors for shape in t.shapes(names))], default=0)
