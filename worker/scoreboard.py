"""The whole library against every baseline, losses included, as a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from kernel_library.device import Device
from kernel_library.verdict import Measurement, Passed, Rejected, Verdict, geomean

#: A difference below this is a tie on any machine; on a noisier one, three times its A/A spread.
LEAST_TIE = 0.01
Result = Literal["win", "tie", "loss", "alone"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel of the library, and the verdict on it beside every baseline that ran."""

    name: str
    verdict: Verdict


def tie_margin(device: Device) -> float:
    """The share by which two times must differ to be different on this device."""
    return max([LEAST_TIE, *(3 * spread for spread in device.noise.values())])


def result(measured: Measurement, margin: float) -> Result:
    """How a time stands to the best baseline of its run."""
    best = measured.best_baseline
    if best is None:
        return "alone"
    ratio = measured.speedup(best)
    return "win" if ratio > 1 + margin else "loss" if ratio < 1 / (1 + margin) else "tie"


def markdown(entries: Sequence[Entry], device: Device, date: str) -> str:
    """The scoreboard as a page: one table, its totals first."""
    margin = tie_margin(device)
    passed = [(e.name, e.verdict) for e in entries if isinstance(e.verdict, Passed)]
    timed = [(name, m) for name, verdict in passed for m in verdict.measured]
    lines = [
        "# Scoreboard",
        "",
        f"{device.name}, {date}, {_versions(device)}. Written by `kernelwright scoreboard`:",
        "medians from a cold L2, baselines in the same run under the same clock.",
        f"A difference of less than {margin:.1%} is a tie.",
        "",
        *_totals(timed, margin),
        "",
        "| kernel | workload | µs | of roofline | best baseline | against it | |",
        "|---|---|---|---|---|---|---|",
        *(_row(name, m, margin) for name, m in timed),
        "",
        *_rejected(entries),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _totals(timed: Sequence[tuple[str, Measurement]], margin: float) -> Iterator[str]:
    counts = Counter(result(m, margin) for _, m in timed)
    told = ", ".join(f"{counts[r]} {r}" for r in ("win", "tie", "loss", "alone") if counts[r])
    shares = [m.of_roofline for _, m in timed]
    yield f"{len(timed)} timed workloads: {told or 'none'}."
    if timed:
        name, worst = min(timed, key=lambda pair: pair[1].of_roofline)
        mean = geomean(shares, [1.0] * len(shares))
        least = f"worst {worst.of_roofline:.0%}, {name} at {worst.at}"
        yield f"Geometric mean {mean:.0%} of the roofline; {least}."


def _row(name: str, m: Measurement, margin: float) -> str:
    best = m.best_baseline
    beside = f"{best} {m.baselines[best]:.1f} | {m.speedup(best):.2f}x" if best else " | "
    verdict = result(m, margin)
    told = f"**{verdict}**" if verdict == "loss" else verdict
    share = f"{m.of_roofline:.0%} ({m.bound})"
    return f"| {name} | {m.at} | {m.time_us:.1f} | {share} | {beside} | {told} |"


def _rejected(entries: Sequence[Entry]) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry.verdict, Rejected):
            yield f"**{entry.name} was rejected** at {entry.verdict.stage}: {entry.verdict.reason}"


def _versions(device: Device) -> str:
    known = ("driver", "torch", "triton", "ptxas")
    return ", ".join(f"{name} {device.versions[name]}" for name in known if name in device.versions)
