"""A job's events as a stream: resumable by number, and over when the job is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress

from fastapi.concurrency import run_in_threadpool
from fastapi.sse import ServerSentEvent

from api.deps import Streams, TheStreams
from api.problems import Problem
from api.resources import EventResource
from api.settings import ApiSettings
from kernel_library.store import Store

#: Statuses in which a job has nothing more to say.
OVER = frozenset({"succeeded", "failed", "cancelled"})


async def stream_slot(streams: TheStreams) -> AsyncIterator[None]:
    """Holds one of the streams that may be open at once."""
    if streams.open >= streams.most:
        raise Problem("too-many-streams", f"At most {streams.most} at once: close one, try again.")
    streams.open += 1
    try:
        yield
    finally:
        streams.open -= 1


async def follow(
    store: Store, job_id: str, after: int, settings: ApiSettings, streams: Streams
) -> AsyncIterator[ServerSentEvent]:
    """Events after that number. Ends with the job, the server, or at `stream_seconds`, when a
    browser asks again from where it was."""
    until = time.monotonic() + settings.stream_seconds
    yield ServerSentEvent(comment="follows", retry=2000)
    while not streams.closing.is_set() and time.monotonic() < until:
        # status before events: a job seen to be over has already written its last event
        over = (await run_in_threadpool(store.job, job_id)).status in OVER
        news = await run_in_threadpool(store.events, job_id, after)
        for event in news:
            after = event.seq
            body = EventResource.of(event).model_dump(mode="json")
            yield ServerSentEvent(data=body, id=str(event.seq))
        if over and not news:
            return
        if not news:
            await _pause(streams.closing, settings.poll_seconds)


async def _pause(closing: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(closing.wait(), seconds)
