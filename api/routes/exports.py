"""Exports: kernels of the library, built into a package by a worker."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import FileResponse

from api.deps import Key, TheStore
from api.problems import Problem
from api.requests import ExportAsked, check_export
from api.resources import ExportResource
from api.routes.jobs import accept
from kernel_library.store import Store
from kernel_library.store.errors import NotFound
from kernel_library.store.views import JobView

router = APIRouter(prefix="/v1/exports", tags=["exports"])


@router.post("", status_code=202)
def submit(
    asked: ExportAsked, response: Response, store: TheStore, key: Key = None
) -> ExportResource:
    """Have a package built. What cannot be is refused here, not found out later."""
    check_export(asked, store.kernels())
    job, replayed = store.submit("export", asked.package, asked.model_dump(), key=key)
    accept(response, f"/v1/exports/{job.id}", replayed)
    return ExportResource.of(job)


@router.get("/{export_id}")
def show(export_id: str, store: TheStore) -> ExportResource:
    """One export."""
    return ExportResource.of(known_export(export_id, store))


@router.get("/{export_id}/artifact", response_class=FileResponse)
def artifact(export_id: str, store: TheStore) -> FileResponse:
    """The built package."""
    job = known_export(export_id, store)
    if job.artifact is None:
        raise Problem("not-ready", f"The export is {job.status}; it has built nothing to download.")
    path, filename = store.artifact(job.artifact)
    etag = {"etag": f'"{job.artifact}"'}
    return FileResponse(path, 200, etag, "application/octet-stream", filename=filename)


def known_export(export_id: str, store: Store) -> JobView:
    """The job of that id, if it is an export."""
    job = store.job(export_id)
    if job.kind != "export":
        raise NotFound(f"{export_id} is no export: look for it under /v1/jobs.")
    return job
