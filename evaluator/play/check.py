"""Is what a tape computes right? Played on fresh inputs, then held against an answer made later."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial

import torch

from evaluator.compare import Errors, Mismatch, compare
from evaluator.errors import CandidateError, ProblemError
from evaluator.inputs import Case, draw, flat, size_of
from evaluator.interpret.judge import labels
from evaluator.meaningful import excused, holds, said, told
from evaluator.picked import Answers, answers
from evaluator.play.baselines import graph_at
from evaluator.play.memory import is_full
from evaluator.play.player import Player, finish
from evaluator.play.wire import Take
from evaluator.poison import bits
from kernel_library.spec import OpSpec, Workload

Outputs = tuple[torch.Tensor, ...]
#: A turn at the GPU, where others wait for theirs.
Turn = Callable[[], AbstractContextManager[None]]
HOST = torch.device("cpu")
#: The largest tensor that is compared on the host: hidden sizes are no larger (`REPLAYED`).
HOST_ELEMENTS = 1 << 20


class Players:
    """One player for each distinct recording: kernels are loaded once."""

    def __init__(self, op: OpSpec, device: torch.device) -> None:
        self.op, self.device = op, device
        self._known: dict[str, Player] = {}

    def of(self, take: Take) -> Player:
        """The player of a take's recording."""
        digest = take.recording.digest
        if digest not in self._known:
            self._known[digest] = Player(self.op, take.recording, self.device)
        return self._known[digest]


def check(take: Take, player: Player, turn: Turn = nullcontext) -> Errors | None:
    """The errors of one take's answer; None where nobody can say what is right
    (`evaluator.meaningful`).

    Holds a `turn` at the GPU while that works: for small takes, as long as the candidate runs.
    Raises `CandidateError` if the answer is wrong in any way.
    """
    with whole_sums():
        if on_host(player.op, take.at, take.case):
            return _check(take, player, HOST, turn)
        with turn():
            return _check(take, player, player.device, nullcontext)


@contextmanager
def whole_sums() -> Iterator[None]:
    """The library adds up the pieces of a product in float32.

    By default it may in 16 bits, at sizes of its own choice: that is torch's leave and the user's,
    and hides an error of the launcher as well as it makes one.
    """
    matmul = torch.backends.cuda.matmul
    names = ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction")
    were = [getattr(matmul, name) for name in names]
    for name in names:
        setattr(matmul, name, False)
    try:
        yield
    finally:
        for name, was in zip(names, were, strict=True):
            setattr(matmul, name, was)


def on_host(op: OpSpec, at: Workload, case: Case) -> bool:
    """Whether answers are made and compared by a core of the host's: they are many, the GPU is one.

    A matrix product stays on the GPU, for torch's own error there is the yardstick. So does a wide
    input: a core took 27 s to fill its gaps and to compare them, while the GPU waited.
    """
    small = size_of(op, at) <= HOST_ELEMENTS and case.layout != "wide"
    return op.matmul_flops == "0" and small


def _check(take: Take, player: Player, where: torch.device, turn: Turn) -> Errors | None:
    case = take.case
    got = play_once(take, player, where, turn)
    if case.repeat:
        _same_again(got, play_once(_other_poison(take), player, where, turn))
    op, at = player.op, take.at
    ask = partial(wanted_at, op, at, case)
    wanted = told(op, (at, case), partial(ask, where), partial(ask, HOST))
    if wanted is None:
        return None
    got, wanted = said(got, wanted, op, (at, case))
    try:
        return judged(op, take, got, wanted)
    except CandidateError as wrong:
        if not holds(op, (at, case), wanted):
            return None
        inputs = flat(draw(op, at, case, where))
        if excused(wrong.reason, got, wanted, op, (at, case), inputs):
            return None
        raise


def play_once(
    take: Take, player: Player, where: torch.device | None = None, turn: Turn = nullcontext
) -> Outputs:
    """The outputs of one call on inputs drawn for it, after a look at what else it touched.

    The look is taken, and the outputs lie, at `where`: on the player's device if that is not said.
    """
    case, op, where = take.case, player.op, where or player.device
    inputs = draw(op, take.at, case, where)
    with turn():
        bound = player.bind(inputs, case.poison)
        bound.play()
        finish(kernels(player), player.device)
        bound.bring(where)
    got = tuple(tensor.clone() for tensor in bound.outputs())
    # drawn a second time: device code has never seen these, so they are as the judge meant them
    bound.check(draw(op, take.at, case, where))
    return got


def wanted_at(
    op: OpSpec, at: Workload, case: Case, device: torch.device, widen: bool = True
) -> Answers:
    """What the reference says; without `widen`, torch's own answer stands for the truth."""
    return answers(graph_at(op, at), flat(draw(op, at, case, device)), widen)


def wanted_in_room(
    op: OpSpec, at: Workload, case: Case, device: torch.device
) -> tuple[Answers, bool]:
    """As `wanted_at`; where that does not fit in memory, torch's own answer, and then False."""
    try:
        return wanted_at(op, at, case, device), True
    except ProblemError as error:
        if not is_full(error):
            raise
    torch.cuda.empty_cache()
    return wanted_at(op, at, case, device, widen=False), False


def judged(op: OpSpec, take: Take, got: Outputs, wanted: Answers) -> Errors:
    """The errors of a right answer. Raises `CandidateError` for a wrong one."""
    names = labels(op, (take.at, take.case))
    try:
        return compare(got, wanted, op.tolerance, names=names, poison=take.case.poison)
    except Mismatch as wrong:
        raise CandidateError("correct", wrong.reason) from wrong


def kernels(player: Player) -> list[str]:
    """The kernels that a tape launches, by name."""
    return [launch.function for launch in player.recording.tape.launches]


def same_bits(some: Outputs, others: Outputs) -> bool:
    """Whether two calls gave the same, NaN by NaN."""
    return all(torch.equal(bits(a), bits(b)) for a, b in zip(some, others, strict=True))


def _same_again(got: Outputs, again: Outputs) -> None:
    if not same_bits(got, again):
        raise CandidateError("correct", "gives other bits when it is run again on the same inputs")


def _other_poison(take: Take) -> Take:
    return replace(take, case=replace(take.case, poison=take.case.poison + 1))
