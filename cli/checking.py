"""`kernelwright check`: is it right, and why not."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.exits import REJECTED, USAGE, err, exits, fail, settings, text_of
from cli.render import show_verdict

if TYPE_CHECKING:
    from kernel_library.verdict import Verdict
    from worker.judging import Judge

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
    with exits():
        device_path = settings().device_path
        source = text_of(file)
        extra = text_of(workloads) if workloads else None
        kernel = text_of(candidate) if candidate else None
        # the evaluator imports torch, which takes seconds: only commands that judge wait for it
        with err.status("starting the judge") as said:
            from worker.judging import open_judge

            with open_judge(device_path) as judge:
                name, verdict = judged(judge, (file.name, source, extra), kernel, said.update)
    show_verdict(verdict, name, json)
    if verdict.kind == "rejected":
        raise typer.Exit(REJECTED)


def judged(
    judge: Judge,
    problem: tuple[str, str, str | None],
    kernel: str | None = None,
    say: Callable[[str], None] = lambda said: None,
) -> tuple[str, Verdict]:
    """The op's name, and the verdict on the kernel, or on the one that the problem holds.

    `problem` is a file's name, its text, and a definition's workloads. Raises ProblemError.
    """
    from evaluator.intake import read
    from worker.autotuned import each_setting, judged_at_each
    from worker.optimizing import submitted

    say("reading the problem")
    name, source, extra = problem
    found = read(name, source, judge.rooms.recorder, extra=extra)
    candidate = found.candidate if kernel is None else submitted(found.op, kernel)
    if candidate is None:
        raise fail(f"{name} holds no kernel to judge: give one with --candidate", USAGE)
    judge.admit(found.op)
    say("judging: recording, then running it on hidden sizes and values")
    each = each_setting(found.op, candidate, judge.rooms.recorder)
    verdict = judged_at_each(found.op, each, judge)
    if kernel is None:
        verdict = by_lines_of(source, verdict, candidate.source)
    return found.op.name, verdict


def by_lines_of(file: str, verdict: Verdict, half: str) -> Verdict:
    """The verdict on a unit's kernel half, whose lines a person knows by the file."""
    from kernel_library.unit import line_in
    from kernel_library.verdict import Rejected

    if not isinstance(verdict, Rejected):
        return verdict

    def there(told: re.Match[str]) -> str:
        return f"line {line_in(file, half, int(told[1]))}"

    return replace(verdict, reason=re.sub(r"^line (\d+)(?=: )", there, verdict.reason))
