"""Does a case say anything? Not where a dtype, or torch itself, cannot say what is right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import isfinite, isnan

import torch

from evaluator.compare import Mismatch, compare, peak
from evaluator.graphs import run
from evaluator.matrix import Point, is_public
from evaluator.picked import Answers
from evaluator.values import INFINITE
from kernel_library.graph import Graph
from kernel_library.spec import OpSpec, Tolerance

#: Elements of the inputs up to which torch's own error may be luck, how often to try it, and after
#: how many tries without a miss to believe that it is none.
FEW, TRIES, ENOUGH = 1 << 20, 32, 8


def holds(op: OpSpec, point: Point, wanted: Answers) -> bool:
    """Whether a candidate that fails a case is held to it.

    Always at a public workload with plain inputs, where admission saw torch's own answer pass;
    elsewhere where that passes: at a hidden size, all that float16 holds may be below its steps,
    and where one row stands for all of a weight, a gradient may be a sum of nothing.
    """
    at, case = point
    if is_public(op, at) and case.values == "recipe" and case.layout == "contiguous":
        return True
    return meaningful(wanted, op.tolerance, case.values in INFINITE)


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
    got: Sequence[torch.Tensor],
    wanted: Answers,
    graph: Graph,
    inputs: Sequence[torch.Tensor],
    tolerance: Tolerance,
) -> bool:
    """Whether an answer that is too far off is so only because torch's own had better luck.

    Where a formula cancels all that it sums, as the gradient of a norm over one value does, what is
    left is rounding: none, where a product was rounded before it was subtracted from itself; some,
    where a compiler fuses the two. There the float64 truth misses the dtype's bounds, too, once
    each result on the way is off by up to half a step of its own dtype, and by as much in each row
    (Monte Carlo arithmetic, D. S. Parker, UCLA CSD-970002, 1997).
    """
    if sum(tensor.numel() for tensor in inputs) > FEW:
        return False
    if [g.shape for g in got] != [t.shape for t in wanted.truth]:
        return False
    steps: list[float] = []
    run(graph, inputs, after=lambda result: _noted(result, steps))
    exact = tuple(t.to(o.dtype) for t, o in zip(wanted.truth, wanted.own, strict=True))
    strict, random = replace(wanted, own=exact), torch.Generator(exact[0].device).manual_seed(0)
    missed, worst = False, _errors(wanted.own, wanted.truth)
    for n in range(TRIES):
        tried = run(graph, inputs, widen=True, after=_nudger(steps, random))
        own = tuple(t.to(o.dtype) for t, o in zip(tried, wanted.own, strict=True))
        worst = list(map(torch.maximum, worst, _errors(own, wanted.truth)))
        try:
            compare(own, strict, tolerance)
        except Mismatch:
            missed = True
        if n + 1 == ENOUGH and not missed:
            return False
    k, mine = tolerance.times_torch, _errors(got, wanted.truth)
    return missed and all(bool((m <= k * w).all()) for m, w in zip(mine, worst, strict=True))


def _errors(some: Sequence[torch.Tensor], truth: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The largest difference in each row of each output, along the last axis."""
    away = [(s.double() - t.double()).abs() for s, t in zip(some, truth, strict=True)]
    return [e.amax(-1) if e.dim() and e.numel() else e.reshape(-1) for e in away]


def _noted(result: object, steps: list[float]) -> object:
    """The result as it is, and its dtype's step at 1 in the list: 0 for what is not rounded."""
    dtype = result.dtype if isinstance(result, torch.Tensor) else torch.int64
    steps.append(torch.finfo(dtype).eps if dtype.is_floating_point else 0.0)
    return result


def _nudger(steps: Sequence[float], random: torch.Generator) -> Callable[[object], object]:
    """What moves each value of each result in turn by up to half the step of that result."""
    left = iter(steps)

    def nudged(result: object) -> object:
        step = next(left)
        if not isinstance(result, torch.Tensor) or not step:
            return result
        share = torch.rand(result.shape, generator=random, dtype=result.dtype, device=result.device)
        return result * (1 + step * (share - 0.5))

    return nudged
