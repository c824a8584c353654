"""Judges kernels of the library again: what no longer passes goes into quarantine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from kernel_library.candidate import Candidate
from kernel_library.device import SOFTWARE
from kernel_library.spec import OpSpec
from kernel_library.store import Store
from kernel_library.store.views import KernelView
from kernel_library.verdict import Record, Verdict

Confirm = Callable[[OpSpec, Candidate], Verdict]
Outcome = Literal["holds", "quarantined", "current", "not judged"]


@dataclass(frozen=True, slots=True)
class Verified:
    """What came of one kernel: `current` needed no judge, `not judged` could have none here."""

    name: str
    version: int
    outcome: Outcome
    why: str


def verify(
    kernels: Sequence[KernelView], store: Store, confirm: Confirm, here: Record, *, all_: bool
) -> Iterator[Verified]:
    """Judge each kernel that asks for it, and write its verdict down.

    `here` is what this machine's verdicts say of themselves. Raises LabError, ProblemError,
    StoreError; what was judged before that is kept.
    """
    for kernel in kernels:
        why = reason(kernel, here)
        if impossible(kernel, here):
            why = "it was accepted as replayed on a GPU, and no GPU is visible here"
            yield Verified(kernel.name, kernel.version, "not judged", why)
        elif why or all_:
            yield judged(kernel, store, confirm, why or "asked for")
        else:
            yield Verified(kernel.name, kernel.version, "current", "judged with what is here now")


def judged(kernel: KernelView, store: Store, confirm: Confirm, why: str) -> Verified:
    """One kernel's new verdict, which is kept."""
    seen = store.add_verdict(kernel.name, kernel.version, confirm(kernel.op, kernel.candidate))
    if seen.quarantine:
        return Verified(kernel.name, kernel.version, "quarantined", seen.quarantine.reason)
    return Verified(kernel.name, kernel.version, "holds", why)


def reason(kernel: KernelView, here: Record) -> str:
    """Why a kernel is to be judged again; nothing if its verdict is from here and now."""
    if kernel.quarantine:
        return "it was in quarantine"
    if kernel.verdict is None:
        return "it was never judged here"
    then = kernel.verdict.record
    if (then.evidence, then.device) != (here.evidence, here.device):
        return f"it was {then.evidence} on {then.device or 'no GPU'}"
    changed = [
        f"{name} {then.versions.get(name, '?')}, now {here.versions.get(name, '?')}"
        for name in SOFTWARE
        if then.versions.get(name) != here.versions.get(name)
    ]
    return "; ".join(changed)


def impossible(kernel: KernelView, here: Record) -> bool:
    """Whether a verdict from here would be worth less than the one that the kernel has."""
    if kernel.verdict is None:
        return False
    return kernel.verdict.record.evidence == "replayed" and here.evidence == "interpreted"


def chosen(kernels: Sequence[KernelView], names: Sequence[str], *, all_: bool) -> list[KernelView]:
    """The kernels of these names; if none is named, the accepted, and with `all_` the seeds too."""
    if names:
        return [kernel for kernel in kernels if kernel.name in names]
    return [kernel for kernel in kernels if all_ or kernel.origin == "job" or kernel.verdict]
