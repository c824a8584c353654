"""How one op's inputs may stand for another's, by rank, size and dtype: nothing is run here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import permutations

from kernel_library.formula import FormulaError, Value, evaluate
from kernel_library.spec import DType, OpSpec, Shape, Tensor, Workload

#: More inputs than this have too many orders to try.
MOST_INPUTS = 6


@dataclass(frozen=True, slots=True)
class Binding:
    """An order of op's inputs, and what the other op's axes and dtypes are at op's workload.

    `axes` are formulas over op's axes. With `lead` > 1, that many leading axes of op's inputs are
    one axis of the other's.
    """

    inputs: tuple[str, ...]
    axes: Mapping[str, str]
    dims: Mapping[str, int]
    dtypes: Mapping[str, DType]
    lead: int = 1


@dataclass(frozen=True, slots=True)
class Match:
    """How to call `other` so that it computes op.

    `inputs` are op's inputs in the other's order, `outputs` the other's output for each of op's.
    `options` are fixed values, `forwarded` maps an option of the other's to op's own. `axes` and
    `dtypes` say what the other's are in terms of op's. `lead` leading axes are flattened into one:
    those of the inputs in `flat`, and of op's outputs at the positions `spread`.
    """

    other: str
    inputs: tuple[str, ...]
    outputs: tuple[int, ...] = (0,)
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
        own = op.option_values(at)
        options = {**self.options, **{theirs: own[mine] for theirs, mine in self.forwarded.items()}}
        return Workload(dims, dtypes, at.role, options, at.weight)  # type: ignore[arg-type]


def bindings(op: OpSpec, other: OpSpec, at: Workload) -> Iterator[Binding]:
    """The orders of op's inputs that fit the other's contract, outputs included.

    Ops that write in place or take lists have none.
    """
    tensors = [*op.inputs.values(), *other.inputs.values()]
    if op.mutates or other.mutates or any(tensor.count is not None for tensor in tensors):
        return
    if len(op.inputs) != len(other.inputs) or len(op.outputs) != len(other.outputs):
        return
    if len(op.inputs) > MOST_INPUTS:
        return
    for order in permutations(op.inputs):
        for lead in _leads(op, other, order):
            binding = _bind(op, other, at, order, lead)
            if binding and _fits(op, other, at, binding):
                yield binding


def _leads(op: OpSpec, other: OpSpec, order: tuple[str, ...]) -> set[int]:
    """How many leading axes to flatten so that the ranks agree: the same for all that need it."""
    ranks = [
        (len(op.inputs[name].axes.split()), len(tensor.axes.split()))
        for name, tensor in zip(order, other.inputs.values(), strict=True)
    ]
    more = {mine - theirs for mine, theirs in ranks}
    surplus = more - {0}
    if not surplus:
        return {1}
    return {surplus.pop() + 1} if len(surplus) == 1 and min(more) >= 0 else set()


def _bind(
    op: OpSpec, other: OpSpec, at: Workload, order: tuple[str, ...], lead: int
) -> Binding | None:
    """Read the other's axes off op's sizes, each from where it first stands alone."""
    axes: dict[str, str] = {}
    dtypes: dict[str, DType] = {}
    for name, tensor in zip(order, other.inputs.values(), strict=True):
        mine, dtype = op.inputs[name], op.dtype(op.inputs[name], at)
        formulas = flattened(mine, tensor, lead)
        for axis, formula in zip(tensor.axes.split(), formulas, strict=True):
            if axis.isidentifier():
                axes.setdefault(axis, formula)
        if tensor.dtype in ("T", *other.workloads[0].dtypes) and "float" in dtype:
            dtypes.setdefault(tensor.dtype, dtype)
    sizes = op.names(at)
    dims = {axis: int(evaluate(formula, sizes)) for axis, formula in axes.items()}
    return Binding(order, axes, dims, dtypes, lead)


def flattened(mine: Tensor, theirs: Tensor, lead: int) -> list[str]:
    """The axes of op's tensor, its leading ones as one product if the other has fewer."""
    axes = mine.axes.split()
    if len(axes) > len(theirs.axes.split()):
        return ["*".join(axes[:lead]), *axes[lead:]]
    return axes


def bound_workload(other: OpSpec, binding: Binding) -> Workload:
    """The other's workload that is op's."""
    return Workload(dict(binding.dims), dict(binding.dtypes))


def _fits(op: OpSpec, other: OpSpec, at: Workload, binding: Binding) -> bool:
    """Whether every size and dtype agrees, the outputs in some order."""
    there = bound_workload(other, binding)

    def agree(mine: Tensor, theirs: Tensor) -> bool:
        shape = flat_shape(mine.shape(op.names(at)), len(theirs.axes.split()), binding.lead)
        same_shape = shape == theirs.shape(other.names(there))
        return same_shape and op.dtype(mine, at) == other.dtype(theirs, there)

    try:
        inputs = zip(binding.inputs, other.inputs.values(), strict=True)
        return (
            all(agree(op.inputs[name], tensor) for name, tensor in inputs)
            and all(
                any(map(partial(agree, m), other.outputs.values())) for m in op.outputs.values()
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
