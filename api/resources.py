"""The store's records as JSON: what each resource of `/v1` looks like."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Generic, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from kernel_library.candidate import Candidate
from kernel_library.job import Outcome, Status, Usage
from kernel_library.spec import OpSpec
from kernel_library.store.views import (
    CandidateView,
    EventView,
    JobView,
    KernelView,
    Quarantine,
    ReviewView,
    WorkerView,
)
from kernel_library.verdict import Passed, Rejected, Verdict

T = TypeVar("T")


class Resource(BaseModel):
    """A record as it travels; read straight from the store's dataclass."""

    model_config = ConfigDict(from_attributes=True, frozen=True)


class JobSummary(Resource):
    """A job in a list: where it is in its life (`status`), and what it found (`outcome`)."""

    id: str
    kind: str
    name: str
    status: Status
    outcome: Outcome | None
    why: str
    created: datetime
    started: datetime | None
    finished: datetime | None
    version: int
    best: str | None
    attempts: int
    cancel_requested: bool
    problem: dict[str, object] | None

    @classmethod
    def of(cls, job: JobView) -> Self:
        """The record's own fields of the same names."""
        return cls.model_validate(job)


class JobResource(JobSummary):
    """A job, and what was asked of it."""

    request: dict[str, object]


class EventResource(Resource):
    """One line of a job's log; `seq` counts from 1 within the job."""

    seq: int
    at: datetime
    kind: str
    data: dict[str, object]

    @classmethod
    def of(cls, event: EventView) -> Self:
        """The record as it is."""
        return cls.model_validate(event)


class ReviewResource(Resource):
    """A person's decision."""

    decision: Literal["accept", "reject"]
    note: str
    reviewer: str
    at: datetime

    @classmethod
    def of(cls, review: ReviewView | None) -> Self | None:
        """The record as it is; a candidate may be undecided."""
        return cls.model_validate(review) if review else None


class CandidateSummary(Resource):
    """A candidate in a list: its verdict in a line. `of_roofline` is absent where nothing was
    timed."""

    digest: str
    job_id: str
    index: int
    verdict: Literal["passed", "rejected"]
    stage: str | None
    reason: str | None
    of_roofline: float | None
    proposer: str
    why: str
    seconds: float
    review: ReviewResource | None
    version: int

    @classmethod
    def of(cls, view: CandidateView) -> Self:
        """The attempt, shortened."""
        attempt, verdict = view.attempt, view.attempt.verdict
        rejected = verdict if isinstance(verdict, Rejected) else None
        return cls(
            digest=view.digest,
            job_id=view.job_id,
            index=view.index,
            verdict=verdict.kind,
            stage=rejected.stage if rejected else None,
            reason=rejected.reason if rejected else None,
            of_roofline=of_roofline(verdict),
            proposer=attempt.candidate.proposer,
            why=attempt.candidate.why,
            seconds=attempt.seconds,
            review=ReviewResource.of(view.review),
            version=view.version,
        )


class CandidateResource(Resource):
    """A candidate whole: its source, the judge's verdict and a person's."""

    digest: str
    job_id: str
    index: int
    candidate: Candidate
    verdict: Annotated[Verdict, Field(discriminator="kind")]
    of_roofline: float | None
    seconds: float
    usage: Usage
    review: ReviewResource | None
    version: int

    @classmethod
    def of(cls, view: CandidateView) -> Self:
        """The attempt and its review side by side."""
        return cls(
            digest=view.digest,
            job_id=view.job_id,
            index=view.index,
            candidate=view.attempt.candidate,
            verdict=view.attempt.verdict,
            of_roofline=of_roofline(view.attempt.verdict),
            seconds=view.attempt.seconds,
            usage=view.attempt.usage,
            review=ReviewResource.of(view.review),
            version=view.version,
        )


class KernelSummary(Resource):
    """A kernel of the library in a list."""

    name: str
    version: int
    origin: Literal["seed", "job"]
    candidate_digest: str
    backward: str | None
    of_roofline: float | None
    judged: bool
    quarantine: Quarantine | None
    note: str
    at: datetime

    @classmethod
    def of(cls, kernel: KernelView) -> Self:
        """The newest version, shortened; `judged` is false for a seed no verdict speaks of."""
        return cls(
            name=kernel.name,
            version=kernel.version,
            origin=kernel.origin,
            candidate_digest=kernel.candidate_digest,
            backward=kernel.backward,
            of_roofline=of_roofline(kernel.verdict) if kernel.verdict else None,
            judged=kernel.verdict is not None,
            quarantine=kernel.quarantine,
            note=kernel.note,
            at=kernel.at,
        )


class KernelResource(KernelSummary):
    """A kernel of the library whole: contract, kernel and verdict."""

    op: OpSpec
    candidate: Candidate
    verdict: Annotated[Verdict, Field(discriminator="kind")] | None
    doc: str

    @classmethod
    def of(cls, kernel: KernelView) -> Self:
        """The summary and what it stands for."""
        return cls(
            **KernelSummary.of(kernel).model_dump(),
            op=kernel.op,
            candidate=kernel.candidate,
            verdict=kernel.verdict,
            doc=kernel.doc,
        )


class ExportResource(Resource):
    """An export; `artifact` is the SHA-256 of the built file once there is one."""

    id: str
    status: Status
    why: str
    created: datetime
    finished: datetime | None
    problem: dict[str, object] | None
    request: dict[str, object]
    artifact: str | None
    filename: str | None

    @classmethod
    def of(cls, job: JobView) -> Self:
        """The export job as its asker sees it."""
        return cls.model_validate(job)


class WorkerResource(Resource):
    """A worker as of its last heartbeat, `seen`; `doing` is a job's id."""

    name: str
    queue: str
    seen: datetime
    doing: str | None
    facts: dict[str, object]

    @classmethod
    def of(cls, worker: WorkerView) -> Self:
        """The record as it is."""
        return cls.model_validate(worker)


class Page(BaseModel, Generic[T]):
    """Some of a list, newest first; `next_cursor` asks for what follows."""

    items: list[T]
    next_cursor: str | None = None


def of_roofline(verdict: Verdict) -> float | None:
    """The share of the floor that was reached, where anything was timed."""
    match verdict:
        case Passed(measured=measured) if measured:
            return verdict.of_roofline
    return None
