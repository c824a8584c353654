"""When enough is enough, each with the clause that tells a user why.

Time and attempts end a job. Tokens and money end only what spends them, so a sweep can still tune
the last kernel that the budget paid for: give `out_of_pocket` to the model, `out_of` to the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import monotonic

from agent.loop import History, Stop
from kernel_library.job import Budget, Usage, best, rank
from kernel_library.verdict import Passed


def first_of(*stops: Stop) -> Stop:
    """The first that has something to say."""
    return lambda history: next((why for stop in stops if (why := stop(history))), None)


def out_of(budget: Budget, clock: Callable[[], float] = monotonic, spent: float = 0.0) -> Stop:
    """The time or the attempts of a budget are used up; `spent` seconds before now count too."""
    return first_of(
        out_of_time(budget.seconds, budget.reserve, clock, spent), out_of_attempts(budget.attempts)
    )


def out_of_pocket(budget: Budget) -> Stop:
    """The tokens or the money of a budget are used up."""
    return first_of(out_of_tokens(budget.tokens), out_of_dollars(budget.dollars))


def out_of_time(
    seconds: float,
    reserve: float = 0.25,
    clock: Callable[[], float] = monotonic,
    spent: float = 0.0,
) -> Stop:
    """No further attempt fits before the share `reserve` that is kept for verifying the winner.

    Time runs from this call. An attempt is expected to take the median of those before it.
    """
    usable, started = seconds * (1.0 - reserve), clock() - spent
    kept = f"of {seconds:.0f} seconds the last {seconds - usable:.0f} are kept to verify the winner"

    def stop(history: History) -> str | None:
        left = usable - (clock() - started)
        if left <= 0:
            return f"the time is up: {kept}"
        if history and left < median(a.seconds for a in history):
            return f"no time is left for another attempt: {kept}"
        return None

    return stop


def out_of_attempts(limit: int) -> Stop:
    """So many candidates have been judged."""
    return lambda history: f"all {limit} attempts are used" if len(history) >= limit else None


def out_of_tokens(limit: int) -> Stop:
    """So many tokens have been sent to and received from a model."""

    def stop(history: History) -> str | None:
        used = spending(history)
        total = used.tokens_in + used.tokens_out
        return f"the token budget of {limit} is spent" if total >= limit else None

    return stop


def out_of_dollars(limit: float) -> Stop:
    """So much money has been paid for a model; one that costs nothing is never stopped."""

    def stop(history: History) -> str | None:
        paid = spending(history).dollars
        return f"the money budget of ${limit:.2f} is spent" if paid and paid >= limit else None

    return stop


def near_roofline(within: float = 0.05) -> Stop:
    """The best kernel runs every workload within this share of the device's measured limit."""

    def stop(history: History) -> str | None:
        top = best(history)
        worst = top.verdict.worst if top and isinstance(top.verdict, Passed) else None
        if worst is None or worst.of_roofline < 1.0 - within:
            return None
        return f"every workload runs within {within:.0%} of what this device can do"

    return stop


def flat(limit: int, proposer: str | None = None) -> Stop:
    """So many attempts on end have brought no improvement: all attempts, or one proposer's.

    Over all attempts, `limit` should exceed the tries of a sweep, or no sweep comes to its end.
    """

    def stop(history: History) -> str | None:
        counted = [i for i, a in enumerate(history) if proposer in (None, a.candidate.proposer)]
        if len(counted) < limit:
            return None
        ranks, since = [rank(a.verdict) for a in history], counted[-limit]
        if max(ranks[since:]) > max(ranks[:since], default=0.0):
            return None
        return f"the last {limit} attempts brought no improvement"

    return stop


def cancelled(asked: Callable[[], bool]) -> Stop:
    """Someone asked for the job to end."""
    return lambda history: "it was cancelled" if asked() else None


def spending(history: History) -> Usage:
    """What the attempts have cost together."""
    return sum((a.usage for a in history), Usage())
