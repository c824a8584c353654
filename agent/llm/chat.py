"""What is said to a model and back, whoever plays the model."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from time import monotonic
from typing import Literal


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model said; token counts are 0 where the endpoint gave none."""

    text: str
    tokens_in: int = 0
    tokens_out: int = 0
    model: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """One exchange, for the record and for replay; it never holds a key."""

    request: str
    messages: tuple[Message, ...]
    reply: str
    tokens_in: int
    tokens_out: int
    seconds: float
    model: str


#: A model: an endpoint, a script, or a recording. Raises `EndpointError` and nothing else.
Complete = Callable[[Sequence[Message]], Reply]


class EndpointError(Exception):
    """No reply came. `str(error)` may be shown to a user: it holds no key and no server's text."""


def digest(messages: Sequence[Message]) -> str:
    """A request's identity: the same messages have the same digest."""
    return sha256(json.dumps([(m.role, m.content) for m in messages]).encode()).hexdigest()


def recorded(
    complete: Complete, record: Callable[[Call], None], clock: Callable[[], float] = monotonic
) -> Complete:
    """The same model, with each reply handed to `record` before it is used."""

    def call(messages: Sequence[Message]) -> Reply:
        started = clock()
        reply = complete(messages)
        record(
            Call(
                digest(messages), tuple(messages), reply.text, reply.tokens_in, reply.tokens_out,
                clock() - started, reply.model,
            )
        )  # fmt: skip
        return reply

    return call
