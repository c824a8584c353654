"""Verdicts as tables for a terminal, and as JSON for a script."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table

from cli.exits import escaped, out
from kernel_library.codec import verdict_json
from kernel_library.verdict import Measurement, Passed, Record, Rejected, Verdict


def show_verdict(verdict: Verdict, name: str, as_json: bool = False) -> None:
    """Print a verdict whole."""
    if as_json:
        out.print_json(verdict_json.dump_json(verdict).decode())
        return
    match verdict:
        case Passed():
            out.print(f"[bold green]passed[/] {escaped(name)}: {headline(verdict)}")
            if verdict.measured:
                out.print(times(verdict.measured))
            out.print(errors(verdict))
        case Rejected():
            where = f" at {verdict.at}" if verdict.at else ""
            out.print(
                f"[bold red]rejected[/] {escaped(name)} at stage [bold]{verdict.stage}[/]{where}"
            )
            out.print(escaped(verdict.reason), highlight=False, soft_wrap=True)
    out.print(evidence(verdict.record), highlight=False, soft_wrap=True)
    if verdict.record.checks:
        checks = "; ".join(verdict.record.checks)
        out.print(f"checks: {escaped(checks)}", highlight=False, soft_wrap=True)


def headline(verdict: Passed) -> str:
    """The one number, or why there is none."""
    if not verdict.measured:
        return "right on everything that was tried; not timed, for there is no GPU here"
    worst = verdict.worst
    tail = f", worst {worst.of_roofline:.0%} at {worst.at}" if worst else ""
    return f"{verdict.of_roofline:.0%} of the roofline (geometric mean){tail}"


def times(measured: Iterable[Measurement]) -> Table:
    """A row for each workload, a column for each baseline."""
    rows = list(measured)
    names = list(dict.fromkeys(name for m in rows for name in m.baselines))
    table = Table("workload", "time µs", "20–80 %", "floor µs", "bound", "of roofline", *names)
    for m in rows:
        spread = f"{m.low_us:.1f}–{m.high_us:.1f}"
        others = [beside(m, n) if n in m.baselines else "" for n in names]
        share = f"{m.of_roofline:.0%}"
        table.add_row(
            str(m.at), f"{m.time_us:.1f}", spread, f"{m.floor_us:.1f}", m.bound, share, *others
        )
    return table


def beside(m: Measurement, name: str) -> str:
    """A baseline's time, how many times faster the kernel is, and whether that is a difference."""
    told = f"{m.baselines[name]:.1f} ({m.speedup(name):.2f}x)"
    match m.versus[name].outcome:
        case "win":
            return told
        case "tie":
            return f"[dim]{told} tie[/]"
        case "loss":
            return f"[bold red]{told} loss[/]"


def errors(verdict: Passed) -> Table:
    """A row for each workload: the error against float64, beside torch's own."""
    table = Table("workload", "cases", "error", "torch's own")
    for c in verdict.checked:
        table.add_row(str(c.at), str(c.cases), f"{c.error:.1e}", f"{c.torch_error:.1e}")
    return table


def evidence(record: Record) -> str:
    """What the verdict is worth, in a line."""
    compiled = (
        f"compiled for {', '.join(record.compiled_for)}" if record.compiled_for else "not compiled"
    )
    device = f" on {record.device}" if record.device else ""
    versions = ", ".join(
        f"{k} {v}" for k, v in record.versions.items() if k in ("torch", "triton", "driver")
    )
    within = f" ({', '.join(record.confinement)})" if record.confinement else ""
    sandbox = f"sandbox: {record.sandbox}{within}"
    return f"evidence: {record.evidence}{device}; {compiled}; {sandbox}; {versions}"
