"""What rounding does to an answer: a graph in float64, rounded at random on the way.

Monte Carlo arithmetic (D. S. Parker, UCLA CSD-970002, 1997). Each result is off by up to half a
step of the dtype that torch has there. What goes on within an op is in float32: each operand is off
by up to half a step of that, and one of a product of K terms by sqrt(K) times as much, as the sum
of K roundings in a row is (N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2002,
section 4.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from evaluator import aten
from evaluator.graphs import run
from kernel_library.graph import Graph

#: Products of matrices, and which argument is summed over along its last axis.
_PRODUCTS = {
    "aten.mm.default": 0, "aten.bmm.default": 0, "aten.mv.default": 0, "aten.dot.default": 0,
    "aten.matmul.default": 0, "aten.linear.default": 0, "aten.addmm.default": 1,
    "aten.baddbmm.default": 1, "aten.addmv.default": 1,
    "aten.scaled_dot_product_attention.default": 0,
}  # fmt: skip


class Rounding:
    """A graph on some inputs, to be run with other roundings each time."""

    def __init__(self, graph: Graph, inputs: Sequence[torch.Tensor]) -> None:
        self.graph, self.inputs = graph, inputs
        self._random = torch.Generator(inputs[0].device).manual_seed(0)
        self._steps: list[float] = []
        run(graph, inputs, after=self._noted)
        dtypes = {t.dtype for t in inputs}
        finest = torch.float64 if torch.float64 in dtypes else torch.float32
        self._within = torch.finfo(finest).eps

    def run(self) -> tuple[torch.Tensor, ...]:
        """The outputs, in float64."""
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
