"""Jobs: submit one, list them, look at one, follow it, stop it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent

from api.deps import Before, Key, Limit, TheSettings, TheStore, TheStreams, cursor_of
from api.events import follow, stream_slot
from api.requests import JobAsked, check_job
from api.resources import CandidateSummary, JobResource, JobSummary, Page
from kernel_library.store.views import JobView

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


def accept(response: Response, location: str, replayed: bool) -> None:
    """The headers of a 202: where to look, and whether the same key had asked before."""
    response.headers["location"] = location
    if replayed:
        response.headers["idempotency-replayed"] = "true"


@router.post("", status_code=202)
def submit(
    asked: JobAsked, response: Response, store: TheStore, settings: TheSettings, key: Key = None
) -> JobResource:
    """Take a problem in. It is checked for syntax alone; nothing of it runs here."""
    check_job(asked, settings)
    job, replayed = store.submit("optimize", asked.name, asked.record(), key=key)
    accept(response, f"/v1/jobs/{job.id}", replayed)
    return JobResource.of(job)


@router.get("")
def index(
    response: Response, store: TheStore, before: Before, limit: Limit = 50
) -> Page[JobSummary]:
    """The jobs, newest first."""
    jobs = store.jobs(limit=limit + 1, before=before)
    more = cursor_of(jobs[limit - 1].id) if len(jobs) > limit else None
    if more:
        response.headers["link"] = f'</v1/jobs?limit={limit}&cursor={more}>; rel="next"'
    return Page(items=[JobSummary.of(job) for job in jobs[:limit]], next_cursor=more)


@router.get("/{job_id}")
def show(job_id: str, response: Response, store: TheStore) -> JobResource:
    """One job."""
    job = store.job(job_id)
    response.headers["etag"] = f'"{job.version}"'
    return JobResource.of(job)


@router.post("/{job_id}/cancel", status_code=202)
def cancel(job_id: str, store: TheStore) -> JobResource:
    """Ask a job to stop: at once if it is queued, after the step it is at if it runs."""
    return JobResource.of(store.cancel(job_id))


@router.get("/{job_id}/candidates")
def candidates(job_id: str, store: TheStore) -> Page[CandidateSummary]:
    """The job's attempts, in order."""
    store.job(job_id)
    return Page(items=[CandidateSummary.of(view) for view in store.candidates(job_id)])


def known_job(job_id: str, store: TheStore) -> JobView:
    """The job, looked up before the stream begins so that a wrong id is still a 404."""
    return store.job(job_id)


def start_after(
    after: Annotated[int | None, Query(ge=0)] = None,
    last_event_id: Annotated[int | None, Header(ge=0)] = None,
) -> int:
    """The last event that the client has: a browser that reconnects says so in a header."""
    return last_event_id if last_event_id is not None else after or 0


@router.get(
    "/{job_id}/events", response_class=EventSourceResponse, dependencies=[Depends(stream_slot)]
)
async def events(
    job: Annotated[JobView, Depends(known_job)],
    after: Annotated[int, Depends(start_after)],
    store: TheStore,
    settings: TheSettings,
    streams: TheStreams,
) -> AsyncIterator[ServerSentEvent]:
    """The job's events from where you left off, then as they come; ends with the job."""
    async for event in follow(store, job.id, after, settings, streams):
        yield event
