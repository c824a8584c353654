"""The values of one input: each recipe's draw, and the classes that bend it to show a bug."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import log, prod
from typing import Literal, get_args

import torch

from kernel_library.formula import evaluate
from kernel_library.recipe import (
    Index,
    Normal,
    Offsets,
    Permutation,
    Recipe,
    Scales,
    Simplex,
    Sorted,
    Structured,
    Uniform,
)
from kernel_library.spec import Shape

Values = Literal[
    "recipe", "offset", "large", "negative", "tiny", "mixed", "zeros", "ties", "infinite", "masked",
    "overflowed", "onehot", "ramp", "crowded",
]  # fmt: skip
VALUES: tuple[Values, ...] = get_args(Values)
#: Classes that hold infinities: their truths may be infinite, and a row with NaN says nothing.
INFINITE: frozenset[Values] = frozenset({"infinite", "masked", "overflowed"})
#: Classes that all inputs are bent to at once, as well: a sum of two is zero only where both are,
#: and shows what is left out of it only where little else is there.
ALIKE: frozenset[Values] = frozenset({"tiny", "zeros", "onehot"})
Names = Mapping[str, object]
#: Of so many indices two are the first and the last that may be: where a table ends is masked.
_BOTH_ENDS = 8

#: Large values: square roots of them fit, and so do float16 norms; exp of them overflows.
_LARGE = {torch.float8_e4m3fn: 100.0, torch.float16: 5e3, torch.float8_e5m2: 5e3}
#: Small values that each dtype still holds with some bits.
_TINY = {torch.float8_e4m3fn: 2.0**-5, torch.float8_e5m2: 2.0**-10, torch.float16: 1e-4}
#: A mean that leaves the spread a few bits of mantissa: one-pass variances drown here.
_OFFSET = {
    torch.float8_e4m3fn: 2.0, torch.float8_e5m2: 2.0, torch.bfloat16: 16.0, torch.float16: 64.0
}  # fmt: skip


def draw_values(
    recipe: Recipe, shape: Shape, names: Names, dtype: torch.dtype, random: torch.Generator
) -> torch.Tensor:
    """Values in float32 (or int64, or bool) that round to `dtype` without leaving its range."""
    match recipe:
        case Normal(mean=mean, std=std):
            return _fit(_normal(shape, random) * std + mean, dtype)
        case Uniform(low=low, high=high):
            return _uniform(shape, low, high, dtype, random)
        case Index():
            return _index(recipe, shape, names, random)
        case Offsets():
            return _offsets(recipe, shape[0], int(evaluate(recipe.total, names)), random)
        case Scales(low=low, high=high):
            span = log(high) - log(low)
            return _fit(low * torch.exp(_even(shape, random) * span), dtype)
        case Simplex():
            # gamma(1) draws over their sum are even on the simplex
            return tied(recipe, -torch.log1p(-_even(shape, random)) + 1e-3)
        case Permutation():
            return torch.argsort(_even(shape, random), -1)
        case Sorted(of=of) | Structured(of=of):
            return tied(recipe, draw_values(of, shape, names, dtype, random))


def bend(
    values: torch.Tensor, how: Values, dtype: torch.dtype, random: torch.Generator
) -> torch.Tensor:
    """The values made into a class that shows a kind of bug, still within the dtype's range."""
    return values if how == "recipe" else _fit(_BENDS[how](values, dtype, random), dtype)


def tied(recipe: Recipe, values: torch.Tensor) -> torch.Tensor:
    """The values with what their recipe ties together tied again."""
    match recipe:
        case Simplex():
            return values / values.sum(-1, keepdim=True)
        case Sorted():
            return values.sort(-1).values
        case Structured(form="upper"):
            return values.triu()
        case Structured(form="lower"):
            return values.tril()
        case Structured():
            return values.triu() + values.triu(1).mT
        case _:
            return values


Bend = Callable[[torch.Tensor, torch.dtype, torch.Generator], torch.Tensor]


def _mixed(values: torch.Tensor, dtype: torch.dtype, random: torch.Generator) -> torch.Tensor:
    """Each row at a scale of its own, over six decades."""
    rows = (*values.shape[:-1], 1) if values.dim() > 1 else values.shape
    decades = 1.0 if dtype.itemsize == 1 else 3.0
    return values * 10 ** ((2 * _even(rows, random) - 1) * decades)


def _infinite(values: torch.Tensor, dtype: torch.dtype, random: torch.Generator) -> torch.Tensor:
    """Some entries, and the head or the tail of some rows, at minus infinity, as masked logits."""
    masked = _even(values.shape, random) < 1 / 8
    if values.dim() > 1:
        head = torch.arange(values.shape[-1], device=values.device) < values.shape[-1] // 2
        rows = (*values.shape[:-1], 1)
        heads, tails = _some(_even(rows, random)), _some(_even(rows, random))
        masked |= torch.where(heads, head, tails & ~head)
    return values.masked_fill(masked, _lowest(dtype))


def _masked(values: torch.Tensor, dtype: torch.dtype, random: torch.Generator) -> torch.Tensor:
    """A row or more wholly at minus infinity, as the logits of a query that may see no key are."""
    return values.masked_fill(_rows(values, random), _lowest(dtype))


def _overflowed(values: torch.Tensor, dtype: torch.dtype, random: torch.Generator) -> torch.Tensor:
    """A few entries at plus infinity, as what no longer fitted a dtype is; a bool's rows true."""
    if dtype == torch.bool:
        return values | _rows(values, random)
    largest = 448.0 if dtype == torch.float8_e4m3fn else float("inf")
    return values.masked_fill(_even(values.shape, random) < 1 / 32, largest)


def _lowest(dtype: torch.dtype) -> float:
    """What stands for no weight at all: minus infinity, where a dtype has it."""
    return {torch.bool: 0.0, torch.float8_e4m3fn: -448.0}.get(dtype, float("-inf"))


def _rows(values: torch.Tensor, random: torch.Generator) -> torch.Tensor:
    """Some rows, and always one."""
    draw = _even((*values.shape[:-1], 1) if values.dim() > 1 else values.shape, random)
    return _some(draw)


def _some(draw: torch.Tensor) -> torch.Tensor:
    """A quarter of the draws, and always one."""
    return (draw < 1 / 4) | (draw == draw.amin()) if draw.numel() else draw < 0


def _onehot(values: torch.Tensor, dtype: torch.dtype, random: torch.Generator) -> torch.Tensor:
    """All but one entry of each row zero."""
    if not values.numel() or not values.dim():
        return values
    kept = torch.argmax(_even(values.shape, random), -1, keepdim=True)
    return torch.zeros_like(values).scatter(-1, kept, values.gather(-1, kept))


def _crowded(values: torch.Tensor, dtype: torch.dtype, random: torch.Generator) -> torch.Tensor:
    """Nearly all indices the same: one expert for most tokens, one label for most rows."""
    if not values.numel():
        return values
    one = values.flatten()[int(_even((1,), random) * values.numel())]
    return torch.where(_even(values.shape, random) < 15 / 16, one, values)


def _ramp(values: torch.Tensor, dtype: torch.dtype, random: torch.Generator) -> torch.Tensor:
    """A sawtooth in memory order: whatever is read from the wrong place differs."""
    steps = torch.arange(values.numel(), device=values.device) % 97
    return (steps.float() / 48 - 1).reshape(values.shape)


_BENDS: Mapping[Values, Bend] = {
    "offset": lambda v, t, _: v + _OFFSET.get(t, 100.0),
    "large": lambda v, t, _: v * _LARGE.get(t, 1e4),
    # a maximum that starts at zero drowns a row that has nothing near it
    "negative": lambda v, t, _: -(1 + v.abs()) * _LARGE.get(t, 1e4),
    "tiny": lambda v, t, _: v * _TINY.get(t, 1e-6),
    "mixed": _mixed,
    "zeros": lambda v, _, __: torch.zeros_like(v),
    "ties": lambda v, _, __: torch.round(v),
    "infinite": _infinite,
    "masked": _masked,
    "overflowed": _overflowed,
    "onehot": _onehot,
    "ramp": _ramp,
    "crowded": _crowded,
}


def _normal(shape: Shape, random: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=random, device=random.device, dtype=torch.float32)


def _even(shape: Shape, random: torch.Generator) -> torch.Tensor:
    return torch.rand(shape, generator=random, device=random.device, dtype=torch.float32)


def _uniform(
    shape: Shape, low: float, high: float, dtype: torch.dtype, random: torch.Generator
) -> torch.Tensor:
    if dtype == torch.bool:
        return _even(shape, random) < high
    if not dtype.is_floating_point:
        whole = torch.randint(
            int(low), int(high) + 1, shape, generator=random, device=random.device
        )
        return _fit(whole, dtype)
    return _fit(low + _even(shape, random) * (high - low), dtype)


def _index(recipe: Index, shape: Shape, names: Names, random: torch.Generator) -> torch.Tensor:
    below = int(evaluate(recipe.below, names))
    if recipe.distinct and shape:
        every = torch.argsort(_even((*shape[:-1], below - recipe.low), random), -1)
        drawn = every[..., : shape[-1]] + recipe.low
    elif prod(shape):
        drawn = torch.randint(recipe.low, below, shape, generator=random, device=random.device)
    else:
        drawn = torch.empty(shape, dtype=torch.int64, device=random.device)
    if not recipe.distinct and drawn.numel() >= _BOTH_ENDS:
        at = int(_even((1,), random) * (drawn.numel() - 1))
        drawn.view(-1)[at : at + 2] = drawn.new_tensor([recipe.low, below - 1])
    if recipe.ignored is not None:
        drawn[_even(shape, random) < recipe.share] = recipe.ignored
    return drawn


def _offsets(recipe: Offsets, bounds: int, total: int, random: torch.Generator) -> torch.Tensor:
    """Rising bounds from 0 to total; of three sequences or more, at least one is empty."""
    inner = max(0, bounds - recipe.first - recipe.last)
    cuts = torch.randint(0, total + 1, (inner,), generator=random, device=random.device)
    if inner > 1:
        cuts[0] = cuts[1]
    ends = cuts.new_tensor([0, total])
    first, last = ends[: recipe.first], ends[1 : 1 + recipe.last]
    return torch.cat([first, cuts.sort().values, last])[:bounds]


def _fit(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Finite values clamped to what the dtype holds; whole numbers for an integer."""
    if dtype == torch.bool:
        return values > 0
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        return torch.round(values.double()).clamp(info.min, info.max).long()
    bound = min(torch.finfo(dtype).max, torch.finfo(torch.float32).max)
    return torch.where(values.isinf(), values, values.clamp(-bound, bound))
