"""A device and what it was measured to do, and the time below which no kernel can go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log
from typing import Literal

from kernel_library.spec import Cost

#: A difference below this is a tie on any machine.
LEAST_MARGIN = 0.01
#: What a time and a verdict depend on beside the device; not what was measured of it, which differs
#: a little each time.
SOFTWARE = ("driver", "torch", "triton", "ptxas")
Bound = Literal["memory", "matmul", "vector", "launch"]


@dataclass(frozen=True, slots=True)
class Target:
    """What a kernel is compiled for: `Target("cuda", 90)` is Hopper."""

    backend: Literal["cuda", "hip"] = "cuda"
    arch: int = 90

    def __str__(self) -> str:
        return f"sm_{self.arch}" if self.backend == "cuda" else f"arch {self.arch}"


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Rates: GB/s of DRAM traffic, TFLOP/s of matrix units by dtype and of vector units."""

    bandwidth_gbs: float
    matmul_tflops: Mapping[str, float]
    vector_tflops: float
    launch_us: float


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU: its measured ceilings (the score), the vendor's (the physical limit), its versions.

    `noise` is the A/A spread: the share by which two readings of one kernel differ, by the time in
    microseconds that the kernel takes.
    """

    name: str
    target: Target
    sms: int
    l2_bytes: int
    measured: Ceilings
    datasheet: Ceilings
    versions: Mapping[str, str] = field(default_factory=dict)
    noise: Mapping[float, float] = field(default_factory=dict)

    @property
    def software(self) -> dict[str, str]:
        """The versions of what stands between a source text and a time, where they are known."""
        return {name: self.versions[name] for name in SOFTWARE if name in self.versions}

    def margin(self, time_us: float) -> float:
        """The share by which two times of about this length must differ to be different here.

        Three times the A/A spread of the nearest length that was measured, and at least 1 %.
        """
        nearest = min(self.noise, key=lambda known: abs(log(known / time_us)), default=None)
        return LEAST_MARGIN if nearest is None else max(LEAST_MARGIN, 3 * self.noise[nearest])


@dataclass(frozen=True, slots=True)
class Floor:
    """The least time in which any kernel can do a piece of work, and what sets it."""

    time_us: float
    bound: Bound


def floor(cost: Cost, ceilings: Ceilings) -> Floor:
    """The slowest of moving, multiplying, computing and launching, each at its ceiling."""
    rate = ceilings.matmul_tflops.get(cost.matmul_dtype, ceilings.vector_tflops)
    times: dict[Bound, float] = {
        "memory": cost.bytes / ceilings.bandwidth_gbs / 1e3,
        "matmul": cost.matmul_flops / rate / 1e6,
        "vector": cost.flops / ceilings.vector_tflops / 1e6,
        "launch": ceilings.launch_us,
    }
    bound = max(times, key=lambda name: times[name])
    return Floor(times[bound], bound)
