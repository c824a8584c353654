"""Makes a contract of a described reference: axes, outputs, workloads and cost.

An axis is free if the reference can be called at another size of it (parameters resized with it)
and the outputs follow; if only multiples of some step can, or only sizes from some on, those are
constraints; otherwise the size is a number in the contract. The author's dtype becomes the free
dtype T, checked at the other floating dtypes too where the reference allows them and the problem
can be judged at them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from evaluator.admission import admit
from evaluator.errors import ProblemError
from evaluator.graphs import run
from evaluator.inputs import Case, draw, flat
from evaluator.intake.axes import Side, Size, bound, formula, name_sides, sides_of
from evaluator.intake.costing import with_cost
from evaluator.intake.exactness import tolerance
from evaluator.intake.freeing import Draft, Seen, free_axes
from evaluator.intake.sizes import Axis, points, telling
from evaluator.intake.switches import with_both
from evaluator.intake.wire import Described, Example, Exported, Failure, Shown
from evaluator.isolate import Isolate
from kernel_library.formula import names_in
from kernel_library.graph import Graph
from kernel_library.recipe import Index, Offsets, Recipe, Sorted, Structured, plain
from kernel_library.spec import (
    DType,
    OpSpec,
    Option,
    Reference,
    Tensor,
    Workload,
)

_FREE_DTYPES: tuple[DType, ...] = ("float32", "float16", "bfloat16")
#: Checks at the author's own dtype; each other dtype has one of the same sizes.
_CHECKS = 3


def contract(name: str, described: Described, isolate: Isolate) -> OpSpec:
    """The contract of a described reference, without its graphs but with its cost."""
    draft = _draft(name, described, isolate)
    base = draft.try_at([draft.at(draft.user)])[0]
    if isinstance(base, Failure):
        raise ProblemError(base.message, base.where)
    if not base.outputs and not base.mutated:
        raise ProblemError("returns no tensor and writes to none of its inputs", "reference")
    free, seen = free_axes(draft, (draft.user, base.outputs))
    draft = replace(draft, op=_bounded(draft, free))
    checks, answers = _checks(draft, free, base)
    seen += [(at.dims, a.outputs) for at, a in zip(checks, answers, strict=True)]
    named = [({axis: dims[axis] for axis in free}, outputs) for dims, outputs in seen]
    outputs = _outputs(draft, base, named, answers, checks)
    return with_both(_finished(draft, free, base, outputs, checks, answers), isolate)


def _draft(name: str, described: Described, isolate: Isolate) -> Draft:
    called = name_sides(described.examples, described.sizes, described.options)
    floats = [
        tensor.dtype
        for example in described.examples
        for tensor in example.slot.tensors
        if tensor.dtype.startswith(("float", "bfloat")) and not tensor.dtype.startswith("float8")
    ]
    dtype: DType = floats[0] if floats else "float32"
    inputs = {e.name: _tensor(e, called, dtype) for e in described.examples}
    if len(inputs) < len(described.examples):
        raise ProblemError("two arguments have the same name", "reference")
    op = OpSpec(
        name=name, inputs=inputs, outputs={}, workloads=(),
        options={option: Option(value) for option, value in described.options.items()},
        reference=Reference(described.source),
    )  # fmt: skip
    user = {axis: size for (size, _), axis in called.items()}
    return Draft(op, user, dtype, isolate)


def _tensor(example: Example, called: Mapping[Side, str], dtype: DType) -> Tensor:
    dtypes = {tensor.dtype for tensor in example.slot.tensors}
    if len(dtypes) > 1:
        raise ProblemError("the tensors of a list must have one dtype", f"input {example.name!r}")
    axes = [called.get(side, str(side[0])) for side in sides_of(example)]
    # of two axes that are told apart no matrix is square at other sizes
    oblong = isinstance(example.recipe, Structured) and axes[-1] != axes[-2]
    recipe = plain(example.recipe) if oblong else example.recipe
    count = str(len(example.slot.tensors)) if example.slot.listed else None
    [own] = dtypes
    return Tensor(" ".join(axes), "T" if own == dtype else own, recipe, count)


def _bounded(draft: Draft, free: Mapping[str, Axis]) -> OpSpec:
    """The op with bounds that follow free axes called by these, and what sizes must keep for it."""
    axes = {axis: size for axis in free if isinstance(size := draft.user[axis], int)}
    rows = {name: tensor.axes.split() for name, tensor in draft.op.inputs.items()}

    def bounded(name: str, tensor: Tensor) -> Tensor:
        def call(number: str) -> str:
            return bound(int(number), axes, [*rows.values()], rows[name])

        return replace(tensor, recipe=_called(tensor.recipe, call))

    inputs = {name: bounded(name, tensor) for name, tensor in draft.op.inputs.items()}
    fixed = _fixed(draft, free)
    asked = (c for tensor in inputs.values() for c in _asked(_fix(tensor, fixed)))
    return replace(draft.op, inputs=inputs, constraints=tuple(c for c in asked if names_in(c)))


def _fixed(draft: Draft, free: Mapping[str, Axis]) -> dict[str, Size]:
    return {axis: size for axis, size in draft.user.items() if axis not in free}


def _called(recipe: Recipe, call: Callable[[str], str]) -> Recipe:
    """The recipe with its bound called in another way."""
    match recipe:
        case Index():
            return replace(recipe, below=call(recipe.below))
        case Offsets():
            return replace(recipe, total=call(recipe.total))
        case Sorted(of=Index() as of):
            return Sorted(replace(of, below=call(of.below)))
        case _:
            return recipe


def _asked(tensor: Tensor) -> Iterator[str]:
    """What sizes must keep for such indices to be there: lengths from 1 on always are."""
    of = plain(tensor.recipe)
    if isinstance(of, Index) and of.distinct:
        yield f"{tensor.axes.split()[-1]} <= {of.below}" + f"-{of.low}" * bool(of.low)
    elif isinstance(of, Index) and of.low > (1 if of.below.endswith("+1") else 0):
        yield f"{of.low} < {of.below}"


def _checks(
    draft: Draft, free: Mapping[str, Axis], base: Exported
) -> tuple[list[Workload], list[Exported]]:
    """The check workloads, with what came out: small sizes, then the other dtypes."""
    every = (draft.at(dims) for dims in points(draft.op, free, draft.user))
    small = [at for at in every if draft.op.is_legal(at)]
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
        if isinstance(answer, Exported) and _takes(draft.op, at, answer.graph)
    ] or [(draft.at(draft.user), base)]
    return [at for at, _ in told], [answer for _, answer in told]


def _takes(op: OpSpec, at: Workload, graph: Graph) -> bool:
    """Whether the reference takes such values here: positions may be past a table's end."""
    try:
        return bool(run(graph, flat(draw(op, at, Case(0), "cpu"))))
    except ProblemError:
        return False


def _outputs(
    draft: Draft,
    base: Exported,
    seen: Sequence[Seen],
    answers: Sequence[Exported],
    checks: Sequence[Workload],
) -> dict[str, Tensor]:
    names = ["y"] if len(base.outputs) == 1 else [f"y{i}" for i in range(len(base.outputs))]
    outputs = {}
    for i, (name, meta) in enumerate(zip(names, base.outputs, strict=True)):
        sides = [
            formula([(dims, outs[i].shape[j]) for dims, outs in seen])
            for j in range(len(meta.shape))
        ]
        if None in sides:
            raise ProblemError("has a size that does not follow from the inputs'", f"output {i}")
        follows = all(
            answer.outputs[i].dtype == at.dtypes["T"]
            for at, answer in zip(checks, answers, strict=True)
        )
        dtype = "T" if follows and meta.dtype == draft.dtype else meta.dtype
        taken = name if name not in draft.op.inputs else f"{name}_out"
        outputs[taken] = Tensor(" ".join(filter(None, sides)), dtype)
    return outputs


def _finished(
    draft: Draft,
    free: Mapping[str, Axis],
    base: Exported,
    outputs: Mapping[str, Tensor],
    checks: Sequence[Workload],
    answers: Sequence[Exported],
) -> OpSpec:
    """The contract with fixed sizes as numbers, its workloads and its cost."""
    fixed = _fixed(draft, free)
    op = replace(
        draft.op,
        inputs={name: _fix(tensor, fixed) for name, tensor in draft.op.inputs.items()},
        outputs=outputs,
        mutates=_mutated(draft, base),
        tolerance=tolerance(base),
        constraints=(
            *draft.op.constraints,
            *(said for name, axis in free.items() for said in axis.constraints(name)),
        ),
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
    return with_cost(_fit(op, draft.dtype))


def _fit(op: OpSpec, dtype: DType) -> OpSpec:
    """The contract without the dtypes that the author did not ask for where admission refuses it.

    In 16 bits a formula may pick another expert, leave nothing that could fail, or not run at all.
    """
    added = [at for at in op.workloads if at.dtypes["T"] != dtype]
    unfit = {at.dtypes["T"] for at in added if not _is_admitted(op, at)}
    return replace(op, workloads=tuple(at for at in op.workloads if at.dtypes["T"] not in unfit))


def _is_admitted(op: OpSpec, at: Workload) -> bool:
    try:
        return bool(admit(replace(op, workloads=(at,))))
    except ProblemError:
        return False


def _mutated(draft: Draft, base: Exported) -> tuple[str, ...]:
    names = [
        name
        for name, tensor in draft.op.inputs.items()
        for _ in tensor.shapes(draft.op.names(draft.at(draft.user)))
    ]
    return tuple(dict.fromkeys(names[position] for position in base.mutated))


def _fix(tensor: Tensor, fixed: Mapping[str, Size]) -> Tensor:
    """The tensor with the sizes that cannot change as numbers."""
    numbers = {axis: str(size) for axis, size in fixed.items() if isinstance(size, int)}
    return replace(tensor, axes=" ".join(numbers.get(axis, axis) for axis in tensor.axes.split()))
