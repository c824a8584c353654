"""What the judge asks of a recorder, and what comes back: plain data, checked on arrival."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ConfigDict, TypeAdapter

from kernel_library.formula import Value
from kernel_library.tape import Tape


@dataclass(frozen=True, slots=True)
class Placed:
    """An input without data: shape, strides and offset in elements, in a buffer of `room`."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    room: int
    dtype: str


@dataclass(frozen=True, slots=True)
class Point:
    """One call to record: inputs in call order, options and configuration."""

    inputs: Mapping[str, tuple[Placed, ...]]
    options: Mapping[str, Value]
    config: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Asked:
    """A candidate to record at some points; `pick` chooses among its own autotuner's settings."""

    source: str
    entry: str
    points: tuple[Point, ...]
    lists: tuple[str, ...] = ()
    arch: int = 90
    pick: int = 0


@dataclass(frozen=True, slots=True)
class Failed:
    """What the candidate raised, and on which of its lines (0: on none of them)."""

    error: str
    message: str
    line: int


@dataclass(frozen=True, slots=True)
class Answer:
    """A tape for each point; base64 binaries by SHA-256; how many settings its autotuner has."""

    tapes: tuple[Tape, ...]
    binaries: Mapping[str, str]
    configs: int = 0
    failed: Failed | None = None


# pydantic takes no settings for a dataclass, but does for a tuple that holds one; without these an
# infinite scalar argument would become null
_EXACT = ConfigDict(ser_json_inf_nan="strings")
_asked = TypeAdapter(tuple[Asked], config=_EXACT)
_answer = TypeAdapter(tuple[Answer], config=_EXACT)


def dump_asked(asked: Asked) -> bytes:
    """What is asked, as JSON."""
    return _asked.dump_json((asked,))


def load_asked(body: bytes) -> Asked:
    """What is asked. Raises pydantic's ValidationError."""
    return _asked.validate_json(body)[0]


def dump_answer(answer: Answer) -> bytes:
    """An answer, as JSON."""
    return _answer.dump_json((answer,))


def load_answer(body: bytes) -> Answer:
    """An answer, which may be forged. Raises pydantic's ValidationError."""
    return _answer.validate_json(body)[0]
