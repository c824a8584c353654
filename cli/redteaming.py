"""`kernelwright redteam`: can the judge on this machine be fooled?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from cli.exits import REJECTED, USAGE, err, escaped, exits, fail, out, settings

if TYPE_CHECKING:
    from collections import Counter

    from evaluator.redteam import Outcome, Score


def redteam(
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    only: Annotated[str, typer.Option(help="Only trials whose name has this in it.")] = "",
    deep: Annotated[
        bool, typer.Option("--deep", help="Judge all as deeply as what enters the library.")
    ] = False,
) -> None:
    """Judge cheats, wrong kernels and honest ones of unusual style, and score the judge."""
    from evaluator.redteam import all_well, run, tally, trials
    from worker.judging import open_judge

    chosen = trials(only)
    if not chosen:
        raise fail(f"no trial has {only!r} in its name", USAGE)
    with exits(), open_judge(settings().device_path) as judge:
        way = judge.quick.record_of.evidence
        outcomes: list[Outcome] = []
        by, together = judge.deeply if deep else judge, settings().side_by_side
        for outcome in run(chosen, by, way, judge.deeply, together):
            outcomes.append(outcome)
            _say(outcome, f"{len(outcomes)}/{len(chosen)}")
    if json:
        out.print_json(data=[_plain(outcome, way) for outcome in outcomes])
    else:
        out.print(_table(tally(outcomes), way))
        _missing(outcomes)
    if not all_well(outcomes):
        raise typer.Exit(REJECTED)


def _say(outcome: Outcome, progress: str) -> None:
    """One line for each trial, in red where it did not come out as it must."""
    well = outcome.score in ("as expected", "not run")
    colour = "dim" if outcome.score == "not run" else "green" if well else "bold red"
    due = "" if well else f" (due: {', '.join(_all_due(outcome))})"
    err.print(f"{progress} [{colour}]{outcome.score}[/] {outcome.trial}: {outcome.got}{due}")
    if not well and outcome.reason:
        err.print(f"    {escaped(outcome.reason)}", highlight=False, soft_wrap=True)


def _all_due(outcome: Outcome) -> list[str]:
    return sorted({stage for stages in outcome.trial.due.values() for stage in stages})


def _plain(outcome: Outcome, way: str) -> dict[str, object]:
    trial = outcome.trial
    due = next(stages for name, stages in trial.due.items() if name == way)
    return {
        "trial": str(trial), "row": trial.row, "what": trial.what, "evidence": way,
        "due": list(due), "got": outcome.got, "score": outcome.score, "reason": outcome.reason,
    }  # fmt: skip


def _table(counts: Mapping[str, Counter[Score]], way: str) -> Table:
    from evaluator.redteam.score import SCORES

    table = Table("bank", *SCORES, title=f"the judge, {way}")
    for bank, scores in counts.items():
        table.add_row(bank, *(str(scores[score]) for score in SCORES))
    return table


def _missing(outcomes: list[Outcome]) -> None:
    """Name what was not run, and why."""
    left = [outcome for outcome in outcomes if outcome.score == "not run"]
    for outcome in left:
        out.print(f"not run: {outcome.trial}: {outcome.reason}", highlight=False)
