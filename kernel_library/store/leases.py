"""Jobs, as workers see them: claimed for a while, written to, and given back or ended.

A claim counts up the job's token. Each later write names owner and token, and is refused with
LostLease once they are no longer the job's: a worker that froze and woke can do no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import and_, or_, select
from sqlalchemy.orm import Session

from kernel_library.job import OUR_FAILURE, Attempt, Finished, rank
from kernel_library.spec import OpSpec
from kernel_library.store.errors import LostLease, NotFound
from kernel_library.store.part import Ended, Part, job_view
from kernel_library.store.reviews import candidate_view
from kernel_library.store.tables import Artifact, Job, Tried
from kernel_library.store.views import (
    CandidateView,
    EventKind,
    JobKind,
    JobView,
    Json,
    Lease,
)
from kernel_library.verdict import Passed

#: How often a job may lose its worker, or meet a fault of ours, before it is given up.
MAX_FAULTS = 3


class Leases(Part):
    """The side of the queue that faces workers."""

    def claim(
        self, kinds: Sequence[JobKind], owner: str, seconds: float
    ) -> tuple[Lease, JobView] | None:
        """Take the oldest job that waits, or whose worker was lost; None if there is none."""
        with self.database.write() as session:
            while job := self._next(session, kinds):
                if job.status == "running":
                    self._requeue(session, job, f"lost its worker {job.owner}", fault=True)
                if job.status == "queued":
                    return self._start(session, job, owner, seconds), job_view(job)
        return None

    def _next(self, session: Session, kinds: Sequence[JobKind]) -> Job | None:
        expired = and_(Job.status == "running", Job.until < self.database.now())
        return session.scalar(
            select(Job)
            .where(Job.kind.in_(kinds), or_(Job.status == "queued", expired))
            .order_by(Job.id)
            .limit(1)
            .with_for_update(skip_locked=True)
        )

    def _start(self, session: Session, job: Job, owner: str, seconds: float) -> Lease:
        now = self.database.now()
        until = now + timedelta(seconds=seconds)
        job.status, job.owner, job.until, job.token = "running", owner, until, job.token + 1
        job.started = job.started or now
        self.record(session, job, "started", {"owner": owner, "token": job.token})
        return Lease(job.id, owner, job.token, until)

    def reap(self) -> int:
        """Put jobs whose worker was lost back in the queue; how many there were."""
        expired = select(Job).where(Job.status == "running", Job.until < self.database.now())
        with self.database.write() as session:
            jobs = session.scalars(expired.with_for_update(skip_locked=True)).all()
            for job in jobs:
                self._requeue(session, job, f"lost its worker {job.owner}", fault=True)
        return len(jobs)

    def renew(self, lease: Lease, seconds: float) -> Lease:
        """Hold the job for so many seconds from this moment."""
        until = self.database.now() + timedelta(seconds=seconds)
        with self.database.write() as session:
            held(session, lease).until = until
        return Lease(lease.job_id, lease.owner, lease.token, until)

    def cancelled(self, lease: Lease) -> bool:
        """Whether the job was asked to stop. Raises LostLease as well: ask it between steps."""
        with self.database.read() as session:
            job = session.get(Job, lease.job_id)
            return check(job, lease).cancel_requested

    def set_op(self, lease: Lease, op: OpSpec) -> None:
        """The problem was read, and this is its contract."""
        read = {"op": op.name, "inputs": [*op.inputs], "workloads": len(op.workloads)}
        with self.database.write() as session:
            job = held(session, lease)
            job.op = op
            self.record(session, job, "problem_read", read)

    def add_event(self, lease: Lease, kind: EventKind, data: Json) -> None:
        """Add a line to the job's log."""
        with self.database.write() as session:
            self.record(session, held(session, lease), kind, data)

    def add_attempt(self, lease: Lease, attempt: Attempt) -> CandidateView:
        """Add to the job's history, and note the best so far."""
        digest, score = attempt.candidate.digest, rank(attempt.verdict)
        with self.database.write() as session:
            job = held(session, lease)
            tried = Tried(
                job_id=job.id,
                index=job.attempts,
                digest=digest,
                attempt=attempt,
                version=1,
                at=self.database.now(),
            )
            session.add(tried)
            job.attempts += 1
            if score > job.best_rank:
                job.best, job.best_rank = digest, score
            self.record(session, job, "attempt", summary(tried))
        return candidate_view(tried, None)

    def set_artifact(self, lease: Lease, sha: str, filename: str) -> None:
        """What the job made: a file that `put_artifact` took in. Raises NotFound for another."""
        with self.database.write() as session:
            job = held(session, lease)
            if session.get(Artifact, sha) is None:
                raise NotFound(f"there is no artifact {sha!r}: give it to put_artifact first")
            job.artifact, job.filename = sha, filename
            self.record(session, job, "artifact", {"sha256": sha, "filename": filename})

    def finish(self, lease: Lease, finished: Finished) -> None:
        """The search is over. A job that was asked to stop counts as cancelled, winner or not."""
        with self.database.write() as session:
            job = held(session, lease)
            job.outcome, job.best = finished.outcome, finished.best or job.best
            data = {"outcome": job.outcome, "best": job.best, "notes": [*finished.notes]}
            self._complete(session, job, finished.why, data)

    def complete(self, lease: Lease, why: str) -> None:
        """An export is done: `finish` for a job that searches for nothing."""
        with self.database.write() as session:
            self._complete(session, held(session, lease), why, {})

    def _complete(self, session: Session, job: Job, why: str, data: Json) -> None:
        status: Ended = "cancelled" if job.cancel_requested else "succeeded"
        self.end(session, job, status, why, data)

    def fail(self, lease: Lease, problem: Json) -> None:
        """The job cannot be done: `title`, `detail` and `where` say what is wrong with it."""
        with self.database.write() as session:
            self._fail(session, held(session, lease), problem)

    def _fail(self, session: Session, job: Job, problem: Json) -> None:
        job.problem = problem
        self.end(session, job, "failed", str(problem.get("detail", "")), {"problem": problem})

    def release(self, lease: Lease, *, fault: str | None = None) -> None:
        """Give the job back to the queue; a `fault` of ours, in a few words, counts against it."""
        with self.database.write() as session:
            job = held(session, lease)
            self._requeue(session, job, fault or "given back by its worker", fault=bool(fault))

    def _requeue(self, session: Session, job: Job, why: str, *, fault: bool) -> None:
        """Back to the queue; or to its end, if it was cancelled or we failed it too often."""
        job.faults += fault
        if job.cancel_requested:
            self.end(session, job, "cancelled", "cancelled while it ran", {})
        elif job.faults >= MAX_FAULTS:
            self._fail(session, job, our_failure(why))
        else:
            job.status, job.owner, job.until = "queued", None, None
            self.record(session, job, "note", {"text": f"queued again: {why}"})


def held(session: Session, lease: Lease) -> Job:
    """The job's row, locked, if it is still this lease's. Raises LostLease."""
    return check(session.get(Job, lease.job_id, with_for_update=True), lease)


def check(job: Job | None, lease: Lease) -> Job:
    """The job if it is this lease's. Raises LostLease."""
    holder = (job.status, job.owner, job.token) if job else None
    if job is None or holder != ("running", lease.owner, lease.token):
        raise LostLease(f"{lease.job_id} is no longer {lease.owner}'s: throw its results away")
    return job


def our_failure(why: str) -> Json:
    """The problem of a job that is given up through no fault of whoever asked for it."""
    detail = f"Kernelwright failed this job {MAX_FAULTS} times, at last because it {why}."
    return {"title": OUR_FAILURE, "detail": detail, "where": ""}


def summary(tried: Tried) -> Json:
    """An attempt in a line of the log: no source, no sizes."""
    candidate, verdict = tried.attempt.candidate, tried.attempt.verdict
    found: dict[str, object] = (
        {"of_roofline": verdict.of_roofline if verdict.measured else None}
        if isinstance(verdict, Passed)
        else {"stage": verdict.stage, "reason": verdict.reason}
    )
    by: dict[str, object] = {"proposer": candidate.proposer, "why": candidate.why}
    return {"digest": tried.digest, "index": tried.index, "kind": verdict.kind, **found, **by}
