"""What the judge asks of a player process and what it hears back, as JSON.

Binaries travel once each, however many tapes name them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import ConfigDict, TypeAdapter

from evaluator.inputs import Case
from kernel_library.device import Device
from kernel_library.spec import OpSpec, Workload
from kernel_library.tape import Recording, Tape
from kernel_library.verdict import Checked, Measurement, Stage

Whose = Literal["candidate", "problem", "lab", "nobody"]


@dataclass(frozen=True, slots=True)
class Take:
    """One recording, and the inputs it is to be played on."""

    at: Workload
    case: Case
    recording: Recording


@dataclass(frozen=True, slots=True)
class Sent:
    """A take without its binaries."""

    at: Workload
    case: Case
    tape: Tape


@dataclass(frozen=True, slots=True)
class Pace:
    """How thoroughly to time: `baselines.BASELINES` to race, or `ALL`, and seconds to measure."""

    arms: tuple[str, ...] = ()
    seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class Race:
    """How many of the last takes are timed, on what device (for its ceilings), and how."""

    timed: int
    device: Device
    pace: Pace = Pace()


@dataclass(frozen=True, slots=True)
class Request:
    """What a player process is to do, and in which folder the locks of its GPU are (see `Turns`).

    Takes are checked, but for those of the race, which are timed once all others were right.
    """

    op: OpSpec
    sent: tuple[Sent, ...]
    binaries: Mapping[str, bytes] = field(repr=False)
    turns: str
    race: Race | None = None

    def takes(self) -> tuple[Take, ...]:
        """The takes with their binaries again."""
        return tuple(
            Take(s.at, s.case, Recording(s.tape, _named(s.tape, self.binaries))) for s in self.sent
        )


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of it, or what went wrong: whose fault, at which take (-1: at none).

    `seconds` are those of its context, of its timing, and of its waiting for turns in either or
    between them: "start", "speed", "wait".
    """

    checked: tuple[Checked, ...] = ()
    measured: tuple[Measurement, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    whose: Whose = "nobody"
    stage: Stage = "correct"
    reason: str = ""
    take: int = -1


def pack(takes: Sequence[Take]) -> tuple[tuple[Sent, ...], dict[str, bytes]]:
    """Takes as they travel, and every binary that they name."""
    binaries = {name: body for take in takes for name, body in take.recording.binaries.items()}
    return tuple(Sent(t.at, t.case, t.recording.tape) for t in takes), binaries


def _named(tape: Tape, binaries: Mapping[str, bytes]) -> dict[str, bytes]:
    used = {launch.binary for launch in tape.launches}
    return {name: body for name, body in binaries.items() if name in used}


# pydantic takes no settings for a dataclass, but does for a tuple that holds one; without these,
# an infinite scalar argument would become null and a binary would have to be UTF-8
_EXACT = ConfigDict(ser_json_inf_nan="strings", ser_json_bytes="base64", val_json_bytes="base64")
_request = TypeAdapter(tuple[Request], config=_EXACT)
_reply = TypeAdapter(tuple[Reply], config=_EXACT)


def dump_request(request: Request) -> bytes:
    """A request as JSON."""
    return _request.dump_json((request,))


def load_request(raw: bytes) -> Request:
    """A request from JSON. Raises `ValidationError`."""
    return _request.validate_json(raw)[0]


def dump_reply(reply: Reply) -> bytes:
    """A reply as JSON."""
    return _reply.dump_json((reply,))


def load_reply(raw: bytes) -> Reply:
    """A reply from JSON. Raises `ValidationError`."""
    return _reply.validate_json(raw)[0]
