"""Does a case say anything? Not where a dtype, or torch itself, cannot say what is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite, isnan

import torch

from evaluator.compare import Mismatch, compare, peak
from evaluator.picked import Answers, answers
from kernel_library.graph import Graph
from kernel_library.spec import Tolerance

#: Elements of the inputs up to which torch's own error may be luck, and how often to try it.
FEW, TRIES = 1 << 12, 16


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
    left is rounding. There torch misses its dtype's bounds, too, on these inputs or on some very
    near to them, and by as much.
    """
    if sum(tensor.numel() for tensor in inputs) > FEW:
        return False
    wanted = answers(graph, inputs).truth
    if [g.shape for g in got] != [t.shape for t in wanted]:
        return False
    random = torch.Generator().manual_seed(0)
    missed, worst = False, [0.0] * len(got)
    for number in range(TRIES):
        near = [_nudged(tensor, random) if number else tensor for tensor in inputs]
        found = answers(graph, near)
        exact = tuple(t.to(o.dtype) for t, o in zip(found.truth, found.own, strict=True))
        worst = [max(w, e) for w, e in zip(worst, _errors(found.own, found.truth), strict=True)]
        try:
            compare(found.own, replace(found, own=exact), tolerance)
        except Mismatch:
            missed = True
    k, mine = tolerance.times_torch, _errors(got, wanted)
    return missed and all(m <= k * w for m, w in zip(mine, worst, strict=True))


def _errors(some: Sequence[torch.Tensor], truth: Sequence[torch.Tensor]) -> list[float]:
    """The largest difference in each output."""
    return [
        float((s.double() - t.double()).abs().amax()) if s.numel() else 0.0
        for s, t in zip(some, truth, strict=True)
    ]


def _nudged(tensor: torch.Tensor, random: torch.Generator) -> torch.Tensor:
    """The values of a floating tensor moved by up to a thousandth, or two steps of its dtype."""
    if not tensor.is_floating_point():
        return tensor
    most = max(2 * torch.finfo(tensor.dtype).eps, 1e-3)
    share = most * (2 * torch.rand(tensor.shape, generator=random, dtype=torch.float64) - 1)
    return (tensor.double() * (1 + share.to(tensor.device))).to(tensor.dtype)
