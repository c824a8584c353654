"""What is exported: accepted kernels, with the op each computes and what is known of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from kernel_library.candidate import Candidate
from kernel_library.export.names import ExportError, check_identifier, check_op
from kernel_library.formula import FormulaError, names_in
from kernel_library.spec import DTYPES, OpSpec
from kernel_library.verdict import Rejected, Verdict


@dataclass(frozen=True, slots=True)
class Review:
    """Who accepted the kernel, when (ISO 8601) and with what words."""

    reviewer: str
    time: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Exported:
    """One kernel to export under `name`.

    Without a verdict the kernel travels but is never dispatched to: only the reference runs.
    `backward` is the kernel of the op's gradient: its inputs are named `d_<output>` or like the
    forward's inputs and outputs, its outputs `d_<input>`.
    """

    name: str
    op: OpSpec
    candidate: Candidate
    verdict: Verdict | None
    doc: str = ""
    backward: Exported | None = None
    review: Review | None = None
    job: str | None = None


def gathered(kernels: Sequence[Exported]) -> dict[str, Exported]:
    """All kernels by name, backwards included, each found fit to export. Raises `ExportError`."""
    found: dict[str, Exported] = {}
    for each in chain(kernels, (k.backward for k in kernels if k.backward is not None)):
        known = found.setdefault(each.name, each)
        if (known.op, known.candidate) != (each.op, each.candidate):
            raise ExportError(f"two different kernels are both called {each.name!r}")
        check(each)
    if not found:
        raise ExportError("there is nothing to export")
    return dict(sorted(found.items()))


def check(kernel: Exported) -> None:
    """Raise `ExportError` if a package could not keep what this kernel's contract promises."""
    check_op(kernel.name)
    op = kernel.op
    for name in (*op.inputs, *op.outputs, *op.options, *kernel.candidate.config):
        check_identifier(name, f"{kernel.name}: ")
    check_identifier(kernel.candidate.entry, f"{kernel.name}: ")
    check_identifier(op.reference.entry, f"{kernel.name}: ")
    if isinstance(kernel.verdict, Rejected):
        raise ExportError(f"{kernel.name} was rejected at {kernel.verdict.stage}")
    if not op.reference.source.strip():
        raise ExportError(f"{kernel.name} has no reference source to fall back to")
    if not op.inputs or not op.workloads:
        raise ExportError(f"{kernel.name} has no {'workloads' if op.inputs else 'inputs'}")
    _check_sizes(kernel.name, op)
    if kernel.backward is not None:
        _check_backward(kernel, kernel.backward)


def _check_sizes(name: str, op: OpSpec) -> None:
    """Every size that an output or a constraint asks for can be read off an input."""
    readable = set(op.options)
    unsolved: list[str] = []
    for tensor in op.inputs.values():
        for formula in (*tensor.axes.split(), *filter(None, [tensor.count])):
            readable |= {formula} if formula.isidentifier() else set()
            unsolved += [] if tensor.count else [formula]
    for formula in unsolved:
        unknown = _names(name, formula) - readable
        readable |= unknown if len(unknown) == 1 else set()
    wanted = [axis for t in op.outputs.values() for axis in t.axes.split()]
    wanted += [t.count for t in op.outputs.values() if t.count]
    for formula in (*wanted, *op.constraints):
        missing = _names(name, formula) - readable
        if missing:
            raise ExportError(f"{name}: no input's shape gives {min(missing)} in {formula!r}")
    known = {t.dtype for t in op.inputs.values()} | DTYPES
    for output, tensor in op.outputs.items():
        if tensor.dtype not in known:
            raise ExportError(f"{name}: no input gives the dtype {tensor.dtype} of {output}")


def _names(name: str, formula: str) -> frozenset[str]:
    try:
        return names_in(formula)
    except FormulaError as error:
        raise ExportError(f"{name}: {error}") from error


def _check_backward(kernel: Exported, back: Exported) -> None:
    forward, backward = kernel.op, back.op
    tensors = chain(*(t.values() for t in (
        forward.inputs, forward.outputs, backward.inputs, backward.outputs)))  # fmt: skip
    if forward.mutates or backward.mutates or any(t.count is not None for t in tensors):
        raise ExportError(f"{kernel.name}: gradients of in-place or list ops are not exported")
    given = {*forward.inputs, *forward.outputs, *(f"d_{name}" for name in forward.outputs)}
    unknown = backward.inputs.keys() - given
    if unknown:
        raise ExportError(f"{back.name}: {min(unknown)} is nothing that {kernel.name} can give")
    alien = backward.outputs.keys() - {f"d_{name}" for name in forward.inputs}
    if alien:
        raise ExportError(f"{back.name}: {min(alien)} is no gradient of an input of {kernel.name}")
    if back.op.options.keys() - kernel.op.options.keys():
        raise ExportError(f"{back.name} has options that {kernel.name} has not")
