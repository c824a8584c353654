"""Makes a library's kernel callable as another op: its source, and an entry in plain Python."""

from __future__ import annotations

from dataclasses import replace

from evaluator.binding import Argument, Epsilon, Filled, Match
from kernel_library.candidate import Candidate
from kernel_library.formula import Value
from kernel_library.space import Config, Tuned, nearest
from kernel_library.spec import OpSpec, Tensor


def adapt(match: Match, op: OpSpec, candidate: Candidate) -> Candidate:
    """The library's candidate as one of op's: same kernels, called with op's inputs and options.

    Its tuned settings come along, by op's axes where those correspond one to one; otherwise the
    one nearest to the size that op is measured at is the config.
    """
    entry = _fresh(f"as_{op.name}", candidate.source)
    tuned = tuple(t for row in candidate.tuned if (t := _renamed(row, match, op)) is not None)
    config = candidate.config if tuned else _nearest(match, op, candidate)
    return replace(
        candidate,
        op=op.name,
        source=f"{candidate.source.rstrip()}\n\n\n{_entry(entry, match, op, candidate)}",
        entry=entry,
        config=config,
        tuned=tuned,
        why=f"{match.other} of the library computes the same function",
    )


def _fresh(name: str, source: str) -> str:
    while name in source:
        name += "_"
    return name


def _entry(name: str, match: Match, op: OpSpec, candidate: Candidate) -> str:
    knobs = list(candidate.config)
    keywords = [f"{option}={o.default!r}" for option, o in op.options.items()]
    arguments = ", ".join([*op.inputs, "*", *keywords, *knobs] if keywords or knobs else op.inputs)
    given = [
        *(_argument(each, match) for each in match.inputs),
        *(f"{option}={_value(value, op)}" for option, value in match.options.items()),
        *(f"{option}={mine}" for option, mine in match.forwarded.items()),
        *(f"{knob}={knob}" for knob in knobs),
    ]
    lines = [
        f"def {name}({arguments}):",
        f'    """{op.name}, computed as the library\'s {match.other}."""',
        f"    y = {candidate.entry}({', '.join(given)})",
        f"    return {_returned(match, op)}",
    ]
    return "\n".join(lines) + "\n"


def _value(value: Value, op: OpSpec) -> str:
    if isinstance(value, Epsilon):
        return f"torch.finfo({next(iter(op.inputs))}.dtype).eps"
    return repr(value)


def _argument(argument: Argument, match: Match) -> str:
    if isinstance(argument, Filled):
        length = f"{argument.like}.shape[{argument.axis}]"
        return f"{argument.like}.new_full(({length},), {argument.value})"
    name = argument.name
    flat = f"{name}.flatten(0, {match.lead - 1})" if name in match.flat else name
    return f"{flat}.t()" if argument.turned else flat


def _returned(match: Match, op: OpSpec) -> str:
    """The outputs in op's order, with the leading axes that were flattened for the call."""
    parts = []
    for at, index in enumerate(match.outputs):
        part = "y" if match.returns == 1 else f"y[{index}]"
        if at in match.spread:
            part = f"{part}.unflatten(0, {match.flat[0]}.shape[:{match.lead}])"
        if at in match.scalars:
            part = f"{part}.reshape(()).to({_dtype_of(list(op.outputs.values())[at], op)})"
        parts.append(part)
    return ", ".join(parts)


def _dtype_of(output: Tensor, op: OpSpec) -> str:
    like = next((name for name, t in op.inputs.items() if t.dtype == output.dtype), None)
    return f"{like}.dtype" if like else f"torch.{output.dtype}"


def _renamed(row: Tuned, match: Match, op: OpSpec) -> Tuned | None:
    """The row at op's axes, if each of them is one of the other's and nothing is left over."""
    mine = {match.axes.get(axis, ""): size for axis, size in row.dims.items()}
    axes = {axis for at in op.workloads for axis in at.dims}
    if mine.keys() != axes or len(mine) != len(row.dims):
        return None
    dtypes = {match.dtypes.get(free, ""): dtype for free, dtype in row.dtypes.items()}
    if dtypes.keys() != {free for at in op.workloads for free in at.dtypes}:
        return None
    return replace(row, dims=mine, dtypes=dtypes, options={})


def _nearest(match: Match, op: OpSpec, candidate: Candidate) -> Config:
    at = next((at for at in op.workloads if at.role == "measure"), op.workloads[0])
    there = match.workload(op, at)
    row = nearest(candidate.tuned, there.dims, there.dtypes)
    return row.config if row else candidate.config
