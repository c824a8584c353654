"""A job's events as a stream: resumed, followed, ended."""

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from api_world import (
    ATTEMPTS,
    SETTINGS,
    Served,
    a_world,
    is_problem,
    new_store,
    serving,
    start,
)

from kernel_library.job import Finished


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[Served]:
    with a_world(tmp_path_factory.mktemp("api")) as served:
        yield served


def lines(http: httpx.Client, path: str, headers: dict | None = None) -> Iterator[tuple[int, dict]]:
    """The events of a stream: their ids and data."""
    with http.stream("GET", path, headers=headers) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        seq = body = None
        for line in response.iter_lines():
            name, _, value = line.partition(": ")
            if name == "data":
                body = json.loads(value)
            elif name == "id":
                seq = int(value)
            elif line == "" and body is not None:
                yield seq, body
                body = None


def test_an_ended_jobs_events_come_in_order_and_end(served: Served):
    seen = list(lines(served.http, f"/v1/jobs/{served.world.ended}/events"))
    kinds = [body["kind"] for _, body in seen]
    assert [seq for seq, _ in seen] == list(range(1, len(seen) + 1))
    assert kinds == ["queued", "started", "problem_read", *["attempt"] * len(ATTEMPTS), "finished"]


@pytest.mark.parametrize(
    ("query", "headers"),
    [("?after=6", {}), ("", {"Last-Event-ID": "6"}), ("?after=1", {"Last-Event-ID": "6"})],
)  # fmt: skip
def test_a_stream_resumes_after_the_last_event_that_was_seen(served: Served, query, headers):
    path = f"/v1/jobs/{served.world.ended}/events{query}"
    assert [seq for seq, _ in lines(served.http, path, headers)] == [7, 8, 9]


def test_a_stream_brings_what_happens_while_it_is_open(tmp_path: Path):
    store = new_store(tmp_path)
    job_id, lease = start(store)
    with serving(store) as url, httpx.Client(base_url=url, timeout=20) as http:
        stream = lines(http, f"/v1/jobs/{job_id}/events?after=3")
        late = threading.Timer(0.3, store.add_event, (lease, "note", {"text": "halfway"}))
        late.start()
        assert next(stream)[1]["data"] == {"text": "halfway"}
        store.finish(lease, Finished("no_correct_candidate", "tried all"))
        assert [body["kind"] for _, body in stream] == ["finished"]


def test_a_stream_ends_when_the_server_stops(tmp_path: Path):
    store = new_store(tmp_path)
    job_id, _ = start(store)
    seen, opened = [], threading.Event()

    def read(url: str) -> None:
        with httpx.Client(base_url=url, timeout=20) as http:
            for seq, _ in lines(http, f"/v1/jobs/{job_id}/events"):
                seen.append(seq)
                opened.set()

    with serving(store) as url:
        reader = threading.Thread(target=read, args=(url,))
        reader.start()
        assert opened.wait(10)
        began = time.monotonic()
    reader.join(10)
    assert seen[:3] == [1, 2, 3]
    # an open stream would hold the server for its five seconds of grace
    assert time.monotonic() - began < 3


def test_only_so_many_streams_are_open_at_once(tmp_path: Path):
    store = new_store(tmp_path)
    job_id, _ = start(store)
    path = f"/v1/jobs/{job_id}/events"
    settings = replace(SETTINGS, max_streams=1)
    with serving(store, settings) as url, httpx.Client(base_url=url, timeout=20) as http:
        first = lines(http, path)
        next(first)
        is_problem(http.get(path), 503, "too-many-streams")
        first.close()
        assert within(5, lambda: http.get(f"{path}?after=99999", timeout=0.5))


def within(seconds: float, ask) -> bool:
    """Whether a stream can be opened before long: its slot was given back."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            if ask().status_code == 503:
                time.sleep(0.05)
        except httpx.ReadTimeout:
            return True  # it is open, and waits
    return False
