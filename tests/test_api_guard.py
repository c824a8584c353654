"""What the service refuses, and that every refusal has one shape."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from api_world import (
    JOB,
    SETTINGS,
    Served,
    a_world,
    is_problem,
    new_store,
    serving,
)

from api.requests import check_python
from api.serve import NotLoopback, is_loopback, make_server
from kernel_library.store import Store


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[Served]:
    with a_world(tmp_path_factory.mktemp("api")) as served:
        yield served


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


def test_every_answer_carries_the_security_headers(served: Served):
    for path in ("/v1/jobs", "/v1/none", "/", "/none", "/static/style.css", "/livez"):
        headers = served.http.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"], path
        assert headers["x-content-type-options"] == "nosniff", path


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


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "example.org", ""])
def test_an_address_that_others_can_reach_is_refused(served: Served, host: str):
    assert not is_loopback(host)
    with pytest.raises(NotLoopback, match="no authentication"):
        make_server(None, host, 0)
