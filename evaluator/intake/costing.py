"""Gives a contract without formulas its cost, counted from its exported graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from evaluator.counting import Counts, Point, Term, count, fit, tabulate
from evaluator.graphs import check
from evaluator.intake.asking import call_at
from kernel_library.spec import ITEMSIZE, OpSpec, Workload

Counted = list[tuple[Workload, Counts]]


def with_cost(op: OpSpec) -> OpSpec:
    """The contract with `flops`, `matmul_flops`, `matmul_dtype` and `bytes` from its graphs.

    A formula where one gives every count exactly; otherwise the counts themselves at the workloads
    that have a graph, and 0 elsewhere. `bytes` stays empty where reading each input and writing
    each output once is what the graph does.
    """
    counted = [(at, _count(op, at)) for at in op.workloads if str(at) in op.reference.graphs]
    if not counted:
        return op
    measured = counted[-1][1]
    follows = all(c.matmul_dtype == at.dtypes.get("T") for at, c in counted)
    costed = replace(
        op,
        flops=_formula([(at, c.flops) for at, c in counted]),
        matmul_flops=_formula([(at, c.matmul_flops) for at, c in counted]),
        matmul_dtype="T" if follows else measured.matmul_dtype,
    )
    if all(costed.cost(at).bytes == c.cost.bytes for at, c in counted):
        return costed
    return replace(costed, bytes=_formula([(at, c.bytes) for at, c in counted], sized=True))


def _count(op: OpSpec, at: Workload) -> Counts:
    graph = op.reference.graphs[str(at)]
    check(graph)
    call = call_at(op, at)
    empties = [
        torch.empty(meta.shape, dtype=getattr(torch, meta.dtype), device="meta")
        for slot in call.args
        for meta in slot.tensors
    ]
    return count(graph, empties)


def _formula(points: Sequence[tuple[Workload, Sequence[Term]]], sized: bool = False) -> str:
    """`T_bytes`, the size of the free dtype, is one of the names where bytes are counted."""
    named: list[Point] = []
    for at, terms in points:
        # a list's sizes count by their sum
        dims = {a if isinstance(n, int) else f"sum({a})": total(n) for a, n in at.dims.items()}
        size = {"T_bytes": ITEMSIZE[at.dtypes["T"]]} if sized and "T" in at.dtypes else {}
        if all(known != {**dims, **size} for known, _ in named):
            named.append(({**dims, **size}, terms))
    sums: list[Point] = [(dims, [sum(terms)]) for dims, terms in named]
    return fit(named) or fit(sums) or tabulate(named)


def total(size: int | tuple[int, ...]) -> int:
    """The size of an axis, all items of a list together."""
    return size if isinstance(size, int) else sum(size)
