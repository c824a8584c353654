"""The dashboard in a real browser, where there is one."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from api_world import (
    ATTEMPTS,
    BASE,
    FAST,
    UNBOXED,
    WRONG,
    Served,
    World,
    a_world,
    new_store,
    serving,
    start,
)
from playwright.sync_api import Browser, Page, expect, sync_playwright

from kernel_library.job import Finished

CHROMIUM = shutil.which("chromium")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run",
)  # fmt: skip
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="BROWSER TESTS NOT RUN: no chromium on this machine (apt install it)"
)


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
    page.on("requestfailed", lambda request: complaints.append((request.url, request.failure)))
    yield page
    page.close()
    # a page that is left takes its streams and its icon with it
    complaints = [each for each in complaints if each[-1] != "net::ERR_ABORTED"]
    assert complaints == []


def paths(world: World) -> list[str]:
    digests = [each.candidate.digest for each in ATTEMPTS]
    jobs = [f"/jobs/{job}" for job in world]
    candidates = [f"/candidates/{digest}?job={world.ended}" for digest in digests]
    return ["/", *jobs, *candidates, "/kernels", "/kernels/rms_norm", "/submit"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_breaks_its_own_content_policy(shown: Served, chromium: Browser, scheme: str):
    with browsing(chromium, color_scheme=scheme) as page:
        for path in paths(shown.world) if scheme == "light" else paths(shown.world)[-5:]:
            assert page.goto(shown.url + path).status == 200, path
            expect(page.locator("h1")).to_have_count(1)


def test_pages_can_be_read_without_a_script(shown: Served, chromium: Browser):
    with browsing(chromium, java_script_enabled=False) as page:
        page.goto(f"{shown.url}/jobs/{shown.world.ended}")
        attempts = page.get_by_role("region", name="Attempts")
        expect(attempts.get_by_role("row", name="llm")).to_have_count(2)
        page.get_by_text("The chart’s numbers").click()
        expect(page.get_by_role("cell", name="rejected at correct", exact=True)).to_be_visible()


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


def test_a_note_is_asked_for_before_the_form_is_sent(shown: Served, chromium: Browser):
    with browsing(chromium) as page:
        page.goto(f"{shown.url}/candidates/{FAST.digest}")
        page.get_by_label("Your name").fill("Ada")
        page.get_by_role("button", name="Accept").click()
        assert page.evaluate("document.activeElement.id") == "note"
    assert shown.store.candidate(FAST.digest).review is None


@pytest.mark.parametrize("digest", [WRONG.digest, UNBOXED.digest], ids=["rejected", "no sandbox"])
def test_what_cannot_be_accepted_says_why(shown: Served, chromium: Browser, digest: str):
    with browsing(chromium) as page:
        page.goto(f"{shown.url}/candidates/{digest}")
        expect(page.get_by_role("button", name="Accept")).to_be_disabled()
        expect(page.get_by_text("Cannot be accepted.")).to_be_visible()


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


def test_the_list_of_jobs_stays_current(served: Served, chromium: Browser):
    with browsing(chromium) as page:
        page.goto(served.url)
        served.store.submit("optimize", "late_arrival", {})
        expect(page.get_by_role("link", name="late_arrival")).to_be_visible(timeout=10_000)


def test_a_job_is_cancelled_from_its_page(served: Served, chromium: Browser):
    with browsing(chromium) as page:
        page.goto(f"{served.url}/jobs/{served.world.running}")
        page.get_by_role("button", name="Cancel job").click()
        expect(page.get_by_text("stopping")).to_be_visible()
    assert served.store.job(served.world.running).cancel_requested
