"""The JSON interface, over real HTTP from a real server with a real store."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from api_world import (
    ATTEMPTS,
    FAST,
    JOB,
    REQUEST,
    SNEAKY,
    UNBOXED,
    WRONG,
    Served,
    a_world,
    is_problem,
    new_store,
    populate,
    serving,
)


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[Served]:
    with a_world(tmp_path_factory.mktemp("api")) as served:
        yield served


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


@pytest.mark.parametrize("package", ["", "torch", "My-Kernels", "a b", "../a"])
def test_an_export_under_a_name_that_cannot_be_is_refused(served: Served, package: str):
    asked = {"kernels": ["rms_norm"], "package": package}
    body = is_problem(served.http.post("/v1/exports", json=asked), 422, "invalid")
    assert body["errors"][0]["pointer"] == "/package"


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


def test_the_description_names_every_path(served: Served):
    paths = served.http.get("/v1/openapi.json").json()["paths"]
    assert "/v1/candidates/{digest}/reviews" in paths
    assert not [path for path in paths if not path.startswith(("/v1/", "/livez", "/readyz"))]


def test_the_request_of_the_world_is_one_that_the_service_takes(served: Served):
    assert served.http.post("/v1/jobs", json=REQUEST).status_code == 202
