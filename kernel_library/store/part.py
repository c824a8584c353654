"""What each part of the store shares, and how a job's row and its log move together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sqlalchemy.orm import Session

from kernel_library.store.database import Database
from kernel_library.store.errors import NotFound
from kernel_library.store.tables import Event, Job
from kernel_library.store.views import EventKind, JobView, Json

Ended = Literal["succeeded", "failed", "cancelled"]
#: The last line of a job's log, by how it ended.
LAST: Mapping[Ended, EventKind] = {
    "succeeded": "finished",
    "failed": "failed",
    "cancelled": "cancelled",
}


@dataclass(frozen=True)
class Part:
    """A topic of the store: the database, and the folder for what is too big for it."""

    database: Database
    files: Path

    def record(self, session: Session, job: Job, kind: EventKind, data: Json) -> None:
        """Add a line to a job's log. The job's row is locked by the caller, so none is skipped."""
        job.events += 1
        now = self.database.now()
        session.add(Event(job_id=job.id, seq=job.events, at=now, kind=kind, data=data))

    def end(self, session: Session, job: Job, status: Ended, why: str, data: Json) -> None:
        """The job's last change: how it ended, and a line that says so."""
        job.status, job.why = status, why
        job.finished = self.database.now()
        job.owner = job.until = None
        self.record(session, job, LAST[status], {"why": why, **data})


def locked(session: Session, job_id: str) -> Job:
    """The job's row, held until the transaction ends; every write to a job starts here."""
    job = session.get(Job, job_id, with_for_update=True)
    if job is None:
        raise NotFound(f"there is no job {job_id!r}")
    return job


def job_view(job: Job, *, listed: bool = False) -> JobView:
    """The row as others see it: no lease, no key. Within its session, for the op is read late."""
    return JobView(
        id=job.id,
        kind=job.kind,
        name=job.name,
        status=job.status,
        outcome=job.outcome,
        why=job.why,
        request=job.request,
        created=job.created,
        started=job.started,
        finished=job.finished,
        version=job.events,
        best=job.best,
        attempts=job.attempts,
        cancel_requested=job.cancel_requested,
        problem=job.problem,
        op=None if listed else job.op,
        artifact=job.artifact,
        filename=job.filename,
    )
