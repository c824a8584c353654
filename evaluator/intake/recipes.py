"""Guesses from an example tensor how such values are drawn. Runs in the intake job."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from evaluator.errors import ProblemError
from kernel_library.recipe import (
    Index,
    Normal,
    Offsets,
    Permutation,
    Recipe,
    Simplex,
    Uniform,
)

#: Values looked at: enough for a mean and a spread, whatever the tensor's size.
SAMPLE = 1 << 18
LEAST_STD = 0.02
#: A bound below which such small values come less often than this is another tensor's. Of their
#: values so many count at most: an example may repeat a few draws.
CHANCE, DRAWS = 1e-6, 20


def recipe_of(name: str, example: torch.Tensor, highs: Iterable[int] = ()) -> Recipe:
    """How values like these are drawn.

    Floats are uniform or normal by their moments, or weights that sum to one. Integers are
    indices below the bound that `randint` was given (the least of `highs` that may well be
    theirs), else below their largest value + 1; a single negative value among them is the ignored
    label.
    """
    if example.numel() == 0:
        raise ProblemError("is empty: give an example with values", f"input {name!r}")
    if example.dtype == torch.bool:
        return Uniform(0.0, float(_sample(example).float().mean()))
    if example.dtype.is_floating_point:
        return _of_floats(example)
    return _of_integers(example, highs)


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


def _of_integers(example: torch.Tensor, highs: Iterable[int]) -> Recipe:
    values = example.to(torch.int64)
    if _is_offsets(values):
        return Offsets(total=str(int(values[-1])))
    if _is_permutation(values):
        return Permutation()
    negative = values[values < 0]
    # a label that counts for none is one value; small integers are numbers, not labels
    several = bool(negative.numel()) and int(negative.min()) != int(negative.max())
    if several or (negative.numel() and example.dtype.itemsize == 1):
        return Uniform(float(values.min()), float(values.max()))
    below = _bound(values, highs)
    if not negative.numel():
        return Index(below=str(below), distinct=_is_distinct(values, below))
    share = negative.numel() / values.numel()
    return Index(below=str(below), ignored=int(negative[0]), share=share)


def _bound(values: torch.Tensor, highs: Iterable[int]) -> int:
    """The least bound that such values may well have been drawn below, else their largest + 1."""
    least = max(1, int(values.max()) + 1)
    draws = min(DRAWS, int((values >= 0).sum()))
    return min((h for h in highs if h >= least and (least / h) ** draws > CHANCE), default=least)


def _is_offsets(values: torch.Tensor) -> bool:
    if values.dim() != 1 or values.numel() < 2 or int(values[0]) != 0:
        return False
    steps = values.diff()
    # 0, 1, 2, ... is more often a list of positions
    return bool((steps >= 0).all()) and int(values[-1]) >= values.numel()


def _is_permutation(values: torch.Tensor) -> bool:
    if values.dim() == 0 or values.shape[-1] < 2:
        return False
    rows = values.sort(-1).values
    return bool((rows == torch.arange(values.shape[-1])).all())


def _is_distinct(values: torch.Tensor, below: int) -> bool:
    """Whether no row repeats an entry, where chance alone would have made some do so."""
    if values.dim() < 2 or values.shape[-1] < 2:
        return False
    many = values.shape[-1]
    by_chance = values.numel() * (many - 1) / 2 / below
    rows = values.sort(-1).values
    return by_chance > 8 and bool((rows.diff(dim=-1) != 0).all())


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
