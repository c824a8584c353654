"""What may be asked for, checked as far as it can be without running any of it."""

from __future__ import annotations

import ast
import json
from collections.abc import Collection
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from api.problems import Problem
from api.settings import ApiSettings
from kernel_library.export.names import ExportError, check_package
from kernel_library.store.views import KernelView, in_quarantine


class Asked(BaseModel):
    """A request body: unknown fields are refused, so that a misspelt one is not ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class BudgetAsked(Asked):
    """What a job may spend; a field left out is the worker's to choose."""

    seconds: Annotated[float, Field(gt=0, le=86_400)] | None = None
    attempts: Annotated[int, Field(ge=1, le=1_000)] | None = None
    tokens: Annotated[int, Field(ge=0, le=20_000_000)] | None = None
    dollars: Annotated[float, Field(ge=0, le=1_000)] | None = None
    reserve: Annotated[float, Field(ge=0, lt=1)] | None = None


class JobAsked(Asked):
    """A problem: a `.py` unit or KernelBench file, or a FlashInfer definition as `.json`.

    `extra` is the text of the definition's workloads (JSON lines), `candidate` the source of a
    kernel to start from.
    """

    filename: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][\w.-]*\.(py|json)$", max_length=128)]
    source: Annotated[str, Field(min_length=1)]
    extra: str | None = None
    budget: BudgetAsked = BudgetAsked()
    candidate: str | None = None
    llm: bool = True

    @property
    def name(self) -> str:
        """What to call the job: the file's name without its suffix."""
        return PurePosixPath(self.filename).stem

    def record(self) -> dict[str, object]:
        """The request as the store keeps it: only what was given."""
        return self.model_dump(mode="json", exclude_none=True)


class ReviewAsked(Asked):
    """A person's decision on a candidate."""

    decision: Literal["accept", "reject"]
    note: Annotated[str, Field(max_length=4_000)]
    reviewer: Annotated[str, Field(min_length=1, max_length=80)]


class ExportAsked(Asked):
    """Kernels of the library, by name, to be built into one package."""

    kernels: Annotated[list[str], Field(min_length=1, max_length=100)]
    package: str
    format: Literal["wheel"] = "wheel"


def check_export(asked: ExportAsked, library: Collection[KernelView]) -> None:
    """Raises a `Problem` where a package may not be called that, or a kernel may not be had."""
    missing = sorted(set(asked.kernels) - {kernel.name for kernel in library})
    if missing:
        raise Problem("unknown-kernel", f"Not in the library: {', '.join(missing)}.")
    barred = [in_quarantine(k) for k in library if k.name in asked.kernels and k.quarantine]
    if barred:
        raise Problem("in-quarantine", f"{'; '.join(barred)}.")
    try:
        check_package(asked.package)
    except ExportError as error:
        where = {"pointer": "/package", "detail": str(error)}
        raise Problem("invalid", str(error), [where]) from None


def check_job(asked: JobAsked, settings: ApiSettings) -> None:
    """Raises a `Problem` where a text is too long, no Python, or no definition. Runs nothing."""
    texts = {"source": asked.source, "extra": asked.extra, "candidate": asked.candidate}
    for name, text in texts.items():
        if text is not None and len(text.encode("utf-8", "replace")) > settings.max_source:
            raise Problem("too-large", f"`{name}` may have at most {settings.max_source} bytes.")
    if asked.filename.endswith(".json"):
        _check_definition(asked.source)
        _check_workloads(asked.extra or "")
    else:
        check_python("source", asked.source)
    if asked.candidate is not None:
        check_python("candidate", asked.candidate)


def check_python(name: str, source: str) -> None:
    """Raises a `Problem` that names the line where the text stops being Python."""
    try:
        ast.parse(source)
    except SyntaxError as error:
        detail = f"`{name}`, line {error.lineno}: {error.msg}"
        where = {"pointer": f"/{name}", "line": error.lineno, "detail": error.msg}
        raise Problem("syntax-error", detail, [where]) from None
    except (ValueError, RecursionError, MemoryError) as error:
        # null bytes and half surrogates; nesting deeper than CPython's own parser takes
        detail = f"`{name}` cannot be parsed: {error or 'it is nested too deeply'}"
        raise Problem("syntax-error", detail, [{"pointer": f"/{name}", "detail": detail}]) from None


def _check_definition(source: str) -> None:
    document = _json("source", source)
    if not isinstance(document, dict) or not isinstance(document.get("name"), str):
        raise Problem("bad-definition", "`source` must be one JSON object with a `name`.")


def _check_workloads(lines: str) -> None:
    for number, line in enumerate(lines.splitlines(), 1):
        if line.strip() and not isinstance(_json(f"extra, line {number}", line), dict):
            raise Problem("bad-definition", f"extra, line {number}: not a JSON object.")


def _json(where: str, text: str) -> object:
    try:
        document: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Problem("bad-definition", f"{where}: not JSON: {error}") from None
    return document
