"""Random inputs, as the contract's recipes describe them."""

from __future__ import annotations

import math

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
    plain,
)
from kernel_library.spec import OpSpec, Workload

Argument = torch.Tensor | list[torch.Tensor]


def draw(spec: OpSpec, at: Workload, seed: int, device: str) -> list[Argument]:
    """The op's arguments at this workload, in order: the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    names = spec.names(at)
    arguments: list[Argument] = []
    for tensor in spec.inputs.values():
        dtype = getattr(torch, spec.dtype(tensor, at))
        made = [
            _typed(plain(tensor.recipe), values, dtype).to(device)
            for shape in tensor.shapes(names)
            for values in [_values(tensor.recipe, shape, names, generator)]
        ]
        arguments.append(made if tensor.count is not None else made[0])
    return arguments


def _typed(recipe: Recipe, values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if dtype is torch.bool and isinstance(recipe, Uniform):
        return torch.as_tensor(values < recipe.low + (recipe.high - recipe.low) * recipe.high)
    return values.to(dtype)


def _values(
    recipe: Recipe, shape: tuple[int, ...], names: dict[str, object], generator: torch.Generator
) -> torch.Tensor:
    even = torch.rand(shape, generator=generator, dtype=torch.float64)
    match recipe:
        case Normal(mean=mean, std=std):
            return mean + std * torch.randn(shape, generator=generator, dtype=torch.float64)
        case Uniform(low=low, high=high):
            return low + (high - low) * even
        case Index():
            return _index(recipe, even, int(evaluate(recipe.below, names)), generator)
        case Offsets():
            return _offsets(recipe, even, int(evaluate(recipe.total, names)))
        case Scales(low=low, high=high):
            return torch.exp(math.log(low) + (math.log(high) - math.log(low)) * even)
        case Simplex():
            return torch.softmax(3 * even, dim=-1)
        case Permutation():
            return even.argsort(dim=-1)
        case Sorted(of=of) | Structured(of=of):
            return _tied(recipe, _values(of, shape, names, generator))


def _tied(recipe: Sorted | Structured, values: torch.Tensor) -> torch.Tensor:
    if isinstance(recipe, Sorted):
        return values.sort(dim=-1).values
    upper = values.triu()
    halves = {"upper": upper, "lower": values.tril(), "symmetric": upper + values.triu(1).mT}
    return halves[recipe.form]


def _index(
    recipe: Index, even: torch.Tensor, below: int, generator: torch.Generator
) -> torch.Tensor:
    many = below - recipe.low
    index = (even * many).long()
    if recipe.distinct:
        order = torch.rand((*even.shape[:-1], many), generator=generator).argsort(dim=-1)
        index = order[..., : even.shape[-1]]
    index = index + recipe.low
    if recipe.ignored is None:
        return index
    gone = torch.rand(even.shape, generator=generator) < recipe.share
    return index.masked_fill(gone, recipe.ignored)


def _offsets(recipe: Offsets, even: torch.Tensor, total: int) -> torch.Tensor:
    cuts = (even * (total + 1)).long().clamp(max=total)
    cuts[: recipe.first] = 0
    cuts[len(cuts) - recipe.last :] = total
    return cuts.sort().values
