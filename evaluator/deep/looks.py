"""What a player looks into beside the answers: repeats, and whether each launch has an effect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from evaluator.errors import CandidateError
from evaluator.play.check import Players, play_once, same_bits
from evaluator.play.wire import Take
from evaluator.poison import PATTERNS
from kernel_library.tape import Launch, Recording

#: A race that shows once in ten runs escapes 30 of them once in twenty judgements.
REPEATS = 30


def repeat(take: Take, players: Players, times: int = REPEATS) -> None:
    """Play a take again and again, each time in fresh memory under another poison.

    Raises `CandidateError` unless all runs give the same bits.
    """
    player = players.of(take)
    first = play_once(take, player)
    for n in range(1, times):
        if not same_bits(first, play_once(_poisoned(take, take.case.poison + n), player)):
            told = f"gives other bits in one of {times} runs on the same inputs"
            raise CandidateError("deep", told)


def has_effect(whole: Take, cut: Take, players: Players) -> bool:
    """Whether a tape without one of its launches gives other bits, or fails, on any poison.

    Two poisons, because a launch that writes what one of them happens to hold has an effect.
    """
    for poison in range(PATTERNS):
        wanted = play_once(_poisoned(whole, poison), players.of(whole))
        try:
            got = play_once(_poisoned(cut, poison), players.of(cut))
        except CandidateError:
            # what follows it reads wild addresses, or never ends: this device context is lost
            return True
        if not same_bits(wanted, got):
            return True
    return False


def pairs(takes: Sequence[Take], kernel: str) -> Iterator[tuple[Take, Take]]:
    """Each take with each launch of a kernel in it, beside the same take without that launch."""
    for take in takes:
        for number, step in enumerate(take.recording.tape.steps):
            if isinstance(step, Launch) and step.function == kernel and 0 not in step.grid:
                yield take, replace(take, recording=without(take.recording, number))


def without(recording: Recording, number: int) -> Recording:
    """The recording less one of its steps."""
    steps = recording.tape.steps
    left = (*steps[:number], *steps[number + 1 :])
    return replace(recording, tape=replace(recording.tape, steps=left))


def launched(takes: Sequence[Take]) -> tuple[str, ...]:
    """The kernels that the takes launch, by name, in the order in which they are first met."""
    launches = (launch for take in takes for launch in take.recording.tape.launches)
    return tuple(dict.fromkeys(launch.function for launch in launches if 0 not in launch.grid))


def _poisoned(take: Take, poison: int) -> Take:
    return replace(take, case=replace(take.case, poison=poison))
