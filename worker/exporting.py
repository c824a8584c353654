"""Performs an export job: accepted kernels of the library become an installable wheel."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from evaluator.errors import ProblemError
from kernel_library.export import Exported, ExportError, Review, build_wheel
from kernel_library.store import Store
from kernel_library.store.errors import NotFound
from kernel_library.store.views import JobView, KernelView, Lease, in_quarantine

VERSION = "0.1.0"


def perform_export(lease: Lease, job: JobView, store: Store) -> None:
    """Build the wheel, keep it as an artifact, and end the job. Raises ProblemError."""
    names, package = job.request["kernels"], str(job.request["package"])
    kernels = [exported(store, str(name)) for name in names] if isinstance(names, list) else []
    with TemporaryDirectory(prefix="kernelwright-") as folder:
        try:
            wheel = build_wheel(kernels, package, VERSION, Path(folder))
        except ExportError as error:
            raise ProblemError(str(error)) from error
        sha = store.put_artifact(wheel.read_bytes(), wheel.name)
        store.set_artifact(lease, sha, wheel.name)
    store.complete(lease, f"{wheel.name} holds {', '.join(k.name for k in kernels)}.")


def exported(store: Store, name: str) -> Exported:
    """A kernel of the library as it is exported, its gradient with it.

    Raises ProblemError for one that is not there, or in quarantine.
    """
    try:
        kernel = store.kernel(name)
        if kernel.quarantine:
            raise ProblemError(in_quarantine(kernel), "kernels")
        backward = exported(store, kernel.backward) if kernel.backward else None
    except NotFound as error:
        raise ProblemError(str(error), "kernels") from error
    return Exported(
        kernel.name, kernel.op, kernel.candidate, kernel.verdict, kernel.doc, backward,
        review=_review(store, kernel),
    )  # fmt: skip


def _review(store: Store, kernel: KernelView) -> Review | None:
    if kernel.origin == "seed":
        return None
    review = store.candidate(kernel.candidate_digest, kernel.job_id).review
    return Review(review.reviewer, review.at.isoformat(), review.note) if review else None
