"""What a candidate races against: the reference's graph, run the ways that a user would run it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from os import environ
from shutil import which
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from evaluator import aten
from evaluator.errors import LabError
from evaluator.graphs import check, run
from evaluator.play.libraries import LIBRARIES, Missing, find, import_ahead
from kernel_library.formula import Value
from kernel_library.graph import Graph
from kernel_library.spec import OpSpec, Workload

Baseline = Callable[[Sequence[torch.Tensor]], object]
#: What each name means; the first three apply to every op.
BASELINES = ("eager", "compile", "max-autotune", "cudnn", "flash", *LIBRARIES)
#: In place of names: each that there is for the op.
ALL = ("all",)
_MODES = {"compile": None, "max-autotune": "max-autotune-no-cudagraphs"}
_ATTENTION = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
_SDPA = "aten.scaled_dot_product_attention.default"


class NotApplicable(Exception):  # noqa: N818 (it is an outcome, not an error of ours)
    """This baseline does not exist for this op, or is not installed here."""


def chosen(names: tuple[str, ...], op: OpSpec) -> tuple[str, ...]:
    """The names, or for `ALL` those of which an op like this may have one.

    The op carries its graphs: attention is told by what they call.
    """
    if names != ALL:
        return names
    attends = any(map(_attends, op.reference.graphs.values()))
    others = {name for name in _ATTENTION if not attends}
    others |= {name for name, ops in LIBRARIES.items() if op.name not in ops}
    return tuple(name for name in BASELINES if name not in others)


def _attends(graph: Graph) -> bool:
    return any(node.op == _SDPA for node in graph.nodes)


def baseline(name: str, op: OpSpec, at: Workload, device: torch.device) -> Baseline:
    """A callable from the op's inputs, flat, to its outputs.

    Raises `NotApplicable` where there is none, and `LabError` where this machine lacks what a
    baseline needs, because a race without its strongest rival is no race.
    """
    graph = graph_at(op, at)
    if name == "eager":
        return lambda args: run(graph, args)
    if name in _MODES:
        return _compiled(graph, _MODES[name], device)
    if name in _ATTENTION:
        return _attention(name, graph)
    if name in LIBRARIES:
        return _library(name, op.name, op.option_values(at))
    raise LabError(f"there is no baseline {name!r}; there are {', '.join(BASELINES)}")


def get_ready(names: Sequence[str], op: str = "") -> None:
    """Import what these baselines of an op need: seconds that no GPU need wait for."""
    if _MODES.keys() & set(names):
        import_module("torch._inductor.compile_fx")
    for name in LIBRARIES.keys() & set(names):
        with suppress(ImportError):
            import_ahead(name, op)


def graph_at(op: OpSpec, at: Workload) -> Graph:
    """The reference's graph at a workload. Raises `LabError` where nobody has exported it."""
    graph = op.reference.graphs.get(str(at))
    if graph is None:
        raise LabError(f"{op.name} has no graph at {at}")
    return graph


def module(graph: Graph, device: torch.device) -> torch.fx.GraphModule:
    """The graph as torch's own kind of graph, which `torch.compile` takes."""
    check(graph)
    root = torch.nn.Module()
    made = torch.fx.Graph()
    values: dict[str, Any] = {name: made.placeholder(f"in_{name}") for name in graph.inputs}
    for i, (name, constant) in enumerate(graph.constants.items()):
        root.register_buffer(f"constant_{i}", aten.unpack(name, constant).to(device))
        values[name] = made.get_attr(f"constant_{i}")
    for node in graph.nodes:
        args = tuple(aten.decode(arg, values, device) for arg in node.args)
        kwargs = {k: aten.decode(v, values, device) for k, v in node.kwargs.items()}
        target = operator.getitem if node.op == "getitem" else aten.resolve(node.op)
        values[node.name] = made.call_function(target, args, kwargs)
    made.output(tuple(values[name] for name in graph.outputs))
    return torch.fx.GraphModule(root, made)


def _compiled(graph: Graph, mode: str | None, device: torch.device) -> Baseline:
    if which(environ.get("CC", "gcc")) is None and which("cc") is None:
        raise LabError("torch.compile needs a C compiler: put gcc on PATH, or set CC")
    # each size is compiled for itself, as its own graph was exported for itself
    torch._dynamo.reset()
    compiled = torch.compile(module(graph, device), mode=mode, dynamic=False, fullgraph=True)

    def call(args: Sequence[torch.Tensor]) -> object:
        with torch.no_grad():
            return compiled(*args)

    return call


def _attention(name: str, graph: Graph) -> Baseline:
    if not _attends(graph):
        raise NotApplicable(f"{name}: the op is no scaled dot-product attention")

    def call(args: Sequence[torch.Tensor]) -> object:
        with sdpa_kernel(_ATTENTION[name]):
            return run(graph, args)

    return call


def _library(name: str, op: str, options: Mapping[str, Value]) -> Baseline:
    """A library's kernel for an op of that name; whether it is the same op, `agrees` tells."""
    try:
        call = find(name, op, options)
    except Missing as why:
        raise NotApplicable(f"{name}: {why}") from why

    def run_detached(args: Sequence[torch.Tensor]) -> object:
        with torch.no_grad():
            return call(args)

    return run_detached


def agrees(name: str, call: Baseline, graph: Graph, args: Sequence[torch.Tensor]) -> None:
    """Raise `NotApplicable` unless a library's function computes what the graph does, within 2 %.

    A name is no proof, and a rival that computes something else proves nothing.
    """
    made = call(args)
    got = made if isinstance(made, tuple) else (made,)
    wanted = run(graph, args)
    if len(got) != len(wanted) or not all(map(_near, got, wanted)):
        raise NotApplicable(f"{name}: its op of this name computes something else")


def _near(got: torch.Tensor, wanted: torch.Tensor) -> bool:
    if got.shape != wanted.shape:
        return False
    return bool((got.double() - wanted.double()).norm() <= 0.02 * wanted.double().norm())
