"""How a command ends: 0 done, 1 rejected or no winner, 2 the asker's fault, 3 ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

DONE, REJECTED, USAGE, OURS = 0, 1, 2, 3

#: Results go to standard output; everything said about them, to standard error.
out, err = Console(), Console(stderr=True)


def fail(message: str, code: int) -> typer.Exit:
    """Say what is wrong, and give the exit to raise."""
    err.print(f"[bold red]error:[/] {escaped(message)}", highlight=False, soft_wrap=True)
    return typer.Exit(code)


@contextmanager
def exits() -> Iterator[None]:
    """Turn what a command may raise into a message and an exit code."""
    # the evaluator's errors are told by name, so that light commands need not import it
    try:
        yield
    except OSError as error:
        raise fail(str(error), USAGE) from error
    except Exception as error:
        match type(error).__name__:
            case "ProblemError" | "ExportError" | "FormulaError" | "NotFound" | "NotLoopback":
                raise fail(str(error), USAGE) from error
            case "CandidateError":
                raise fail(str(error), REJECTED) from error
            case "LabError" | "StoreError" | "Unavailable" | "LostLease":
                raise fail(f"this is our fault, not yours: {error}", OURS) from error
        raise


def escaped(text: str) -> str:
    """Text that rich must not take for markup."""
    return text.replace("[", "\\[")
