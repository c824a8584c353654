"""A reference as a graph of aten ops: traced from its Python once, then run without it.

`trace` runs a stranger's code, so the judge calls it only in an isolated job; `run` interprets
plain data and calls nothing but aten. With `widen` it is the oracle: every floating dtype is
float64, be it of an input, a constant or a `dtype` argument.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch._C._functorch import is_functorch_wrapped_tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import Node as FxNode
from torch.fx.experimental.proxy_tensor import make_fx

from evaluator import aten
from evaluator.errors import LabError, ProblemError
from kernel_library.graph import Graph, Node

Arguments = Sequence[torch.Tensor | list[torch.Tensor]]
#: What attention and layers become below autograd where they are traced, on a CPU.
_OF_CPU = ("for_cpu", "mkldnn")
_CHECKS = ("aten._assert_tensor_metadata.default", "aten._assert_scalar.default")


@dataclass(frozen=True, slots=True)
class Traced:
    """A graph, which of its inputs (by position) it writes in place, and what it returns.

    `returned` are tensors without values; `graph.outputs` names them, then the written inputs.
    """

    graph: Graph
    mutated: tuple[int, ...]
    returned: tuple[torch.Tensor, ...]


class _Call(torch.nn.Module):
    """`torch.export` takes modules: this one calls a function with options already given."""

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        super().__init__()
        self.function, self.options = function, dict(options)

    def forward(self, args: list[Any]) -> Any:  # noqa: ANN401
        return self.function(*args, **self.options)


def trace(function: Callable[..., Any], args: Arguments, options: Mapping[str, Any]) -> Graph:
    """The graph of `function(*args, **options)` at these shapes, on real or fake tensors.

    Ops keep the level at which the reference calls them (`aten.rms_norm`, not its parts), so that
    running the graph is running torch's own op; where autograd takes a gradient, which it can of
    fake tensors, that of the ops which a CPU then calls. Raises `ProblemError` for random numbers,
    ops outside aten, results that are no tensors, and more than 1 MiB of constants.
    """
    return trace_writes(function, args, options).graph


def trace_writes(
    function: Callable[..., Any], args: Arguments, options: Mapping[str, Any]
) -> Traced:
    """As `trace`, and tells which inputs are written and what is returned."""
    # torch's exporter warns of its own deprecations
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        program = _exported(_Call(function, options), list(args))
        # made functional only where something may be written: it takes 0.3 s, exporting 0.05 s
        return _plain(program if _is_functional(program) else program.run_decompositions({}))


def _exported(call: torch.nn.Module, args: list[Any]) -> ExportedProgram:
    """What a call does; where autograd takes part, once more below it.

    Exporting sees what a gradient calls, and takes what autograd had saved for it for a constant:
    torch 2.13 gives that back, 2.11 raises for some.
    """
    with suppress(AssertionError):
        program = torch.export.export(call, (args,), strict=False)
        if not any(map(_is_lost, program.constants.values())):
            return program
    return torch.export.export(make_fx(call, tracing_mode="fake")(args), (args,), strict=False)


def _is_lost(held: Any) -> bool:  # noqa: ANN401
    """Whether a constant is what was computed while tracing, and holds no values."""
    return isinstance(held, FakeTensor) or is_functorch_wrapped_tensor(held)


def _is_functional(program: ExportedProgram) -> bool:
    """Whether no call writes to an argument, and none is a region such as `no_grad`."""
    return all(
        node.op in ("placeholder", "output")
        or node.target is operator.getitem
        or (node.op == "call_function" and _only_reads(node.target))
        for node in program.graph.nodes
    )


def _only_reads(target: object) -> bool:
    # the schemas of batch_norm and instance_norm hide that they write running statistics
    return (
        isinstance(target, torch._ops.OpOverload)
        and not target._schema.is_mutable
        and torch.Tag.maybe_aliasing_or_mutating not in target.tags
        and not any(name in str(target) for name in ("batch_norm", "instance_norm"))
    )


def _plain(program: ExportedProgram) -> Traced:
    signature = program.graph_signature
    inputs = [s.arg.name for s in signature.input_specs if s.kind is InputKind.USER_INPUT]
    held = {
        s.arg.name: _held(program, str(s.target))
        for s in signature.input_specs
        if s.kind is not InputKind.USER_INPUT
    }
    if sum(tensor.nbytes for tensor in held.values()) > aten.MOST_CONSTANT_BYTES:
        raise ProblemError("the reference closes over more than 1 MiB of tensors: pass them in")
    nodes = [kept for node in program.graph.nodes if (kept := _kept(node))]
    returned = [s.arg for s in signature.output_specs if s.kind is OutputKind.USER_OUTPUT]
    writes = {
        inputs.index(str(s.target)): s.arg.name
        for s in signature.output_specs
        if s.kind is OutputKind.USER_INPUT_MUTATION
    }
    results = [_tensor_name(arg) for arg in returned if not _is_none(arg)]
    outputs = (*results, *(writes[at] for at in sorted(writes)))
    if not outputs:
        raise ProblemError("the reference returns no tensor and writes to none of its inputs")
    live = tuple(_live(nodes, outputs))
    used = {*outputs, *refs(live)}
    constants = {name: aten.pack(tensor) for name, tensor in held.items() if name in used}
    shown = {node.name: node.meta.get("val") for node in program.graph.nodes}
    graph = Graph(tuple(inputs), live, outputs, constants)
    return Traced(graph, tuple(sorted(writes)), tuple(shown[name] for name in results))


def _held(program: ExportedProgram, target: str) -> torch.Tensor:
    tensor = {**program.state_dict, **program.constants}[target]
    if not isinstance(tensor, torch.Tensor) or tensor.is_meta:
        raise ProblemError(f"the reference closes over {target!r}, which is no tensor with data")
    return tensor


def _is_none(arg: object) -> bool:
    return hasattr(arg, "value") and arg.value is None


def _tensor_name(arg: object) -> str:
    if hasattr(arg, "value"):
        raise ProblemError(f"the reference returns {arg.value!r}: return tensors only")
    return str(arg.name)  # type: ignore[attr-defined]


def _kept(node: FxNode) -> Node | None:
    """The call as plain data; none if it only asserts."""
    target: Any = node.target
    name = "getitem" if target is operator.getitem else str(target)
    if node.op != "call_function" or name in _CHECKS:
        return None
    if any(word in name for word in _OF_CPU):
        raise ProblemError(f"the gradient calls {name}, which only a CPU has: write it out instead")
    kwargs = {k: v for k, v in node.kwargs.items() if k != "pin_memory"}
    if name != "getitem" and aten.draws(aten.resolve(name), node.args, kwargs):
        raise ProblemError(f"the reference draws random numbers ({name}): pass them in instead")
    plain = {k: aten.encode(v) for k, v in _with_eps(name, node, kwargs).items()}
    return Node(node.name, name, tuple(aten.encode(arg) for arg in node.args), plain)


def _with_eps(name: str, node: FxNode, kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """RMS norm's default eps depends on the dtype, so it is written out before that widens."""
    if name != "aten.rms_norm.default" or len(node.args) > 3 or kwargs.get("eps") is not None:
        return kwargs
    x: Any = node.args[0]
    return {**kwargs, "eps": torch.finfo(x.meta["val"].dtype).eps}


def refs(value: object) -> Iterator[str]:
    """The names that a node, or an argument, refers to."""
    match value:
        case Node():
            yield from refs([*value.args, *value.kwargs.values()])
        case {"ref": str(name)}:
            yield name
        case list() | tuple():
            for item in value:
                yield from refs(item)


def _live(nodes: Sequence[Node], outputs: Sequence[str]) -> list[Node]:
    """The nodes that an output depends on, in order."""
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if node.name in wanted:
            kept.append(node)
            wanted.update(refs(node))
    return kept[::-1]


def check(graph: Graph) -> None:
    """Raise `ProblemError` unless the graph is well formed and calls only aten."""
    known = {*graph.inputs, *graph.constants}
    if len(known) < len(graph.inputs) + len(graph.constants):
        raise ProblemError("two inputs or constants of the graph have the same name")
    if sum(len(c.data) for c in graph.constants.values()) > 2 * aten.MOST_CONSTANT_BYTES:
        raise ProblemError("the graph holds more than 1 MiB of constants")
    for node in graph.nodes:
        if node.op != "getitem":
            aten.resolve(node.op)
        missing = set(refs(node)) - known
        if missing or node.name in known:
            raise ProblemError(f"node {node.name!r} of the graph is out of order")
        known.add(node.name)
    if not graph.outputs or not known.issuperset(graph.outputs):
        raise ProblemError("the graph has no outputs, or one that nothing computes")


def _as_given(_: Node, args: list[Any]) -> list[Any]:
    return args


def run(
    graph: Graph,
    args: Sequence[torch.Tensor],
    *,
    widen: bool = False,
    device: torch.device | str | None = None,
    before: Callable[[Node, list[Any]], list[Any]] = _as_given,
    after: Callable[[Node, Any], Any] = lambda _, result: result,
) -> tuple[torch.Tensor, ...]:
    """The graph's outputs on these tensors, in the order of `graph.outputs`.

    Runs on `device`, or where the first input lies; `before` may change what a node is given by
    position, `after` what it computed. Inputs are never written to. A list argument stands
    item by item in `args`. Raises `ProblemError` where torch refuses a call.
    """
    check(graph)
    if len(args) != len(graph.inputs):
        raise LabError(f"the graph takes {len(graph.inputs)} tensors, not {len(args)}")
    where = torch.device(device) if device else args[0].device if args else torch.device("cpu")
    held = {name: aten.unpack(name, c) for name, c in graph.constants.items()}
    given = {**dict(zip(graph.inputs, args, strict=True)), **held}
    values: dict[str, Any] = {
        name: aten.in_rows(
            tensor.to(where, aten.wide_dtype(tensor.dtype) if widen else tensor.dtype)
        )
        for name, tensor in given.items()
    }
    last_use = {name: i for i, node in enumerate(graph.nodes) for name in refs(node)}
    with torch.no_grad():
        for i, node in enumerate(graph.nodes):
            values[node.name] = after(node, call(node, values, where, widen, before))
            for name in set(refs(node)) - set(graph.outputs):
                if last_use[name] == i:
                    del values[name]
    return tuple(_tensor(name, values[name]) for name in graph.outputs)


def call(
    node: Node,
    values: Mapping[str, Any],
    where: torch.device,
    widen: bool,
    before: Callable[[Node, list[Any]], list[Any]] = _as_given,
) -> object:
    """What one node computes from the values so far. Raises `ProblemError` where torch refuses."""
    args = before(node, [aten.decode(arg, values, where, widen) for arg in node.args])
    kwargs = {k: aten.decode(v, values, where, widen) for k, v in node.kwargs.items()}
    try:
        if node.op == "getitem":
            return _item(node.name, args)
        op = aten.WIDE.get(node.op) if widen else None
        return (op or aten.resolve(node.op))(*args, **kwargs)
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
        raise ProblemError(f"{node.op} cannot run: {str(error)[:300]}", node.name) from error


def _item(name: str, args: Sequence[Any]) -> torch.Tensor:
    match args:
        case [tuple() | list() as results, int(index)]:
            return _tensor(name, results[index])
    raise ProblemError("getitem takes an op's results and a number", name)


def _tensor(name: str, value: object) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise ProblemError("is not a tensor", name)
    return value
