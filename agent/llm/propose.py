"""Proposals from a model: ask, read strictly, let it mend its form once, give up in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.llm.chat import Complete, EndpointError, Message, Reply
from agent.llm.prompt import Task, choose, entry, plain, render
from agent.llm.reply import Answer, FormatError, read
from agent.loop import Exhausted, History, Proposal, Proposer, Stop
from kernel_library.candidate import Candidate
from kernel_library.device import Device
from kernel_library.job import Budget, Usage
from kernel_library.spec import OpSpec

NO_MODEL = "no model endpoint is set: going on without one"

#: How many failures in a row, of the endpoint or of its replies, are borne.
FAILURES = 2


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars for a million tokens; free where the operator has set none."""

    tokens_in: float = 0.0
    tokens_out: float = 0.0

    def of(self, reply: Reply) -> Usage:
        """What one reply cost."""
        dollars = reply.tokens_in * self.tokens_in + reply.tokens_out * self.tokens_out
        return Usage(reply.tokens_in, reply.tokens_out, dollars / 1e6)


def no_model(op: OpSpec, history: History) -> Exhausted:
    """The proposer that stands for a model where no endpoint is set."""
    return Exhausted(NO_MODEL)


def from_model(
    complete: Complete,
    device: Device | None = None,
    attempts: int = Budget().attempts,
    price: Price = Price(),
    stop: Stop = lambda history: None,
) -> Proposer:
    """Propose what a model writes, until `stop` or its second failure in a row.

    A failure is an endpoint that gives no reply, a reply whose form is wrong even when mended, or
    a candidate that was judged before. After two the model is not asked again in this job.
    `attempts` is the job's whole budget of them: the model is told what is left of it, but nothing
    of money.
    """
    given_up: list[Exhausted] = []

    def propose(op: OpSpec, history: History) -> Proposal | Exhausted:
        if given_up:
            return given_up[0]
        bill = _Bill(complete, price)
        turn = sum(a.candidate.proposer == "llm" for a in history)
        for failure in range(FAILURES):
            if why := stop(history):
                return Exhausted(f"the model is not asked again: {why}")
            task = choose(history, turn + failure)
            messages = render(op, history, task, device, max(0, attempts - len(history)))
            try:
                answer = _ask(bill, messages, entry(op))
                return Proposal(_candidate(op, history, task, answer), bill.usage)
            except (EndpointError, FormatError) as error:
                reason = plain(str(error), 300)
        given_up.append(Exhausted(f"the model is not asked again: {reason}"))
        return given_up[0]

    return propose


class _Bill:
    """A model that adds up what its replies cost."""

    def __init__(self, complete: Complete, price: Price) -> None:
        self._complete, self._price, self.usage = complete, price, Usage()

    def __call__(self, messages: Sequence[Message]) -> Reply:
        reply = self._complete(messages)
        self.usage += self._price.of(reply)
        return reply


def _ask(complete: Complete, messages: Sequence[Message], name: str) -> Answer:
    """The model's answer, with one round to mend its form."""
    reply = complete(messages)
    try:
        return read(reply.text, name)
    except FormatError as error:
        said = Message("assistant", plain(reply.text))
        told = Message("user", f"This cannot be used: {error}. Reply again, in the form asked for.")
        return read(complete([*messages, said, told]).text, name)


def _candidate(op: OpSpec, history: History, task: Task, answer: Answer) -> Candidate:
    """The answer as a candidate. Raises `FormatError` if it was judged before."""
    candidate = Candidate(
        op=op.name,
        source=answer.source,
        entry=entry(op),
        config=answer.config,
        parent=task.parent.candidate.digest if task.parent else None,
        proposer="llm",
        why=answer.why or task.technique,
    )
    if candidate.digest in {a.candidate.digest for a in history}:
        raise FormatError("the model repeats a candidate that was judged before")
    return candidate
