"""What the judge says of a candidate: passed, with evidence, or rejected, with a reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log
from typing import Literal

from kernel_library.device import Bound
from kernel_library.spec import Workload

Stage = Literal[
    "parse", "screen", "record", "resources", "smoke", "correct", "speed", "light", "deep"
]
#: How the candidate was run: by Triton's interpreter on a CPU, or replayed on a GPU.
Evidence = Literal["interpreted", "replayed"]
#: What stood between the candidate's Python and the host.
SandboxLevel = Literal["none", "rlimits", "namespaces"]
#: A wall of that sandbox, each tried on the host before a child is said to be within it.
Mechanism = Literal["namespaces", "seccomp", "landlock", "cgroup", "rlimits"]


@dataclass(frozen=True, slots=True)
class Checked:
    """One workload's correctness: worst error against float64, and torch's own at that dtype.

    Errors are the largest difference over the largest true value. `cases` counts the seeds,
    layouts and value classes that were compared.
    """

    at: Workload
    error: float
    torch_error: float
    cases: int


#: How a kernel stands to a baseline: a win or a loss only beyond this machine's own noise.
Outcome = Literal["win", "tie", "loss"]


@dataclass(frozen=True, slots=True)
class Versus:
    """A contest with one baseline: how many times faster the kernel is, and its 95 % interval.

    `times` is absent in verdicts of before there was one.
    """

    low: float
    high: float
    outcome: Outcome
    times: float | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """One workload's time: a median in microseconds from a cold L2, with its 20-80 % range.

    `baselines` maps a name (`eager`, `compile`, ...) to its median, from the same run, and `versus`
    to how the kernel stands to it.
    """

    at: Workload
    time_us: float
    low_us: float
    high_us: float
    floor_us: float
    bound: Bound
    baselines: Mapping[str, float] = field(default_factory=dict)
    versus: Mapping[str, Versus] = field(default_factory=dict)

    @property
    def of_roofline(self) -> float:
        """How much of what this device allows: 1.0 is its measured ceiling."""
        return self.floor_us / self.time_us

    def speedup(self, over: str) -> float:
        """How many times faster than a baseline: what the contest found, which holds under drift.

        The ratio of the two medians, which may lie outside of the contest's interval, where none
        was kept.
        """
        found = self.versus[over].times if over in self.versus else None
        return found or self.baselines[over] / self.time_us

    @property
    def best_baseline(self) -> str | None:
        """The fastest baseline's name; none was run if absent."""
        return min(self.baselines, key=lambda name: self.baselines[name], default=None)


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """What the compiler made of one kernel: per thread and per program, from the binary.

    `async_instructions` counts copies, matrix products and barriers that no thread waits in.
    """

    name: str
    target: str
    registers: int
    spills: int
    shared_bytes: int
    num_warps: int
    matmul_instructions: int = 0
    async_instructions: int = 0


@dataclass(frozen=True, slots=True)
class Record:
    """How a verdict came about: enough to say what it is worth, and to judge again.

    `layouts` are the memory layouts of inputs that were tried: an exported kernel gets no other.
    `confinement` lists what the candidate's Python ran within, for `sandbox` is only a level.
    """

    evidence: Evidence
    sandbox: SandboxLevel
    compiled_for: tuple[str, ...] = ()
    device: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    checks: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    layouts: tuple[str, ...] = ()
    confinement: tuple[Mechanism, ...] = ()

    @property
    def is_deep(self) -> bool:
        """Whether it went through the stage that only what enters the library goes through."""
        return "deep" in self.seconds


@dataclass(frozen=True, slots=True)
class Passed:
    """Right on every workload; how fast on each, where it was replayed."""

    checked: tuple[Checked, ...]
    record: Record
    measured: tuple[Measurement, ...] = ()
    kernels: tuple[KernelFacts, ...] = ()
    kind: Literal["passed"] = "passed"

    @property
    def of_roofline(self) -> float:
        """Geometric mean over the measured workloads, by weight; 0 where nothing was measured."""
        return geomean([m.of_roofline for m in self.measured], [m.at.weight for m in self.measured])

    @property
    def worst(self) -> Measurement | None:
        """The workload that is furthest from its floor."""
        return min(self.measured, key=lambda m: m.of_roofline, default=None)


@dataclass(frozen=True, slots=True)
class Rejected:
    """Wrong, or not to be trusted: the first stage that said so, and why.

    `reason` may be shown to the candidate's author: it never names hidden sizes, seeds or slack.
    """

    stage: Stage
    reason: str
    record: Record
    at: Workload | None = None
    kernels: tuple[KernelFacts, ...] = ()
    kind: Literal["rejected"] = "rejected"


Verdict = Passed | Rejected


def geomean(values: Sequence[float], weights: Sequence[float]) -> float:
    """The weighted geometric mean; 0 for no values."""
    if not values:
        return 0.0
    total = sum(weights)
    return exp(sum(w * log(v) for v, w in zip(values, weights, strict=True)) / total)
