"""A job: a run of the loop on one problem under a budget. Its history is its only state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from kernel_library.candidate import Candidate
from kernel_library.verdict import Passed, Verdict

#: Where a job is in its life.
Status = Literal["queued", "running", "succeeded", "failed", "cancelled"]
#: The title of a failed job's problem where nobody but us is to blame.
OUR_FAILURE = "Our own failure"
#: What a succeeded job found.
Outcome = Literal["winner", "no_correct_candidate"]


@dataclass(frozen=True, slots=True)
class Usage:
    """What an attempt cost beside its judging: tokens of a model, and money in dollars."""

    tokens_in: int = 0
    tokens_out: int = 0
    dollars: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
            self.dollars + other.dollars,
        )


@dataclass(frozen=True, slots=True)
class Attempt:
    """A candidate and what became of it; `seconds` is what judging it took."""

    candidate: Candidate
    verdict: Verdict
    seconds: float = 0.0
    usage: Usage = Usage()


@dataclass(frozen=True, slots=True)
class Budget:
    """What a job may spend. A share `reserve` of the seconds is kept for verifying the winner."""

    seconds: float = 300.0
    attempts: int = 64
    tokens: int = 200_000
    dollars: float = 5.0
    reserve: float = 0.25


@dataclass(frozen=True, slots=True)
class Finished:
    """How a job ended, and the sentence that says why it stopped."""

    outcome: Outcome
    why: str
    best: str | None = None
    notes: tuple[str, ...] = field(default=())


def rank(verdict: Verdict) -> float:
    """Higher is better: 0 for a rejection, 1 for right but untimed, 1 + roofline share if timed."""
    return 1.0 + verdict.of_roofline if isinstance(verdict, Passed) else 0.0


def best(history: Sequence[Attempt]) -> Attempt | None:
    """The first of the best attempts that passed."""
    passed = [a for a in history if isinstance(a.verdict, Passed)]
    return max(passed, key=lambda a: rank(a.verdict), default=None)
