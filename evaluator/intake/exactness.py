"""How exact a contract's outputs can be: 8-bit integers that were rounded may be a step off.

A value halfway between two falls to either side by the last bit of its scale: torch's own answer
does not pass where all must be equal (an absmax quantiser of 512 by 1024 in float32).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from evaluator.graphs import refs
from evaluator.intake.wire import Exported
from kernel_library.graph import Graph, Node
from kernel_library.spec import Tolerance

#: `loosen` above 1 lets 8-bit integers be a step off (`evaluator.compare`).
QUANTISED = Tolerance(loosen=2.0)


def tolerance(exported: Exported) -> Tolerance:
    """The tolerance that the outputs of a graph need."""
    graph = exported.graph
    codes = [
        name
        for name, meta in zip(graph.outputs, exported.outputs, strict=False)
        if meta.dtype in ("int8", "uint8")
    ]
    return QUANTISED if any(map(_rounds, _behind(graph, codes))) else Tolerance()


def _rounds(node: Node) -> bool:
    return node.op.startswith("aten.round.")


def _behind(graph: Graph, names: Iterable[str]) -> Iterator[Node]:
    """The nodes that those of these names depend on, and themselves."""
    wanted = set(names)
    for node in reversed(graph.nodes):
        if node.name in wanted:
            yield node
            wanted.update(refs(node))
