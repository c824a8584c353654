"""Is a problem fit to judge by? Only if answers that did no work fail on it, and torch's own pass.

A tolerance that nothing can fail looks exactly like one that is met. Each null answer here was a
benchmark's undoing: outputs smaller than the tolerance, functions that hardly depend on their
inputs, comparisons of the last row alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from evaluator.compare import Mismatch, compare
from evaluator.errors import LabError, ProblemError
from evaluator.graphs import run
from evaluator.inputs import Case, draw, flat, size_of
from evaluator.picked import Answers, answers
from kernel_library.recipe import written
from kernel_library.spec import OpSpec, Workload

Tensors = tuple[torch.Tensor, ...]
#: What a null answer is made of: the inputs, what is wanted, and torch's answer to other inputs.
Null = Callable[[Sequence[torch.Tensor], Answers, Tensors], Tensors]

#: A null answer passes if it does on each of these draws: on one, a last column near 0 may.
DRAWS = range(11, 15)
#: Elements of the largest tensor: enough to have rows and tails, little to compute in float64.
LARGEST = 1 << 18
#: A dtype, and the next one down, in which an answer must not pass for it. An output is no finer
#: than what the reference itself rounds to on the way.
LOWER = {
    torch.float64: torch.float32, torch.float32: torch.bfloat16,
    torch.float16: torch.float8_e4m3fn, torch.bfloat16: torch.float8_e4m3fn,
}  # fmt: skip


def admit(op: OpSpec) -> tuple[str, ...]:
    """What fails on the problem, as it must, at each dtype setting that it is checked at.

    `op` has graphs at its check workloads. Raises `ProblemError` naming the null answer that
    passes, or that torch's own answer does not, or what was drawn where the reference raises.
    """
    failed: dict[str, None] = {}
    for at in _telling(op):
        failed |= dict.fromkeys(_admit_at(op, at))
    return tuple(failed)


def _telling(op: OpSpec) -> Iterator[Workload]:
    """For each setting of dtypes and options, the largest check workload that is small enough.

    The smallest where none is: a setting is never admitted unseen. Raises LabError for no graph.
    """
    best: dict[str, Workload] = {}
    seen = [at for at in op.workloads if str(at) in op.reference.graphs]
    checks = [at for at in seen if at.role == "check"] or seen
    if not checks:
        raise LabError("the reference has not been exported at any workload")
    for at in sorted(checks, key=lambda at: size_of(op, at)):
        setting = f"{at.dtypes} {at.options}"
        if setting not in best or size_of(op, at) <= LARGEST:
            best[setting] = at
    yield from best.values()


def _admit_at(op: OpSpec, at: Workload) -> list[str]:
    tried: set[str] = set()
    weak: dict[str, str] = {}
    for n, seed in enumerate(DRAWS):
        found = dict(_tried(op, at, seed))
        tried |= found.keys()
        weak = {name: why for name, why in found.items() if why and (n == 0 or name in weak)}
        if not weak:
            return [name for name in NULLS if name in tried]
    raise ProblemError(next(iter(weak.values())), "reference")


def _tried(op: OpSpec, at: Workload, seed: int) -> Iterator[tuple[str, str]]:
    """Null answers and outputs of one draw by name, and why what passes may not; else nothing."""
    graph = op.reference.graphs[str(at)]
    mine, other = (flat(draw(op, at, Case(s), "cpu")) for s in (seed, seed + len(DRAWS)))
    try:
        wanted, stale = answers(graph, mine), run(graph, other)
    except ProblemError as error:
        raise ProblemError(f"{error.message} ({_drawn(op, at)})", error.where) from error
    own = tuple(wanted.own)
    if (why := _refused(op, own, wanted)) is not None:
        raise ProblemError(f"torch's own answer fails at {at}: {why}", "reference")
    remedy = "give it outputs that depend on its inputs, in a range that its dtype resolves"
    for name, null in NULLS.items():
        answer = null(mine, wanted, stale)
        if all(a is o for a, o in zip(answer, own, strict=True)):
            continue  # this null has nothing to exchange here
        passes = _refused(op, answer, wanted) is None
        yield name, f"{name} would pass at {at}: {remedy}" if passes else ""
    for i in _unheld(op, own, wanted):
        told = f"output {i} may hold anything at {at}: zeros and ones would pass for it"
        yield f"output {i}", f"{told}, so tighten its tolerance or leave it out"


def _drawn(op: OpSpec, at: Workload) -> str:
    """That inputs are ours, not the example's; how each was drawn, and what its author can do."""
    inputs = ", ".join(f"{name} as {written(t.recipe)}" for name, t in op.inputs.items())
    return (
        f"this is of inputs drawn at {at}: {inputs}; if the reference is not meant for such, let it"
        " make of them what it needs, or write a unit, which says how each input is drawn"
    )


def _unheld(op: OpSpec, own: Tensors, wanted: Answers) -> Iterator[int]:
    """Outputs that pass with any content, behind others that do not."""
    for i, output in enumerate(own):
        blanks = (torch.zeros_like(output), torch.ones_like(output))
        answers_with = [(*own[:i], blank, *own[i + 1 :]) for blank in blanks]
        if output.numel() and all(_refused(op, each, wanted) is None for each in answers_with):
            yield i


def _refused(op: OpSpec, answer: Tensors, wanted: Answers) -> str | None:
    """Why an answer is refused, or None if it passes."""
    try:
        compare(answer, wanted, op.tolerance)
    except Mismatch as wrong:
        return wrong.reason
    return None


def _passthrough(inputs: Sequence[torch.Tensor], wanted: Answers, _: Tensors) -> Tensors:
    def alike(output: torch.Tensor) -> torch.Tensor:
        same = (i for i in inputs if i.shape == output.shape and i.dtype == output.dtype)
        return next(same, output)

    return tuple(alike(output) for output in wanted.own)


def _without_tail(_: Sequence[torch.Tensor], wanted: Answers, __: Tensors) -> Tensors:
    def cut(output: torch.Tensor) -> torch.Tensor:
        if output.dim() == 0 or output.numel() < 2 or not _has_tail(output):
            return output
        short = output.clone()
        short[..., -1] = 0
        return short

    return tuple(cut(output) for output in wanted.own)


def _has_tail(output: torch.Tensor) -> bool:
    """Whether the last column holds anything but zeros."""
    return bool((output[..., -1].float() != 0).any())


def _coarser(_: Sequence[torch.Tensor], wanted: Answers, __: Tensors) -> Tensors:
    def round_down(output: torch.Tensor, i: int) -> torch.Tensor:
        dtype = wanted.coarsest.get(i, output.dtype)
        if output.dtype not in LOWER or dtype not in LOWER:
            return output
        rounded = output.to(LOWER[dtype]).to(output.dtype)
        # what a lower precision can hold exactly is no worse for it
        return output if torch.equal(rounded, output) else rounded

    return tuple(round_down(output, i) for i, output in enumerate(wanted.own))


NULLS: dict[str, Null] = {
    "zeros": lambda _, wanted, __: tuple(torch.zeros_like(o) for o in wanted.own),
    "ones": lambda _, wanted, __: tuple(torch.ones_like(o) for o in wanted.own),
    "an input, returned": _passthrough,
    "the answer to other inputs": lambda _, __, stale: stale,
    "an answer without its last column": _without_tail,
    "an answer in a lower precision": _coarser,
}
