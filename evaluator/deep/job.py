"""The deep stage's jobs in a player process, each fresh: a fault in one ends no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from evaluator.compare import Errors
from evaluator.deep.looks import has_effect, repeat
from evaluator.errors import ProblemError
from evaluator.layouts import WIDE
from evaluator.matrix import tally
from evaluator.meaningful import meaningful
from evaluator.play.check import Players, check, judged, play_once, wanted_in_room
from evaluator.play.job import Progress, answered, gpu
from evaluator.play.memory import is_full
from evaluator.play.wire import Reply, Request, Take
from evaluator.turns import Turns
from kernel_library.spec import Workload

#: What a note in a reply means.
EFFECT, NO_ROOM, ROUNDED = "has an effect", "no room", "compared with torch's own"
UNTOLD = "torch itself fails there"
#: Copies of the input that a check holds at a time: the judge's own, the candidate's, a fresh one
#: to compare with, and the comparison; beside them the float32 in which that one was drawn.
COPIES, DRAWN_BYTES = 4, 4 * WIDE
Look = Callable[[Sequence[Take], Players, Turns, Progress], Reply]


def repeats(raw: bytes) -> bytes:
    """Play each take 30 times."""
    return _looked(raw, play_again)


def effects(raw: bytes) -> bytes:
    """Takes in pairs, whole and without a launch: is there a pair in which that shows?"""
    return _looked(raw, find_effect)


def wide(raw: bytes) -> bytes:
    """Check takes whose inputs are larger than what one check may usually hold."""
    return _looked(raw, check_wide)


def vast(raw: bytes) -> bytes:
    """Check takes whose outputs are that large, against what there is room for."""
    return _looked(raw, check_vast)


def bent(raw: bytes) -> bytes:
    """Check takes at sizes that are else met with plain values alone, or not at all."""
    return _looked(raw, check_bent)


def _looked(raw: bytes, look: Look) -> bytes:
    def on_gpu(request: Request, at: Progress) -> Reply:
        turns = Turns(Path(request.turns))
        with turns.starting():
            players = Players(request.op, gpu())
        return look(request.takes(), players, turns, at)

    return answered(raw, on_gpu)


def play_again(takes: Sequence[Take], players: Players, turns: Turns, at: Progress) -> Reply:
    """An empty reply if each take repeats itself. Raises `CandidateError`."""
    for number, take in enumerate(takes):
        at(number)
        with turns.shared():
            repeat(take, players)
    return Reply()


def find_effect(takes: Sequence[Take], players: Players, turns: Turns, at: Progress) -> Reply:
    """The note `EFFECT` from the first pair in which the cut tape does not do as the whole one."""
    for number in range(0, len(takes), 2):
        at(number)
        with turns.shared():
            if has_effect(takes[number], takes[number + 1], players):
                return Reply(notes=(EFFECT,))
    return Reply()


def check_wide(takes: Sequence[Take], players: Players, turns: Turns, at: Progress) -> Reply:
    """What was checked, or the note `NO_ROOM`. Raises as `check` does.

    Alone on the device, for it needs a large part of the memory, which it would take from others.
    """
    with turns.alone():
        if free_bytes(players.device) < needed_bytes(takes):
            return Reply(notes=(NO_ROOM,))
        found = []
        for number, take in enumerate(takes):
            at(number)
            errors = check(take, players.of(take))
            found += [(take.at, errors)] if errors is not None else []
        return Reply(checked=tally(players.op, found))


def check_bent(takes: Sequence[Take], players: Players, turns: Turns, at: Progress) -> Reply:
    """What was checked; with the note `NO_ROOM` where some did not fit in memory."""
    found, full = list[tuple[Workload, Errors]](), dict[str, None]()
    for number, take in enumerate(takes):
        at(number)
        with _noted(full), turns.shared():
            errors = check(take, players.of(take))
            found += [(take.at, errors)] if errors is not None else []
    return Reply(checked=tally(players.op, found), notes=tuple(full))


def check_vast(takes: Sequence[Take], players: Players, turns: Turns, at: Progress) -> Reply:
    """As `check_bent`, alone on the device and without excuses, for the values are plain.

    With the note `ROUNDED` where the float64 truth did not fit, and torch's own answer took its
    place; with `UNTOLD` where the reference raises there, or torch's own is not right.
    """
    found, notes = list[tuple[Workload, Errors]](), dict[str, None]()
    for number, take in enumerate(takes):
        at(number)
        with turns.alone():
            if free_bytes(players.device) < vast_bytes(take):
                notes[NO_ROOM] = None
                continue
            with _noted(notes):
                found += [(take.at, errors) for errors in _in_room(take, players, notes)]
            # whoever has the next turn may want what torch would keep
            torch.cuda.empty_cache()
    return Reply(checked=tally(players.op, found), notes=tuple(notes))


def _in_room(take: Take, players: Players, notes: dict[str, None]) -> Iterator[Errors]:
    """The errors of one take, where they can be told; all that it held is free after it."""
    op, got = players.op, play_once(take, players.of(take))
    try:
        wanted, whole = wanted_in_room(op, take.at, take.case, players.device)
    except ProblemError as error:
        if is_full(error):
            raise
        notes[UNTOLD] = None
        return
    if not meaningful(wanted, op.tolerance):
        notes[UNTOLD] = None
        return
    yield judged(op, take, got, wanted)
    notes |= {} if whole else {ROUNDED: None}


@contextmanager
def _noted(notes: dict[str, None]) -> Iterator[None]:
    """With the note `NO_ROOM` where memory is full, go on with the next."""
    try:
        yield
    except (ProblemError, torch.OutOfMemoryError) as error:
        if not is_full(error):
            raise
        notes[NO_ROOM] = None
        torch.cuda.empty_cache()


def free_bytes(device: torch.device) -> int:
    """What a device has for whoever asks now."""
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info(device)[0]


def vast_bytes(take: Take) -> int:
    """The least memory to check a take with: its buffers, and inputs in float32 as they are drawn.

    What the reference needs beyond that is known only once it has run.
    """
    return sum(b.bytes for b in take.recording.tape.buffers) + 3 * DRAWN_BYTES


def needed_bytes(takes: Sequence[Take]) -> int:
    """The memory that checking one after another of these takes holds at most, well rounded up."""
    largest = max(b.bytes for take in takes for b in take.recording.tape.buffers)
    return COPIES * largest + DRAWN_BYTES
