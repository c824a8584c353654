"""Candidates: the evidence for one, its source, and a person's decision on it."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse

from api.deps import TheStore, Version
from api.requests import ReviewAsked
from api.resources import CandidateResource

router = APIRouter(prefix="/v1/candidates", tags=["candidates"])


@router.get("/{digest}")
def show(
    digest: str, response: Response, store: TheStore, job: str | None = None
) -> CandidateResource:
    """A candidate and its verdict; `job` picks one job's where several tried the same source."""
    view = store.candidate(digest, job)
    response.headers["etag"] = f'"{view.version}"'
    return CandidateResource.of(view)


@router.get("/{digest}/source", response_class=PlainTextResponse)
def source(digest: str, store: TheStore) -> PlainTextResponse:
    """The source as text to be saved: a browser never runs or shows it as anything else."""
    view = store.candidate(digest)
    attachment = f'attachment; filename="{view.digest[:12]}.py"'
    headers = {"content-disposition": attachment, "etag": f'"{view.digest}"'}
    return PlainTextResponse(view.attempt.candidate.source, headers=headers)


@router.post("/{digest}/reviews", status_code=201)
def review(
    digest: str,
    asked: ReviewAsked,
    version: Version,
    response: Response,
    store: TheStore,
    job: str | None = None,
) -> CandidateResource:
    """Accept or reject; the version must be the one that was looked at."""
    view = store.review(
        digest, asked.decision, asked.note, asked.reviewer, version=version, job_id=job
    )
    response.headers["etag"] = f'"{view.version}"'
    return CandidateResource.of(view)
