"""Fills a contract with the graphs of its reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from evaluator.errors import ProblemError
from evaluator.graphs import check
from evaluator.intake.asking import call_at, exports
from evaluator.intake.wire import Exported, Failure
from evaluator.isolate import Isolate
from kernel_library.graph import Graph
from kernel_library.spec import OpSpec, Workload


def export(op: OpSpec, workloads: Sequence[Workload], isolate: Isolate) -> OpSpec:
    """The contract with `reference.graphs[str(at)]` for each of these workloads.

    A graph's inputs are the op's in order, a list argument item by item; its outputs are the op's
    outputs, then its mutated inputs in the order of `mutates`. Workloads that have a graph are
    not exported again. Raises `ProblemError` where the reference raises or breaks the contract.
    """
    known = op.reference.graphs
    missing = list({str(at): at for at in workloads if str(at) not in known}.values())
    if not missing:
        return op
    calls = [call_at(op, at) for at in missing]
    answers = exports(isolate, op.reference.source, op.reference.entry, calls)
    graphs = {str(at): _agreed(op, at, answer) for at, answer in zip(missing, answers, strict=True)}
    filled = {**known, **graphs}
    return replace(op, reference=replace(op.reference, graphs=filled))


def _agreed(op: OpSpec, at: Workload, answer: Exported | Failure) -> Graph:
    if isinstance(answer, Failure):
        raise ProblemError(f"{answer.message} (at {at})", answer.where or "reference")
    check(answer.graph)
    graph = _ordered(op, at, answer)
    names = op.names(at)
    wanted = [shape for tensor in op.outputs.values() for shape in tensor.shapes(names)]
    given = [output.shape for output in answer.outputs]
    if wanted != given:
        raise ProblemError(f"returns {given}, the contract says {wanted} (at {at})", "reference")
    return graph


def _ordered(op: OpSpec, at: Workload, answer: Exported) -> Graph:
    """The graph with its written inputs in the contract's order."""
    positions, start = {}, 0
    for name, tensor in op.inputs.items():
        count = len(tensor.shapes(op.names(at)))
        positions[name], start = range(start, start + count), start + count
    wanted = [position for name in op.mutates for position in positions[name]]
    if len(answer.graph.inputs) != start or sorted(wanted) != sorted(answer.mutated):
        written = [n for n, spans in positions.items() if set(spans) & set(answer.mutated)]
        raise ProblemError(f"writes to {written}, `mutates` says {list(op.mutates)}", "reference")
    returned = len(answer.graph.outputs) - len(answer.mutated)
    written_by = dict(zip(answer.mutated, answer.graph.outputs[returned:], strict=True))
    ordered = (*answer.graph.outputs[:returned], *(written_by[p] for p in wanted))
    return replace(answer.graph, outputs=ordered)
