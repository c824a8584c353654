"""How one op's inputs may stand for another's, by rank, size and dtype: nothing is run here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations, permutations, product

import torch

from kernel_library.formula import FormulaError, Value, evaluate
from kernel_library.spec import DType, OpSpec, Shape, Tensor, Workload

#: More inputs than this have too many orders to try.
MOST_INPUTS = 6
#: What an input may hold that op has not: no bias, no weight.
FILLS = (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Given:
    """One of op's inputs; a matrix may be turned, rows for columns."""

    name: str
    turned: bool = False


@dataclass(frozen=True, slots=True)
class Filled:
    """A vector of one value, as long as an axis of one of op's inputs."""

    like: str
    axis: int
    value: float


#: What stands for an input of the other op's.
Argument = Given | Filled


class Epsilon(float):
    """An option's value that is the step of op's own dtype at 1: another at another dtype."""


@dataclass(frozen=True, slots=True)
class Binding:
    """What stands for each of the other op's inputs, and its axes and dtypes at op's workload.

    `axes` are formulas over op's axes. With `lead` > 1, that many leading axes of op's inputs are
    one axis of the other's.
    """

    inputs: tuple[Argument, ...]
    axes: Mapping[str, str]
    dims: Mapping[str, int]
    dtypes: Mapping[str, DType]
    lead: int = 1


@dataclass(frozen=True, slots=True)
class Match:
    """How to call `other` so that it computes op.

    `inputs` stand for the other's in its order, `outputs` are the other's output for each of op's,
    of as many as it `returns`; at the positions `scalars` its one element is op's tensor without
    axes, in op's dtype. `options` are fixed values, `forwarded` maps an option of the other's to
    op's own. `axes` and `dtypes` say what the other's are in terms of op's. `lead` leading axes
    are flattened into one: those of the inputs in `flat`, and of op's outputs at `spread`.
    """

    other: str
    inputs: tuple[Argument, ...]
    outputs: tuple[int, ...] = (0,)
    returns: int = 1
    scalars: tuple[int, ...] = ()
    options: Mapping[str, Value] = field(default_factory=dict)
    forwarded: Mapping[str, str] = field(default_factory=dict)
    axes: Mapping[str, str] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)
    lead: int = 1
    flat: tuple[str, ...] = ()
    spread: tuple[int, ...] = ()

    def workload(self, op: OpSpec, at: Workload) -> Workload:
        """The other's workload that op's workload is: for its tuned table and its space."""
        names = op.names(at)
        dims = {axis: int(evaluate(formula, names)) for axis, formula in self.axes.items()}
        dtypes = {free: at.dtypes.get(mine, mine) for free, mine in self.dtypes.items()}
        own, step = op.option_values(at), epsilon(op, at)
        fixed = {n: step if isinstance(v, Epsilon) else v for n, v in self.options.items()}
        options = {**fixed, **{theirs: own[mine] for theirs, mine in self.forwarded.items()}}
        return Workload(dims, dtypes, at.role, options, at.weight)  # type: ignore[arg-type]


def epsilon(op: OpSpec, at: Workload) -> Epsilon | None:
    """The step at 1 of the dtype of op's first input, if that is a float."""
    dtype = getattr(torch, op.dtype(next(iter(op.inputs.values())), at))
    return Epsilon(torch.finfo(dtype).eps) if dtype.is_floating_point else None


def bindings(op: OpSpec, other: OpSpec, at: Workload) -> Iterator[Binding]:
    """What fits the other's contract, outputs included: plain orders of op's inputs before others.

    Ops that write in place or take lists have none.
    """
    tensors = [*op.inputs.values(), *other.inputs.values()]
    if op.mutates or other.mutates or any(tensor.count is not None for tensor in tensors):
        return
    if len(op.inputs) > len(other.inputs) or len(op.outputs) > len(other.outputs):
        return
    if len(op.outputs) < len(other.outputs) and not _is_aside(op, other):
        return
    if len(other.inputs) > MOST_INPUTS:
        return
    for order in _orders(op, other):
        for lead in _leads(op, other, order):
            binding = _bind(op, other, at, order, lead)
            if binding and _fits(op, other, at, binding):
                yield from _filled(binding)


#: An input of op's for each of the other's, or none.
_Order = Sequence[Given | None]


def _orders(op: OpSpec, other: OpSpec) -> Iterator[_Order]:
    """Op's inputs in each order, and each choice of matrices turned; the rest must be vectors."""
    matrices = [name for name, tensor in op.inputs.items() if rank_of(tensor) == 2]
    theirs = list(other.inputs.values())
    for count in range(len(matrices) + 1):
        for turned in combinations(matrices, count):
            for places in permutations(range(len(theirs)), len(op.inputs)):
                order: list[Given | None] = [None] * len(theirs)
                for place, name in zip(places, op.inputs, strict=True):
                    order[place] = Given(name, name in turned)
                pairs = list(zip(order, theirs, strict=True))
                if all(
                    rank_of(tensor) == 1
                    if given is None
                    else rank_of(tensor) == 2 or not given.turned
                    for given, tensor in pairs
                ):
                    yield order


def rank_of(tensor: Tensor) -> int:
    """How many axes a tensor has."""
    return len(tensor.axes.split())


def given_pairs(other: OpSpec, inputs: Sequence[Argument | None]) -> Iterator[tuple[Given, Tensor]]:
    """Op's inputs, each with the other's that it stands for."""
    for given, tensor in zip(inputs, other.inputs.values(), strict=True):
        if isinstance(given, Given):
            yield given, tensor


def _is_aside(op: OpSpec, other: OpSpec) -> bool:
    """Whether what nobody asks for is little, a statistic of each row, and nothing is filled in."""
    ranks = sorted(rank_of(tensor) for tensor in other.outputs.values())
    rest = ranks[: len(ranks) - len(op.outputs)]
    return len(op.inputs) == len(other.inputs) and max(rest) < 2


def _leads(op: OpSpec, other: OpSpec, order: _Order) -> set[int]:
    """How many leading axes to flatten so that the ranks agree: the same for all that need it."""
    more = {rank_of(op.inputs[g.name]) - rank_of(tensor) for g, tensor in given_pairs(other, order)}
    surplus = more - {0}
    if not surplus:
        return {1}
    return {surplus.pop() + 1} if len(surplus) == 1 and min(more) >= 0 else set()


def _bind(op: OpSpec, other: OpSpec, at: Workload, order: _Order, lead: int) -> Binding | None:
    """Read the other's axes off op's sizes, each from where it first stands alone."""
    axes: dict[str, str] = {}
    dtypes: dict[str, DType] = {}
    for given, tensor in given_pairs(other, order):
        mine = op.inputs[given.name]
        dtype = op.dtype(mine, at)
        formulas = flattened(mine, tensor, lead)
        for axis, formula in zip(
            tensor.axes.split(), formulas[::-1] if given.turned else formulas, strict=True
        ):
            if axis.isidentifier():
                axes.setdefault(axis, formula)
        if tensor.dtype in ("T", *other.workloads[0].dtypes) and "float" in dtype:
            dtypes.setdefault(tensor.dtype, dtype)
    whole = [
        given or _vector(op, axes.get(tensor.axes, ""))
        for given, tensor in zip(order, other.inputs.values(), strict=True)
    ]
    sizes = op.names(at)
    dims = {axis: int(evaluate(formula, sizes)) for axis, formula in axes.items()}
    inputs = tuple(each for each in whole if each is not None)
    return Binding(inputs, axes, dims, dtypes, lead) if len(inputs) == len(whole) else None


def _vector(op: OpSpec, axis: str) -> Filled | None:
    """A vector as long as this axis of op's, which must stand alone in an input."""
    for name, tensor in op.inputs.items():
        if axis in tensor.axes.split():
            return Filled(name, tensor.axes.split().index(axis), FILLS[0])
    return None


def _filled(binding: Binding) -> Iterator[Binding]:
    """The binding with each choice of values where op has no input."""
    vectors = sum(isinstance(each, Filled) for each in binding.inputs)
    for values in product(FILLS, repeat=vectors):
        left = iter(values)
        inputs = tuple(
            replace(each, value=next(left)) if isinstance(each, Filled) else each
            for each in binding.inputs
        )
        yield replace(binding, inputs=inputs)


def flattened(mine: Tensor, theirs: Tensor, lead: int) -> list[str]:
    """The axes of op's tensor, its leading ones as one product if the other has fewer."""
    axes = mine.axes.split()
    if len(axes) > rank_of(theirs):
        return ["*".join(axes[:lead]), *axes[lead:]]
    return axes


def bound_workload(other: OpSpec, binding: Binding) -> Workload:
    """The other's workload that is op's."""
    return Workload(dict(binding.dims), dict(binding.dtypes))


def _fits(op: OpSpec, other: OpSpec, at: Workload, binding: Binding) -> bool:
    """Whether every size and dtype agrees, the outputs in some order."""
    there = bound_workload(other, binding)

    def agree(mine: Tensor, theirs: Tensor, turned: bool = False) -> bool:
        shape = flat_shape(mine.shape(op.names(at)), rank_of(theirs), binding.lead)
        same_shape = (shape[::-1] if turned else shape) == theirs.shape(other.names(there))
        return same_shape and op.dtype(mine, at) == other.dtype(theirs, there)

    def yields(mine: Tensor, theirs: Tensor) -> bool:
        one = not mine.axes and theirs.shape(other.names(there)) == (1,)
        return one or agree(mine, theirs)

    try:
        given = given_pairs(other, binding.inputs)
        return (
            all(agree(op.inputs[each.name], tensor, each.turned) for each, tensor in given)
            and all(
                any(map(partial(yields, m), other.outputs.values())) for m in op.outputs.values()
            )
            and other.is_legal(there)
        )
    except (KeyError, FormulaError):
        return False


def flat_shape(shape: Shape, rank: int, lead: int) -> Shape:
    """The shape with its leading axes as one, if it has more than `rank`."""
    if len(shape) <= rank:
        return shape
    first = 1
    for size in shape[:lead]:
        first *= size
    return (first, *shape[lead:])
