"""What the dashboard's pages say and their forms do, over HTTP."""

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from api_world import (
    ATTEMPTS,
    FAST,
    INTERPRETED,
    MEASURE,
    OP,
    REPLAYED,
    UNTIMED,
    WRONG,
    Served,
    a_world,
    start,
    timed,
)

from api.chart import Point, progress
from api.models import verdict_page, why_not_acceptable
from api.text import diff, is_unseen, source_html, visible
from kernel_library.job import Attempt
from kernel_library.verdict import Measurement, Passed


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A world to change."""
    with a_world(tmp_path) as served:
        yield served


@pytest.fixture(scope="module")
def shown(tmp_path_factory) -> Iterator[Served]:
    """A world to look at."""
    with a_world(tmp_path_factory.mktemp("shown")) as served:
        yield served


def fields(http: httpx.Client, path: str) -> dict[str, str]:
    """The hidden fields of a page's form."""
    text = http.get(path).text
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', text))


# ---- what pages say, over HTTP


def test_a_character_that_hides_is_shown_in_source_and_diff(shown: Served):
    text = httpx.get(f"{shown.url}/candidates/{WRONG.digest}").text
    for mark in ("U+202E", "U+202C", "U+200B"):
        assert text.count(f">{mark}</span>") == 2, mark
    assert not {"\u202e", "\u202c", "\u200b"} & set(text)


def test_a_strangers_words_are_text(shown: Served):
    text = httpx.get(f"{shown.url}/candidates/{FAST.digest}").text
    assert "Fewer warps &lt;b&gt;hide&lt;/b&gt;" in text
    assert "<b>" not in text


def test_what_was_not_timed_says_so(shown: Served):
    text = httpx.get(f"{shown.url}/candidates/{UNTIMED.digest}").text
    assert "Not timed: interpreted on a CPU, compiled for sm_90." in text
    assert "Time µs" not in text


def test_times_stand_beside_their_baselines_and_their_device(shown: Served):
    text = httpx.get(f"{shown.url}/candidates/{FAST.digest}").text
    for part in (
        "NVIDIA H200",
        "37.8",
        "83.1 %",
        "eager µs",
        "compile µs",
        "1.25×",
        "37.4–38.6",
        "1.11× tie",
    ):
        assert part in text, part


def test_what_was_judged_quickly_alone_cannot_be_accepted():
    quick = timed(40.0, record=replace(REPLAYED, seconds={"speed": 1.0}))
    assert "Judged quickly" in why_not_acceptable(quick)
    assert why_not_acceptable(timed(40.0)) == ""


def test_a_winner_that_was_measured_again_shows_both_readings(served: Served):
    job, lease = start(served.store)
    for times in ((37.8, 41.5), (39.9, 42.0)):
        view = served.store.add_attempt(lease, Attempt(FAST, timed(*times)))
    text = httpx.get(f"{served.url}/candidates/{view.digest}?job={job}").text
    assert "attempt 2" in text
    assert re.findall(r"<td>(\d\d\.\d %)</td>", text) == ["79.3 %", "76.7 %"]


def test_a_kernel_shows_how_its_inputs_are_drawn(served: Served):
    assert "<code>Normal()</code>" in httpx.get(f"{served.url}/kernels/rms_norm").text


def test_a_failed_job_shows_its_problem(shown: Served):
    text = httpx.get(f"{shown.url}/jobs/{shown.world.failed}").text
    assert "The problem cannot be read" in text
    assert "line 7" in text


def test_a_page_that_is_not_there_is_a_page(shown: Served):
    answer = httpx.get(f"{shown.url}/jobs/none", headers={"accept": "text/html"})
    assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "there is no job" in answer.text


def test_a_form_without_its_token_is_refused(served: Served):
    path = f"/candidates/{FAST.digest}"
    decision = {"decision": "accept", "note": "good", "reviewer": "Ada"}
    with httpx.Client(base_url=served.url) as http, httpx.Client(base_url=served.url) as other:
        mine = fields(http, path) | decision
        theirs = fields(other, path) | decision
        for wrong in (mine | {"token": ""}, theirs):
            answer = http.post(path, data=wrong)
            assert (answer.status_code, answer.json()["type"]) == (403, "/problems/stale-form")
        assert http.post(path, json=mine).status_code == 400
        assert served.store.candidate(FAST.digest).review is None
        assert http.post(path, data=mine).status_code == 303
        assert served.store.candidate(FAST.digest).review.decision == "accept"


def test_a_second_reviewer_sees_the_first_ones_decision_and_keeps_their_note(served: Served):
    path = f"/candidates/{FAST.digest}"
    with httpx.Client(base_url=served.url) as http:
        form = fields(http, path) | {"decision": "accept", "note": "my <note>", "reviewer": "Bob"}
        served.store.review(
            FAST.digest, "reject", "too narrow", "Ada", version=int(form["version"])
        )
        answer = http.post(path, data=form)
    assert answer.status_code == 412
    for part in ("too narrow", "my &lt;note&gt;", 'value="Bob"', "Not recorded."):
        assert part in answer.text, part


def test_a_review_form_that_lacks_a_field_is_shown_again(shown: Served):
    path = f"/candidates/{FAST.digest}"
    with httpx.Client(base_url=shown.url) as http:
        answer = http.post(path, data=fields(http, path) | {"decision": "accept", "note": "x"})
    assert answer.status_code == 422
    assert "Give your name" in answer.text


def test_the_library_exports_what_was_chosen(shown: Served):
    with httpx.Client(base_url=shown.url) as http:
        form = fields(http, "/kernels") | {"kernels": ["rms_norm"], "package": "mine"}
        answer = http.post("/exports", data=form)
        job = shown.store.job(answer.headers["location"].removeprefix("/jobs/"))
        assert (job.kind, job.request["kernels"]) == ("export", ["rms_norm"])
        assert http.post("/exports", data=form | {"kernels": []}).status_code == 422


def test_a_problem_is_submitted_by_form_as_it_was_written(shown: Served):
    with httpx.Client(base_url=shown.url) as http:
        form = fields(http, "/submit") | {"filename": "a.py", "minutes": "2", "extra": ""}
        answer = http.post("/submit", data=form | {"source": "x = 1\r\ny = 2\r\n"})
    job = shown.store.job(answer.headers["location"].removeprefix("/jobs/"))
    expected = {"filename": "a.py", "source": "x = 1\ny = 2\n", "budget": {"seconds": 120.0}}
    assert job.request == expected | {"llm": False}


@pytest.mark.parametrize(
    ("change", "told"),
    [({"source": "def"}, "line 1"), ({"minutes": "x"}, "Minutes"), ({"filename": "a"}, "filename")],
)
def test_a_problem_that_is_refused_keeps_what_was_written(shown: Served, change: dict, told: str):
    with httpx.Client(base_url=shown.url) as http:
        form = fields(http, "/submit") | {"filename": "a.py", "source": "# mine", "minutes": "2"}
        answer = http.post("/submit", data=form | {"candidate": "# too"} | change)
    assert answer.status_code == 422
    assert told in answer.text
    assert "# too</textarea>" in answer.text


def test_source_colours_are_kept_by_browsers(shown: Served):
    answer = httpx.get(f"{shown.url}/code.css")
    assert "immutable" in answer.headers["cache-control"]
    assert "prefers-color-scheme: dark" in answer.text


# ---- the pure parts


@pytest.mark.parametrize(
    "character", "\u202e\u2066\u200b\u00ad\u00a0\u2028\u3164\x1b\x7f\ufe0f\r\ufeff"
)
def test_a_character_that_cannot_be_seen_is_known(character: str):
    assert is_unseen(character)
    assert f"U+{ord(character):04X}" in visible(f"a{character}b")


def test_letters_of_any_language_are_left_alone():
    assert visible("µ é 漢字 → ×") == "µ é 漢字 → ×"


def test_a_byte_order_mark_is_shown_though_the_lexer_drops_it():
    assert "U+FEFF" in source_html("\ufeffx = 1")


def test_source_html_holds_every_line():
    assert source_html("\n\nx = '<b>'\n").count('<a href="#L-') == 3


@pytest.mark.parametrize(
    "source",
    [" \n" * 120_000, "'" + "\\N{" * 80_000, "x = '" + "a" * 600 + "'", "x = 1\n" * 40_000],
    ids=["gap", "escapes", "line", "long"],
)
def test_source_that_would_hold_the_highlighter_up_is_shown_without_colours(source: str):
    began = time.process_time()
    assert "Without colours" in source_html(source)
    assert time.process_time() - began < 5


def test_a_diff_shows_what_changed_and_where():
    found = diff("a\nb\nc\n", "a\nB\nc\n")
    assert [(line.kind, line.old, line.new, line.text) for line in found][:3] == [
        ("same", 1, 1, "a"), ("gone", 2, None, "b"), ("new", None, 2, "B"),
    ]  # fmt: skip
    assert diff("a", "a") == ()
    assert diff("a", "\n" * 5000) is None


def test_a_diff_counts_lines_as_python_does():
    found = diff("a\x0cb\nc", "a\x0cb\nd")
    assert [line.old for line in found if line.kind == "gone"] == [2]


def test_the_chart_marks_each_attempt_by_shape():
    svg = progress(
        [Point("timed", 0.5, "one"), Point("rejected", 0, "two"), Point("untimed", 0, "x")]
    )
    assert [svg.count(f'"mark {kind}"') for kind in ("timed", "rejected", "untimed")] == [1, 1, 1]
    assert "style=" not in svg
    assert progress([]) == ""


def test_a_share_above_the_roofline_stays_on_the_chart():
    assert "125 %" in progress([Point("timed", 1.25, "faster than measured ceilings")])


def test_every_workload_has_one_row():
    timing = Measurement(MEASURE, 50.0, 49.0, 51.0, 31.4, "memory")
    checked = ATTEMPTS[0].verdict.checked
    told = verdict_page(Passed(checked, REPLAYED, (timing,)))
    assert len(told.rows) == len(OP.workloads)
    assert (told.rows[0].at, told.rows[0].measured) == (MEASURE, timing)
    assert told.baselines == ()
    assert told.rows[1].sizes == "M=3 N=127"


def test_a_verdict_without_times_gives_no_share():
    told = verdict_page(Passed((), INTERPRETED))
    assert "%" not in told.headline + told.summary
