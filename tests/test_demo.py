"""The demo's whole path, once: server, worker, pages in a browser, review, export and verify."""

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
import demo

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.mark.timeout(900)
def test_an_op_goes_in_and_a_verified_installable_kernel_comes_out(capfd):
    seen = []

    def look(address: str, digest: str) -> None:
        seen.append(digest)
        if CHROMIUM:
            seen.extend(pages(address, digest))

    assert demo.main(look) == 0
    told = capfd.readouterr().out
    assert "computes the same function as the library's rms_norm" in told
    assert "verified" in told and seen
    if not CHROMIUM:
        pytest.skip("the demo passed; its pages were not looked at, for there is no chromium here")
    starts = ["Jobs", "rms_norm succeeded winner", "Passed", "rms_norm_2 version 1"]
    assert [text[: len(start)] for text, start in zip(seen[1:], starts, strict=True)] == starts


def pages(address: str, digest: str) -> list[str]:
    """Look at each page as a reviewer would; what was found on it."""
    from playwright.sync_api import sync_playwright

    faults = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page()
        page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
        page.goto(address)
        found = [page.get_by_role("heading", name="Jobs").first.inner_text()]
        page.get_by_role("link", name="rms_norm").first.click()
        found.append(page.get_by_role("heading", level=1).first.inner_text())
        page.goto(f"{address}candidates/{digest}")
        found.append(page.get_by_role("heading", level=1).first.inner_text())
        page.goto(f"{address}kernels/rms_norm_2")
        found.append(page.get_by_role("heading", level=1).first.inner_text())
        browser.close()
    assert faults == []
    return found
