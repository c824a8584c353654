"""Does a case say anything? Not where a dtype, or torch itself, cannot say what is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite, isnan

import torch

from evaluator.compare import Mismatch, compare, peak
from evaluator.graphs import run
from evaluator.picked import Answers, answers
from kernel_library.graph import Graph
from kernel_library.spec import Tolerance

#: Elements of the inputs up to which torch's own error may be luck, and how often to try it.
FEW, TRIES = 1 << 16, 32


def meaningful(wanted: Answers, tolerance: Tolerance, infinite: bool = False) -> bool:
    """Whether the truth stays in the dtype's range, and torch's own answer would pass.

    Where that would be rejected, as by cancellation, no other is held to it. With `infinite` (an
    input holds infinities), infinite truths count, NaN does not.
    """
    for truth, own in zip(wanted.truth, wanted.own, strict=True):
        if own.is_floating_point():
            largest = peak(truth.to(own.dtype))
            if isnan(largest) if infinite else not isfinite(largest):
                return False
    try:
        compare(wanted.own, wanted, tolerance)
    except Mismatch:
        return False
    return True


def noise(
    got: Sequence[torch.Tensor], graph: Graph, inputs: Sequence[torch.Tensor], tolerance: Tolerance
) -> bool:
    """Whether an answer that is too far off is so only because torch's own had better luck.

    Where a formula cancels all that it sums, as the gradient of a norm over one value does, what is
    left is rounding: none, where a product was rounded before it was subtracted from itself; some,
    where a compiler fuses the two. There torch misses its dtype's bounds, too, once each float32
    result on the way is off by up to a step, and by as much in each row (Monte Carlo arithmetic,
    D. S. Parker, UCLA CSD-970002, 1997).
    """
    if sum(tensor.numel() for tensor in inputs) > FEW:
        return False
    wanted = answers(graph, inputs)
    if [g.shape for g in got] != [t.shape for t in wanted.truth]:
        return False
    exact = tuple(t.to(o.dtype) for t, o in zip(wanted.truth, wanted.own, strict=True))
    strict, random = replace(wanted, own=exact), torch.Generator().manual_seed(0)
    missed, worst = False, _errors(wanted.own, wanted.truth)
    for _ in range(TRIES):
        own = run(graph, inputs, after=lambda result: _nudged(result, random))
        worst = list(map(torch.maximum, worst, _errors(own, wanted.truth)))
        try:
            compare(own, strict, tolerance)
        except Mismatch:
            missed = True
    k, mine = tolerance.times_torch, _errors(got, wanted.truth)
    return missed and all(bool((m <= k * w).all()) for m, w in zip(mine, worst, strict=True))


def _errors(some: Sequence[torch.Tensor], truth: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The largest difference in each row of each output, along the last axis."""
    away = [(s.double() - t.double()).abs() for s, t in zip(some, truth, strict=True)]
    return [e.amax(-1) if e.dim() and e.numel() else e.reshape(-1) for e in away]


def _nudged(result: object, random: torch.Generator) -> object:
    """A float32 result with each value moved by up to a step; another as it is."""
    if not isinstance(result, torch.Tensor) or result.dtype != torch.float32:
        return result
    share = 2 * torch.rand(result.shape, generator=random, dtype=torch.float64) - 1
    step = torch.finfo(torch.float32).eps
    return (result.double() * (1 + step * share.to(result.device))).float()
