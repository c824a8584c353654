"""Does a case say anything? Not where a dtype, or torch itself, cannot say what is right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import isfinite, isinf, isnan

import torch

from evaluator.compare import OFF, Mismatch, compare, peak
from evaluator.errors import ProblemError
from evaluator.inputs import bendable
from evaluator.matrix import Point, is_public
from evaluator.picked import Answers
from evaluator.poison import bits
from evaluator.rounding import Rounding, is_factor
from evaluator.values import INFINITE
from kernel_library.graph import Graph
from kernel_library.spec import OpSpec, Tolerance

#: Elements of each input up to which it is tried whether torch's own error is luck (on a GPU, for a
#: core is not given more than 2^20), how often, and after how many tries without a miss to believe
#: that it is none.
FEW, TRIES, ENOUGH = 1 << 25, 32, 8


def holds(op: OpSpec, point: Point, wanted: Answers) -> bool:
    """Whether a candidate that fails a case is held to it.

    Always at a public workload with plain inputs, where admission saw torch's own answer pass;
    elsewhere where that passes: at a hidden size, all that float16 holds may be below its steps,
    and where one row stands for all of a weight, a gradient may be a sum of nothing. Never where
    infinities are factors of a product: what torch's own makes of such a row, a softmax of nothing
    but infinities, say, is its own choice.
    """
    case = point[1]
    if _is_plain(op, point):
        return True
    if case.values in INFINITE and _is_factor(op, point):
        return False
    return meaningful(wanted, op.tolerance, case.values in INFINITE)


def told(
    op: OpSpec, point: Point, ask: Callable[[], Answers], on_host: Callable[[], Answers]
) -> Answers | None:
    """What the reference says to a case; none where it raises, whatever it is asked.

    Raises its `ProblemError` at a public workload with plain inputs, which admission saw it take,
    and where it does not raise `on_host`: then it is what a candidate has left of the GPU's memory.
    """
    try:
        return ask()
    except ProblemError:
        if _is_plain(op, point) or not _raises(on_host):
            raise
        return None


def _raises(ask: Callable[[], Answers]) -> bool:
    try:
        ask()
    except ProblemError:
        return True
    return False


def _is_plain(op: OpSpec, point: Point) -> bool:
    at, case = point
    return is_public(op, at) and (case.values, case.layout) == ("recipe", "contiguous")


def _is_factor(op: OpSpec, point: Point) -> bool:
    at, case = point
    graph = op.reference.graphs.get(str(at))
    bent = bendable(op, at, case.values)
    if graph is None or not bent:
        return False
    named = [name for name, t in op.inputs.items() for _ in t.shapes(op.names(at))]
    hit = [i for i, name in enumerate(named) if name == bent[case.on % len(bent)]]
    return is_factor(graph, [graph.inputs[i] for i in hit])


def said(
    got: Sequence[torch.Tensor], wanted: Answers, op: OpSpec, point: Point
) -> tuple[tuple[torch.Tensor, ...], Answers]:
    """An answer and the truth, with zeros where nothing is said (`Answers.unsaid`).

    Where infinities go in, NaN may come out, and the order of a formula decides where: then rows
    whose truth has a NaN are zero in all three, and infinities elsewhere. So are those that come of
    plus infinity, for a sum of exponentials may give NaN there. Where something is updated in place
    and becomes infinite it may as well be NaN: `m + (g - m) * w` and `m * (1 - w) + g * w` differ.
    A whole number that is rounded from NaN may be any.

    Elsewhere elements that are more than their dtype holds are zero: what overflows excuses nobody
    from what does not.
    """
    case, got = point[1], tuple(got)
    if _is_plain(op, point):
        return got, wanted
    where = _infinite(wanted, op, point) if case.values in INFINITE else _overflown(wanted)
    if not where:
        return got, wanted
    truth, own = (_cleared(some, where) for some in (wanted.truth, wanted.own))
    same = [g.shape for g in got] == [t.shape for t in truth]
    cleared = _cleared(got, where) if same else got
    return cleared, replace(wanted, truth=truth, own=own, unsaid=where)


def _overflown(wanted: Answers) -> dict[int, torch.Tensor]:
    """Where a finite truth is more than its dtype holds, by the number of the output."""
    found = {
        i: _beyond(truth, own.dtype)
        for i, (truth, own) in enumerate(zip(wanted.truth, wanted.own, strict=True))
        if own.is_floating_point() and not isfinite(peak(truth.to(own.dtype)))
    }
    return {i: mask for i, mask in found.items() if mask.any()}


def _beyond(truth: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return truth.isfinite() & (truth.abs() > torch.finfo(dtype).max)


def _infinite(wanted: Answers, op: OpSpec, point: Point) -> dict[int, torch.Tensor]:
    """Where nothing is said of a case in which infinities go in."""
    at, case = point
    floats = [t.is_floating_point() for t in wanted.truth]
    none = not any(f and t.isnan().any() for f, t in zip(floats, wanted.truth, strict=True))
    whole = none and case.values != "overflowed"
    returned = sum(len(tensor.shapes(op.names(at))) for tensor in op.outputs.values())
    where = {
        i: t.isinf() if whole else _unsaid(t)
        for i, (f, t) in enumerate(zip(floats, wanted.truth, strict=True))
        if f and not (whole and i < returned)
    }
    return where | {i: t.isnan() for i, t in wanted.unrounded.items()}


def _unsaid(truth: torch.Tensor) -> torch.Tensor:
    nan = truth.isnan()
    return truth.isinf() | (nan.any(-1, keepdim=True) if nan.dim() > 1 else nan)


def _cleared(
    some: Sequence[torch.Tensor], where: Mapping[int, torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """The tensors with zeros where the masks of their numbers hold."""
    return tuple(
        bits(t).masked_fill(where[i], 0).view(t.dtype) if i in where else t
        for i, t in enumerate(some)
    )


def meaningful(wanted: Answers, tolerance: Tolerance, infinite: bool = False) -> bool:
    """Whether the truth stays in the dtype's range, and torch's own answer would pass.

    Where that would be rejected, as by cancellation, no other is held to it. A truth that is
    infinite itself is in range, as a masked score is; NaN is not. With `infinite` (an input holds
    infinities), so is one that overflows.
    """
    for truth, own in zip(wanted.truth, wanted.own, strict=True):
        if own.is_floating_point():
            largest = peak(truth.to(own.dtype))
            over = isinf(largest) and not infinite and bool(_beyond(truth, own.dtype).any())
            if isnan(largest) or over:
                return False
    try:
        compare(wanted.own, wanted, tolerance)
    except Mismatch:
        return False
    return True


def excused(
    reason: str,
    got: Sequence[torch.Tensor],
    wanted: Answers,
    op: OpSpec,
    point: Point,
    inputs: Sequence[torch.Tensor],
) -> bool:
    """Whether an answer is wrong for this reason only by rounding, as torch's own may be.

    By how much it is off, as `noise` has it; and where infinities go in, which of them come out:
    times minus infinity, a value next to the mean that is taken off it is either one, or NaN.
    """
    (at, case), tolerance = point, op.tolerance
    graph = op.reference.graphs[str(at)]
    if OFF in reason:
        return noise(got, wanted, graph, inputs, tolerance)
    if case.values not in INFINITE or not _is_small(got, wanted, inputs):
        return False
    where, rounding = dict(wanted.unsaid), Rounding(graph, inputs)
    for _ in range(ENOUGH):
        for i, (s, t) in enumerate(zip(rounding.run(), wanted.truth, strict=True)):
            if t.is_floating_point():
                other = ~((s == t) | (s.isfinite() & t.isfinite()))
                where[i] = where[i] | other if i in where else other
    truth, own, ours = (_cleared(some, where) for some in (wanted.truth, wanted.own, got))
    try:
        compare(ours, replace(wanted, truth=truth, own=own), tolerance)
    except Mismatch:
        return False
    return True


def _is_small(got: Sequence[torch.Tensor], wanted: Answers, inputs: Sequence[torch.Tensor]) -> bool:
    """Whether an answer has the shapes that it must, of inputs that may be tried many times."""
    few = all(tensor.numel() <= FEW for tensor in inputs)
    return few and [g.shape for g in got] == [t.shape for t in wanted.truth]


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
    where a compiler fuses the two. There the float64 truth misses the dtype's bounds, too, once it
    is rounded on the way as `evaluator.rounding` says, and by as much in each row.
    """
    if not _is_small(got, wanted, inputs):
        return False
    exact = tuple(t.to(o.dtype) for t, o in zip(wanted.truth, wanted.own, strict=True))
    strict, rounding = replace(wanted, own=exact), Rounding(graph, inputs)
    missed, worst = False, _errors(wanted.own, wanted.truth)
    for n in range(TRIES):
        some = zip(rounding.run(), wanted.own, strict=True)
        own = _cleared(tuple(t.to(o.dtype) for t, o in some), wanted.unsaid)
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
    pairs = [(s.double(), t.double()) for s, t in zip(some, truth, strict=True)]
    # infinities of one sign, and NaN, are no difference
    away = [torch.where((s == t) | (s.isnan() & t.isnan()), 0.0, (s - t).abs()) for s, t in pairs]
    return [e.amax(-1) if e.dim() and e.numel() else e.reshape(-1) for e in away]
