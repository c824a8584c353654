"""What the store gives out: records as plain, frozen data. All times are aware and in UTC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from kernel_library.candidate import Candidate
from kernel_library.job import Attempt, Outcome, Status
from kernel_library.spec import OpSpec
from kernel_library.verdict import Verdict

JobKind = Literal["optimize", "export"]
EventKind = Literal[
    "queued", "started", "problem_read", "note", "attempt", "reviewed",
    "finished", "failed", "cancelled", "artifact",
]  # fmt: skip
Decision = Literal["accept", "reject"]
Origin = Literal["seed", "job"]
#: A JSON object whose fields the store does not know.
Json = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as it stands. `version` is the sequence number of its last event.

    `request` is what was submitted. `op` is there once the problem was read, but not in a list of
    jobs. `best` is the digest of the best candidate so far, `attempts` how many were judged.
    `problem` (`title`, `detail`, `where`) is there if the job failed. `artifact` is the SHA-256 of
    an export's wheel.
    """

    id: str
    kind: JobKind
    name: str
    status: Status
    outcome: Outcome | None
    why: str
    request: Json
    created: datetime
    started: datetime | None
    finished: datetime | None
    version: int
    best: str | None
    attempts: int
    cancel_requested: bool
    problem: Json | None
    op: OpSpec | None
    artifact: str | None
    filename: str | None


@dataclass(frozen=True, slots=True)
class EventView:
    """One thing that happened to a job; `seq` counts from 1 within the job, without gaps."""

    seq: int
    at: datetime
    kind: EventKind
    data: Json


@dataclass(frozen=True, slots=True)
class ReviewView:
    """What a person decided of a candidate, and why."""

    decision: Decision
    note: str
    reviewer: str
    at: datetime


@dataclass(frozen=True, slots=True)
class CandidateView:
    """The `index`-th attempt of a job, from 0, and its newest review. `version` is for If-Match."""

    digest: str
    job_id: str
    index: int
    attempt: Attempt
    review: ReviewView | None
    version: int


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Why a kernel is neither proposed nor exported: it was judged again, and rejected."""

    reason: str
    at: datetime


@dataclass(frozen=True, slots=True)
class KernelView:
    """A version of a kernel in the library; versions count from 1, and their source never changes.

    `verdict` is the newest, and absent for a seed that was not judged on this machine; where it
    came later and is a rejection, `quarantine` says so. `backward` names the kernel that is this
    one's gradient. `job_id` is the job that found it.
    """

    name: str
    version: int
    op: OpSpec
    candidate: Candidate
    verdict: Verdict | None
    origin: Origin
    doc: str
    backward: str | None
    candidate_digest: str
    note: str
    at: datetime
    job_id: str | None = None
    quarantine: Quarantine | None = None


def in_quarantine(kernel: KernelView) -> str:
    """Why a kernel that is in quarantine cannot be had, and what to do; nothing for another."""
    if kernel.quarantine is None:
        return ""
    return (
        f"{kernel.name} is in quarantine since {kernel.quarantine.at:%Y-%m-%d}"
        f" ({kernel.quarantine.reason}): accept a better version,"
        f" or lift it with `kernelwright library verify {kernel.name}` once it passes"
    )


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker's last sign of life, and the job that it was doing."""

    name: str
    queue: str
    seen: datetime
    doing: str | None
    facts: Json


@dataclass(frozen=True, slots=True)
class Lease:
    """A job that is one worker's until a moment. `token` counts claims, and fences the writes."""

    job_id: str
    owner: str
    token: int
    until: datetime
