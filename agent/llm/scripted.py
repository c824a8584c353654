"""A model that says what it was told to say, for tests and demonstrations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agent.llm.chat import Complete, EndpointError, Message, Reply


def scripted(replies: Iterable[str | Reply | EndpointError]) -> Complete:
    """Each reply in turn; an `EndpointError` is raised, and so is one when none are left."""
    left = iter(replies)

    def complete(messages: Sequence[Message]) -> Reply:
        reply = next(left, EndpointError("the script has no further reply"))
        if isinstance(reply, EndpointError):
            raise reply
        return Reply(reply, model="scripted") if isinstance(reply, str) else reply

    return complete
