"""Does a case say anything? Not where a dtype, or torch itself, cannot say what is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite, isnan
from typing import Any

import torch

from evaluator import aten
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
#: The step at 1 of what ops compute in.
WITHIN = torch.finfo(torch.float32).eps
#: Products of matrices, and which argument is summed over along its last axis.
_PRODUCTS = {
    "aten.mm.default": 0, "aten.bmm.default": 0, "aten.mv.default": 0, "aten.dot.default": 0,
    "aten.matmul.default": 0, "aten.linear.default": 0, "aten.addmm.default": 1,
    "aten.baddbmm.default": 1, "aten.addmv.default": 1,
    "aten.scaled_dot_product_attention.default": 0,
}  # fmt: skip


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
    where a compiler fuses the two. There the float64 truth misses the dtype's bounds, too, once it
    is rounded on the way as `_Rounding` says, and by as much in each row.
    """
    if sum(tensor.numel() for tensor in inputs) > FEW:
        return False
    if [g.shape for g in got] != [t.shape for t in wanted.truth]:
        return False
    exact = tuple(t.to(o.dtype) for t, o in zip(wanted.truth, wanted.own, strict=True))
    strict, rounding = replace(wanted, own=exact), _Rounding(graph, inputs)
    missed, worst = False, _errors(wanted.own, wanted.truth)
    for n in range(TRIES):
        own = tuple(t.to(o.dtype) for t, o in zip(rounding.run(), wanted.own, strict=True))
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


class _Rounding:
    """Runs a graph in float64 with random roundings: Monte Carlo arithmetic.

    Each result is off by up to half a step of the dtype that torch has there. What goes on within
    an op is in float32: each operand is off by up to half a step of that, and one of a product of K
    terms by sqrt(K) times as much, as the sum of K roundings in a row is. (D. S. Parker, Monte
    Carlo arithmetic, UCLA CSD-970002, 1997; N. J. Higham, Accuracy and Stability of Numerical
    Algorithms, 2002, section 4.2.)
    """

    def __init__(self, graph: Graph, inputs: Sequence[torch.Tensor]) -> None:
        self.graph, self.inputs = graph, inputs
        self._random = torch.Generator(inputs[0].device).manual_seed(0)
        self._steps: list[float] = []
        run(graph, inputs, after=self._noted)
        dtypes = {t.dtype for t in inputs}
        finest = torch.float64 if torch.float64 in dtypes else torch.float32
        self._within = torch.finfo(finest).eps

    def run(self) -> tuple[torch.Tensor, ...]:
        """The outputs with other roundings each time, in float64."""
        steps = iter(self._steps)

        def rounded(_: str, result: Any) -> Any:  # noqa: ANN401
            return self._moved(result, next(steps))

        return run(self.graph, self.inputs, widen=True, before=self._operands, after=rounded)

    def _noted(self, op: str, result: Any) -> Any:  # noqa: ANN401
        rounds = isinstance(result, torch.Tensor) and result.is_floating_point() and not _looks(op)
        self._steps.append(torch.finfo(result.dtype).eps if rounds else 0.0)
        return result

    def _operands(self, op: str, args: list[Any]) -> list[Any]:
        if _looks(op):
            return args
        many = _PRODUCTS.get(op)
        return [
            self._moved(arg, self._within * (arg.shape[-1] ** 0.5 if i == many else 1.0))
            if isinstance(arg, torch.Tensor) and arg.dim()
            else arg
            for i, arg in enumerate(args)
        ]

    def _moved(self, value: Any, step: float) -> Any:  # noqa: ANN401
        """A tensor of floats with each moved by up to half a step."""
        if not step or not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        share = torch.empty_like(value).uniform_(-0.5, 0.5, generator=self._random)
        return value * (1 + step * share)


def _looks(op: str) -> bool:
    """Whether an op only looks at its operand in another way, and computes nothing."""
    # torch calls a cast a view, too, for one to the same dtype is
    view: bool = op != "getitem" and getattr(aten.resolve(op), "is_view", False)
    return view and not op.startswith("aten.to.")
