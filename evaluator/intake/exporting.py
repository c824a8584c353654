"""Fills a contract with the graphs of its reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import Lock

from evaluator.errors import ProblemError
from evaluator.graphs import check
from evaluator.inputs import Case, size_of
from evaluator.intake.asking import call_at, exports
from evaluator.intake.wire import Exported, Failure
from evaluator.isolate import Isolate
from evaluator.matrix import Point, is_public
from kernel_library.graph import Graph
from kernel_library.spec import OpSpec, Workload

#: What an exception says where the host has too little of something, which another process may have
#: seen to: nothing is left out for it.
SCARCE = ("MemoryError", "OSError", "BlockingIOError", "t allocate memory", "t start new thread")


def export(op: OpSpec, workloads: Sequence[Workload], isolate: Isolate) -> OpSpec:
    """The contract with `reference.graphs[str(at)]` for each of these workloads.

    A graph's inputs are the op's in order, a list argument item by item; its outputs are the op's
    outputs, then its mutated inputs in the order of `mutates`. Workloads that have a graph are
    not exported again. Raises `ProblemError` where the reference raises or breaks the contract.
    """
    filled, refused = _tried(op, workloads, isolate)
    for error in refused.values():
        raise error
    return filled


def _tried(
    op: OpSpec, workloads: Sequence[Workload], isolate: Isolate
) -> tuple[OpSpec, dict[str, ProblemError]]:
    """As `export`, and why the reference has no graph where it raises by itself."""
    known = op.reference.graphs
    missing = list({str(at): at for at in workloads if str(at) not in known}.values())
    if not missing:
        return op, {}
    calls = [call_at(op, at) for at in missing]
    answers = exports(isolate, op.reference.source, op.reference.entry, calls)
    graphs, refused = dict(known), dict[str, ProblemError]()
    for at, answer in zip(missing, answers, strict=True):
        if isinstance(answer, Failure):
            told = f"{answer.message} (at {at})"
            error = ProblemError(told, answer.where or "reference")
            if any(word in answer.message for word in SCARCE):
                raise error
            refused[str(at)] = error
        else:
            graphs[str(at)] = _agreed(op, at, answer)
    return _with_graphs(op, graphs), refused


def _with_graphs(op: OpSpec, graphs: Mapping[str, Graph]) -> OpSpec:
    return replace(op, reference=replace(op.reference, graphs=graphs))


class Graphs:
    """The reference's graphs, exported once for each workload of an op."""

    def __init__(self, isolate: Isolate) -> None:
        self._isolate = isolate
        self._known: dict[str, dict[str, Graph]] = {}
        self._refused: dict[str, dict[str, ProblemError]] = {}
        self._lock = Lock()

    def __call__(self, op: OpSpec, workloads: Sequence[Workload]) -> OpSpec:
        """The op with a graph for each of the workloads, and no other: all of them travel."""
        filled, refused = self._filled(op, workloads)
        for error in refused.values():
            raise error
        return filled

    def able(self, op: OpSpec, points: Sequence[Point]) -> list[Point]:
        """The points without the hidden ones at whose sizes or options the reference raises.

        The reference alone is asked, without the candidate. Other values or another layout are
        tried at the largest public point of those given instead, so that none of them is lost.
        Raises `ProblemError` where the reference raises at a public one.
        """
        _, refused = self._filled(op, [at for at, _ in points])
        public = [at for at, _ in points if is_public(op, at)]
        for at in public:
            if str(at) in refused:
                raise refused[str(at)]
        largest = sorted(public, key=lambda at: -size_of(op, at))[:1]
        kept = list[Point]()
        for at, case in points:
            if str(at) not in refused:
                kept.append((at, case))
            elif not _is_plain(case):
                kept += [(there, case) for there in largest]
        return kept

    def _filled(
        self, op: OpSpec, workloads: Sequence[Workload]
    ) -> tuple[OpSpec, dict[str, ProblemError]]:
        wanted = {str(at): at for at in workloads}
        with self._lock:
            known = self._known.setdefault(op.digest, {})
            raised = self._refused.setdefault(op.digest, {})
            here = {**op.reference.graphs, **known}
            refused = {at: raised[at] for at in wanted if at in raised}
        had = {at: graph for at, graph in here.items() if at in wanted}
        # beside others: a candidate of other settings has hidden sizes of its own to export
        asked = [at for name, at in wanted.items() if name not in refused]
        filled, failed = _tried(_with_graphs(op, had), asked, self._isolate)
        with self._lock:
            known.update(filled.reference.graphs)
            raised.update(failed)
        return filled, refused | failed


def _is_plain(case: Case) -> bool:
    return (case.layout, case.values) == ("contiguous", "recipe")


def _agreed(op: OpSpec, at: Workload, answer: Exported) -> Graph:
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
