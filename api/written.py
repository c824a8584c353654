"""What people write into forms, read as the requests that the JSON interface takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from pydantic import ValidationError

from api.forms import Fields, only
from api.problems import Problem
from api.requests import ExportAsked, JobAsked, ReviewAsked
from kernel_library.job import Budget


@dataclass(frozen=True, slots=True)
class JobForm:
    """The submit form as it was filled in; `minutes` is what the job may take."""

    filename: str = ""
    source: str = ""
    extra: str = ""
    candidate: str = ""
    minutes: str = f"{Budget().seconds / 60:g}"
    llm: bool = True

    @classmethod
    def of(cls, fields: Fields) -> Self:
        """The fields, with the line ends that a browser makes turned back into Python's."""
        texts = {
            name: only(fields, name).replace("\r\n", "\n")
            for name in ("filename", "source", "extra", "candidate", "minutes")
        }
        return cls(**texts, llm="llm" in fields)

    def asked(self) -> JobAsked:
        """The request. Raises a `Problem` that names the field at fault."""
        try:
            fields: dict[str, object] = {
                "filename": self.filename,
                "source": self.source,
                "extra": self.extra or None,
                "candidate": self.candidate or None,
                "budget": {"seconds": 60 * float(self.minutes)},
                "llm": self.llm,
            }
            return JobAsked.model_validate(fields)
        except ValidationError as error:
            wrong = ", ".join(".".join(map(str, each["loc"])) for each in error.errors())
            raise Problem("invalid", f"Mend: {wrong}.") from None
        except ValueError:
            raise Problem("invalid", "Minutes must be a number.") from None


def decision_of(form: Fields) -> tuple[ReviewAsked, int]:
    """A review form's decision, and the version of the candidate that it speaks of."""
    fields = {name: only(form, name) for name in ("decision", "note", "reviewer")}
    try:
        return ReviewAsked.model_validate(fields), int(only(form, "version"))
    except ValueError:
        detail = "Give your name, a note of at most 4000 characters, and accept or reject."
        raise Problem("invalid", detail) from None


def export_of(form: Fields) -> ExportAsked:
    """What an export form asks for."""
    fields = {"kernels": form.get("kernels", []), "package": only(form, "package")}
    try:
        return ExportAsked.model_validate(fields)
    except ValidationError:
        detail = "Choose at least one kernel, and name the package."
        raise Problem("invalid", detail) from None
