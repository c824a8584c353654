"""Makes a contract of a described reference: axes, outputs, workloads and cost.

An axis is free if the reference can be exported at another size of it (parameters resized with
it) and the outputs follow; if only multiples of some step can, that is a constraint; otherwise the
size is a number in the contract. The author's dtype becomes the free dtype T, checked at the other
floating dtypes too where the reference allows them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from evaluator.errors import ProblemError
from evaluator.intake.asking import call_at, exports, shapes
from evaluator.intake.axes import Size, formulas, name_sizes, sizes_of
from evaluator.intake.costing import with_cost
from evaluator.intake.exactness import tolerance
from evaluator.intake.sizes import STEPS, points, probe, telling
from evaluator.intake.wire import Described, Example, Exported, Failure, Meta, Shown
from evaluator.isolate import Isolate
from kernel_library.recipe import Index, Offsets, Recipe
from kernel_library.spec import (
    DType,
    OpSpec,
    Option,
    Reference,
    Role,
    Tensor,
    Workload,
)

_FREE_DTYPES: tuple[DType, ...] = ("float32", "float16", "bfloat16")
#: Checks at the author's own dtype; each other dtype has one of the same sizes.
_CHECKS = 3
Dims = Mapping[str, Size]
Answer = Exported | Failure


@dataclass(frozen=True, slots=True)
class _Draft:
    """A contract in the making: the op, the author's sizes and dtype, and how to try it."""

    op: OpSpec
    user: Mapping[str, Size]
    dtype: DType
    isolate: Isolate

    def at(self, dims: Dims, dtype: DType | None = None, role: Role = "check") -> Workload:
        """The workload at these sizes."""
        return Workload(dict(dims), {"T": dtype or self.dtype}, role)

    def try_at(self, workloads: Sequence[Workload]) -> tuple[Answer, ...]:
        """Export the reference at each."""
        calls = [call_at(self.op, at) for at in workloads]
        source = self.op.reference
        return exports(self.isolate, source.source, source.entry, calls) if calls else ()

    def show_at(self, workloads: Sequence[Workload]) -> tuple[Shown | Failure, ...]:
        """What the reference returns at each: much faster than exporting it."""
        calls = [call_at(self.op, at) for at in workloads]
        source = self.op.reference
        return shapes(self.isolate, source.source, source.entry, calls) if calls else ()


def contract(name: str, described: Described, isolate: Isolate) -> OpSpec:
    """The contract of a described reference, without its graphs but with its cost."""
    draft = _draft(name, described, isolate)
    base = draft.try_at([draft.at(draft.user)])[0]
    if isinstance(base, Failure):
        raise ProblemError(base.message, base.where)
    if not base.outputs and not base.mutated:
        raise ProblemError("returns no tensor and writes to none of its inputs", "reference")
    free, probed = _free_axes(draft)
    seen = [(draft.user, base.outputs), *probed]
    unfit = _unfit(free, seen, draft.user)
    free = {axis: step for axis, step in free.items() if axis not in unfit}
    checks, answers = _checks(draft, free, base)
    seen = [one for one in seen if _moves_only(one[0], draft.user, free)]
    seen += [(at.dims, a.outputs) for at, a in zip(checks, answers, strict=True)]
    named = [({axis: dims[axis] for axis in free}, outputs) for dims, outputs in seen]
    outputs = _outputs(draft, base, named, answers, checks)
    return _finished(draft, free, base, outputs, checks, answers)


def _draft(name: str, described: Described, isolate: Isolate) -> _Draft:
    axes = name_sizes(described.examples, described.sizes, described.options)
    by_size = {size: axis for axis, size in axes.items()}
    floats = [
        tensor.dtype
        for example in described.examples
        for tensor in example.slot.tensors
        if tensor.dtype.startswith(("float", "bfloat")) and not tensor.dtype.startswith("float8")
    ]
    dtype: DType = floats[0] if floats else "float32"
    inputs = {e.name: _tensor(e, by_size, dtype) for e in described.examples}
    if len(inputs) < len(described.examples):
        raise ProblemError("two arguments have the same name", "reference")
    op = OpSpec(
        name=name, inputs=inputs, outputs={}, workloads=(),
        options={option: Option(value) for option, value in described.options.items()},
        reference=Reference(described.source),
    )  # fmt: skip
    return _Draft(op, axes, dtype, isolate)


def _tensor(example: Example, by_size: Mapping[Size, str], dtype: DType) -> Tensor:
    dtypes = {tensor.dtype for tensor in example.slot.tensors}
    if len(dtypes) > 1:
        raise ProblemError("the tensors of a list must have one dtype", f"input {example.name!r}")
    axes = " ".join(by_size.get(size, str(size)) for size in sizes_of(example))
    count = str(len(example.slot.tensors)) if example.slot.listed else None
    [own] = dtypes
    return Tensor(axes, "T" if own == dtype else own, _named(example.recipe, by_size), count)


def _named(recipe: Recipe, by_size: Mapping[Size, str]) -> Recipe:
    """The recipe with a bound that is some axis's size called by that axis."""
    if isinstance(recipe, Index):
        return replace(recipe, below=by_size.get(int(recipe.below), recipe.below))
    if isinstance(recipe, Offsets):
        return replace(recipe, total=by_size.get(int(recipe.total), recipe.total))
    return recipe


Seen = tuple[Dims, Sequence[Meta]]


def _free_axes(draft: _Draft) -> tuple[dict[str, int], list[Seen]]:
    """The axes that can have another size, each with its step, and what came out there."""
    free: dict[str, int] = {}
    probed: list[Seen] = []
    others = frozenset(n for n in draft.user.values() if isinstance(n, int))
    for steps in (STEPS[:1], STEPS[1:]):
        tried = [
            (axis, step, {**draft.user, axis: probe(size, step, others)})
            for axis, size in draft.user.items()
            for step in steps
            if axis not in free and _keeps(size, step)
        ]
        answers = draft.show_at([draft.at(dims) for _, _, dims in tried])
        for (axis, step, dims), answer in zip(tried, answers, strict=True):
            if isinstance(answer, Shown) and axis not in free:
                free[axis] = step
                probed.append((dims, answer.outputs))
    return free, probed


def _keeps(size: Size, step: int) -> bool:
    return step == 1 or (isinstance(size, int) and size % step == 0 and size > step)


def _unfit(free: Mapping[str, int], seen: Sequence[Seen], user: Dims) -> set[str]:
    """The axes whose change the outputs do not follow in a way that can be written down.

    An axis with which an output shrinks is a window's: at another size of it the padding, which is
    a number in the reference, does not fit, and launchers that pad by half of it would be wrong.
    """
    unfit: set[str] = set()
    for dims, outputs in seen[1:]:
        [moved] = [axis for axis in free if dims[axis] != user[axis]]
        same = [len(m.shape) for m in outputs] == [len(m.shape) for m in seen[0][1]]
        sides = _sides([seen[0], (dims, outputs)]) if same else []
        if not same or not all(formulas(one) for one in sides) or _shrinks(moved, sides):
            unfit.add(moved)
    return unfit


def _shrinks(axis: str, sides: Sequence[Sequence[tuple[Dims, int]]]) -> bool:
    """Whether a side of an output is shorter where the axis is longer."""
    return any(
        isinstance(before := dims[axis], int)
        and isinstance(after := moved[axis], int)
        and (after - before) * (other - side) < 0
        for (dims, side), (moved, other) in sides
    )


def _sides(seen: Sequence[Seen]) -> list[list[tuple[Dims, int]]]:
    """For each side of each output, what it was at each point."""
    first = seen[0][1]
    return [
        [(dims, outputs[i].shape[j]) for dims, outputs in seen]
        for i, output in enumerate(first)
        for j in range(len(output.shape))
    ]


def _moves_only(dims: Dims, user: Dims, free: Mapping[str, int]) -> bool:
    return all(dims[axis] == size or axis in free for axis, size in user.items())


def _checks(
    draft: _Draft, free: Mapping[str, int], base: Exported
) -> tuple[list[Workload], list[Exported]]:
    """The check workloads, with what came out: small sizes, then the other dtypes."""
    small = [draft.at(dims) for dims in points(draft.op, free, draft.user)]
    kept = [
        at
        for at, shown in zip(small, draft.show_at(small), strict=True)
        if isinstance(shown, Shown) and len(shown.outputs) == len(base.outputs)
    ][:_CHECKS] or [draft.at(draft.user)]
    if draft.dtype in _FREE_DTYPES:
        rest = [dtype for dtype in _FREE_DTYPES if dtype != draft.dtype]
        alone = telling([at.dims for at in kept], free)
        spread = [kept[alone[i % len(alone)]] for i in range(1, len(rest) + 1)]
        kept += [replace(at, dtypes={"T": t}) for at, t in zip(spread, rest, strict=True)]
    told = [
        (at, answer)
        for at, answer in zip(kept, draft.try_at(kept), strict=True)
        if isinstance(answer, Exported)
    ] or [(draft.at(draft.user), base)]
    return [at for at, _ in told], [answer for _, answer in told]


def _outputs(
    draft: _Draft,
    base: Exported,
    seen: Sequence[Seen],
    answers: Sequence[Exported],
    checks: Sequence[Workload],
) -> dict[str, Tensor]:
    names = ["y"] if len(base.outputs) == 1 else [f"y{i}" for i in range(len(base.outputs))]
    outputs = {}
    for i, (name, meta) in enumerate(zip(names, base.outputs, strict=True)):
        sides = [
            formulas([(dims, outs[i].shape[j]) for dims, outs in seen])
            for j in range(len(meta.shape))
        ]
        if not all(sides):
            raise ProblemError("has a size that does not follow from the inputs'", f"output {i}")
        follows = all(
            answer.outputs[i].dtype == at.dtypes["T"]
            for at, answer in zip(checks, answers, strict=True)
        )
        dtype = "T" if follows and meta.dtype == draft.dtype else meta.dtype
        taken = name if name not in draft.op.inputs else f"{name}_out"
        outputs[taken] = Tensor(" ".join(side[0] for side in sides), dtype)
    return outputs


def _finished(
    draft: _Draft,
    free: Mapping[str, int],
    base: Exported,
    outputs: Mapping[str, Tensor],
    checks: Sequence[Workload],
    answers: Sequence[Exported],
) -> OpSpec:
    """The contract with fixed sizes as numbers, its workloads and its cost."""
    fixed = {axis: size for axis, size in draft.user.items() if axis not in free}
    op = replace(
        draft.op,
        inputs={name: _fix(tensor, fixed) for name, tensor in draft.op.inputs.items()},
        outputs=outputs,
        mutates=_mutated(draft, base),
        tolerance=tolerance(base),
        constraints=tuple(f"{axis} % {step} == 0" for axis, step in free.items() if step > 1),
    )
    measure = draft.at(draft.user, role="measure")
    every = [*checks, measure]
    graphs = {str(at): a.graph for at, a in zip(every, [*answers, base], strict=True)}
    tuples = {axis for axis, size in fixed.items() if isinstance(size, tuple)}
    slim = [
        replace(at, dims={a: n for a, n in at.dims.items() if a in free or a in tuples})
        for at in every
    ]
    by_new_name = {str(new): graphs[str(old)] for old, new in zip(every, slim, strict=True)}
    op = replace(op, workloads=tuple(slim))
    op = replace(op, reference=replace(op.reference, graphs=by_new_name))
    return with_cost(op)


def _mutated(draft: _Draft, base: Exported) -> tuple[str, ...]:
    names = [
        name
        for name, tensor in draft.op.inputs.items()
        for _ in tensor.shapes(draft.op.names(draft.at(draft.user)))
    ]
    return tuple(dict.fromkeys(names[position] for position in base.mutated))


def _fix(tensor: Tensor, fixed: Mapping[str, Size]) -> Tensor:
    """The tensor with the sizes that cannot change as numbers."""
    numbers = {axis: str(size) for axis, size in fixed.items() if isinstance(size, int)}
    axes = " ".join(numbers.get(axis, axis) for axis in tensor.axes.split())
    recipe = tensor.recipe
    if isinstance(recipe, Index):
        recipe = replace(recipe, below=numbers.get(recipe.below, recipe.below))
    if isinstance(recipe, Offsets):
        recipe = replace(recipe, total=numbers.get(recipe.total, recipe.total))
    return replace(tensor, axes=axes, recipe=recipe)
