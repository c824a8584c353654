"""Performs an optimize job: reads the problem, runs the loop, and confirms the winner."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from pydantic import TypeAdapter

from agent.llm.chat import Call
from agent.llm.client import NO_KEY, Endpoint, from_endpoint
from agent.llm.propose import Price, from_model, no_model
from agent.loop import Exhausted, History, Proposal, Proposer, drive, optimize
from agent.stop import cancelled, first_of, near_roofline, out_of, out_of_pocket
from agent.sweep import from_space
from agent.team import in_order
from evaluator.intake import Problem, read
from kernel_library.candidate import Candidate
from kernel_library.job import Attempt, Budget, Finished, best
from kernel_library.spec import OpSpec
from kernel_library.store import Store
from kernel_library.store.views import JobView, Lease
from kernel_library.verdict import Passed
from worker.autotuned import each_setting
from worker.judging import Judge
from worker.retrieval import Library, known_kernels
from worker.settings import Settings

call_json = TypeAdapter(Call)

#: Attempts of a sweep before the next structure is tried.
SWEEP_TRIES = 16
CONFIRMED = "measured again on fresh inputs, beside every baseline that runs here"


@dataclass(frozen=True, slots=True)
class Ask:
    """What a job was asked to do, from its request."""

    filename: str
    source: str
    extra: str | None
    candidate: str | None
    llm: bool
    budget: Budget

    @classmethod
    def of(cls, job: JobView, settings: Settings) -> Ask:
        """The request as it was submitted, its budget held to the operator's limits."""
        request = job.request
        return cls(
            str(request["filename"]),
            str(request["source"]),
            _text(request.get("extra")),
            _text(request.get("candidate")),
            bool(request.get("llm", True)),
            budget(request.get("budget"), settings),
        )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def budget(asked: object, settings: Settings) -> Budget:
    """What a job may spend: what it asked for, or the default, and never above the limit."""
    default, largest = settings.default_budget, settings.largest_budget
    wanted = asked if isinstance(asked, dict) else {}
    held = {
        name: min(wanted.get(name, getattr(default, name)), getattr(largest, name))
        for name in ("seconds", "attempts", "tokens", "dollars")
    }
    return Budget(**held, reserve=wanted.get("reserve", default.reserve))


def perform_optimize(
    judge: Judge, settings: Settings, lease: Lease, job: JobView, store: Store
) -> None:
    """Run the job from wherever its history left off, and end it. Raises ProblemError, LabError."""
    ask = Ask.of(job, settings)
    problem = read(ask.filename, ask.source, judge.rooms.recorder, extra=ask.extra)
    judge.admit(problem.op)
    if job.op is None:
        store.set_op(lease, problem.op)

    history = store.history(job.id)
    stop = first_of(
        cancelled(lambda: store.cancelled(lease)),
        near_roofline(),
        out_of(ask.budget, spent=sum(a.seconds for a in history)),
    )
    propose = team(judge, settings, ask, problem, Log(store, lease))
    run = optimize(problem.op, propose, judge, stop, history)
    ended = drive(run, lambda attempt: _keep(store, lease, attempt))

    def confirm(candidate: Candidate) -> Attempt:
        started = time.monotonic()
        verdict = judge.confirm(problem.op, candidate)
        attempt = Attempt(replace(candidate, why=CONFIRMED), verdict, time.monotonic() - started)
        _keep(store, lease, attempt)
        return attempt

    winner = confirmed(store.history(job.id), confirm)
    store.finish(lease, with_winner(ended, winner))


def _keep(store: Store, lease: Lease, attempt: Attempt) -> None:
    store.add_attempt(lease, attempt)


def with_winner(ended: Finished, winner: Attempt | None) -> Finished:
    """How the job ended, once its winner was measured again."""
    if winner is None:
        return replace(ended, outcome="no_correct_candidate", best=None)
    return replace(ended, outcome="winner", best=winner.candidate.digest)


@dataclass(frozen=True, slots=True)
class Log:
    """A job's log, as its proposers write to it."""

    store: Store
    lease: Lease

    def note(self, text: str) -> None:
        """Add a line for people."""
        self.store.add_event(self.lease, "note", {"text": text})

    def keep(self, call: Call) -> None:
        """Keep what was said to a model and back, so that the job can be replayed."""
        sha = self.store.put_artifact(call_json.dump_json(call), "call.json")
        text = f"asked {call.model}: {call.tokens_in} tokens in, {call.tokens_out} out"
        self.store.add_event(self.lease, "note", {"text": text, "call": sha})


def calls_of(store: Store, job_id: str) -> list[Call]:
    """What was said to a model in a job and back, in order, for `agent.llm.replay`."""
    kept = [event.data["call"] for event in store.events(job_id) if "call" in event.data]
    return [call_json.validate_json(store.artifact(str(sha))[0].read_bytes()) for sha in kept]


def team(judge: Judge, settings: Settings, ask: Ask, problem: Problem, log: Log) -> Proposer:
    """All proposers of a job, in order of cost."""
    given, together = _given(judge, ask, problem), settings.side_by_side
    library = Library(known_kernels(log.store, judge.device), judge.rooms.recorder)
    return in_order(
        *(
            [in_turn(given, "what was submitted with the problem is judged", together)]
            if given
            else []
        ),
        library.proposer(),
        from_space(library.space_of, tries=SWEEP_TRIES, together=together),
        _model(judge, settings, ask, log) if ask.llm else no_model_asked,
        note=log.note,
    )


def _given(judge: Judge, ask: Ask, problem: Problem) -> list[Candidate]:
    """The kernels that came with the problem; each setting of an autotuner is one of its own."""
    given = [problem.candidate] if problem.candidate else []
    if ask.candidate is not None:
        given.append(submitted(problem.op, ask.candidate))
    recorder = judge.rooms.recorder
    return [each for one in given for each in each_setting(problem.op, one, recorder)]


def submitted(op: OpSpec, source: str) -> Candidate:
    """A person's kernel: its entry is the function called like the op, or else `entry`."""
    entry = op.name if f"def {op.name}(" in source else "entry"
    return Candidate(op.name, source, entry, proposer="human", why="submitted with the problem")


def in_turn(candidates: list[Candidate], otherwise: str, together: int = 1) -> Proposer:
    """Propose each of these once, so many at a time."""

    def propose(op: OpSpec, history: History) -> Proposal | Exhausted:
        seen = {a.candidate.digest for a in history}
        fresh = [c for c in candidates if c.digest not in seen]
        if not fresh:
            return Exhausted(otherwise)
        return Proposal(fresh[0], beside=tuple(fresh[1:together]))

    return propose


def no_model_asked(op: OpSpec, history: History) -> Exhausted:
    """Stands where a model would, if the job was submitted without one."""
    return Exhausted("the job asked for no model")


def _model(judge: Judge, settings: Settings, ask: Ask, log: Log) -> Proposer:
    if settings.llm_url is None or settings.llm_model is None:
        return no_model
    # half of the job's time at most may be spent on waiting for one reply
    patience = min(240.0, ask.budget.seconds / 2)
    endpoint = Endpoint(
        settings.llm_url, settings.llm_model, settings.key or NO_KEY, patience=patience
    )
    price = Price(settings.llm_price_in, settings.llm_price_out)
    complete = from_endpoint(endpoint, log.keep)
    return from_model(complete, judge.device, ask.budget.attempts, price, out_of_pocket(ask.budget))


def confirmed(history: History, confirm: Callable[[Candidate], Attempt]) -> Attempt | None:
    """The best attempt that passes once more, best first; interpreted ones stand as they are.

    Many readings make the best of them optimistic, so that only a fresh one is worth telling.
    """
    refused: set[str] = set()
    while winner := best([a for a in history if a.candidate.digest not in refused]):
        timed = isinstance(winner.verdict, Passed) and winner.verdict.measured
        if winner.candidate.why == CONFIRMED or not timed:
            return winner
        again = confirm(winner.candidate)
        if isinstance(again.verdict, Passed):
            return again
        refused.add(winner.candidate.digest)
    return None
