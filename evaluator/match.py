"""Retrieval by behaviour: an op that computes the same is the same op, however it is spelled.

Two references are run in float64 on the same random inputs, one's inputs in each order that fits,
matrices turned where that fits, a bias that it has not as zeros, a weight as ones, and the other's
options at each value that could be meant. Graphs alone are run; the exports that they
come from are made in the isolated job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice, permutations, product

import torch

from evaluator.adapt import adapt
from evaluator.binding import (
    Argument,
    Binding,
    Filled,
    Match,
    bindings,
    bound_workload,
    epsilon,
    flat_shape,
    given_pairs,
    rank_of,
)
from evaluator.errors import ProblemError
from evaluator.graphs import run
from evaluator.inputs import Case, draw, flat
from evaluator.intake.exporting import export
from evaluator.isolate import Isolate
from kernel_library.formula import Value
from kernel_library.spec import OpSpec, Tensor, Workload

__all__ = ["Match", "adapt", "same_function"]

Tensors = tuple[torch.Tensor, ...]
#: Two float64 evaluations of one function differ by rounding alone: far less than this.
SAME = 1e-9
_SEEDS = (101, 202)
#: Settings of the other's options to try at most, and sizes to compare at.
_MOST_SETTINGS = 32
_SIZES = 2


@dataclass(frozen=True, slots=True)
class _Setting:
    """Values for the other's options: fixed, or op's own."""

    options: Mapping[str, Value]
    forwarded: Mapping[str, str]


def same_function(op: OpSpec, other: OpSpec, isolate: Isolate) -> Match | None:
    """How `other` computes the same function as `op`, or None.

    Compared at two of op's check sizes, with two seeds, and at another value of each of op's
    options, all of which must be options of the other's and work there. A function whose outputs
    do not depend on its inputs matches nothing. Of settings that agree in float64 the one whose
    rounding at op's own dtype is nearest wins. Ops that write in place or take lists have no match.
    """
    small = _small(op)
    found = list(bindings(op, other, small[0])) if small else []
    if not found:
        return None
    try:
        op = export(op, [v for at in small for v in _varied(op, at)], isolate)
    except ProblemError:
        return None
    if not _depends_on_inputs(op, small[0]):
        return None
    settings = list(islice(_settings(op, other, small[0]), _MOST_SETTINGS))
    for binding in found:
        theirs = _exported(other, binding, settings, op, small[0], isolate)
        agreeing = [m for s in settings if (m := _compare(op, theirs, small[0], binding, s))]
        for match in sorted(agreeing, key=lambda m: _rounding(op, theirs, m, small[0])):
            if _holds_elsewhere(op, other, match, small, isolate):
                return match
    return None


def _small(op: OpSpec) -> list[Workload]:
    """Up to two sizes to compare at: small, at the dtype that is measured, no two sides alike."""
    checks = [at for at in op.workloads if at.role == "check"] or list(op.workloads)
    wanted = [at.dtypes for at in op.workloads if at.role == "measure"][:1]
    right = [at for at in checks if at.dtypes in wanted] or checks
    sides = {str(at.dims): at for at in reversed(right) if not at.options} or {"": right[0]}

    def telling(at: Workload) -> tuple[int, int]:
        sizes = [n for n in at.dims.values() if isinstance(n, int) and n > 1]
        return -len(set(sizes)), sum(sizes)

    return sorted(sides.values(), key=telling)[:_SIZES]


def _varied(op: OpSpec, at: Workload) -> list[Workload]:
    """The workload, and the same with each of op's options at another value."""
    own = op.option_values(at)
    other = {name: _another(value, op.options[name].choices) for name, value in own.items()}
    return [at, replace(at, options=other)] if op.options else [at]


def _another(value: Value, choices: Sequence[Value]) -> Value:
    rest = [choice for choice in choices if choice != value]
    if choices:
        return rest[0] if rest else value
    if isinstance(value, bool):
        return not value
    return value * 2 + 1 if isinstance(value, int | float) else value


def _depends_on_inputs(op: OpSpec, at: Workload) -> bool:
    graph = op.reference.graphs[str(at)]
    one, two = (run(graph, _drawn(op, at, seed), widen=True) for seed in _SEEDS)
    return not any(_equal(a, b) for a, b in zip(one, two, strict=True))


def _drawn(op: OpSpec, at: Workload, seed: int) -> list[torch.Tensor]:
    return flat(draw(op, at, Case(seed), "cpu"))


def _settings(op: OpSpec, other: OpSpec, at: Workload) -> Iterator[_Setting]:
    """Values to try for the other's options, its defaults first; op's own options all forwarded."""
    constants = _constants(op, at)
    own = op.option_values(at)
    names = list(other.options)
    tried = [_candidates(other, name, constants, own) for name in names]
    for values in product(*tried):
        fixed = {n: v for n, (v, mine) in zip(names, values, strict=True) if mine is None}
        forwarded = {n: mine for n, (_, mine) in zip(names, values, strict=True) if mine}
        if sorted(forwarded.values()) == sorted(own):
            yield _Setting(fixed, forwarded)


def _candidates(
    other: OpSpec, name: str, constants: Sequence[Value], own: Mapping[str, Value]
) -> list[tuple[Value, str | None]]:
    """A value each, or the name of the option of op's that gives it."""
    option = other.options[name]
    kind = type(option.default)
    fixed = [option.default, *option.choices]
    if not option.choices and kind in (int, float):
        fixed += [value for value in constants if isinstance(value, kind)]
    mine = [(value, theirs) for theirs, value in own.items() if type(value) is kind]
    return [*((value, None) for value in {(type(v), v): v for v in fixed}.values()), *mine]


def _constants(op: OpSpec, at: Workload) -> list[Value]:
    """The plain numbers among the arguments of op's calls; the dtype's own step first, as that."""
    graph = op.reference.graphs[str(at)]
    values = [value for node in graph.nodes for value in (*node.args, *node.kwargs.values())]
    numbers: list[Value] = [
        v for v in values if isinstance(v, int | float) and not isinstance(v, bool)
    ]
    step = epsilon(op, at)
    return [step, *numbers] if step is not None and step in numbers else numbers


def _there(
    op: OpSpec, binding: Binding, setting: _Setting, at: Workload, other: OpSpec
) -> Workload:
    own = op.option_values(at)
    forwarded = {theirs: own[mine] for theirs, mine in setting.forwarded.items()}
    return replace(bound_workload(other, binding), options={**setting.options, **forwarded})


def _exported(
    other: OpSpec, binding: Binding, settings: Sequence[_Setting],
    op: OpSpec, at: Workload, isolate: Isolate,
) -> OpSpec:  # fmt: skip
    """The other with a graph for each setting; one that its reference refuses is left out."""
    wanted = [_there(op, binding, setting, at, other) for setting in settings]
    try:
        return export(other, wanted, isolate)
    except ProblemError:
        for there in wanted:
            with suppress(ProblemError):
                other = export(other, [there], isolate)
        return other


def _compare(
    op: OpSpec, other: OpSpec, at: Workload, binding: Binding, setting: _Setting
) -> Match | None:
    """The match at this setting, if both seeds agree."""
    there = _there(op, binding, setting, at, other)
    if str(there) not in other.reference.graphs:
        return None
    match = Match(
        other.name, binding.inputs, (), len(other.outputs), (), setting.options,
        setting.forwarded, binding.axes,
        {free: _dtype_name(op, other, binding, free) for free in binding.dtypes}, binding.lead,
        flat=_flattened(op, other, binding),
    )  # fmt: skip
    orders = [_output_order(op, other, match, at, there, seed) for seed in _SEEDS]
    if orders[0] is None or any(order != orders[0] for order in orders):
        return None
    theirs = [rank_of(tensor) for tensor in other.outputs.values()]
    more = [
        rank_of(mine) - theirs[i] for mine, i in zip(op.outputs.values(), orders[0], strict=True)
    ]
    spread, scalars = (tuple(at for at, n in enumerate(more) if n * sign > 0) for sign in (1, -1))
    return replace(match, outputs=orders[0], spread=spread, scalars=scalars)


def _flattened(op: OpSpec, other: OpSpec, binding: Binding) -> tuple[str, ...]:
    """Op's inputs that have more axes than the other's."""
    pairs = given_pairs(other, binding.inputs)
    return tuple(
        each.name for each, tensor in pairs if rank_of(op.inputs[each.name]) > rank_of(tensor)
    )


def _dtype_name(op: OpSpec, other: OpSpec, binding: Binding, free: str) -> str:
    """What op calls the dtype that is the other's free dtype."""
    pairs = given_pairs(other, binding.inputs)
    return next(op.inputs[each.name].dtype for each, tensor in pairs if tensor.dtype == free)


def _run_both(
    op: OpSpec, other: OpSpec, match: Match, pair: tuple[Workload, Workload], case: tuple[int, bool]
) -> tuple[Tensors, Tensors]:
    (at, there), (seed, widen) = pair, case
    drawn = dict(zip(op.inputs, _drawn(op, at, seed), strict=True))

    def made(argument: Argument, tensor: Tensor) -> torch.Tensor:
        if isinstance(argument, Filled):
            dtype = getattr(torch, other.dtype(tensor, there))
            return torch.full(tensor.shape(other.names(there)), argument.value, dtype=dtype)
        mine = drawn[argument.name]
        mine = mine.reshape(flat_shape(tuple(mine.shape), rank_of(tensor), match.lead))
        return mine.t() if argument.turned else mine

    args = list(map(made, match.inputs, other.inputs.values()))
    ours = run(op.reference.graphs[str(at)], list(drawn.values()), widen=widen)
    return ours, run(other.reference.graphs[str(there)], args, widen=widen)


def _output_order(
    op: OpSpec, other: OpSpec, match: Match, at: Workload, there: Workload, seed: int
) -> tuple[int, ...] | None:
    """Which of the other's outputs is each of op's, if they all agree."""
    try:
        ours, theirs = _run_both(op, other, match, (at, there), (seed, True))
    except ProblemError:
        return None
    for order in permutations(range(len(theirs)), len(ours)):
        if all(_equal(a, theirs[i]) for a, i in zip(ours, order, strict=True)):
            return order
    return None


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two results hold the same numbers; NaN equals nothing."""
    if a.numel() != b.numel():
        return False
    a, b = a.double().reshape(-1), b.double().reshape(-1)
    scale = a.abs().max() if a.numel() else torch.tensor(0.0)
    return bool(((a - b).abs() <= SAME * scale).all())


def _rounding(op: OpSpec, other: OpSpec, match: Match, at: Workload) -> float:
    """How far the two are from each other at op's own dtype: how alike they round."""
    pair = (at, match.workload(op, at))
    pair = (at, replace(pair[1], role="check", weight=1.0))
    try:
        ours, theirs = _run_both(op, other, match, pair, (_SEEDS[0], False))
    except ProblemError:
        return float("inf")
    return max(
        float((a.double().reshape(-1) - theirs[i].double().reshape(-1)).abs().max())
        for a, i in zip(ours, match.outputs, strict=True)
    )


def _holds_elsewhere(
    op: OpSpec, other: OpSpec, match: Match, small: Sequence[Workload], isolate: Isolate
) -> bool:
    """Whether the match holds at other sizes, and at other values of op's options."""
    more = [varied for at in small for varied in _varied(op, at)][1:]
    # what was a number at one dtype may be another at the next
    more += [at for at in op.workloads if at.dtypes != small[0].dtypes and not at.options][:1]
    pairs = [(at, match.workload(op, at)) for at in more]
    try:
        op = export(op, more, isolate)
        theirs = export(other, [there for _, there in pairs], isolate)
    except ProblemError:
        return False
    return all(
        other.is_legal(there)
        and _output_order(op, theirs, match, at, there, _SEEDS[0]) == match.outputs
        for at, there in pairs
    )
