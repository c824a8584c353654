"""What runs in a player process, fresh for each candidate: an illegal address ends a context.

Python here is ours; only device code is a stranger's. Every way to fail is a reply, and whatever
still escapes is a lab failure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import torch

from evaluator.compare import Errors
from evaluator.errors import CandidateError, LabError, ProblemError
from evaluator.matrix import tally
from evaluator.play.check import Players, check
from evaluator.play.memory import is_full
from evaluator.play.race import race
from evaluator.play.wire import Reply, Request, Whose, dump_reply, load_request
from evaluator.turns import Turns
from kernel_library.spec import Workload

Progress = Callable[[int], None]


def main(raw: bytes) -> bytes:
    """A `Request` in, a `Reply` out."""
    return answered(raw, _do)


def answered(raw: bytes, do: Callable[[Request, Progress], Reply]) -> bytes:
    """A `Reply`, whatever comes of it; `do` says at which take it is."""
    request = load_request(raw)
    reached = 0

    def at(number: int) -> None:
        nonlocal reached
        reached = number

    try:
        reply = do(request, at)
    except CandidateError as error:
        reply = Reply(whose="candidate", stage=error.stage, reason=error.reason, take=reached)
    except ProblemError as error:
        # a reference that runs elsewhere is not at fault for the size of this device
        whose: Whose = "lab" if is_full(error) else "problem"
        reply = Reply(whose=whose, reason=str(error), take=reached)
    except LabError as error:
        reply = Reply(whose="lab", reason=str(error), take=reached)
    return dump_reply(reply)


def _do(request: Request, at: Progress) -> Reply:
    turns, watch = Turns(Path(request.turns)), perf_counter()
    with turns.starting():
        device = gpu()
    seconds = {"start": perf_counter() - watch - turns.waited}
    takes, players = request.takes(), Players(request.op, device)
    first = len(takes) - (request.race.timed if request.race else 0)
    found: list[tuple[Workload, Errors]] = []
    for number, take in enumerate(takes[:first]):
        at(number)
        errors = check(take, players.of(take), turns.shared)
        if errors is not None:
            found.append((take.at, errors))
    checked = tally(request.op, found)
    reply, watch, waited = Reply(), perf_counter(), turns.waited
    if request.race:
        reply = race(request.race, takes[first:], players, lambda n: at(first + n), turns)
        seconds["speed"] = perf_counter() - watch - (turns.waited - waited)
    return replace(reply, checked=checked, seconds=seconds | {"wait": turns.waited})


def gpu() -> torch.device:
    """The first GPU, with a context that is current. Raises `LabError` where there is none."""
    if not torch.cuda.is_available():
        raise LabError("no CUDA GPU is visible to the player")
    torch.cuda.init()  # type: ignore[no-untyped-call]
    device = torch.device("cuda", 0)
    torch.zeros(1, device=device)
    return device
