"""`kernelwright bench`: a kernel beside everything else that could do its work here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.exits import REJECTED, USAGE, err, exits, fail, settings, text_of
from cli.render import show_verdict

if TYPE_CHECKING:
    from worker.judging import Judge
    from worker.retrieval import Known


def bench(
    op: Annotated[str, typer.Argument(help="A seed by name, or a unit file.")],
    against: Annotated[str, typer.Option(help="Baselines, parted by commas.")] = "all",
    only: Annotated[str, typer.Option(help="Only workloads whose name has this in it.")] = "",
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Judge a kernel and time it in the same run as the baselines, losses included."""
    from evaluator.evaluate import evaluate
    from kernel_library.verdict import Rejected
    from worker.judging import has_gpu, open_judge

    arms = tuple(name for name in against.split(",") if name)
    if not has_gpu():
        raise fail("no CUDA GPU is visible here, so there is nothing to time on", USAGE)
    with exits(), open_judge(settings().device_path, arms) as judge:
        known = _known(op, judge)
        kept = [at for at in known.op.workloads if at.role == "check" or only in str(at)]
        with err.status(f"timing {known.op.name} against {against}"):
            verdict = evaluate(
                replace(known.op, workloads=tuple(kept)), known.candidate, judge.full
            )
    show_verdict(verdict, known.op.name, json)
    if isinstance(verdict, Rejected):
        raise typer.Exit(REJECTED)


def _known(op: str, judge: Judge) -> Known:
    from evaluator.intake import read
    from worker.retrieval import Known, seed_kernels

    if op.endswith(".py"):
        problem = read(Path(op).name, text_of(Path(op)), judge.rooms.recorder)
        if problem.candidate is None:
            raise fail(f"{op} holds no kernel: bench takes a unit file", USAGE)
        return Known(problem.op, problem.candidate)
    found = {known.op.name: known for known in seed_kernels(judge.device)}
    if op not in found:
        raise fail(f"there is no seed {op!r}; there are {', '.join(sorted(found))}", USAGE)
    return found[op]
