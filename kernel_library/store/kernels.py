"""The library: versions of kernels, which are added and never changed, and verdicts on them."""

from __future__ import annotations

from sqlalchemy import func, select, tuple_
from sqlalchemy.orm import Session

from kernel_library.candidate import Candidate
from kernel_library.spec import OpSpec
from kernel_library.store.errors import NotAcceptable, NotFound
from kernel_library.store.part import Part
from kernel_library.store.tables import Checkup, Kernel
from kernel_library.store.views import KernelView, Origin, Quarantine
from kernel_library.verdict import Passed, Rejected, Verdict


class Kernels(Part):
    """Kernels by the name of their op."""

    def kernels(self) -> list[KernelView]:
        """The newest version of each kernel, by name."""
        last = select(Kernel.name, func.max(Kernel.version)).group_by(Kernel.name)
        key = tuple_(Kernel.name, Kernel.version)
        with self.database.read() as session:
            found = session.scalars(select(Kernel).where(key.in_(last)).order_by(Kernel.name))
            return [seen(session, kernel) for kernel in found]

    def kernel(self, name: str, version: int | None = None) -> KernelView:
        """A version of a kernel; the newest if none is named. Raises NotFound."""
        with self.database.read() as session:
            found = (
                newest(session, name) if version is None else session.get(Kernel, (name, version))
            )
            if found is None:
                which = name if version is None else f"{name} version {version}"
                raise NotFound(f"there is no kernel {which!r} in the library")
            return seen(session, found)

    def add_kernel(  # noqa: PLR0913
        self,
        op: OpSpec,
        candidate: Candidate,
        *,
        verdict: Verdict | None = None,
        origin: Origin = "seed",
        doc: str = "",
        backward: str | None = None,
        note: str = "",
    ) -> KernelView:
        """Add a version; nothing happens if the newest one is the same candidate."""
        kernel = Kernel(
            name=op.name,
            op=op,
            candidate=candidate,
            candidate_digest=candidate.digest,
            verdict=verdict,
            origin=origin,
            doc=doc,
            backward=backward,
            note=note,
            at=self.database.now(),
        )
        with self.database.write() as session:
            self.database.lock(session, Kernel)
            last = newest(session, op.name)
            if last is not None and last.candidate_digest == candidate.digest:
                return seen(session, last)
            return seen(session, add_version(session, kernel, last))

    def add_verdict(self, name: str, version: int, verdict: Verdict) -> KernelView:
        """Write down that a version was judged again: a rejection puts it in quarantine, a pass
        lifts that.

        Raises NotFound; NotAcceptable for a pass in less of a sandbox than acceptance asks for.
        """
        check_sandbox(verdict)
        checkup = Checkup(name=name, version=version, verdict=verdict, at=self.database.now())
        with self.database.write() as session:
            kernel = session.get(Kernel, (name, version))
            if kernel is None:
                raise NotFound(f"there is no kernel {name!r} version {version} in the library")
            session.add(checkup)
            return kernel_view(kernel, checkup)


def newest(session: Session, name: str) -> Kernel | None:
    """The newest version of a kernel."""
    versions = select(Kernel).where(Kernel.name == name).order_by(Kernel.version.desc())
    return session.scalar(versions.limit(1))


def add_version(session: Session, kernel: Kernel, last: Kernel | None) -> Kernel:
    """Add a kernel as the version after the last; the caller has locked the table."""
    kernel.version = last.version + 1 if last else 1
    session.add(kernel)
    session.flush()
    return kernel


def check_sandbox(verdict: Verdict) -> None:
    """Raises NotAcceptable for a pass outside namespaces: what it did to its judge is not known."""
    level = verdict.record.sandbox
    if isinstance(verdict, Passed) and level != "namespaces":
        raise NotAcceptable(
            f"it was judged in a sandbox of level {level!r}: judge it in namespaces"
        )


def seen(session: Session, kernel: Kernel) -> KernelView:
    """The row as others see it, under its newest verdict."""
    own = select(Checkup).where(Checkup.name == kernel.name, Checkup.version == kernel.version)
    return kernel_view(kernel, session.scalar(own.order_by(Checkup.id.desc()).limit(1)))


def kernel_view(kernel: Kernel, checkup: Checkup | None = None) -> KernelView:
    """The row, and what came of judging it again, as one."""
    return KernelView(
        name=kernel.name,
        version=kernel.version,
        op=kernel.op,
        candidate=kernel.candidate,
        verdict=checkup.verdict if checkup else kernel.verdict,
        origin=kernel.origin,
        doc=kernel.doc,
        backward=kernel.backward,
        candidate_digest=kernel.candidate_digest,
        note=kernel.note,
        at=kernel.at,
        job_id=kernel.job_id,
        quarantine=_quarantine(checkup),
    )


def _quarantine(checkup: Checkup | None) -> Quarantine | None:
    if checkup is None or not isinstance(checkup.verdict, Rejected):
        return None
    return Quarantine(f"{checkup.verdict.stage}: {checkup.verdict.reason}", checkup.at)
