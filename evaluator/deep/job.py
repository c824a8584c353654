"""The deep stage's jobs in a player process, each fresh: a fault in one ends no other."""

from __future__ import annotations

from pathlib import Path

import torch

from evaluator.deep.looks import has_effect, repeat
from evaluator.inputs import WIDE
from evaluator.matrix import tally
from evaluator.play.check import Players, check
from evaluator.play.job import Progress, answered, gpu
from evaluator.play.wire import Reply, Request
from evaluator.turns import Turns

#: What a note in a reply means.
EFFECT, NO_ROOM = "has an effect", "no room"
#: Copies of the input that a check holds at a time: the judge's own, the candidate's, a fresh one
#: to compare with, and the comparison; beside them the float32 in which that one was drawn.
COPIES, DRAWN_BYTES = 4, 4 * WIDE


def repeats(raw: bytes) -> bytes:
    """Play each take 30 times."""
    return answered(raw, _repeats)


def effects(raw: bytes) -> bytes:
    """Takes in pairs, whole and without a launch: is there a pair in which that shows?"""
    return answered(raw, _effects)


def wide(raw: bytes) -> bytes:
    """Check takes whose inputs are larger than what one check may usually hold."""
    return answered(raw, _wide)


def _repeats(request: Request, at: Progress) -> Reply:
    turns = Turns(Path(request.turns))
    with turns.shared():
        players = Players(request.op, gpu())
    for number, take in enumerate(request.takes()):
        at(number)
        with turns.shared():
            repeat(take, players)
    return Reply()


def _effects(request: Request, at: Progress) -> Reply:
    turns = Turns(Path(request.turns))
    with turns.shared():
        players = Players(request.op, gpu())
    takes = request.takes()
    for number, (whole, cut) in enumerate(zip(takes[::2], takes[1::2], strict=True)):
        at(2 * number)
        with turns.shared():
            if has_effect(whole, cut, players):
                return Reply(notes=(EFFECT,))
    return Reply()


def _wide(request: Request, at: Progress) -> Reply:
    # alone: it needs a large part of the memory, which it would take from others
    with Turns(Path(request.turns)).alone():
        device = gpu()
        takes, players = request.takes(), Players(request.op, device)
        largest = max(b.bytes for take in takes for b in take.recording.tape.buffers)
        free, _ = torch.cuda.mem_get_info(device)
        if free < COPIES * largest + DRAWN_BYTES:
            return Reply(notes=(NO_ROOM,))
        found = []
        for number, take in enumerate(takes):
            at(number)
            errors = check(take, players.of(take))
            found += [(take.at, errors)] if errors is not None else []
        return Reply(checked=tally(request.op, found))
