"""`kernelwright check`: is it right, and why not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.exits import REJECTED, USAGE, err, exits, fail
from cli.render import show_verdict

Problem = Annotated[Path, typer.Argument(help="A unit, a KernelBench-style file, or a definition.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def check(
    file: Problem,
    candidate: Annotated[
        Path | None, typer.Option(help="A kernel to judge against the problem in FILE.")
    ] = None,
    workloads: Annotated[
        Path | None, typer.Option(help="The workloads (JSON lines) of a FlashInfer definition.")
    ] = None,
    json: Json = False,
) -> None:
    """Judge a unit, or a candidate against a problem: right or not, and why."""
    # the evaluator imports torch, which takes seconds: only commands that judge wait for it
    from evaluator.intake import read
    from kernel_library.verdict import Rejected
    from worker.judging import open_judge
    from worker.optimizing import submitted
    from worker.settings import Settings

    with exits():
        source = file.read_text(encoding="utf-8", errors="replace")
        extra = workloads.read_text() if workloads else None
        with open_judge(Settings().device_path) as judge, err.status("reading the problem") as said:
            problem = read(file.name, source, judge.rooms.recorder, extra=extra)
            kernel = problem.candidate
            if candidate is not None:
                kernel = submitted(problem.op, candidate.read_text())
            if kernel is None:
                raise fail("there is no kernel to judge: give one with --candidate", USAGE)
            said.update("judging: recording, then running it on hidden sizes and values")
            verdict = judge(problem.op, kernel)
    show_verdict(verdict, problem.op.name, json)
    if isinstance(verdict, Rejected):
        raise typer.Exit(REJECTED)
