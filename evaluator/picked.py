"""Indices are judged by what they pick: another index of an equal value is as right.

Which outputs are indices, and of what, is read from the graph: they come from an arg-maximum, a
sort or a selection, perhaps cast, and they index what went into it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from evaluator.codes import unrounded
from evaluator.graphs import run
from evaluator.rounding import coarsest
from kernel_library.graph import Graph, Node

#: Ops that give indices: the place of theirs among their results, the position of the axis among
#: their arguments, and the axis that they take where none is given.
_INDEX_OPS: Mapping[str, tuple[int | None, int, int | None]] = {
    "aten.argmax.default": (None, 1, None), "aten.argmin.default": (None, 1, None),
    "aten.argsort.default": (None, 1, -1), "aten.argsort.stable": (None, 1, -1),
    "aten.max.dim": (1, 1, -1), "aten.min.dim": (1, 1, -1), "aten.median.dim": (1, 1, -1),
    "aten.sort.default": (1, 1, -1), "aten.sort.stable": (1, 1, -1),
    "aten.topk.default": (1, 2, -1), "aten.kthvalue.default": (1, 2, -1),
}  # fmt: skip
#: Ops that leave an index what it is.
_CASTS = (
    "aten._to_copy.default", "aten.to.dtype", "aten.clone.default", "aten.contiguous.default",
    "aten.detach.default",
)  # fmt: skip
#: How far from the truth what is picked may be, in units of torch's own largest error there.
TIMES_TORCH = 2.0


@dataclass(frozen=True, slots=True)
class Pick:
    """An output that holds indices: of which of the graph's values, and along which axis.

    No axis stands for the flattened value. A `stable` order keeps equals as they stood.
    """

    output: int
    source: str
    axis: int | None
    stable: bool = False


@dataclass(frozen=True, slots=True)
class Picked:
    """What indices of an output index: its float64 truth and torch's own, and the axis."""

    truth: torch.Tensor
    own: torch.Tensor
    axis: int | None
    stable: bool = False


@dataclass(frozen=True, slots=True)
class Answers:
    """What a reference says at one point: the float64 truth, torch's own, and what is picked.

    It is `rounded` where torch's own stands for the truth. By the number of an output, `unrounded`
    is what 8-bit integers were rounded from, `coarsest` the dtype of the fewest bits on the way,
    and `unsaid` where nothing is said of it.
    """

    truth: Sequence[torch.Tensor]
    own: Sequence[torch.Tensor]
    picked: Mapping[int, Picked] = field(default_factory=dict)
    unrounded: Mapping[int, torch.Tensor] = field(default_factory=dict)
    coarsest: Mapping[int, torch.dtype] = field(default_factory=dict)
    unsaid: Mapping[int, torch.Tensor] = field(default_factory=dict)
    rounded: bool = False


def answers(graph: Graph, inputs: Sequence[torch.Tensor], widen: bool = True) -> Answers:
    """The graph's outputs, with what its indices index beside them.

    Without `widen`, torch's own answer stands for the truth.
    """
    found = tuple(picks(graph))
    watched = replace(graph, outputs=(*graph.outputs, *(pick.source for pick in found)))
    dtypes: dict[str, torch.dtype] = {}

    def noted(node: Node, result: Any) -> Any:  # noqa: ANN401
        if isinstance(result, torch.Tensor) and result.is_floating_point():
            dtypes[node.name] = result.dtype
        return result

    own = run(watched, inputs, after=noted)
    if widen:
        truth = run(watched, inputs, widen=True)
    else:
        truth = tuple(t.double() if t.is_floating_point() else t for t in own)
    count = len(graph.outputs)
    sources = zip(found, truth[count:], own[count:], strict=True)
    picked = {pick.output: Picked(t, o, pick.axis, pick.stable) for pick, t, o in sources}
    codes = unrounded(graph, inputs, own[:count], widen)
    steps = {n: dtype for n, dtype in enumerate(coarsest(graph, dtypes)) if dtype}
    return Answers(truth[:count], own[:count], picked, codes, steps, rounded=not widen)


def picks(graph: Graph) -> Iterator[Pick]:
    """The outputs that hold indices."""
    nodes = {node.name: node for node in graph.nodes}
    for number, name in enumerate(graph.outputs):
        node, place = nodes.get(name), None
        while node is not None and node.op in (*_CASTS, "getitem"):
            place = node.args[1] if node.op == "getitem" else place
            node = nodes.get(_ref(node))
        if node is not None and node.op in _INDEX_OPS:
            wanted, position, otherwise = _INDEX_OPS[node.op]
            if wanted is None or place == wanted:
                stable = node.kwargs.get("stable") is True
                yield Pick(number, _ref(node), _axis(node, position, otherwise), stable)


def _ref(node: Node) -> str:
    first = node.args[0] if node.args else None
    return str(first["ref"]) if isinstance(first, dict) and "ref" in first else ""


def _axis(node: Node, position: int, otherwise: int | None) -> int | None:
    given = node.args[position] if len(node.args) > position else node.kwargs.get("dim", otherwise)
    return given if isinstance(given, int) else None


def fault(got: torch.Tensor, truth: torch.Tensor, picked: Picked) -> str:
    """What is wrong with an output's indices, in words; nothing if they pick what is to be picked.

    `truth` holds the indices of the float64 run; shapes and dtypes are as they must be.
    """
    values, own, axis = picked.truth, picked.own.to(torch.float64), picked.axis
    if got.is_floating_point() and bool((got != got.round()).any()):
        return "has an index that is no whole number"
    if axis is None:
        values, own, axis = values.reshape(-1), own.reshape(-1), 0
    index, right = (_along(t.long(), values, axis) for t in (got, truth))
    if bool(((index < 0) | (index >= values.shape[axis])).any()):
        return "has an index outside of what it indexes"
    ranked = index.sort(dim=axis).values
    if bool((ranked.diff(dim=axis) == 0).any()):
        return "has an index twice"
    mine, wanted = values.gather(axis, index), values.gather(axis, right)
    same = _alike(mine, wanted, _slack(values, own))
    if not bool(same.all()):
        return "picks other values than the truth's"
    if picked.stable and bool((_tied(mine, axis) & (index.diff(dim=axis) < 0)).any()):
        return "puts equals in another order, where a stable one is asked for"
    return ""


def _slack(values: torch.Tensor, own: torch.Tensor) -> float:
    off = torch.where(values.isfinite() & own.isfinite(), own - values.to(torch.float64), 0.0)
    return TIMES_TORCH * float(off.abs().amax()) if off.numel() else 0.0


def _alike(mine: torch.Tensor, wanted: torch.Tensor, slack: float) -> torch.Tensor:
    """Whether values are the same; whole numbers and bools just so, for differences wrap round."""
    if not mine.is_floating_point():
        return mine == wanted
    near = (mine - wanted).abs() <= slack
    return (mine == wanted) | (mine.isnan() & wanted.isnan()) | near


def _tied(picks: torch.Tensor, axis: int) -> torch.Tensor:
    """Whether each pick along the axis is equal to the one before."""
    count = picks.shape[axis]
    return picks.narrow(axis, 1, count - 1) == picks.narrow(axis, 0, count - 1)


def _along(index: torch.Tensor, values: torch.Tensor, axis: int) -> torch.Tensor:
    """The indices with the axis that a reduction has left out."""
    if index.dim() == values.dim():
        return index
    return index.reshape(1) if values.dim() == 1 else index.unsqueeze(axis)
