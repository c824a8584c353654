"""What the pages say, worked out before any HTML is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from api.chart import Point
from api.text import DiffLine, diff, percent
from kernel_library.job import Attempt
from kernel_library.spec import Workload
from kernel_library.store import Store
from kernel_library.store.errors import NotFound
from kernel_library.store.views import CandidateView, EventView
from kernel_library.verdict import Checked, Measurement, Passed, Record, Rejected, Verdict


@dataclass(frozen=True, slots=True)
class Row:
    """One workload of a verdict: its error, its time, or both."""

    at: Workload
    checked: Checked | None
    measured: Measurement | None

    @property
    def sizes(self) -> str:
        """The axes: `M=8192 N=4096`; a list's sizes are joined by +."""
        return " ".join(
            f"{axis}={'+'.join(map(str, size)) if isinstance(size, tuple) else size}"
            for axis, size in self.at.dims.items()
        )

    @property
    def options(self) -> str:
        """The options that are not at their default: `causal=True`."""
        return " ".join(f"{name}={value}" for name, value in self.at.options.items())

    @property
    def dtypes(self) -> str:
        """The dtypes: `bfloat16`, or `T bfloat16, S float32` where there are several."""
        many = len(self.at.dtypes) > 1
        return ", ".join(f"{n} {d}" if many else d for n, d in self.at.dtypes.items())


@dataclass(frozen=True, slots=True)
class VerdictPage:
    """A verdict as a reviewer reads it: the headline, what it rests on, and every workload."""

    verdict: Verdict
    headline: str
    summary: str
    rows: tuple[Row, ...]
    baselines: tuple[str, ...]

    @property
    def tone(self) -> str:
        """`passed` or `rejected`, for the style sheet; the words say it too."""
        return self.verdict.kind

    @property
    def record(self) -> Record:
        """How the verdict came about."""
        return self.verdict.record


def verdict_page(verdict: Verdict) -> VerdictPage:
    """The page model of a verdict."""
    match verdict:
        case Rejected(stage=stage, reason=reason, at=at):
            rows = (Row(at, None, None),) if at else ()
            return VerdictPage(verdict, f"Rejected at {stage}", reason, rows, ())
        case Passed(measured=measured):
            names = dict.fromkeys(name for m in measured for name in m.baselines)
            share = (
                f": {percent(verdict.of_roofline)} of the roofline" if measured else ", not timed"
            )
            return VerdictPage(
                verdict, f"Passed{share}", _summary(verdict), _rows(verdict), tuple(names)
            )


def _summary(verdict: Passed) -> str:
    right = f"Right on {len(verdict.checked)} workloads ({_cases(verdict)} cases)."
    worst = verdict.worst
    if worst is None:
        return f"{right} {not_timed(verdict.record)}"
    return (
        f"{right} Geometric mean over {len(verdict.measured)} timed workloads on "
        f"{verdict.record.device or 'an unnamed device'}; "
        f"the worst is {percent(worst.of_roofline)}, at {worst.at}."
    )


def _cases(verdict: Passed) -> int:
    return sum(checked.cases for checked in verdict.checked)


def not_timed(record: Record) -> str:
    """Why a verdict has no times."""
    if record.evidence == "interpreted":
        compiled = (
            f", compiled for {' and '.join(record.compiled_for)}" if record.compiled_for else ""
        )
        return f"Not timed: interpreted on a CPU{compiled}."
    return f"Not timed: replayed on {record.device or 'an unnamed device'} for correctness alone."


def _rows(verdict: Passed) -> tuple[Row, ...]:
    """Every workload once, the timed ones first."""
    checked = {str(c.at): c for c in verdict.checked}
    timed = [Row(m.at, checked.pop(str(m.at), None), m) for m in verdict.measured]
    return (*timed, *(Row(c.at, c, None) for c in checked.values()))


def point(index: int, attempt: Attempt) -> Point:
    """An attempt on the progress chart; its name holds no word of the candidate's."""
    match attempt.verdict:
        case Passed(measured=measured) if measured:
            share = attempt.verdict.of_roofline
            return Point("timed", share, f"attempt {index + 1}: {percent(share)} of the roofline")
        case Passed():
            return Point("untimed", 0.0, f"attempt {index + 1}: passed, not timed")
        case Rejected(stage=stage):
            return Point("rejected", 0.0, f"attempt {index + 1}: rejected at {stage}")


def result_of(verdict: Verdict) -> str:
    """A verdict in a few words: `83.4 %`, `passed, not timed` or `rejected at correct`."""
    match verdict:
        case Passed(measured=measured):
            return percent(verdict.of_roofline) if measured else "passed, not timed"
        case Rejected(stage=stage):
            return f"rejected at {stage}"


def why_not_acceptable(verdict: Verdict) -> str:
    """What stands against accepting, "" for nothing; the store has the last word."""
    if isinstance(verdict, Rejected):
        return "A rejected candidate cannot enter the library."
    if verdict.record.sandbox != "namespaces":
        return f"Judged in a sandbox of level “{verdict.record.sandbox}”: only “namespaces” counts."
    if verdict.record.evidence == "replayed" and not verdict.record.is_deep:
        return "Judged quickly, as no winner is: submit it as a candidate, in a job of one attempt."
    return ""


@dataclass(frozen=True, slots=True)
class ParentDiff:
    """How a candidate differs from what it was made of; no lines where they are too many."""

    parent: str
    href: str | None
    lines: tuple[DiffLine, ...] | None
    note: str = ""


def parent_diff(store: Store, view: CandidateView) -> ParentDiff | None:
    """The diff to the parent: another candidate, or a kernel of the library. None for no parent."""
    candidate = view.attempt.candidate
    if candidate.parent is None:
        return None
    found = _parent(store, candidate.parent, view.job_id)
    if found is None:
        return ParentDiff(candidate.parent, None, None, "The parent is not in this store.")
    source, href = found
    lines = diff(source, candidate.source)
    note = "" if lines else "The source is the same; only the settings differ."
    note = "Too long to be compared here." if lines is None else note
    return ParentDiff(candidate.parent, href, lines, note)


def _parent(store: Store, digest: str, job_id: str) -> tuple[str, str] | None:
    for job in (job_id, None):
        try:
            view = store.candidate(digest, job)
        except NotFound:
            continue
        return view.attempt.candidate.source, f"/candidates/{digest}?job={view.job_id}"
    for kernel in store.kernels():
        if kernel.candidate_digest == digest:
            return kernel.candidate.source, f"/kernels/{kernel.name}"
    return None


def told(event: EventView) -> str:
    """An event in one line: the sentence that it holds, then the rest of its data by name."""
    data = dict(event.data)
    if event.kind == "attempt":
        return _told_attempt(data)
    data.pop("problem", None)  # the page shows it whole, above the log
    if "best" in data:
        data["best"] = str(data["best"] or "")[:12]
    sentence = str(data.pop("why", None) or data.pop("text", None) or "")
    rest = ", ".join(
        f"{name.replace('_', ' ')} {_short(data[name])}" for name in data if data[name]
    )
    return f"{sentence} ({rest})" if sentence and rest else sentence or rest


def _told_attempt(data: dict[str, object]) -> str:
    share = data.get("of_roofline")
    if "stage" in data:
        result = f"rejected at {data['stage']}: {data.get('reason', '')}"
    elif isinstance(share, float):
        result = f"passed, {percent(share)} of the roofline"
    else:
        result = "passed, not timed"
    number = data.get("index")
    return f"{number + 1 if isinstance(number, int) else ''} by {data.get('proposer')}: {result}"


def _short(value: object) -> str:
    if isinstance(value, list):
        return _cut(", ".join(map(str, value)))
    return _cut(f"{value:.4g}" if isinstance(value, float) else str(value))


def _cut(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}…"


def points(views: Sequence[CandidateView]) -> list[Point]:
    """The attempts of a job for its chart, in order."""
    return [point(view.index, view.attempt) for view in views]
