"""Where a tape's outputs come from: the judge's own look, with nothing of the candidate near.

A launcher that lets torch work where no recorder sees it (in a grid's function, or with the modes
off by which calls are seen) leaves outputs that nothing on its tape wrote. Interpreted on data of
its own they would be right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from evaluator.aten import packet, resolve
from kernel_library.graph import Graph
from kernel_library.spec import OpSpec, Workload
from kernel_library.tape import FREE_CALLS, Call, Descriptor, Launch, Pointer, Tape, View

#: The free calls that read what they are given; of what is left some read shapes alone.
COPIES = frozenset({"clone", "copy_", "_to_copy", "_foreach_copy_"})
#: What moves or casts, beside aten's ways to see a tensor otherwise.
MOVES = frozenset({"clone", "_to_copy", "type_as", "cat", "stack", "repeat", "roll", "pad"})
REMEDY = "have a kernel do this work, on memory that the launcher allocates and fills"


def adrift(op: OpSpec, at: Workload, tape: Tape, outputs: Mapping[str, View]) -> Iterator[str]:
    """What is read before it is written, and what is never written, in words."""
    given = {name for name, buffer in enumerate(tape.buffers) if buffer.role == "input"}
    written: set[int] = set()
    for step in tape.steps:
        if isinstance(step, Launch):
            written |= _given(step)
            continue
        reads, writes = _touched(step)
        if reads - written - given:
            yield f"a torch call reads memory that nothing wrote: {REMEDY}"
        written |= writes
    for name, buffer in {**_mutated(op, at, tape), **_returned(outputs)}.items():
        if buffer not in written:
            yield f"{name} is written by no program and no torch call: {REMEDY}"


def copied(graph: Graph, tape: Tape) -> str | None:
    """Where an op only moves and casts: why a tape has torch's copies do that, in words.

    Of all other ops a copy can do no more than a part.
    """
    if not all(_only_moves(node.op) for node in graph.nodes):
        return None
    known = {number for number, buffer in enumerate(tape.buffers) if buffer.role == "input"}
    outputs = {view.buffer for view in tape.outputs}
    for step in tape.steps:
        if isinstance(step, Launch):
            known |= _given(step)
            continue
        reads, writes = _touched(step)
        # what is filled with a number is copied from memory that holds no more than that
        if not reads & known:
            continue
        if packet(step.op) in COPIES and writes & outputs:
            return f"a torch call copies into an output, and copies are all of this op: {REMEDY}"
        known |= writes
    return None


def _only_moves(op: str) -> bool:
    if op == "getitem" or packet(op) in MOVES:
        return True
    returns = resolve(op)._schema.returns  # type: ignore[attr-defined]
    return all(result.alias_info for result in returns)


def _returned(outputs: Mapping[str, View]) -> dict[str, int]:
    return {name: view.buffer for name, view in outputs.items() if 0 not in view.shape}


def _mutated(op: OpSpec, at: Workload, tape: Tape) -> dict[str, int]:
    """The buffer of each input that the op writes to, by the name that a tape gives it."""
    buffers = {b.name: n for n, b in enumerate(tape.buffers) if b.role == "input"}
    names = op.names(at)
    wanted = [
        name if op.inputs[name].count is None else f"{name}.{i}"
        for name in op.mutates
        for i, shape in enumerate(op.inputs[name].shapes(names))
        if 0 not in shape
    ]
    return {name: buffers.get(name, -1) for name in wanted}


def _given(launch: Launch) -> set[int]:
    """The buffers that a launch's programs are given: which of them they write, no tape tells."""
    if 0 in launch.grid:
        return set()
    bases = [a.base if isinstance(a, Descriptor) else a for a in launch.arguments]
    return {base.buffer for base in bases if isinstance(base, Pointer)}


def _touched(call: Call) -> tuple[set[int], set[int]]:
    """The buffers that a call reads, and those that it writes.

    By name a call in place writes to its first argument; of the tensors that aten takes by keyword
    alone nearly all are `out`.
    """
    name = packet(call.op)
    first = call.args[:1] if name.endswith("_") else ()
    targets = set(_named([*first, *call.kwargs.values()]))
    views = {n: view.buffer for n, view in enumerate(call.views) if 0 not in view.shape}
    reads = {b for n, b in views.items() if n not in targets}
    writes = {b for n, b in views.items() if n in targets}
    looks = name in FREE_CALLS - COPIES
    return (set() if looks else reads), writes | {view.buffer for view in call.results}


def _named(values: JsonValue) -> Iterator[int]:
    """The numbers of the views that arguments stand for."""
    match values:
        case {"view": int(number)}:
            yield number
        case list():
            for value in values:
                yield from _named(value)
