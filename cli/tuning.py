"""`kernelwright tune`: the best setting of each kernel at each of its real sizes, on this GPU."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from cli.exits import REJECTED, USAGE, err, escaped, exits, fail, out, settings

if TYPE_CHECKING:
    from kernel_library.device import Device
    from worker.tuning import Row


def tune(
    ops: Annotated[list[str] | None, typer.Argument(help="Seeds by name; all without any.")] = None,
    out_dir: Annotated[Path, typer.Option("--out", help="Where the tables go.")] = Path(
        "seeds/tuned"
    ),
    only: Annotated[str, typer.Option(help="Only workloads whose name has this in it.")] = "",
    jobs: Annotated[int, typer.Option(help="Settings that are looked at side by side.")] = 0,
) -> None:
    """Time every setting of a kernel shortly and the best at length; write a table for each op.

    With --only, a table's other rows stay, if they are of the same versions.
    """
    import seeds
    from evaluator.cores import cores
    from kernel_library.unit import discover
    from worker.judging import open_judge
    from worker.tuning import at_some, by_judge, tuned

    units = {unit.op.name: unit for unit in discover(seeds)}
    unknown = sorted(set(ops or ()) - units.keys())
    if unknown:
        raise fail(f"there is no seed {unknown[0]!r}; there are {', '.join(sorted(units))}", USAGE)
    rows: list[tuple[str, Row]] = []
    with exits(), open_judge(settings().device_path) as judge:
        if judge.device is None:
            raise fail("no CUDA GPU is visible here, so there is nothing to tune for", USAGE)
        for name in ops or sorted(units):
            unit, found = at_some(units[name], only), []
            for row in tuned(unit, by_judge(unit, judge, judge.device), jobs or cores()):
                err.print(f"{name} {row.at}: {_told(row)}", highlight=False, soft_wrap=True)
                found.append(row)
            _write(out_dir / f"{name}.json", judge.device, found, bool(only))
            rows += [(name, row) for row in found]
    out.print(_table(rows))
    err.print(f"wrote a table for each op to {out_dir}", highlight=False, soft_wrap=True)
    if not all(row.best for _, row in rows):
        raise typer.Exit(REJECTED)


def _told(row: Row) -> str:
    """The best time, and why settings were refused."""
    told = f"{row.best.time_us:.2f} µs" if row.best else "nothing runs"
    why = [f"{count} x {escaped(reason)}" for reason, count in row.refused.items()]
    return "; ".join([f"{told}, {row.tried} settings tried", *why])


def _write(path: Path, device: Device, rows: Sequence[Row], some: bool) -> None:
    """Put this device's table in the file, beside those of others; `some` rows beside the rest."""
    from worker.tuning import table

    provenance = {
        "date": datetime.now(UTC).date().isoformat(),
        **device.software,
        "command": "kernelwright tune",
    }
    known = json.loads(path.read_text()) if path.exists() else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    made = table(device, rows, provenance, known.get(device.name) if some else None)
    path.write_text(json.dumps(known | made, indent=1) + "\n")


def _table(rows: Sequence[tuple[str, Row]]) -> Table:
    shown = Table("kernel", "workload", "default µs", "best µs", "of roofline", "tried", "refused")
    for name, row in rows:
        default = f"{row.default.time_us:.2f}" if row.default else "–"
        best = f"{row.best.time_us:.2f}" if row.best else "–"
        share = f"{row.best.of_roofline:.0%}" if row.best else "–"
        refused = str(sum(row.refused.values()))
        shown.add_row(name, str(row.at), default, best, share, str(row.tried), refused)
    return shown
