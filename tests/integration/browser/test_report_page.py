"""The page of ``dstl report`` in headless Chromium: no scripts, no network, narrow and wide."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import sync_playwright

from dstl_core.savepoint.report.count_options import CountOptions
from dstl_core.savepoint.report.figures import report_figures
from dstl_core.savepoint.report.page import report_page
from tests.integration.browser.test_scenario import ARTEFACTS, find_browser
from tests.unit.savepoint.test_report_contents import AT, DAY, KEYS, names, planted

pytestmark = pytest.mark.browser

EVIL = '<img src=x onerror="document.title=1"><script>document.title=2</script><style>*{color:red}'
WIDTHS = (400, 1600)
INK = {"light": "rgb(28, 30, 38)", "dark": "rgb(232, 234, 242)"}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report that shows keys, one of which is markup and has most of the bytes."""
    folder = tmp_path_factory.mktemp("report")
    old = planted(folder / "old", names(KEYS), hot=0)
    snapshot = planted(folder / "new", [*names(KEYS, 100), EVIL], hot=3000)
    options = CountOptions(AT, show_keys=True, ttls={"": 7 * DAY})
    figures = report_figures(snapshot, old, contents=options)
    assert EVIL.replace('"', '\\"') in str(figures["operators"]).replace("\\\\", "\\")
    figures["operators"][0]["uid"] = EVIL
    # The page shows where the snapshot stands; the pictures in the documentation need a short path.
    figures["path"] = figures["path"].replace(str(folder), "/data")
    figures["compared"]["path"] = figures["compared"]["path"].replace(str(folder), "/data")
    for finding in figures["attention"]:
        finding["command"] = finding["command"].replace(str(folder), "/data")
    file = folder / "report.html"
    file.write_text(report_page(figures), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=find_browser(), args=arguments)
        yield browser
        browser.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_is_readable_without_scripts(
    page: Path, chromium: Any, width: int, scheme: str
) -> None:
    size = {"width": width, "height": 1000}
    context = chromium.new_context(
        java_script_enabled=False, offline=True, color_scheme=scheme, viewport=size
    )
    shown = context.new_page()
    asked: list[str] = []
    shown.on("request", lambda request: asked.append(request.url))
    shown.goto(page.as_uri())
    assert asked == [page.as_uri()]
    assert shown.locator(".verdict").text_content() == "3 findings to look at"
    assert shown.locator("h2").first.text_content() == "Needs attention"
    assert shown.locator("h2").nth(3).text_content() == EVIL
    title = shown.locator("title").first
    assert title.text_content() == "Snapshot file:/data/new"
    assert shown.locator("img, script").count() == 0
    body = shown.locator("body")
    assert body.evaluate("e => getComputedStyle(e).color") == INK[scheme]
    # Only tables scroll sideways.
    assert body.evaluate("() => document.documentElement.scrollWidth") <= width
    heights = shown.locator("svg").evaluate_all("all => all.map(e => e.getBBox().height)")
    assert len(heights) >= 6
    assert min(heights) > 0
    ARTEFACTS.mkdir(exist_ok=True)
    shown.screenshot(path=ARTEFACTS / f"report-{width}-{scheme}.png")
    context.close()
