"""What rounding does to an answer: a graph in float64, rounded at random on the way.

Monte Carlo arithmetic (D. S. Parker, UCLA CSD-970002, 1997). Each result that is computed is off by
up to half a step of the dtype that torch has there; what is only picked or moved is exact, so that
no kernel may take an equal for a lesser one. Within an op that sums, in float32, what is summed is
off by up to half a step of that; in a product of K terms, which kernels sum in a row, by sqrt(K)
times as much (N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 4.2), the
terms of a run all the same way: what a sum in a row loses grows with how far it goes before it
comes back, where terms of either sign mix as where a run of them adds up. So are K terms of a row
that are all the same: they are rounded the same way again and again, and the mean of 1845 such in
float32, taken by 64 lanes, is up to 9 half steps off (of 1000 rows). An op that subtracts the
logarithm of a sum is off by up to half a float32 step of that, as it is where the two are written
out: torch takes differences first, and is right to 1e-7 where a loss is nearly 0.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from evaluator import aten
from evaluator.graphs import refs, run
from kernel_library.graph import Graph, Node

#: Products of matrices, by name, and which argument is summed over along its last axis.
_PRODUCTS = {
    "mm": 0, "bmm": 0, "mv": 0, "dot": 0, "matmul": 0, "linear": 0, "addmm": 1, "baddbmm": 1,
    "addmv": 1, "scaled_dot_product_attention": 0,
}  # fmt: skip
#: Into how many runs the terms of a product are cut.
_RUNS = 16
#: Ops that make a tensor of another dtype, or of nothing: they sum nothing.
_MADE = frozenset({
    "arange", "empty_like", "full", "full_like", "ones_like", "to", "to_copy", "type_as",
    "zeros_like",
})  # fmt: skip
#: Ops beside those that pick or move through which an infinity stays one.
_KEEPING = frozenset({"add", "div", "mul", "rsub", "sub", "to", "to_copy"})
#: Ops that pick, move or count and round nothing, beside views.
_EXACT = frozenset({
    "abs", "amax", "amin", "aminmax", "cat", "ceil", "clamp", "clamp_max", "clamp_min", "clone",
    "constant_pad_nd", "embedding", "flip", "floor", "gather", "index", "index_select",
    "kthvalue", "masked_fill", "max", "maximum", "median", "min", "minimum", "neg", "relu",
    "repeat", "roll", "round", "scatter", "sign", "sort", "stack", "take_along_dim", "topk",
    "tril", "triu", "trunc", "where",
})  # fmt: skip


class Rounding:
    """A graph on some inputs, to be run with other roundings each time."""

    def __init__(self, graph: Graph, inputs: Sequence[torch.Tensor]) -> None:
        self.graph, self.inputs = graph, inputs
        self._nodes = {node.name: node for node in graph.nodes}
        self._random = torch.Generator(inputs[0].device).manual_seed(0)
        self._steps: dict[str, float] = {}
        self._levels: dict[str, torch.Tensor] = {}
        run(graph, inputs, after=self._noted)
        double = any(tensor.dtype == torch.float64 for tensor in inputs)
        self._within = torch.finfo(torch.float64 if double else torch.float32).eps

    def run(self) -> tuple[torch.Tensor, ...]:
        """The outputs, in float64."""
        return run(self.graph, self.inputs, widen=True, before=self._operands, after=self._rounded)

    def _noted(self, node: Node, result: Any) -> Any:  # noqa: ANN401
        floats = isinstance(result, torch.Tensor) and result.is_floating_point()
        rounds = floats and not is_exact(node, self._nodes)
        self._steps[node.name] = torch.finfo(result.dtype).eps if rounds else 0.0
        return result

    def _rounded(self, node: Node, result: Any) -> Any:  # noqa: ANN401
        if node.name in self._levels:
            result = result + self._levels.pop(node.name)
        return self._moved(result, self._steps[node.name])

    def _operands(self, node: Node, args: list[Any]) -> list[Any]:
        name = _name(node)
        if name == "log_softmax":
            self._levels[node.name] = self._level(args[0], args[1], keepdim=True)
        elif name == "cross_entropy_loss":
            off = self._level(args[0], min(1, args[0].dim() - 1), keepdim=False)
            reduction = args[3] if len(args) > 3 else 1
            self._levels[node.name] = (off, off.mean(), off.sum())[reduction]
        if name not in _PRODUCTS:
            summed = _sums(node) and not is_exact(node, self._nodes)
            return [self._summed(args[0]), *args[1:]] if args and summed else args
        at = _PRODUCTS[name]
        return [*args[:at], self._in_a_row(args[at]), *args[at + 1 :]]

    def _summed(self, value: Any) -> Any:  # noqa: ANN401
        """Each term off by itself; those of a row in which all are the same, as in a product."""
        moved = self._moved(value, self._within)
        if moved is value:
            return value
        for axis, n in enumerate(value.shape):
            if n < 2:
                continue
            alike = value.amax(axis, keepdim=True) == value.amin(axis, keepdim=True)
            if alike.any():
                row = self._in_a_row(value.movedim(axis, -1)).movedim(-1, axis)
                moved = torch.where(alike, row, moved)
        return moved

    def _in_a_row(self, terms: torch.Tensor) -> torch.Tensor:
        """Terms off by what is lost where they are summed one after another."""
        n = terms.shape[-1]
        moved: torch.Tensor = self._moved(terms, self._within * n**0.5, -(-n // _RUNS))
        return moved

    def _level(self, logits: torch.Tensor, axis: int, *, keepdim: bool) -> torch.Tensor:
        """By how much the logarithm of each row's sum of exponentials may be off."""
        level = torch.logsumexp(logits, axis, keepdim=keepdim)
        # a row that is infinite has no step
        return torch.nan_to_num(self._moved(level, self._within) - level, nan=0.0)

    def _moved(self, value: Any, step: float, run: int = 1) -> Any:  # noqa: ANN401
        """A tensor of floats with each moved by up to half a step, `run` of a row alike."""
        if not step or not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        some = value[..., ::run] if run > 1 else value
        share = torch.empty_like(some).uniform_(-0.5, 0.5, generator=self._random)
        if run > 1:
            share = share.repeat_interleave(run, -1)[..., : value.shape[-1]]
        return value * (1 + step * share)


def is_exact(node: Node, nodes: Mapping[str, Node]) -> bool:
    """Whether a node only picks, moves or counts; `nodes` are the graph's, by name."""
    if node.op == "getitem":
        source = nodes.get(str(node.args[0]["ref"]))  # type: ignore[index, call-overload]
        return source is not None and is_exact(source, nodes)
    # torch calls a cast a view, too, for one to the same dtype is
    view = getattr(aten.resolve(node.op), "is_view", False) and _name(node) != "to"
    return view or _name(node) in _EXACT


def coarsest(graph: Graph, dtypes: Mapping[str, torch.dtype]) -> tuple[torch.dtype | None, ...]:
    """By output, the dtype of the fewest bits that anything it was computed from was rounded to.

    `dtypes` are the graph's floats by name. None where no node that it comes of rounds.
    """
    steps: dict[str, torch.dtype | None] = {}
    nodes = {node.name: node for node in graph.nodes}
    for node in graph.nodes:
        own = None if is_exact(node, nodes) else dtypes.get(node.name)
        known = [own, *(steps.get(name) for name in refs(node))]
        steps[node.name] = max(
            (dtype for dtype in known if dtype), key=lambda d: torch.finfo(d).eps, default=None
        )
    return tuple(steps.get(name) for name in graph.outputs)


def is_factor(graph: Graph, inputs: Collection[str]) -> bool:
    """Whether an infinity in any of these inputs would still be one where a product takes it."""
    nodes = {node.name: node for node in graph.nodes}
    reached = set(inputs)
    for node in graph.nodes:
        first = _PRODUCTS.get(_name(node))
        # behind two factors come a bias, or values, and then a mask
        factors = 3 if "attention" in node.op else 2
        if first is not None and reached & {*refs(node.args[first : first + factors])}:
            return True
        if reached & {*refs(node)} and (is_exact(node, nodes) or _name(node) in _KEEPING):
            reached.add(node.name)
    return False


def _sums(node: Node) -> bool:
    """Whether a number of the result depends on several of the first argument."""
    if node.op == "getitem" or _name(node) in _MADE:
        return False
    return torch.Tag.pointwise not in getattr(aten.resolve(node.op), "tags", ())


def _name(node: Node) -> str:
    """The op without its namespace, overload and leading underscore."""
    return aten.packet(node.op).lstrip("_")
