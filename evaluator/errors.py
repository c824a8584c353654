"""Whose fault it is: the candidate's (a verdict), the problem's (a message), or ours."""

from __future__ import annotations

from kernel_library.spec import Workload
from kernel_library.verdict import KernelFacts, Stage


class CandidateError(Exception):
    """The candidate is wrong. Caught once, in `evaluate`, and turned into a verdict.

    The reason may be shown to the candidate's author, so it names no hidden size, seed or slack.
    """

    def __init__(
        self,
        stage: Stage,
        reason: str,
        at: Workload | None = None,
        kernels: tuple[KernelFacts, ...] = (),
    ) -> None:
        super().__init__(reason)
        self.stage, self.reason, self.at, self.kernels = stage, reason, at, kernels


class HangError(CandidateError):
    """Device code that still runs: only the end of its process ends it."""


class ProblemError(Exception):
    """The problem cannot be read: not Python, no tensors, a reference that raises.

    `where` names the line or field at fault; `str(error)` says what to do about it.
    """

    def __init__(self, message: str, where: str = "") -> None:
        super().__init__(f"{where}: {message}" if where else message)
        self.message, self.where = message, where


class LabError(Exception):
    """The evaluator itself failed: no GPU, a lost process. The job is tried again."""
