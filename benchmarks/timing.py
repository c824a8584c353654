"""Times calls on a GPU from a cold L2, and what the GPU itself can do."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

import torch
import triton

from kernel_library.spec import Workload
from kernel_library.unit import Unit

Call = Callable[..., Any]


class Timer:
    """Replays a call over rotating inputs that together do not fit in the L2."""

    def __init__(self, call: Call, sets: Sequence[Sequence[torch.Tensor]]) -> None:
        self.calls = len(sets)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(2):
                call(*sets[0])
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=side):
            # kept until the graph is made, so that outputs rotate as the inputs do
            self.outputs = [call(*each) for each in sets]
        self.outputs = []
        self.graph.replay()
        torch.cuda.synchronize()

    def read(self, replays: int) -> list[float]:
        """Microseconds a call, one reading for each replay."""
        return [us / self.calls for us in stopwatch(self.graph.replay, replays)]


def stopwatch(act: Callable[[], object], times: int) -> list[float]:
    """Microseconds from the end of one act on the GPU to the end of the next."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(times + 1)]
    events[0].record()
    for event in events[1:]:
        act()
        event.record()
    torch.cuda.synchronize()
    return [1e3 * a.elapsed_time(b) for a, b in pairwise(events)]


def in_turns(contest: Mapping[str, Timer]) -> dict[str, float]:
    """Medians in us of timers read in turns, so that all meet the same clocks."""
    readings: dict[str, list[float]] = {name: [] for name in contest}
    for _ in range(5):
        for name, timer in contest.items():
            readings[name] += timer.read(8)
    return {name: median(times) for name, times in readings.items()}


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What this device did in this run: GB/s of a copy, TFLOP/s of a bfloat16 product."""

    copy_gbs: float
    matmul_tflops: float

    def floor_us(self, unit: Unit, at: Workload) -> float:
        """The least time for the work at these ceilings."""
        cost = unit.op.cost(at)
        moving = cost.bytes / self.copy_gbs / 1e3
        return max(moving, cost.matmul_flops / self.matmul_tflops / 1e6)


def ceilings() -> Ceilings:
    """Copy 4 GiB; multiply 4096 x 4096 x 4096 by the vendor library, random data."""
    source = torch.empty(1 << 31, dtype=torch.int16, device="cuda").random_(0, 1 << 14)
    target = torch.empty_like(source)
    # not from a graph: there a copy is the copy engine's, at 2.7 TB/s on an H200
    copy = median(stopwatch(lambda: target.copy_(source), 12))
    a, b = (torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) for _ in "ab")
    multiply = median(Timer(lambda: a @ b, [()] * 8).read(12))
    return Ceilings(2 * source.nbytes / copy / 1e3, 2 * 4096**3 / multiply / 1e6)


def versions() -> dict[str, str]:
    """What the numbers were read with."""
    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()[0]
    return {
        "date": time.strftime("%Y-%m-%d"),
        "driver": driver,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "command": "python benchmarks/tune.py",
    }
