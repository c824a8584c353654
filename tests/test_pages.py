"""The dashboard: its forms over HTTP, and its pages in a real browser where there is one."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from api_world import (
    ATTEMPTS,
    BASE,
    FAST,
    INTERPRETED,
    MEASURE,
    OP,
    REPLAYED,
    UNBOXED,
    UNTIMED,
    WRONG,
    World,
    new_store,
    populate,
    serving,
    start,
)  # fmt: skip
from playwright.sync_api import Browser, Page, expect, sync_playwright

from api.chart import Point, progress
from api.models import verdict_page
from api.text import diff, is_unseen, source_html, visible
from kernel_library.job import Finished
from kernel_library.store import Store
from kernel_library.verdict import Measurement, Passed

CHROMIUM = shutil.which("chromium")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run",
)  # fmt: skip
browser = pytest.mark.skipif(
    CHROMIUM is None, reason="BROWSER TESTS NOT RUN: no chromium on this machine (apt install it)"
)


class Served(NamedTuple):
    store: Store
    world: World
    url: str


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


@contextmanager
def a_world(folder: Path) -> Iterator[Served]:
    store = new_store(folder)
    world = populate(store)
    with serving(store) as url:
        yield Served(store, world, url)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@contextmanager
def browsing(chromium: Browser, **settings) -> Iterator[Page]:
    """A browser's page; a word on its console, an error or a CSP violation fails the test."""
    complaints = []
    page = chromium.new_page(**settings)
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("requestfailed", lambda request: complaints.append(request.url))
    yield page
    page.close()
    # a stream fails when its page is left, and that is all that may
    assert [each for each in complaints if "/events?after=" not in each] == []


def paths(world: World) -> list[str]:
    digests = [each.candidate.digest for each in ATTEMPTS]
    jobs = [f"/jobs/{job}" for job in world]
    candidates = [f"/candidates/{digest}?job={world.ended}" for digest in digests]
    return ["/", *jobs, *candidates, "/kernels", "/kernels/rms_norm", "/submit"]


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
    for part in ("NVIDIA H200", "37.8", "83.1 %", "eager µs", "compile µs", "1.25×", "37.4–38.6"):
        assert part in text, part


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


# ---- in a browser


@browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_breaks_its_own_content_policy(shown: Served, chromium: Browser, scheme: str):
    with browsing(chromium, color_scheme=scheme) as page:
        for path in paths(shown.world):
            assert page.goto(shown.url + path).status == 200, path
            expect(page.locator("h1")).to_have_count(1)


@browser
def test_pages_can_be_read_without_a_script(shown: Served, chromium: Browser):
    with browsing(chromium, java_script_enabled=False) as page:
        page.goto(f"{shown.url}/jobs/{shown.world.ended}")
        attempts = page.get_by_role("region", name="Attempts")
        expect(attempts.get_by_role("row", name="llm")).to_have_count(2)
        page.get_by_text("The chart’s numbers").click()
        expect(page.get_by_role("cell", name="rejected at correct", exact=True)).to_be_visible()


@browser
def test_a_candidate_is_accepted_by_keyboard_alone(served: Served, chromium: Browser):
    with browsing(chromium) as page:
        page.goto(f"{served.url}/candidates/{FAST.digest}?job={served.world.ended}")
        tab_to(page, "reviewer")
        page.keyboard.type("Ada")
        page.keyboard.press("Tab")
        page.keyboard.type("faster than compile on every size")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.get_by_text("faster than compile on every size")).to_be_visible()
        page.get_by_role("link", name="in the library").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("version 2")
    kernel = served.store.kernel("rms_norm")
    assert (kernel.origin, kernel.candidate_digest) == ("job", FAST.digest)


def tab_to(page: Page, name: str) -> None:
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == name:
            return
    raise AssertionError(f"{name} cannot be reached by keyboard")


@browser
def test_a_note_is_asked_for_before_the_form_is_sent(shown: Served, chromium: Browser):
    with browsing(chromium) as page:
        page.goto(f"{shown.url}/candidates/{FAST.digest}")
        page.get_by_label("Your name").fill("Ada")
        page.get_by_role("button", name="Accept").click()
        assert page.evaluate("document.activeElement.id") == "note"
    assert shown.store.candidate(FAST.digest).review is None


@browser
@pytest.mark.parametrize("digest", [WRONG.digest, UNBOXED.digest], ids=["rejected", "no sandbox"])
def test_what_cannot_be_accepted_says_why(shown: Served, chromium: Browser, digest: str):
    with browsing(chromium) as page:
        page.goto(f"{shown.url}/candidates/{digest}")
        expect(page.get_by_role("button", name="Accept")).to_be_disabled()
        expect(page.get_by_text("Cannot be accepted.")).to_be_visible()


@browser
def test_a_jobs_page_follows_the_job(tmp_path: Path, chromium: Browser):
    store = new_store(tmp_path)
    job, lease = start(store)
    with serving(store) as url, browsing(chromium) as page:
        page.goto(f"{url}/jobs/{job}")
        page.get_by_text("rms_norm.py").click()
        store.add_attempt(lease, ATTEMPTS[0])
        expect(page.get_by_role("link", name=BASE.digest[:12]).first).to_be_visible()
        page.get_by_text("The chart’s numbers").click()
        store.finish(lease, Finished("winner", "Nothing was left to try.", BASE.digest))
        expect(page.get_by_text("Nothing was left to try.").first).to_be_visible()
        expect(page.locator("#numbers")).to_have_attribute("open", "")
        expect(page.get_by_text("succeeded")).to_be_visible()
        expect(page.get_by_role("button", name="Cancel")).to_have_count(0)


@browser
def test_the_list_of_jobs_stays_current(served: Served, chromium: Browser):
    with browsing(chromium) as page:
        page.goto(served.url)
        served.store.submit("optimize", "late_arrival", {})
        expect(page.get_by_role("link", name="late_arrival")).to_be_visible(timeout=10_000)


@browser
def test_a_job_is_cancelled_from_its_page(served: Served, chromium: Browser):
    with browsing(chromium) as page:
        page.goto(f"{served.url}/jobs/{served.world.running}")
        page.get_by_role("button", name="Cancel job").click()
        expect(page.get_by_text("stopping")).to_be_visible()
    assert served.store.job(served.world.running).cancel_requested
