"""Runs trials against a judge, and scores the judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, get_args

from evaluator.errors import LabError
from evaluator.redteam.bank import PASSES, UNSEEN, Trial
from kernel_library.candidate import Candidate
from kernel_library.spec import OpSpec
from kernel_library.verdict import Evidence, Passed, Verdict

Judge = Callable[[OpSpec, Candidate], Verdict]
Score = Literal[
    "as expected",
    "rejected elsewhere",
    "passed wrongly",
    "honest rejected",
    "our failure",
    "not run",
]
SCORES: tuple[Score, ...] = get_args(Score)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the judge said of a trial, and what that says of the judge; no verdict if not run."""

    trial: Trial
    score: Score
    got: str
    reason: str = ""


def run(
    trials: Iterable[Trial],
    judge: Judge,
    way: Evidence,
    deeply: Judge | None = None,
    together: int = 1,
) -> Iterator[Outcome]:
    """Judge the trials, so many at a time, and tell of each in order.

    What this way of judging is blind to is not run, and says so. `deeply` judges what is due at the
    stage `deep`, which not every candidate goes through.
    """

    def judged(trial: Trial) -> Outcome:
        if UNSEEN in trial.due[way]:
            return Outcome(trial, "not run", UNSEEN, f"cannot be seen {way}")
        by = deeply if deeply and "deep" in trial.due[way] else judge
        try:
            return scored(trial, by(trial.op, trial.candidate), way)
        except LabError as error:
            return Outcome(trial, "our failure", "no verdict", str(error))

    with ThreadPoolExecutor(together) as pool:
        yield from pool.map(judged, trials)


def scored(trial: Trial, verdict: Verdict, way: Evidence) -> Outcome:
    """Hold a verdict against what is due."""
    passed = isinstance(verdict, Passed)
    got, reason = (PASSES, "") if isinstance(verdict, Passed) else (verdict.stage, verdict.reason)
    if got in trial.due[way]:
        return Outcome(trial, "as expected", got, reason)
    if passed:
        return Outcome(trial, "passed wrongly", got, reason)
    right = PASSES in trial.due[way]
    return Outcome(trial, "honest rejected" if right else "rejected elsewhere", got, reason)


def tally(outcomes: Iterable[Outcome]) -> Mapping[str, Counter[Score]]:
    """How many of each score, by bank."""
    counts: dict[str, Counter[Score]] = {}
    for outcome in outcomes:
        counts.setdefault(outcome.trial.bank, Counter())[outcome.score] += 1
    return counts


def all_well(outcomes: Iterable[Outcome]) -> bool:
    """Whether all that was run came out as it must."""
    return all(outcome.score in ("as expected", "not run") for outcome in outcomes)
