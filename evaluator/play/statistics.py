"""The arithmetic of timing: how much to run, in which order, and what the samples say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, log
from statistics import median

import torch

from evaluator.errors import CandidateError
from kernel_library.device import Device, Floor, floor
from kernel_library.spec import Cost
from kernel_library.verdict import Outcome, Versus

#: Distinct input and output sets exceed this many times the L2.
ROTATE = 5
#: A sample lasts at least this long, in microseconds. Events and the start of a graph add up to
#: 2.8 us to it: a 2 MB write took 4.6 us alone, 1.8 us in a row of 32 on distinct buffers (H200).
SHORTEST_US = 100.0
MOST_SETS = 64
#: The share of free memory that timing may take.
SHARE = 0.4
#: Faster than this share of the datasheet's own time is a fault, not a record.
IMPOSSIBLE = 0.9
ROUNDS = (10, 120)
#: Two rounds, there and back: what a drift falls on alike.
BLOCK = 2
RESAMPLED = 10_000


@dataclass(frozen=True, slots=True)
class Plan:
    """How many distinct sets of buffers to rotate over, and how many calls make one sample."""

    sets: int
    calls: int

    @property
    def groups(self) -> list[range]:
        """The sets of each sample."""
        return [range(i, i + self.calls) for i in range(0, self.sets, self.calls)]


@dataclass(frozen=True, slots=True)
class Summary:
    """A median and its 20-80 % range."""

    middle: float
    low: float
    high: float


def plan(set_bytes: int, l2_bytes: int, free_bytes: int, time_us: float) -> Plan:
    """Enough sets that none is in L2 when it comes round again, as far as memory goes."""
    wanted = ceil(ROTATE * l2_bytes / max(1, set_bytes)) + 1
    affordable = max(1, min(int(SHARE * free_bytes / max(1, set_bytes)), MOST_SETS))
    calls = min(affordable, ceil(SHORTEST_US / max(0.1, time_us)))
    groups = min(ceil(wanted / calls), affordable // calls)
    return Plan(groups * calls, calls)


def rounds(budget_us: float, sample_us: Sequence[float]) -> int:
    """How many rounds over all arms fit in the budget, within sane limits; an even number."""
    least, most = ROUNDS
    count = int(budget_us / max(1.0, sum(sample_us)))
    return max(least, min(most, count)) // 2 * 2


def order(arms: int, rounds: int) -> list[int]:
    """ABBA: there and back, so that a drift falls on all arms alike."""
    there = list(range(arms))
    return [arm for i in range(rounds) for arm in (there if i % 2 == 0 else there[::-1])]


def summary(samples: Sequence[float]) -> Summary:
    """Median, 20th and 80th percentile, by linear interpolation. Raises ValueError for none."""
    ranked = sorted(samples)
    return Summary(median(ranked), _quantile(ranked, 0.2), _quantile(ranked, 0.8))


def _quantile(ranked: Sequence[float], share: float) -> float:
    at = share * (len(ranked) - 1)
    below = int(at)
    above = min(below + 1, len(ranked) - 1)
    return ranked[below] + (at - below) * (ranked[above] - ranked[below])


def possible(time_us: float, cost: Cost, device: Device) -> Floor:
    """The measured floor. Raises `CandidateError` for a time that no hardware allows."""
    limit = floor(cost, device.datasheet)
    if time_us < IMPOSSIBLE * limit.time_us:
        raise CandidateError(
            "light",
            f"is faster than {device.name} can move or compute this much ({limit.bound}): it"
            " leaves out a part of the work, or the contract counts too much",
        )
    return floor(cost, device.measured)


def versus(mine: Sequence[float], theirs: Sequence[float], margin: float) -> Versus:
    """How much faster the first arm of a race is, from samples of the same rounds.

    That is the median log ratio over blocks, which no drift that both share can move, as it moves
    the ratio of their medians; the interval is its 2.5-97.5 % range where blocks are resampled with
    replacement (percentile bootstrap). A win's lower end is beyond the margin, a loss's upper end
    below it; all else is a tie.
    """
    ratios = torch.tensor(
        [
            log(sum(theirs[i : i + BLOCK]) / sum(mine[i : i + BLOCK]))
            for i in range(0, min(len(mine), len(theirs)) // BLOCK * BLOCK, BLOCK)
        ],
        dtype=torch.float64,
    )
    random = torch.Generator().manual_seed(0)
    picks = torch.randint(len(ratios), (RESAMPLED, len(ratios)), generator=random)
    medians = ratios[picks].quantile(0.5, dim=1)
    low, high = (exp(float(medians.quantile(q))) for q in (0.025, 0.975))
    return Versus(low, high, outcome(low, high, margin), exp(float(ratios.quantile(0.5))))


def outcome(low: float, high: float, margin: float) -> Outcome:
    """What an interval of a speed-up says, where a share of `margin` is no difference."""
    if low > 1 + margin:
        return "win"
    return "loss" if high < 1 / (1 + margin) else "tie"


def noise(races: Sequence[Sequence[Sequence[float]]]) -> float:
    """The A/A spread: the largest share by which the medians of one kernel's two arms differed."""
    pairs = [[median(samples) for samples in race] for race in races]
    return max(max(pair) / min(pair) - 1 for pair in pairs)
