"""The clock: CUDA graphs on a cold L2, arms in turn, events around each sample."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

import torch

from evaluator.play import cuda
from evaluator.play.player import blamed, finish
from evaluator.play.statistics import Plan, order, rounds

Act = Callable[[], object]
#: The flush is this many times the L2: a line that was there before it is there no more.
FLUSH = 2.5
#: What a sample costs beside its calls, in microseconds: flush, events, launches.
OVERHEAD_US = 90.0
#: How long to run the measured work before measuring, in seconds: clocks settle.
WARM_S = 0.15
#: Samples that are under way at a time, so that the host stays ahead of the device.
BLOCK = 16
#: How long a block may take: a slow baseline on many sets, after the candidate has run once.
PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Arm:
    """Something to time: one call for each set of buffers, captured in graphs.

    `before` is replayed ahead of each sample, untimed. `kept` holds what the captured calls
    returned, so that no two of them share memory.
    """

    name: str
    graphs: tuple[torch.cuda.CUDAGraph, ...]
    calls: int
    before: tuple[torch.cuda.CUDAGraph, ...] = ()
    kept: tuple[object, ...] = ()


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
    return Arm(name, graphs, plan.calls, fresh, kept)


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


class Clock:
    """Times arms on one device, from a cold L2."""

    def __init__(self, device: torch.device, l2_bytes: int) -> None:
        self.device = device
        self._flush = torch.zeros(int(FLUSH * l2_bytes) // 4, device=device)
        self._read = torch.zeros((), device=device)

    def warm(self, arms: Sequence[Arm], seconds: float = WARM_S) -> None:
        """Run the arms in turn for a while."""
        until = perf_counter() + seconds
        while perf_counter() < until:
            for arm in arms:
                for number, graph in enumerate(arm.graphs):
                    _freshen(arm, number)
                    graph.replay()
            self._wait(arms)

    def samples(self, arms: Sequence[Arm], turns: Sequence[int]) -> list[list[float]]:
        """Microseconds a call, for each arm the samples it had in these turns, in order."""
        found: list[list[float]] = [[] for _ in arms]
        seen = [itertools.count() for _ in arms]
        for first in range(0, len(turns), BLOCK):
            blamed("the candidate", cuda.reset_persisting_l2)
            block = turns[first : first + BLOCK]
            marks = [self._sample(arms[turn], next(seen[turn])) for turn in block]
            self._wait(arms)
            for turn, (start, end) in zip(block, marks, strict=True):
                found[turn].append(start.elapsed_time(end) * 1e3 / arms[turn].calls)
        return found

    def race(self, arms: Sequence[Arm], budget_s: float) -> list[list[float]]:
        """Samples of all arms in interleaved ABBA blocks, about as many as the budget allows."""
        self.warm(arms)
        first = self.samples(arms, order(len(arms), 2))
        each = [min(s) * arm.calls + OVERHEAD_US for s, arm in zip(first, arms, strict=True)]
        return self.samples(arms, order(len(arms), rounds(budget_s * 1e6, each)))

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


def _freshen(arm: Arm, group: int) -> None:
    if arm.before:
        arm.before[group].replay()
