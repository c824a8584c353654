"""Candidates and what people decide of them. To accept is to add a version to the library."""

from __future__ import annotations

from itertools import chain, count

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from kernel_library.job import Attempt
from kernel_library.spec import OpSpec
from kernel_library.store.errors import NotAcceptable, NotFound, Stale
from kernel_library.store.kernels import add_version, check_sandbox, newest
from kernel_library.store.part import Part, locked
from kernel_library.store.tables import Job, Kernel, Review, Tried
from kernel_library.store.views import CandidateView, Decision, ReviewView
from kernel_library.verdict import Passed, Verdict


class Reviews(Part):
    """Candidates, by job and by digest."""

    def candidates(self, job_id: str) -> list[CandidateView]:
        """A job's attempts in order."""
        with self.database.read() as session:
            reviews = {r.index: r for r in session.scalars(_reviews(job_id))}
            return [candidate_view(t, reviews.get(t.index)) for t in session.scalars(_of(job_id))]

    def history(self, job_id: str) -> list[Attempt]:
        """A job's attempts in order: all that is needed to go on with it."""
        with self.database.read() as session:
            return [tried.attempt for tried in session.scalars(_of(job_id))]

    def candidate(self, digest: str, job_id: str | None = None) -> CandidateView:
        """The newest attempt at a candidate, in this job or in any. Raises NotFound."""
        with self.database.read() as session:
            tried = find(session, digest, job_id)
            return candidate_view(tried, last_review(session, tried))

    def review(
        self,
        digest: str,
        decision: Decision,
        note: str,
        reviewer: str,
        *,
        version: int,
        job_id: str | None = None,
    ) -> CandidateView:
        """Write down a decision; accepting also adds the candidate to the library.

        Raises Stale unless `version` is the candidate's own, and NotAcceptable without a note,
        after an acceptance, or when accepting what `acceptable` refuses.
        """
        if not note.strip():
            raise NotAcceptable("a review needs a note: say why")
        with self.database.write() as session:
            job = locked(session, find(session, digest, job_id).job_id)
            tried = find(session, digest, job.id)
            check_open(session, tried, version)
            said = {"decision": decision, "note": note, "reviewer": reviewer}
            at = self.database.now()
            review = Review(job_id=job.id, index=tried.index, at=at, **said)
            session.add(review)
            tried.version += 1
            data: dict[str, object] = {"digest": digest, **said}
            if decision == "accept":
                kernel = self._accept(session, job, tried, note)
                data |= {"kernel": kernel.name, "kernel_version": kernel.version}
            self.record(session, job, "reviewed", data)
        return candidate_view(tried, review)

    def _accept(self, session: Session, job: Job, tried: Tried, note: str) -> Kernel:
        """A new version of the op's kernel; the words and gradient of the same op carry over."""
        op = acceptable(job.op, tried.attempt.verdict)
        self.database.lock(session, Kernel)
        name = free_name(session, op)
        same = newest(session, name)
        kernel = Kernel(
            name=name,
            op=op,
            candidate=tried.attempt.candidate,
            candidate_digest=tried.digest,
            verdict=tried.attempt.verdict,
            origin="job",
            doc=same.doc if same else "",
            backward=same.backward if same else None,
            note=note,
            job_id=job.id,
            at=self.database.now(),
        )
        return add_version(session, kernel, same)


def free_name(session: Session, op: OpSpec) -> str:
    """The op's name, or with a number after it: all versions of one name keep one contract."""
    names = chain([op.name], (f"{op.name}_{number}" for number in count(2)))
    for name in names:
        taken = newest(session, name)
        if taken is None or taken.op.digest == op.digest:
            return name
    raise AssertionError("counting ends only with a free name")


def acceptable(op: OpSpec | None, verdict: Verdict) -> OpSpec:
    """The contract under which a candidate may enter the library.

    Raises NotAcceptable for a rejected one, for one that was judged outside a sandbox of namespaces
    (what it did to its judge is not known), and for one that was replayed and not looked into.
    """
    if op is None:
        raise NotAcceptable("the job has no contract: let it read its problem first")
    if not isinstance(verdict, Passed):
        raise NotAcceptable(f"the judge rejected it at {verdict.stage}: only what passed may enter")
    check_sandbox(verdict)
    if verdict.record.evidence == "replayed" and not verdict.record.is_deep:
        raise NotAcceptable(
            "it was judged quickly, as a job's winner is not: submit it as a candidate, in a job of"
            " one attempt"
        )
    return op


def check_open(session: Session, tried: Tried, version: int) -> None:
    """Whether a decision may be added now. Raises Stale and NotAcceptable."""
    if tried.version != version:
        raise Stale(f"it is at version {tried.version}, not {version}: read it again")
    last = last_review(session, tried)
    if last is not None and last.decision == "accept":
        raise NotAcceptable("it is in the library: accept another candidate to replace it")


def find(session: Session, digest: str, job_id: str | None) -> Tried:
    """The newest attempt at a candidate. Raises NotFound."""
    found = select(Tried).where(Tried.digest == digest)
    if job_id is not None:
        found = found.where(Tried.job_id == job_id)
    newest_first = found.order_by(Tried.job_id.desc(), Tried.index.desc()).limit(1)
    tried = session.scalar(newest_first.execution_options(populate_existing=True))
    if tried is None:
        raise NotFound(f"there is no candidate {digest!r}")
    return tried


def last_review(session: Session, tried: Tried) -> Review | None:
    """The newest decision on an attempt."""
    own = _reviews(tried.job_id).where(Review.index == tried.index)
    return next(reversed(session.scalars(own).all()), None)


def _of(job_id: str) -> Select[Tried]:
    return select(Tried).where(Tried.job_id == job_id).order_by(Tried.index)


def _reviews(job_id: str) -> Select[Review]:
    return select(Review).where(Review.job_id == job_id).order_by(Review.id)


def candidate_view(tried: Tried, review: Review | None) -> CandidateView:
    """The row as others see it."""
    seen = ReviewView(review.decision, review.note, review.reviewer, review.at) if review else None
    return CandidateView(
        tried.digest, tried.job_id, tried.index, tried.attempt, seen, tried.version
    )
