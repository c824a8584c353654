"""How a command ends: 0 done, 1 rejected or no winner, 2 the asker's fault, 3 ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from kernel_library.job import OUR_FAILURE

if TYPE_CHECKING:
    from worker.settings import Settings

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
        raise fail(_told(error), USAGE) from error
    except Exception as error:
        match type(error).__name__:
            case "ProblemError" | "ExportError" | "FormulaError" | "NotFound" | "NotLoopback":
                raise fail(str(error), USAGE) from error
            case "CandidateError":
                raise fail(str(error), REJECTED) from error
            case "LabError" | "StoreError" | "Unavailable" | "LostLease":
                raise fail(f"this is our fault, not yours: {error}", OURS) from error
        raise


def _told(error: OSError) -> str:
    """What the system refused, and of which file."""
    said = error.strerror or str(error)
    return f"{error.filename}: {said}" if error.filename else said


def settings(**given: object) -> Settings:
    """The settings of this environment, and these. Raises Exit naming what is wrong with them."""
    from pydantic import ValidationError

    from worker.settings import Settings

    try:
        return Settings(**given)  # type: ignore[arg-type]
    except ValidationError as error:
        # never the value: it may be a secret
        first = error.errors()[0]
        name = "".join(f"KERNELWRIGHT_{part}".upper() for part in first["loc"]) or "settings"
        raise fail(f"{name}: {first['msg'].removeprefix('Value error, ')}", USAGE) from None


def text_of(path: Path) -> str:
    """A file's text; what is not UTF-8 in it shows as such. Raises OSError."""
    return path.read_text(encoding="utf-8", errors="replace")


def failed(problem: Mapping[str, object]) -> typer.Exit:
    """Tell a failed job's problem; the exit says whose fault it was."""
    said = ": ".join(str(problem[part]) for part in ("where", "detail") if problem.get(part))
    return fail(said, OURS if problem.get("title") == OUR_FAILURE else USAGE)


def escaped(text: str) -> str:
    """Text that rich must not take for markup."""
    return text.replace("[", "\\[")
