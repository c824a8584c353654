"""Jobs, as those who ask for them see them: submitted, looked at, cancelled, followed."""

from __future__ import annotations

import json
from hashlib import sha256

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from kernel_library.store.errors import KeyConflict, NotFound
from kernel_library.store.ids import new_id
from kernel_library.store.part import Part, job_view, locked
from kernel_library.store.tables import Event, Job
from kernel_library.store.views import EventView, JobKind, JobView, Json


class Jobs(Part):
    """The side of the queue that faces people."""

    def submit(
        self, kind: JobKind, name: str, request: Json, *, key: str | None = None
    ) -> tuple[JobView, bool]:
        """Queue a job; or the one that this key made before, and then the second value is True.

        Raises KeyConflict if the key stood for another request.
        """
        print_ = fingerprint(kind, name, request)
        try:
            return self._earlier(key, print_) or self._new(kind, name, request, key, print_)
        except IntegrityError:
            # the same key came twice at once, and the other was first
            earlier = self._earlier(key, print_)
            if earlier is None:
                raise
            return earlier

    def _earlier(self, key: str | None, print_: str) -> tuple[JobView, bool] | None:
        if key is None:
            return None
        with self.database.read() as session:
            job = session.scalar(select(Job).where(Job.key == key))
            if job is None:
                return None
            if job.fingerprint != print_:
                raise KeyConflict(f"this key made job {job.id} from another request: use a new key")
            return job_view(job), True

    def _new(
        self, kind: JobKind, name: str, request: Json, key: str | None, print_: str
    ) -> tuple[JobView, bool]:
        job = Job(
            id=new_id("job"),
            kind=kind,
            name=name,
            request=request,
            key=key,
            fingerprint=print_,
            created=self.database.now(),
        )
        with self.database.write() as session:
            session.add(job)
            session.flush()
            self.record(session, job, "queued", {})
            return job_view(job), False

    def job(self, job_id: str) -> JobView:
        """A job as it stands. Raises NotFound."""
        with self.database.read() as session:
            job = session.get(Job, job_id)
            if job is None:
                raise NotFound(f"there is no job {job_id!r}")
            return job_view(job)

    def jobs(
        self, *, kind: JobKind | None = "optimize", limit: int = 50, before: str | None = None
    ) -> list[JobView]:
        """The newest jobs of a kind, or of both; `before` is the last id of the page before.

        A list leaves each job's `op` out.
        """
        newest = select(Job).order_by(Job.id.desc()).limit(limit)
        if kind is not None:
            newest = newest.where(Job.kind == kind)
        if before is not None:
            newest = newest.where(Job.id < before)
        with self.database.read() as session:
            return [job_view(job, listed=True) for job in session.scalars(newest)]

    def cancel(self, job_id: str) -> JobView:
        """End a job that waits; ask a running one to stop; leave one that ended as it is."""
        with self.database.write() as session:
            job = locked(session, job_id)
            if job.status == "queued":
                job.cancel_requested = True
                self.end(session, job, "cancelled", "cancelled while it waited", {})
            elif job.status == "running" and not job.cancel_requested:
                job.cancel_requested = True
                self.record(session, job, "note", {"text": "asked to stop"})
            return job_view(job)

    def events(self, job_id: str, after: int = 0, limit: int = 500) -> list[EventView]:
        """What happened to a job after a sequence number, in order; none for an unknown job."""
        later = (
            select(Event)
            .where(Event.job_id == job_id, Event.seq > after)
            .order_by(Event.seq)
            .limit(limit)
        )
        with self.database.read() as session:
            return [EventView(e.seq, e.at, e.kind, e.data) for e in session.scalars(later)]


def fingerprint(kind: str, name: str, request: Json) -> str:
    """The same request has the same fingerprint, however its fields are ordered."""
    return sha256(json.dumps([kind, name, request], sort_keys=True).encode()).hexdigest()
