"""`kernelwright scoreboard`: the whole library against every baseline here."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cli.exits import REJECTED, USAGE, err, exits, fail, settings
from kernel_library.verdict import Rejected


def scoreboard(
    out_file: Annotated[Path, typer.Option("--out", help="The page to write.")] = Path(
        "docs/scoreboard.md"
    ),
    ops: Annotated[str, typer.Option(help="Only these seeds, parted by commas.")] = "",
) -> None:
    """Judge and time every seed beside every baseline; keep a page, its picture and its JSON.

    What the JSON holds of other seeds on this device, at the same versions, stays; so one process
    for each GPU may fill the same page.
    """
    from evaluator.errors import LabError
    from evaluator.evaluate import evaluate
    from worker import scoreboard as boards
    from worker.judging import open_judge
    from worker.retrieval import seed_kernels

    wanted = {name for name in ops.split(",") if name}
    with exits(), open_judge(settings().device_path) as judge:
        if judge.device is None:
            raise fail("no CUDA GPU is visible here, and a time from nowhere is no time", USAGE)
        known = [k for k in seed_kernels(judge.device) if not wanted or k.op.name in wanted]
        by = partial(evaluate, lab=judge.full)
        failed, rejected = [], False
        for number, (name, verdict) in enumerate(
            boards.judged(known, by, settings().side_by_side), 1
        ):
            told = "failed" if isinstance(verdict, LabError) else verdict.kind
            err.print(f"{number} of {len(known)}: {name} {told}", highlight=False)
            if isinstance(verdict, LabError):
                failed.append(f"{name}: {verdict}")
                continue
            date = datetime.now(UTC).date().isoformat()
            boards.add(boards.Entry(name, verdict, date), judge.device, out_file)
            rejected |= isinstance(verdict, Rejected)
        if failed:
            raise LabError("; ".join(failed))
    err.print(f"wrote {out_file} and its .json", highlight=False, soft_wrap=True)
    if rejected:
        raise typer.Exit(REJECTED)
