"""The loop: propose, judge, remember."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from time import monotonic

from kernel_library.candidate import Candidate
from kernel_library.job import Attempt, Finished, Usage, best
from kernel_library.spec import OpSpec
from kernel_library.verdict import Record, Rejected, Verdict

History = Sequence[Attempt]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A candidate to judge next, and what it cost to think of it.

    Those `beside` it may be judged at the same time: they would be tried whatever comes of it.
    """

    candidate: Candidate
    usage: Usage = Usage()
    beside: tuple[Candidate, ...] = ()


@dataclass(frozen=True, slots=True)
class Exhausted:
    """Nothing more to propose for this history; `why` is a clause for a user to read."""

    why: str


#: Thinks of a next candidate: the library, a sweep, a model. It never raises for want of ideas.
Proposer = Callable[[OpSpec, History], Proposal | Exhausted]

#: Judges one candidate: here, in a sandbox, or on the far side of a queue. Threads may share it.
Evaluate = Callable[[OpSpec, Candidate], Verdict]

#: Says why enough is enough, as a clause for a user to read; None to go on.
Stop = Callable[[History], str | None]

#: What is supposed of a candidate whose verdict is still to come.
SUPPOSED = Rejected("parse", "is supposed to fail", Record("interpreted", "none"))
#: How often in a row a proposer may come back with a candidate that has been judged already.
REPEATS = 3


def optimize(
    op: OpSpec,
    propose: Proposer,
    evaluate: Evaluate,
    stop: Stop,
    history: History = (),
    clock: Callable[[], float] = monotonic,
) -> Generator[Attempt, None, Finished]:
    """Yield attempts until told to stop or out of ideas, and return how it ended.

    A job that was cut short resumes from its history; no candidate is judged twice. What
    `evaluate` raises is a failure of ours, and is left to the caller.
    """
    attempts = list(history)
    while (why := stop(attempts)) is None:
        proposal = _unseen(propose, op, attempts)
        if isinstance(proposal, Exhausted):
            return finished(attempts, proposal.why)
        usage = proposal.usage
        for attempt in _judged(op, _affordable(proposal, attempts, stop), evaluate, clock):
            attempts.append(replace(attempt, usage=usage))
            usage = Usage()
            yield attempts[-1]
    return finished(attempts, why)


def _affordable(proposal: Proposal, history: History, stop: Stop) -> list[Candidate]:
    """As many candidates as would be judged one after the other if each of them failed."""
    batch = [proposal.candidate]
    known = {a.candidate.digest for a in history}
    for candidate in proposal.beside:
        if candidate.digest in known | {c.digest for c in batch}:
            continue
        if stop([*history, *(Attempt(c, SUPPOSED) for c in batch)]) is not None:
            break
        batch.append(candidate)
    return batch


def _judged(
    op: OpSpec, batch: Sequence[Candidate], evaluate: Evaluate, clock: Callable[[], float]
) -> Iterator[Attempt]:
    """The attempts in the order of their proposal, all of them under way at once."""

    def judged(candidate: Candidate) -> Attempt:
        started = clock()
        return Attempt(candidate, evaluate(op, candidate), clock() - started)

    if len(batch) == 1:
        yield judged(batch[0])
        return
    with ThreadPoolExecutor(len(batch)) as pool:
        yield from pool.map(judged, batch)


def drive(run: Generator[Attempt, None, Finished], each: Callable[[Attempt], None]) -> Finished:
    """Hand each attempt over as it comes, and return how the run ended."""
    while True:
        try:
            attempt = next(run)
        except StopIteration as end:
            ended: Finished = end.value
            return ended
        each(attempt)


def finished(history: History, why: str) -> Finished:
    """What a history amounts to, with the reason made a sentence."""
    winner = best(history)
    return Finished(
        outcome="winner" if winner else "no_correct_candidate",
        why=f"{why[:1].upper()}{why[1:]}.",
        best=winner.candidate.digest if winner else None,
    )


def verdicts_of(history: History) -> Evaluate:
    """A judge that only remembers: what a finished job said of each candidate.

    Raises KeyError for a candidate that the job never saw.
    """
    known = {a.candidate.digest: a.verdict for a in history}
    return lambda op, candidate: known[candidate.digest]


def _unseen(propose: Proposer, op: OpSpec, history: History) -> Proposal | Exhausted:
    """The first proposal that was not judged before; repeats are billed to it."""
    seen = {a.candidate.digest for a in history}
    spent = Usage()
    for _ in range(REPEATS):
        proposal = propose(op, history)
        if isinstance(proposal, Exhausted):
            return proposal
        spent += proposal.usage
        if proposal.candidate.digest not in seen:
            return replace(proposal, usage=spent)
    return Exhausted("only candidates that were judged before are proposed")
