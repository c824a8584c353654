"""The tables. Alembic's migrations make them; a test holds the two to be equal."""

from __future__ import annotations

from datetime import datetime
from typing import get_args

from pydantic import TypeAdapter
from sqlalchemy import (
    BigInteger,
    Double,
    Enum,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from kernel_library.candidate import Candidate
from kernel_library.codec import attempt_json, candidate_json, op_json, verdict_json
from kernel_library.job import Attempt, Outcome, Status
from kernel_library.spec import OpSpec
from kernel_library.store.columns import AsJson, Utc, Words
from kernel_library.store.views import Decision, EventKind, JobKind, Json, Origin
from kernel_library.verdict import Verdict

NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}
json_object: TypeAdapter[Json] = TypeAdapter(dict[str, object])


def one_of(name: str, values: object) -> Enum:
    """A closed set of words, as text and a check."""
    return Enum(*get_args(values), name=name, native_enum=False, create_constraint=True, length=32)


class Table(DeclarativeBase):
    """What all tables have in common: how their constraints are called."""

    metadata = MetaData(naming_convention=NAMES)


class Artifact(Table):
    """A file under the artifacts folder, by its SHA-256."""

    __tablename__ = "artifact"

    sha256: Mapped[str] = mapped_column(Words, primary_key=True)
    filename: Mapped[str] = mapped_column(Words)
    size: Mapped[int] = mapped_column(BigInteger)
    at: Mapped[datetime] = mapped_column(Utc)


class Job(Table):
    """A job and its lease: `owner` and `token` say whose it is, `faults` how often we failed it."""

    __tablename__ = "job"
    __table_args__ = (
        Index(None, "status", "kind", "id"),
        Index(None, "kind", "id"),
    )

    id: Mapped[str] = mapped_column(Words, primary_key=True)
    kind: Mapped[JobKind] = mapped_column(one_of("kind", JobKind))
    name: Mapped[str] = mapped_column(Words)
    request: Mapped[Json] = mapped_column(AsJson(json_object))
    key: Mapped[str | None] = mapped_column(Words, unique=True)
    fingerprint: Mapped[str] = mapped_column(Words)
    created: Mapped[datetime] = mapped_column(Utc)

    status: Mapped[Status] = mapped_column(one_of("status", Status), default="queued")
    started: Mapped[datetime | None] = mapped_column(Utc)
    finished: Mapped[datetime | None] = mapped_column(Utc)
    cancel_requested: Mapped[bool] = mapped_column(default=False)
    owner: Mapped[str | None] = mapped_column(Words)
    token: Mapped[int] = mapped_column(default=0)
    until: Mapped[datetime | None] = mapped_column(Utc)
    faults: Mapped[int] = mapped_column(default=0)
    events: Mapped[int] = mapped_column(default=0)

    # an op with its graphs takes tens of milliseconds to read: only who asks for it pays
    op: Mapped[OpSpec | None] = mapped_column(AsJson(op_json), deferred=True)
    attempts: Mapped[int] = mapped_column(default=0)
    best: Mapped[str | None] = mapped_column(Words)
    best_rank: Mapped[float] = mapped_column(Double, default=0.0)
    outcome: Mapped[Outcome | None] = mapped_column(one_of("outcome", Outcome))
    why: Mapped[str] = mapped_column(Words, default="")
    problem: Mapped[Json | None] = mapped_column(AsJson(json_object))
    artifact: Mapped[str | None] = mapped_column(Words, ForeignKey("artifact.sha256"))
    filename: Mapped[str | None] = mapped_column(Words)


class Event(Table):
    """A line of a job's log."""

    __tablename__ = "event"

    job_id: Mapped[str] = mapped_column(Words, ForeignKey("job.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[datetime] = mapped_column(Utc)
    kind: Mapped[EventKind] = mapped_column(Words)
    data: Mapped[Json] = mapped_column(AsJson(json_object))


class Tried(Table):
    """An attempt of a job. The same candidate may be tried by many jobs."""

    __tablename__ = "candidate"

    job_id: Mapped[str] = mapped_column(Words, ForeignKey("job.id"), primary_key=True)
    index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    digest: Mapped[str] = mapped_column(Words, index=True)
    attempt: Mapped[Attempt] = mapped_column(AsJson(attempt_json))
    version: Mapped[int] = mapped_column(default=1)
    at: Mapped[datetime] = mapped_column(Utc)


class Review(Table):
    """A person's decision; the newest of a candidate counts."""

    __tablename__ = "review"
    __table_args__ = (
        ForeignKeyConstraint(["job_id", "index"], ["candidate.job_id", "candidate.index"]),
        Index(None, "job_id", "index"),
    )

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    job_id: Mapped[str] = mapped_column(Words)
    index: Mapped[int]
    decision: Mapped[Decision] = mapped_column(one_of("decision", Decision))
    note: Mapped[str] = mapped_column(Words)
    reviewer: Mapped[str] = mapped_column(Words)
    at: Mapped[datetime] = mapped_column(Utc)


class Kernel(Table):
    """A version of a kernel in the library. Rows are added and never changed."""

    __tablename__ = "kernel"

    name: Mapped[str] = mapped_column(Words, primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    op: Mapped[OpSpec] = mapped_column(AsJson(op_json))
    candidate: Mapped[Candidate] = mapped_column(AsJson(candidate_json))
    candidate_digest: Mapped[str] = mapped_column(Words, index=True)
    verdict: Mapped[Verdict | None] = mapped_column(AsJson(verdict_json))
    origin: Mapped[Origin] = mapped_column(one_of("origin", Origin))
    doc: Mapped[str] = mapped_column(Words)
    backward: Mapped[str | None] = mapped_column(Words)
    note: Mapped[str] = mapped_column(Words)
    job_id: Mapped[str | None] = mapped_column(Words, ForeignKey("job.id"))
    at: Mapped[datetime] = mapped_column(Utc)


class Checkup(Table):
    """A version of a kernel, judged again later; the newest counts."""

    __tablename__ = "checkup"
    __table_args__ = (
        ForeignKeyConstraint(["name", "version"], ["kernel.name", "kernel.version"]),
        Index(None, "name", "version"),
    )

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    name: Mapped[str] = mapped_column(Words)
    version: Mapped[int]
    verdict: Mapped[Verdict] = mapped_column(AsJson(verdict_json))
    at: Mapped[datetime] = mapped_column(Utc)


class Worker(Table):
    """A worker's last heartbeat."""

    __tablename__ = "worker"

    name: Mapped[str] = mapped_column(Words, primary_key=True)
    queue: Mapped[str] = mapped_column(Words)
    seen: Mapped[datetime] = mapped_column(Utc)
    doing: Mapped[str | None] = mapped_column(Words)
    facts: Mapped[Json] = mapped_column(AsJson(json_object))
