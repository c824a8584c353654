"""The clock: CUDA graphs on a cold L2, arms in turn, events around each sample."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter

import torch

from evaluator.play import cuda
from evaluator.play.player import blamed, finish
from evaluator.play.statistics import BLOCK, Plan, order, rounds
from evaluator.play.throttle import watch

Act = Callable[[], object]
#: The flush is this many times the L2: a line that was there before it is there no more.
FLUSH = 2.5
#: What a sample costs beside its calls, in microseconds: flush, events, launches.
OVERHEAD_US = 90.0
#: How long to run the measured work before measuring, as a share of the time for measuring, and in
#: seconds at least: clocks settle.
WARM, LEAST_WARM_S = 0.15, 0.01
#: Samples that are under way at a time, at least, so that the host stays ahead of the device.
AHEAD = 16
#: A race with fewer rounds than this at a free clock takes those at a throttled one as well.
LEAST_ROUNDS = 8
#: What is told where the clock cannot be watched.
UNWATCHED = "the clock was not watched for throttling: NVML does not answer for this device"
#: How long samples under way may take: a slow baseline on many sets, after the candidate ran once.
PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Arm:
    """Something to time: one call for each set of buffers, captured in graphs.

    `before` is replayed ahead of each sample, untimed, and `look` hears between batches of samples
    which graph was the last. `kept` holds the calls, with whatever memory is theirs, and what they
    returned, so that no two of them share memory.
    """

    name: str
    graphs: tuple[torch.cuda.CUDAGraph, ...]
    calls: int
    before: tuple[torch.cuda.CUDAGraph, ...] = ()
    kept: tuple[object, ...] = ()
    look: Callable[[int], None] | None = None


def capture(name: str, acts: Sequence[Act], plan: Plan, before: Sequence[Act] = ()) -> Arm:
    """An arm from a call for each set, and from what makes each set fresh.

    Each call runs once first, so that nothing is left lazy. Raises RuntimeError for a call that
    cannot be captured: it waits for the device, say.
    """
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for act in (*acts, *before):
            act()
    torch.cuda.current_stream().wait_stream(side)
    graphs, kept = _graphs(acts, plan)
    fresh, _ = _graphs(before, plan) if before else ((), ())
    return Arm(name, graphs, plan.calls, fresh, (*acts, *kept))


def _graphs(
    acts: Sequence[Act], plan: Plan
) -> tuple[tuple[torch.cuda.CUDAGraph, ...], tuple[object, ...]]:
    """A graph for each sample, and what its calls returned."""
    pool, kept, graphs = torch.cuda.graph_pool_handle(), [], []
    for group in plan.groups:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            kept += [acts[i]() for i in group]
        graphs.append(graph)
    return tuple(graphs), tuple(kept)


@dataclass(frozen=True, slots=True)
class Heat:
    """A race: the samples of each arm in microseconds a call, one a round, the same rounds for all.

    `notes` say what should be known of the clock that they were taken at.
    """

    samples: tuple[tuple[float, ...], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Batch:
    """Samples that were under way together, by arm, and what held the clock down meanwhile."""

    samples: tuple[tuple[float, ...], ...]
    held: str


class Clock:
    """Times arms on one device, from a cold L2."""

    def __init__(self, device: torch.device, l2_bytes: int) -> None:
        self.device, self.l2_bytes = device, l2_bytes
        self._flush = torch.zeros(int(FLUSH * l2_bytes) // 4, device=device)
        self._read = torch.zeros((), device=device)
        self._watch = watch(device)

    def warm(self, arms: Sequence[Arm], seconds: float) -> None:
        """Run the arms in turn for a while."""
        until = perf_counter() + seconds
        while perf_counter() < until:
            for arm in arms:
                for number, graph in enumerate(arm.graphs):
                    _freshen(arm, number)
                    graph.replay()
            self._wait(arms)

    def samples(self, arm: Arm, count: int) -> list[float]:
        """Microseconds a call, of an arm alone."""
        return [us for batch in self._batches([arm], count) for us in batch.samples[0]]

    def race(self, arms: Sequence[Arm], budget_s: float) -> Heat:
        """Samples of all arms in interleaved ABBA blocks, about as many as the budget allows.

        What was taken while the clock was held down is dropped, for all arms.
        """
        self.warm(arms, max(LEAST_WARM_S, WARM * budget_s))
        first = next(self._batches(arms, BLOCK)).samples
        each = [min(s) * arm.calls + OVERHEAD_US for s, arm in zip(first, arms, strict=True)]
        heat = kept(list(self._batches(arms, rounds(budget_s * 1e6, each))))
        return heat if self._watch else Heat(heat.samples, (*heat.notes, UNWATCHED))

    def _batches(self, arms: Sequence[Arm], count: int) -> Iterator[_Batch]:
        """So many rounds over the arms, there and back, whole blocks at a time."""
        seen = [itertools.count() for _ in arms]
        size = BLOCK * -(-AHEAD // (BLOCK * len(arms)))
        for first in range(0, count, size):
            blamed("the candidate", cuda.reset_persisting_l2)
            turns = order(len(arms), min(size, count - first))
            marks = [self._sample(arms[turn], next(seen[turn])) for turn in turns]
            # read while the samples are under way: an idle device says nothing
            held = self._watch() if self._watch else ""
            self._wait(arms)
            _look(arms, first + min(size, count - first) - 1)
            found: list[list[float]] = [[] for _ in arms]
            for turn, (start, end) in zip(turns, marks, strict=True):
                found[turn].append(start.elapsed_time(end) * 1e3 / arms[turn].calls)
            yield _Batch(tuple(map(tuple, found)), held)

    def _sample(self, arm: Arm, number: int) -> tuple[torch.cuda.Event, torch.cuda.Event]:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        group = number % len(arm.graphs)
        _freshen(arm, group)
        self._flush.fill_(float(number))
        # read back, because dirty lines left in L2 are written out at the call's expense: a 128 MB
        # read took 47.4 us after a write, 39.7 us after this, 40.2 us in a long row (H200)
        torch.amax(self._flush, dim=0, out=self._read)
        start.record()
        arm.graphs[group].replay()
        end.record()
        return start, end

    def _wait(self, arms: Sequence[Arm]) -> None:
        finish([arms[0].name], self.device, PATIENCE_S)


def kept(batches: Sequence[_Batch]) -> Heat:
    """The samples that were taken at a free clock; all of them where those are too few."""
    free = [batch for batch in batches if not batch.held]
    few = sum(len(batch.samples[0]) for batch in free) < LEAST_ROUNDS
    used = batches if few else free
    arms = zip(*(batch.samples for batch in used), strict=True)
    samples = tuple(tuple(us for part in arm for us in part) for arm in arms)
    reasons = ", ".join({batch.held: None for batch in batches if batch.held})
    if not reasons:
        return Heat(samples)
    did = "were kept, for too few others remain" if few else "were left out, for all arms"
    return Heat(samples, (f"samples taken while the clock was held down ({reasons}) {did}",))


def _freshen(arm: Arm, group: int) -> None:
    if arm.before:
        arm.before[group].replay()


def _look(arms: Sequence[Arm], number: int) -> None:
    """Have each arm's last sample looked at, while nothing is under way."""
    for arm in arms:
        if arm.look:
            arm.look(number % len(arm.graphs))
