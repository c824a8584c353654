"""Is what has 8 bits rounded, or cut off? Told by the error of all elements together.

For integers that takes what they were rounded from, which is the graph without its roundings: the
code of a value halfway between two may be either, and where such values are common a right
quantiser may have other codes than the truth as often as one that cuts off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from evaluator.graphs import run
from evaluator.poison import bits
from evaluator.tolerance import FEWEST_CODES, TIMES_ROUNDING
from kernel_library.graph import Graph, Node

_CODES = (torch.int8, torch.uint8)
_ROUNDS = frozenset({"aten.round.default"})
_CASTS = frozenset({"aten._to_copy.default", "aten.to.dtype"})
_NAMES = tuple(str(dtype).removeprefix("torch.") for dtype in _CODES)


def unrounded(
    graph: Graph, inputs: Sequence[torch.Tensor], own: Sequence[torch.Tensor], widen: bool = True
) -> Mapping[int, torch.Tensor]:
    """What each output of 8-bit integers was rounded from, within the range of its dtype.

    None for one that no float was rounded to.
    """
    coded = [i for i, output in enumerate(own) if output.dtype in _CODES]
    opened = tuple(_opened(node) for node in graph.nodes)
    if not coded or opened == graph.nodes:
        return {}
    wanted = replace(graph, nodes=opened, outputs=tuple(graph.outputs[i] for i in coded))
    found = zip(coded, run(wanted, inputs, widen=widen), strict=True)
    return {i: _within(value, own[i].dtype) for i, value in found if value.is_floating_point()}


def _opened(node: Node) -> Node:
    """The node; a clone of its operand if all that it does is round."""
    casts = node.op in _CASTS and any(
        {"dtype": name} in (*node.args[1:], node.kwargs.get("dtype")) for name in _NAMES
    )
    if node.op in _ROUNDS or casts:
        return replace(node, op="aten.clone.default", args=node.args[:1], kwargs={})
    return node


def _within(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    limits = torch.iinfo(dtype)
    return value.double().clamp(limits.min, limits.max)


def is_cut(norm: float, norm_own: float, count: int) -> bool:
    """Whether errors of this norm are more than rounding so many elements to 8 bits gives."""
    return count >= FEWEST_CODES and not norm <= TIMES_ROUNDING * norm_own


def cut(got: torch.Tensor, own: torch.Tensor, exact: torch.Tensor) -> bool:
    """Whether integers were not rounded to, where torch's own were."""
    known = exact.isfinite()
    mine, theirs = (
        float(torch.linalg.vector_norm(torch.where(known, codes - exact, 0.0)))
        for codes in (got, own)
    )
    return is_cut(mine, theirs, int(known.sum()))


def rank(codes: torch.Tensor) -> torch.Tensor:
    """8-bit floats as integers in the order of their values."""
    code = bits(codes).to(torch.int16)
    return (code & 0x7F) * (1 - 2 * (code >> 7))
