"""The whole library against every baseline, losses included, as a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernel_library.device import LEAST_MARGIN, Device
from kernel_library.verdict import Measurement, Passed, Rejected, Verdict, geomean

#: A workload at which no baseline ran.
ALONE = "alone"


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel of the library, and the verdict on it beside every baseline that ran."""

    name: str
    verdict: Verdict


def result(measured: Measurement) -> str:
    """How a time stands to the best baseline of its run: an `Outcome`, or alone."""
    best = measured.best_baseline
    return measured.versus[best].outcome if best else ALONE


def markdown(entries: Sequence[Entry], device: Device, date: str) -> str:
    """The scoreboard as a page: one table, its totals first."""
    passed = [(e.name, e.verdict) for e in entries if isinstance(e.verdict, Passed)]
    timed = [(name, m) for name, verdict in passed for m in verdict.measured]
    lines = [
        "# Scoreboard",
        "",
        f"{device.name}, {date}, {_versions(device)}. Written by `kernelwright scoreboard`:",
        "medians from a cold L2, baselines in the same run under the same clock.",
        f"A win or a loss is one whose 95 % interval lies beyond {_margins(device)}; else a tie.",
        "",
        *_totals(timed),
        "",
        "| kernel | workload | µs | of roofline | best baseline | against it | |",
        "|---|---|---|---|---|---|---|",
        *(_row(name, m) for name, m in timed),
        "",
        *_rejected(entries),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _totals(timed: Sequence[tuple[str, Measurement]]) -> Iterator[str]:
    counts = Counter(result(m) for _, m in timed)
    told = ", ".join(f"{counts[r]} {r}" for r in ("win", "tie", "loss", ALONE) if counts[r])
    shares = [m.of_roofline for _, m in timed]
    yield f"{len(timed)} timed workloads: {told or 'none'}."
    if timed:
        name, worst = min(timed, key=lambda pair: pair[1].of_roofline)
        mean = geomean(shares, [1.0] * len(shares))
        least = f"worst {worst.of_roofline:.0%}, {name} at {worst.at}"
        yield f"Geometric mean {mean:.0%} of the roofline; {least}."


def _row(name: str, m: Measurement) -> str:
    best = m.best_baseline
    beside = f"{best} {m.baselines[best]:.1f} | {m.speedup(best):.2f}x" if best else " | "
    verdict = result(m)
    told = f"**{verdict}**" if verdict == "loss" else verdict
    share = f"{m.of_roofline:.0%} ({m.bound})"
    return f"| {name} | {m.at} | {m.time_us:.1f} | {share} | {beside} | {told} |"


def _rejected(entries: Sequence[Entry]) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry.verdict, Rejected):
            yield f"**{entry.name} was rejected** at {entry.verdict.stage}: {entry.verdict.reason}"


def _margins(device: Device) -> str:
    """The share that counts as no difference, by the length of a kernel."""
    told = [f"{device.margin(us):.1%} at {us:.0f} µs" for us in device.noise]
    return ", ".join(told) or f"{LEAST_MARGIN:.0%}"


def _versions(device: Device) -> str:
    known = ("driver", "torch", "triton", "ptxas")
    return ", ".join(f"{name} {device.versions[name]}" for name in known if name in device.versions)
