"""Guesses from an example tensor how such values are drawn. Runs in the intake job."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import lgamma, log

import torch

from evaluator.errors import ProblemError
from kernel_library.recipe import (
    Form,
    Index,
    Normal,
    Offsets,
    Permutation,
    Recipe,
    Simplex,
    Sorted,
    Structured,
    Uniform,
)

#: Values looked at: enough for a mean and a spread, whatever the tensor's size.
SAMPLE = 1 << 18
LEAST_STD = 0.02
#: A bound below which such small values come less often than this is another tensor's, and what
#: chance orders less often than this is sorted. Of values so many count at most for a bound: an
#: example may repeat a few draws.
CHANCE, DRAWS = 1e-6, 20
#: Fewer numbers than this that rise to an axis' size may do so by chance.
FEW = 4


@dataclass(frozen=True, slots=True)
class Hints:
    """What an author's file says of values beside the values themselves.

    `drawn` holds the two bounds of each `randint`, `shuffled` the length of each `randperm`,
    `sizes` the sides of all example inputs.
    """

    drawn: frozenset[tuple[int, int]] = frozenset()
    shuffled: frozenset[int] = frozenset()
    sizes: frozenset[int] = frozenset()


NONE = Hints()


def recipe_of(name: str, example: torch.Tensor, hints: Hints = NONE) -> Recipe:
    """How values like these are drawn.

    Floats are uniform or normal by their moments, or weights that sum to one. Integers are
    indices within the bounds that `randint` was given (the least that may well be theirs), else
    below their largest value + 1; a single negative value among them is the ignored label.
    Offsets end with an axis' size, or start at 0. What rises along its last axis is sorted; square
    matrices may be triangular or symmetric.
    """
    if example.numel() == 0:
        raise ProblemError("is empty: give an example with values", f"input {name!r}")
    if example.dtype == torch.bool:
        return Uniform(0.0, float(_sample(example).float().mean()))
    if example.dtype.is_floating_point:
        found = _of_floats(example)
    else:
        found = _of_integers(example.to(torch.int64), example.dtype.itemsize == 1, hints)
    if isinstance(found, Normal | Uniform | Index) and _is_sorted(example):
        return Sorted(found)
    return _structured(example) or found if isinstance(found, Normal | Uniform) else found


def _sample(example: torch.Tensor) -> torch.Tensor:
    flat = example.reshape(-1)
    return flat[:: max(1, flat.numel() // SAMPLE)]


def _of_floats(example: torch.Tensor) -> Recipe:
    values = _sample(example).double()
    values = values[values.isfinite()]
    if values.numel() < 2 or float(values.std()) == 0:
        return Normal()
    mean, std = float(values.mean()), float(values.std())
    low, high = float(values.min()), float(values.max())
    if low >= 0 and _rows_sum_to_one(example):
        return Simplex()
    if low >= 0 and high < 2**24 and bool((values == values.round()).all()):
        return Index(below=str(int(high) + 1))
    # the fourth moment is 1.8 for even values and 3 for normal ones
    if values.numel() >= 64 and float(((values - mean) / std).pow(4).mean()) < 2.2:
        return Uniform(*_rounded(low, high))
    # as near to the standard normal as a sample of this size can tell
    slack = 0.02 + 4 * values.numel() ** -0.5
    return Normal() if abs(mean) < slack and abs(std - 1) < slack else Normal(mean, std)


def _structured(example: torch.Tensor) -> Structured | None:
    """The recipe of square matrices that are triangular or symmetric; a diagonal one is neither."""
    if example.dim() < 2 or not 2 < example.shape[-1] == example.shape[-2]:
        return None
    values = example.float()
    forms: dict[Form, torch.Tensor] = {
        "upper": values.triu(), "lower": values.tril(), "symmetric": values.mT
    }  # fmt: skip
    fit = [form for form, same in forms.items() if torch.equal(values, same)]
    if len(fit) != 1:
        return None
    rows, columns = torch.triu_indices(*values.shape[-2:])
    of = _of_floats((values.mT if fit[0] == "lower" else values)[..., rows, columns])
    return Structured(of, fit[0]) if isinstance(of, Normal | Uniform) else None


def _rounded(low: float, high: float) -> tuple[float, float]:
    """The bounds that the author had in mind: the nearest tenths where those are close."""
    slack = 0.02 * (high - low)
    near = [round(v, 1) if abs(round(v, 1) - v) < slack else v for v in (low, high)]
    return near[0], near[1]


def _rows_sum_to_one(example: torch.Tensor) -> bool:
    if example.dim() < 2 or example.shape[-1] < 2:
        return False
    rows = example.reshape(-1, example.shape[-1])[:64].double()
    return bool((rows.sum(-1) - 1).abs().max() < 1e-2) and bool(rows.std() > 0)


def _of_integers(values: torch.Tensor, small: bool, hints: Hints) -> Recipe:
    offsets = _offsets(values, hints)
    if offsets is not None:
        return offsets
    if _is_permutation(values):
        return Permutation()
    negative = values[values < 0]
    # a label that counts for none is one value; small integers are numbers, not labels
    several = bool(negative.numel()) and int(negative.min()) != int(negative.max())
    if several or (negative.numel() and small):
        return Uniform(float(values.min()), float(values.max()))
    low, below = _bounds(values[values >= 0], hints)
    if not negative.numel():
        return Index(str(below), distinct=_is_distinct(values, below, hints), low=low)
    share = negative.numel() / values.numel()
    return Index(str(below), ignored=int(negative[0]), share=share, low=low)


def _bounds(values: torch.Tensor, hints: Hints) -> tuple[int, int]:
    """The least bounds that such values may well have been drawn within, else 0 and largest + 1."""
    if not values.numel():
        return 0, 1
    able = [
        (high, low)
        for low, high in hints.drawn | {(0, n) for n in hints.shuffled}
        if 0 <= low <= int(values.min()) and _may_end(values, high)
    ]
    high, low = min(able, default=(int(values.max()) + 1, 0))
    return low, high


def _may_end(values: torch.Tensor, high: int) -> bool:
    """Whether numbers drawn below `high` may well all be as small as these."""
    least = int(values.max()) + 1
    return least <= high and (least / high) ** min(DRAWS, values.numel()) > CHANCE


def _offsets(values: torch.Tensor, hints: Hints) -> Offsets | None:
    """The recipe of offsets: they end with an axis' size, or start with 0, or both."""
    if values.dim() != 1 or values.numel() < 2 or bool((values.diff() < 0).any()):
        return None
    first, last = int(values[0]), int(values[-1])
    # 0, 1, 2, ... is more often a list of positions
    if first < 0 or last < values.numel():
        return None
    if first > 0:
        ends = last in hints.sizes and values.numel() >= FEW
        return Offsets(str(last), first=False) if ends else None
    longer = [n for n in hints.sizes if n > last and _may_end(values, n)]
    starts = last not in hints.sizes and bool(longer)
    return Offsets(str(min(longer)), last=False) if starts else Offsets(str(last))


def _is_permutation(values: torch.Tensor) -> bool:
    if values.dim() == 0 or values.shape[-1] < 2:
        return False
    rows = values.sort(-1).values
    return bool((rows == torch.arange(values.shape[-1])).all())


def _is_distinct(values: torch.Tensor, below: int, hints: Hints) -> bool:
    """Whether no row repeats an entry, where chance alone would have made some do so."""
    if values.dim() < 1 or values.shape[-1] < 2:
        return False
    many = values.shape[-1]
    by_chance = values.numel() * (many - 1) / 2 / below
    rows = values.sort(-1).values
    told = by_chance > 8 or below in hints.shuffled
    return told and bool((rows.diff(dim=-1) != 0).all())


def _is_sorted(example: torch.Tensor) -> bool:
    """Whether each row rises, of three numbers or more, where chance would not have ordered one.

    Two numbers are a mask, which a kernel must take in any order.
    """
    values = example.float() if example.is_floating_point() else example.to(torch.int64)
    if not values.dim() or not bool((values.diff(dim=-1) >= 0).all()):
        return False
    row = _sample(values.reshape(-1, values.shape[-1])[0])
    counts = Counter(row.tolist()).values()
    orders = lgamma(row.numel() + 1) - sum(lgamma(n + 1) for n in counts)
    return len(counts) > 2 and orders > -log(CHANCE)


def parameter_recipe(name: str, values: torch.Tensor) -> Normal:
    """Parameters keep their mean and spread, so that the kernel meets such as training starts from.

    A spread of at least 0.02: a weight of ones and a bias of zeros would hide a missing term.
    """
    if values.is_meta:
        return unseen_parameter(name, tuple(values.shape))
    sample = _sample(values).double()
    std = float(sample.std()) if sample.numel() > 1 else 0.0
    return Normal(round(float(sample.mean()), 4), round(max(std, LEAST_STD), 4))


def unseen_parameter(name: str, shape: tuple[int, ...]) -> Normal:
    """The usual start of a parameter too large to look at."""
    if len(shape) < 2:
        return Normal(0.0 if "bias" in name else 1.0, LEAST_STD)
    return Normal(0.0, max(LEAST_STD, round(shape[1] ** -0.5, 4)))
