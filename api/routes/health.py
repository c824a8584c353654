"""Whether the service lives, whether it can work, and who works for it."""

from __future__ import annotations

from fastapi import APIRouter

from api.deps import TheStore
from api.problems import Problem
from api.resources import Page, WorkerResource

router = APIRouter(tags=["service"])


@router.get("/livez")
def live() -> dict[str, bool]:
    """The process answers."""
    return {"live": True}


@router.get("/readyz")
def ready(store: TheStore) -> dict[str, bool]:
    """The database can be reached and its tables are the ones that this code knows."""
    if not store.is_current():
        raise Problem("unavailable", "The database is not migrated to this version.")
    return {"ready": True}


@router.get("/v1/workers")
def workers(store: TheStore) -> Page[WorkerResource]:
    """The workers that have reported, with their last heartbeat."""
    return Page(items=[WorkerResource.of(worker) for worker in store.workers()])
