"""The JSON interface, over real HTTP from a real server with a real store."""

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from api_world import (
    ATTEMPTS,
    FAST,
    REQUEST,
    SETTINGS,
    SNEAKY,
    UNBOXED,
    WRONG,
    World,
    new_store,
    populate,
    serving,
    start,
)

from api.requests import check_python
from api.serve import NotLoopback, is_loopback, make_server
from kernel_library.job import Finished
from kernel_library.store import Store

PROBLEM = "application/problem+json"
JOB = {"filename": "rms_norm.py", "source": "def reference(x):\n    return x\n"}


class Served(NamedTuple):
    store: Store
    world: World
    http: httpx.Client


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[Served]:
    store = new_store(tmp_path_factory.mktemp("api"))
    world = populate(store)
    with serving(store) as url, httpx.Client(base_url=url, timeout=20) as http:
        yield Served(store, world, http)


def is_problem(response: httpx.Response, status: int, kind: str) -> dict:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == PROBLEM
    body = response.json()
    assert (body["type"], body["status"]) == (f"/problems/{kind}", status)
    assert body["title"] and body["detail"] and body["instance"] == response.url.path
    assert "Traceback" not in response.text
    return body


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


def test_a_job_is_taken_in_and_not_run(served: Served):
    answer = served.http.post("/v1/jobs", json=JOB | {"budget": {"seconds": 5}, "llm": False})
    assert answer.status_code == 202
    job = answer.json()
    assert (job["status"], job["outcome"], job["name"]) == ("queued", None, "rms_norm")
    assert served.http.get(answer.headers["location"]).json() == job
    asked = served.store.job(job["id"]).request
    assert asked == JOB | {"budget": {"seconds": 5.0}, "llm": False}


def test_the_same_key_gives_the_same_answer_once_more(served: Served):
    first, second = (
        served.http.post("/v1/jobs", json=JOB, headers={"Idempotency-Key": "k1"}) for _ in range(2)
    )
    assert first.json() == second.json()
    assert "idempotency-replayed" not in first.headers
    assert second.headers["idempotency-replayed"] == "true"


def test_the_same_key_for_another_request_is_refused(served: Served):
    headers = {"Idempotency-Key": "k2"}
    served.http.post("/v1/jobs", json=JOB, headers=headers)
    other = served.http.post("/v1/jobs", json=JOB | {"filename": "b.py"}, headers=headers)
    is_problem(other, 422, "key-conflict")


def test_source_that_is_no_python_is_refused_with_its_line(served: Served):
    answer = served.http.post("/v1/jobs", json=JOB | {"source": "x = 1\ndef f(:\n"})
    body = is_problem(answer, 422, "syntax-error")
    assert body["errors"][0]["line"] == 2
    assert body["errors"][0]["pointer"] == "/source"


def test_a_candidate_that_is_no_python_is_refused(served: Served):
    answer = served.http.post("/v1/jobs", json=JOB | {"candidate": "def"})
    assert is_problem(answer, 422, "syntax-error")["errors"][0]["pointer"] == "/candidate"


@pytest.mark.parametrize(
    "source",
    ["-" * 60_000 + "1", "x" + ".a" * 60_000, "(" * 500, "f(" * 300 + ")" * 300, "x\0"],
    ids=["unary", "attributes", "brackets", "calls", "null"],
)
def test_source_made_to_break_the_parser_is_refused(served: Served, source: str):
    is_problem(served.http.post("/v1/jobs", json=JOB | {"source": source}), 422, "syntax-error")


def test_python_is_parsed_and_never_run(tmp_path: Path):
    check_python("source", f"open({str(tmp_path / 'ran')!r}, 'w')")
    assert not (tmp_path / "ran").exists()


def test_a_definition_is_read_as_json(served: Served):
    good = {"filename": "d.json", "source": '{"name": "d"}', "extra": '{"a": 1}\n\n{"b": 2}\n'}
    assert served.http.post("/v1/jobs", json=good).status_code == 202
    for bad in (
        {"source": "[1]"},
        {"source": "{"},
        {"extra": '{"a": 1}\n3'},
        {"source": "[" * 9999},
    ):
        is_problem(served.http.post("/v1/jobs", json=good | bad), 422, "bad-definition")


@pytest.mark.parametrize("part", ["source", "extra", "candidate"])
def test_a_text_that_is_too_long_is_refused(served: Served, part: str):
    # two bytes a letter: the limit counts bytes
    text = "# " + "é" * (SETTINGS.max_source // 2)
    is_problem(served.http.post("/v1/jobs", json=JOB | {part: text}), 413, "too-large")


def test_a_body_that_is_too_large_is_not_read(served: Served):
    body = b"x" * (SETTINGS.max_body + 1)
    is_problem(served.http.post("/v1/jobs", content=body), 413, "too-large")
    chunked = iter([body[: 2**19], body[2**19 :]])
    is_problem(served.http.post("/v1/jobs", content=chunked), 413, "too-large")


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"filename": "../a.py"}, "/filename"),
        ({"filename": "a.sh"}, "/filename"),
        ({"source": ""}, "/source"),
        ({"budget": {"seconds": -1}}, "/budget/seconds"),
        ({"budgets": {}}, "/budgets"),
        ({"llm": "perhaps"}, "/llm"),
    ],
)
def test_a_field_that_is_wrong_is_named(served: Served, change: dict, pointer: str):
    body = is_problem(served.http.post("/v1/jobs", json=JOB | change), 422, "invalid")
    assert [error["pointer"] for error in body["errors"]] == [pointer]


def test_a_body_that_is_not_json_is_refused(served: Served):
    headers = {"content-type": "application/json"}
    is_problem(served.http.post("/v1/jobs", content="{", headers=headers), 422, "invalid")
    is_problem(served.http.post("/v1/jobs", content="{}"), 422, "invalid")


@pytest.mark.parametrize(
    "path",
    ["/v1/jobs/job_x", "/v1/jobs/job_x/events", "/v1/jobs/job_x/candidates", "/v1/candidates/00",
     "/v1/candidates/00/source", "/v1/kernels/none", "/v1/exports/job_x", "/v1/nothing", "/nothing",
     "/static/none.css", "/static/../app.py", "/docs", "/redoc"],
)  # fmt: skip
def test_what_is_not_there_is_a_problem_document(served: Served, path: str):
    is_problem(served.http.get(path), 404, "not-found")


def test_a_method_that_is_not_offered_is_a_problem_document(served: Served):
    is_problem(served.http.delete("/v1/jobs"), 405, "method-not-allowed")


def test_pages_of_jobs_follow_each_other_without_gap_or_repeat(served: Served):
    whole = [job["id"] for job in served.http.get("/v1/jobs?limit=200").json()["items"]]
    seen, path = [], "/v1/jobs?limit=2"
    while path:
        answer = served.http.get(path)
        page = answer.json()
        seen += [job["id"] for job in page["items"]]
        cursor = page["next_cursor"]
        path = f"/v1/jobs?limit=2&cursor={cursor}" if cursor else None
        assert ("link" in answer.headers) == bool(cursor)
    assert seen == whole == sorted(whole, reverse=True)
    assert len(seen) > 4


@pytest.mark.parametrize("query", ["limit=0", "limit=201", "cursor=%21", "cursor=a"])
def test_a_page_that_cannot_be_is_refused(served: Served, query: str):
    is_problem(served.http.get(f"/v1/jobs?{query}"), 422, "invalid")


def test_a_queued_job_is_cancelled_at_once(served: Served):
    job = served.http.post("/v1/jobs", json=JOB).json()
    answer = served.http.post(f"/v1/jobs/{job['id']}/cancel")
    assert (answer.status_code, answer.json()["status"]) == (202, "cancelled")


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


def test_candidates_are_listed_in_order_with_their_verdicts(served: Served):
    found = served.http.get(f"/v1/jobs/{served.world.ended}/candidates").json()["items"]
    shares = [each["of_roofline"] for each in found]
    assert [each["index"] for each in found] == [0, 1, 2, 3, 4]
    assert (found[1]["verdict"], found[1]["stage"], shares[1]) == ("rejected", "correct", None)
    assert (found[2]["verdict"], shares[2]) == ("passed", None)
    assert shares[3] == pytest.approx(ATTEMPTS[3].verdict.of_roofline)


def test_a_candidate_comes_whole_with_its_version(served: Served):
    answer = served.http.get(f"/v1/candidates/{FAST.digest}")
    body = answer.json()
    assert answer.headers["etag"] == f'"{body["version"]}"'
    assert body["candidate"]["source"] == FAST.source
    assert body["verdict"]["measured"][0]["baselines"] == {"eager": 47.4, "compile": 42.1}


def test_source_is_text_to_be_saved(served: Served):
    answer = served.http.get(f"/v1/candidates/{WRONG.digest}/source")
    assert answer.text == SNEAKY
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["content-disposition"].startswith("attachment; ")
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_every_answer_carries_the_security_headers(served: Served):
    for path in ("/v1/jobs", "/v1/none", "/", "/none", "/static/style.css", "/livez"):
        headers = served.http.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"], path
        assert headers["x-content-type-options"] == "nosniff", path


DECISION = {"decision": "accept", "note": "measured twice", "reviewer": "Ada"}


def test_a_review_needs_the_version_that_was_looked_at(tmp_path: Path):
    store = new_store(tmp_path)
    populate(store)
    with serving(store) as url, httpx.Client(base_url=url, timeout=20) as http:
        path = f"/v1/candidates/{FAST.digest}"
        etag = http.get(path).headers["etag"]
        is_problem(http.post(f"{path}/reviews", json=DECISION), 428, "if-match-required")
        for stale in ('"77"', "1", "*", 'W/"1"'):
            answer = http.post(f"{path}/reviews", json=DECISION, headers={"If-Match": stale})
            is_problem(answer, 412, "stale")
        reject = DECISION | {"decision": "reject"}
        first = http.post(f"{path}/reviews", json=reject, headers={"If-Match": etag})
        assert (first.status_code, first.json()["review"]["decision"]) == (201, "reject")
        late = http.post(f"{path}/reviews", json=DECISION, headers={"If-Match": etag})
        is_problem(late, 412, "stale")
        again = {"If-Match": first.headers["etag"]}
        assert http.post(f"{path}/reviews", json=DECISION, headers=again).status_code == 201
        kernel = http.get("/v1/kernels/rms_norm").json()
        assert (kernel["origin"], kernel["candidate_digest"]) == ("job", FAST.digest)
        assert http.get("/v1/kernels/rms_norm?version=1").json()["origin"] == "seed"


@pytest.mark.parametrize("digest", [WRONG.digest, UNBOXED.digest], ids=["rejected", "no sandbox"])
def test_what_cannot_be_believed_cannot_be_accepted(served: Served, digest: str):
    path = f"/v1/candidates/{digest}"
    headers = {"If-Match": served.http.get(path).headers["etag"]}
    answer = served.http.post(f"{path}/reviews", json=DECISION, headers=headers)
    is_problem(answer, 409, "not-acceptable")


def test_a_review_without_a_note_does_not_stand(served: Served):
    path = f"/v1/candidates/{FAST.digest}"
    headers = {"If-Match": served.http.get(path).headers["etag"]}
    empty = DECISION | {"note": " "}
    is_problem(
        served.http.post(f"{path}/reviews", json=empty, headers=headers), 409, "not-acceptable"
    )


def test_the_library_lists_a_seed_that_was_not_judged(served: Served):
    kernel = served.http.get("/v1/kernels").json()["items"][0]
    assert (kernel["name"], kernel["judged"], kernel["of_roofline"]) == ("rms_norm", False, None)
    whole = served.http.get("/v1/kernels/rms_norm").json()
    assert whole["verdict"] is None
    assert whole["op"]["inputs"]["x"]["axes"] == "M N"


def test_an_export_is_a_job_of_its_own(served: Served):
    asked = {"kernels": ["rms_norm"], "package": "mine"}
    answer = served.http.post("/v1/exports", json=asked, headers={"Idempotency-Key": "e1"})
    assert answer.status_code == 202
    where = answer.headers["location"]
    assert served.http.get(where).json()["request"] == asked | {"format": "wheel"}
    is_problem(served.http.get(f"{where}/artifact"), 409, "not-ready")
    again = served.http.post("/v1/exports", json=asked, headers={"Idempotency-Key": "e1"})
    assert again.headers["idempotency-replayed"] == "true"


def test_an_export_of_an_unknown_kernel_is_refused(served: Served):
    asked = {"kernels": ["rms_norm", "nothing"], "package": "mine"}
    body = is_problem(served.http.post("/v1/exports", json=asked), 422, "unknown-kernel")
    assert "nothing" in body["detail"]
    assert "rms_norm" not in body["detail"]


def test_a_job_that_is_no_export_is_not_found_as_one(served: Served):
    is_problem(served.http.get(f"/v1/exports/{served.world.ended}"), 404, "not-found")


def test_a_built_export_is_downloaded(served: Served):
    answer = served.http.get(f"/v1/exports/{served.world.exported}/artifact")
    assert answer.content == b"a wheel"
    assert "my_kernels-1.0-py3-none-any.whl" in answer.headers["content-disposition"]


def test_workers_are_listed(served: Served):
    worker = served.http.get("/v1/workers").json()["items"][0]
    assert (worker["name"], worker["doing"]) == ("worker-1", served.world.running)


def test_the_service_is_ready_only_when_its_tables_are_current(tmp_path: Path):
    store = new_store(tmp_path)
    with serving(store) as url, httpx.Client(base_url=url, timeout=20) as http:
        assert http.get("/livez").json() == {"live": True}
        assert http.get("/readyz").json() == {"ready": True}
        store.migrate("head")
        (tmp_path / "store.db").rename(tmp_path / "elsewhere.db")
        store.close()
        is_problem(http.get("/readyz"), 503, "unavailable")


def test_our_own_failure_tells_nothing_but_where_to_look(tmp_path: Path):
    class Broken(Store):
        def workers(self):
            raise ZeroDivisionError("secret")

    whole = new_store(tmp_path)
    with (
        serving(Broken(whole.database, whole.files)) as url,
        httpx.Client(base_url=url, timeout=20) as http,
    ):
        answer = http.get("/v1/workers")
        is_problem(answer, 500, "internal")
        assert "secret" not in answer.text
        page = http.get("/", headers={"accept": "text/html"})
        assert (page.status_code, "secret" in page.text) == (500, False)
        for each in (answer, page):
            assert "default-src 'none'" in each.headers["content-security-policy"]


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "", "[::2]"])
def test_another_host_name_is_not_answered(served: Served, host: str):
    is_problem(served.http.get("/v1/jobs", headers={"host": host}), 400, "unknown-host")


@pytest.mark.parametrize(
    "headers",
    [{"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"},
     {"sec-fetch-site": "same-site"}, {"origin": "http://127.0.0.1:1"}],
)  # fmt: skip
def test_a_request_from_another_site_is_refused(served: Served, headers: dict):
    path = f"/v1/jobs/{served.world.running}/cancel"
    is_problem(served.http.post(path, headers=headers), 403, "cross-origin")
    assert not served.store.job(served.world.running).cancel_requested


def test_the_description_names_every_path(served: Served):
    paths = served.http.get("/v1/openapi.json").json()["paths"]
    assert "/v1/candidates/{digest}/reviews" in paths
    assert not [path for path in paths if not path.startswith(("/v1/", "/livez", "/readyz"))]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "example.org", ""])
def test_an_address_that_others_can_reach_is_refused(served: Served, host: str):
    assert not is_loopback(host)
    with pytest.raises(NotLoopback, match="no authentication"):
        make_server(None, host, 0)


def test_the_request_of_the_world_is_one_that_the_service_takes(served: Served):
    assert served.http.post("/v1/jobs", json=REQUEST).status_code == 202
