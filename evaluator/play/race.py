"""How fast is a tape? Raced against baselines on fresh inputs, its timed outputs checked after."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from evaluator.errors import CandidateError, LabError
from evaluator.inputs import Inputs, draw
from evaluator.play.baselines import NotApplicable, agrees, baseline, get_ready, graph_at
from evaluator.play.check import Players, Turn, judged, kernels, wanted_in_room
from evaluator.play.libraries import LIBRARIES
from evaluator.play.memory import storage
from evaluator.play.player import Bound, Player, finish, named
from evaluator.play.statistics import Plan, plan, possible, summary, versus
from evaluator.play.timing import Arm, Clock, capture
from evaluator.play.wire import Pace, Race, Reply, Take
from evaluator.poison import bits
from evaluator.turns import Turns
from kernel_library.device import Device
from kernel_library.spec import OpSpec
from kernel_library.verdict import Measurement

#: The name of the candidate among the arms of a race.
CANDIDATE = "candidate"
#: Memory in use beyond which no further track is laid before those that are there were raced on.
HELD_BYTES = 2 << 30


@dataclass(frozen=True, slots=True)
class Track:
    """Where a race is held: takes that differ in their seed alone, each with memory of its own.

    `seen` gathers what a set's outputs added up to after some of the timed calls, by its number.
    """

    player: Player
    takes: tuple[Take, ...]
    bounds: tuple[Bound, ...]
    plan: Plan
    seen: list[tuple[int, torch.Tensor]] = field(default_factory=list)

    def look(self, group: int) -> None:
        """Keep what the outputs of one of a sample's sets add up to, whichever it is."""
        number = secrets.choice(self.plan.groups[group])
        self.seen.append((number, _added_up(self.bounds[number])))


def race(
    asked: Race,
    takes: Sequence[Take],
    players: Players,
    at: Callable[[int], None],
    turns: Turns,
) -> Reply:
    """Measure each take. Raises `CandidateError` for wrong outputs or an impossible time."""
    device, pace = asked.device, asked.pace
    get_ready(pace.arms, players.op.name)
    with turns.shared():
        clock = Clock(players.device, device.l2_bytes)
    meet = Meet(pace, device, clock, turns, at, {})
    measured: list[Measurement] = []
    ready: list[Lane] = []
    for number, take in enumerate(takes):
        ready.append(meet.lane(number, take, players.of(take)))
        # without rivals, one turn alone serves for as many as fit in memory together
        full = pace.arms or torch.cuda.memory_allocated() > HELD_BYTES
        if full or number == len(takes) - 1:
            measured += meet.run(ready)
            ready = []
    return Reply(measured=tuple(measured), notes=tuple(meet.notes))


@dataclass(frozen=True, slots=True)
class Lane:
    """A track on which the candidate has run and is captured, by the number of its take."""

    number: int
    track: Track
    mine: Arm


@dataclass(frozen=True, slots=True)
class Meet:
    """The races of one request. `at` hears which take is at work, `notes` fill by the way."""

    pace: Pace
    device: Device
    clock: Clock
    turns: Turns
    at: Callable[[int], None]
    notes: dict[str, None]

    def lane(self, number: int, take: Take, player: Player) -> Lane:
        """A take made ready to be timed."""
        self.at(number)
        track = lay(take, player, self.clock, self.device, self.turns.shared)
        with self.turns.shared():
            # the candidate has run before any answer is on the device, a baseline's included
            mine = captured(track.bounds, track.plan)
            return Lane(number, track, replace(mine, look=track.look))

    def run(self, lanes: Sequence[Lane]) -> list[Measurement]:
        """Race on each with the GPU to itself, then look at what the timed calls left."""
        with self.turns.alone():
            samples = [self._heat(lane) for lane in lanes]
        return [self._measured(lane, each) for lane, each in zip(lanes, samples, strict=True)]

    def _heat(self, lane: Lane) -> Mapping[str, Sequence[float]]:
        self.at(lane.number)
        arms = [lane.mine, *_rivals(lane.track, self.pace.arms, self.notes)]
        heat = self.clock.race(arms, self.pace.seconds)
        self.notes.update(dict.fromkeys(heat.notes))
        return {arm.name: each for arm, each in zip(arms, heat.samples, strict=True)}

    def _measured(self, lane: Lane, samples: Mapping[str, Sequence[float]]) -> Measurement:
        self.at(lane.number)
        examine(lane.track, self.notes, self.turns.shared, every=bool(self.pace.arms))
        with self.turns.shared():
            return _measurement(lane.track, self.device, samples)


def lay(take: Take, player: Player, clock: Clock, device: Device, turn: Turn) -> Track:
    """Memory for as many calls as the race rotates over, sized by a first look at one call.

    One `turn` for each: who waits for the GPU alone waits for a call at most.
    """
    with turn():
        first = _played(take, player)
        once_us = min(clock.samples(captured([first], Plan(1, 1)), 4))
        # the judge's own inputs, which baselines read, and the candidate's copies
        given = sum(storage(tensor).numel() for tensor in first.given.values())
        free, _ = torch.cuda.mem_get_info(player.device)
        chosen = plan(2 * given + first.made.memory.numel(), device.l2_bytes, free, once_us)
    takes = tuple(
        replace(take, case=replace(take.case, seed=take.case.seed + i)) for i in range(chosen.sets)
    )
    bounds = []
    for each in takes:
        with turn():
            bounds.append(_played(each, player))
    return Track(player, takes, tuple(bounds), chosen)


def _played(take: Take, player: Player) -> Bound:
    """Memory for one call, which has been made once."""
    bound = player.bind(draw(player.op, take.at, take.case, player.device), take.case.poison)
    bound.play()
    finish(kernels(player), player.device)
    return bound


def captured(bounds: Sequence[Bound], plan: Plan) -> Arm:
    """The candidate's calls in graphs. They have run already, so what fails here is capturing.

    Memory is made fresh before each sample: device code could else see in its own output that it
    has been here, and skip work that is done.
    """
    plays, fresh = [b.play for b in bounds], [b.freshen for b in bounds]
    try:
        return capture(CANDIDATE, plays, plan, fresh)
    except torch.OutOfMemoryError as error:
        raise LabError("there is no memory left to time in") from error
    except RuntimeError as error:
        raise CandidateError("speed", "makes a call that a CUDA graph cannot hold") from error


def _rivals(track: Track, names: Sequence[str], notes: dict[str, None]) -> Iterator[Arm]:
    """The baselines that run here; `notes` gains why each other one does not."""
    at, player = track.takes[0].at, track.player
    for name in names:
        try:
            call = baseline(name, player.op, at, player.device)
            if name in LIBRARIES:
                agrees(name, call, graph_at(player.op, at), _inputs(track.bounds[0]))
            acts = [_on(call, bound) for bound in track.bounds]
            yield capture(name, acts, track.plan)
        except NotApplicable as why:
            notes[str(why)] = None
        except (CandidateError, LabError):
            raise
        except Exception as error:  # whatever a compiler or a library raises is a rival less
            said = (str(error).splitlines() or [type(error).__name__])[0]
            notes[f"{name}: cannot be captured: {said[:200]}"] = None


def _on(call: Callable[[Sequence[torch.Tensor]], object], bound: Bound) -> Callable[[], object]:
    inputs = _inputs(bound)
    return lambda: call(inputs)


def _inputs(bound: Bound) -> list[torch.Tensor]:
    """The judge's own inputs of a call, in call order."""
    return list(bound.given.values())


def examine(track: Track, notes: dict[str, None], turn: Turn, *, every: bool) -> None:
    """Look at what the last timed calls left: in `every` set, or in both ends and one by chance.

    Device code knows its addresses, and could leave out the work of sets that nobody looks at.
    """
    player, last = track.player, len(track.bounds) - 1
    some = {0, secrets.randbelow(last + 1), last}
    for number in range(last + 1) if every else sorted(some):
        bound, take = track.bounds[number], track.takes[number]
        with turn():
            bound.check(draw(player.op, take.at, take.case, player.device))
            _judge_outputs(player.op, take, bound, notes)
    with turn():
        _same_each_time(track)


def _same_each_time(track: Track) -> None:
    """Raise `CandidateError` where a set's outputs were others after an earlier timed call.

    Only what the last call left is compared with the truth, for memory is made fresh each time.
    """
    last = {number: _added_up(track.bounds[number]) for number in {n for n, _ in track.seen}}
    if not all(torch.equal(sums, last[number]) for number, sums in track.seen):
        raise CandidateError("speed", "gives other bits in some of its timed calls")


def _added_up(bound: Bound) -> torch.Tensor:
    """The bits of each output as whole numbers, added up: it takes one read, and no memory."""
    return torch.stack([bits(output).sum(dtype=torch.int64) for output in bound.outputs()])


def _judge_outputs(op: OpSpec, take: Take, bound: Bound, notes: dict[str, None]) -> None:
    """Compare with the truth; with torch's own answer, and a note, where float64 does not fit."""
    got = bound.outputs()
    wanted, whole = wanted_in_room(op, take.at, take.case, bound.player.device)
    if not whole:
        notes[f"{take.at}: no room for float64; timed outputs were compared with torch's"] = None
    judged(op, take, got, wanted)


def _measurement(
    track: Track, device: Device, samples: Mapping[str, Sequence[float]]
) -> Measurement:
    """The candidate's time, and how it stands to each baseline that it was raced against."""
    op, first, mine = track.player.op, track.takes[0], samples[CANDIDATE]
    cost = op.cost(first.at, counted(op, draw(op, first.at, first.case, track.player.device)))
    told, margin = summary(mine), device.margin(summary(mine).middle)
    least = possible(told.low, cost, device)
    rivals = {name: theirs for name, theirs in samples.items() if name != CANDIDATE}
    return Measurement(
        first.at, told.middle, told.low, told.high, least.time_us, least.bound,
        baselines={name: summary(theirs).middle for name, theirs in rivals.items()},
        versus={name: versus(mine, theirs, margin) for name, theirs in rivals.items()},
    )  # fmt: skip


def counted(op: OpSpec, inputs: Inputs) -> dict[str, int]:
    """The numbers that only data know: how many experts are hit, how many labels count."""
    tensors = dict(named(inputs))
    return {
        name: int(
            len(torch.unique(tensors[count.of]))
            if count.kind == "distinct"
            else tensors[count.of].sum()
        )
        for name, count in op.counts.items()
    }
