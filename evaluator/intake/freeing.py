"""A contract in the making, and which of its sizes can be others: by which steps, down to where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from evaluator.errors import ProblemError
from evaluator.intake.asking import call_at, exports, shapes
from evaluator.intake.axes import Size, formula
from evaluator.intake.sizes import STEPS, Axis, beyond, probes, smaller
from evaluator.intake.wire import Exported, Failure, Meta, Shown
from evaluator.isolate import Isolate
from kernel_library.recipe import Offsets
from kernel_library.spec import DType, OpSpec, Role, Workload

Dims = Mapping[str, Size]
Answer = Exported | Failure
#: What the reference returned at these sizes.
Seen = tuple[Dims, Sequence[Meta]]


@dataclass(frozen=True, slots=True)
class Draft:
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


def free_axes(draft: Draft, base: Seen) -> tuple[dict[str, Axis], list[Seen]]:
    """The axes that can have another size, and what came out at the author's sizes and at those.

    For each step, the least first, an axis is tried a step from where it is: eight heads that share
    two can be ten, and not nine.
    """
    steps: dict[str, int] = {}
    found: dict[str, list[Seen]] = {}
    others = frozenset(n for n in draft.user.values() if isinstance(n, int))
    for some in (STEPS[:1], STEPS[1:]):
        tried = {
            (axis, step): probes(size, step, others)
            for axis, size in draft.user.items()
            for step in some
            if axis not in steps and _keeps(size, step)
        }
        seen = _seen(draft, tried)
        for (axis, step), sizes in tried.items():
            if axis not in steps and len(seen[axis, step]) == len(sizes):
                steps[axis], found[axis] = step, [base, *seen[axis, step]]
    far = _far(draft, steps)
    tall = {axis: [*seen, *far.get(axis, [])] for axis, seen in found.items()}
    fit = {axis: seen for axis, seen in tall.items() if _follows(axis, seen)}
    free = {axis: Axis(steps[axis]) for axis in fit}
    return _from_the_least(draft, free, fit), [base, *(one for s in fit.values() for one in s[1:])]


def _far(draft: Draft, steps: Mapping[str, int]) -> dict[str, list[Seen]]:
    """What came out at sizes far above the author's; nothing where a loop takes too long there.

    A window with its padding may be as good as its neighbours, and outgrow what it slides over.
    """
    tried = {(axis, step): beyond(draft.user[axis], step) for axis, step in steps.items()}
    try:
        return {axis: seen for (axis, _), seen in _seen(draft, tried).items()}
    except ProblemError:
        return {}


def _keeps(size: Size, step: int) -> bool:
    return step == 1 or (isinstance(size, int) and size % step == 0 and size > step)


def _from_the_least(
    draft: Draft, free: Mapping[str, Axis], fit: Mapping[str, Sequence[Seen]]
) -> dict[str, Axis]:
    """The axes, each with the least size from which on all that are tried will do.

    One step and two are tried everywhere, more only where two are too few: the best two of one are
    none, and a window of four may be written in the reference. Offsets have two bounds or more: one
    alone bounds nothing.
    """
    recipes = [(tensor.axes, tensor.recipe) for tensor in draft.op.inputs.values()]
    bounds = {axis for axis, r in recipes if isinstance(r, Offsets) and r.first and r.last}
    below = {axis: smaller(draft.user[axis], each.step) for axis, each in free.items()}
    few = {axis: sizes[:2] for axis, sizes in below.items()}
    able = _able(draft, fit, few)
    more = {a: sizes[2:] for a, sizes in below.items() if not able[a].issuperset(sizes[1:2])}
    more_able = _able(draft, fit, more)
    found = {}
    for axis, each in free.items():
        tried = {*few[axis], *more.get(axis, [])}
        worst = max(tried - able[axis] - more_able.get(axis, set()), default=0)
        own = draft.user[axis]
        least = next((n for n in below[axis] if n > worst), own if isinstance(own, int) else 1)
        found[axis] = replace(each, least=max(least, 2 * (axis in bounds)))
    return found


def _able(
    draft: Draft, fit: Mapping[str, Sequence[Seen]], sizes: Mapping[str, Sequence[int]]
) -> dict[str, set[Size]]:
    """At which of these sizes of an axis the reference returns what its other sizes lead to."""
    seen = _seen(draft, {(axis, 0): some for axis, some in sizes.items()})
    return {
        axis: {dims[axis] for dims, out in many if _follows(axis, [*fit[axis], (dims, out)])}
        for (axis, _), many in seen.items()
    }


def _seen(
    draft: Draft, tried: Mapping[tuple[str, int], Sequence[Size]]
) -> dict[tuple[str, int], list[Seen]]:
    """What came out at these sizes of an axis, the others as they are; none where it raised."""
    flat = [(key, {**draft.user, key[0]: size}) for key, sizes in tried.items() for size in sizes]
    answers = draft.show_at([draft.at(dims) for _, dims in flat])
    seen: dict[tuple[str, int], list[Seen]] = {key: [] for key in tried}
    for (key, dims), answer in zip(flat, answers, strict=True):
        if isinstance(answer, Shown):
            seen[key].append((dims, answer.outputs))
    return seen


def _follows(axis: str, seen: Sequence[Seen]) -> bool:
    """Whether the outputs follow the axis in a way that can be written down.

    An axis with which an output shrinks is a window's: at another size of it the padding, which is
    a number in the reference, does not fit, and launchers that pad by half of it would be wrong.
    """
    if len({tuple(len(out.shape) for out in outputs) for _, outputs in seen}) > 1:
        return False
    sides = [
        [(dims, outputs[i].shape[j]) for dims, outputs in seen]
        for i, output in enumerate(seen[0][1])
        for j in range(len(output.shape))
    ]
    return all(formula(side) for side in sides) and not _shrinks(axis, sides)


def _shrinks(axis: str, sides: Sequence[Sequence[tuple[Dims, int]]]) -> bool:
    """Whether a side of an output is shorter where the axis is longer."""
    return any(
        isinstance(before := dims[axis], int)
        and isinstance(after := moved[axis], int)
        and (after - before) * (other - side) < 0
        for (dims, side), *rest in sides
        for moved, other in rest
    )
