"""The demo in the real Dagster UI: webserver, headless Chromium, what a person would see."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from threading import Event

import pytest
from playwright.sync_api import sync_playwright

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[3]
ARTEFACTS = ROOT / "artefacts"
POPULATE = """
from definitions import SPARK, STORAGE
from examples.flights import assets as flights
from examples.flights.run import RANGE_END, RANGE_START, instance, step
from definitions import DEMO_FOLDER
instance(DEMO_FOLDER)
step("bootstrap", [flights.flight_events, flights.bootstrapped_savepoint])
days = ("2013-11-01", "2013-11-06")
step("epochs", [flights.state], {RANGE_START: days[0], RANGE_END: days[1]})
step("rest", [flights.checkpoint, flights.savepoint, flights.rewritten_savepoint])
"""


def find_browser():
    for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"):
        found = shutil.which(name)
        if found:
            return found
    pytest.fail("No Chromium was found on the PATH; install it, e.g. 'apt-get install chromium'.")


def wait_until(condition, seconds, what):
    waiting = Event()
    for _ in range(int(seconds * 4)):
        found = condition()
        if found:
            return found
        waiting.wait(0.25)
    pytest.fail(f"{what} did not come within {seconds} s")


def query(url, text):
    request = urllib.request.Request(
        f"{url}/graphql",
        json.dumps({"query": text}).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)["data"]
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return None


def is_loaded(url):
    data = query(url, "{workspaceOrError{... on Workspace{locationEntries{loadStatus}}}}")
    return data and all(
        entry["loadStatus"] == "LOADED" for entry in data["workspaceOrError"]["locationEntries"]
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    environment = {
        **os.environ,
        "DSTL_DEMO_FOLDER": str(folder),
        "DAGSTER_DISABLE_TELEMETRY": "yes",
        "PYTHONPATH": str(ROOT),
    }
    subprocess.run(
        [sys.executable, "-c", POPULATE], cwd=ROOT, env=environment, check=True, timeout=600
    )
    environment["DAGSTER_HOME"] = str(folder / "dagster_home")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = ["dagster-webserver", "-w", "workspace.yaml", "-h", "127.0.0.1", "-p", str(port)]
    log = (folder / "webserver.log").open("w")
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
    )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: is_loaded(url), 120, "the webserver with its code location")
        yield url
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)
        log.close()


@pytest.fixture(scope="module")
def page(server):
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_browser(),
            args=[
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--disable-background-networking",
                "--disable-component-update",
            ],
        )
        page = browser.new_page(viewport={"width": 1500, "height": 950})
        page.set_default_timeout(60_000)
        yield page
        browser.close()


def shoot(page, name):
    ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTEFACTS / f"{name}.png")


def test_the_lineage_shows_all_assets(server, page):
    page.goto(f"{server}/asset-groups")
    for name in (
        "flight_events",
        "bootstrapped_savepoint",
        "flights-by-aircraft",
        "checkpoint",
        "rewritten_savepoint",
    ):
        page.get_by_text(name, exact=False).first.wait_for()
    shoot(page, "lineage")


def test_a_checkpoint_shows_its_metadata_and_commits(server, page):
    page.goto(f"{server}/assets/checkpoint?view=overview")
    for text in ("dstl/checkpoint_id", "dstl/log_bytes", "commits"):
        page.get_by_text(text, exact=False).first.wait_for()
    shoot(page, "checkpoint")


def test_the_check_is_shown_as_passed(server, page):
    page.goto(f"{server}/assets/checkpoint?view=checks")
    page.get_by_text("checkpoint_equals_aggregation").first.wait_for()
    page.get_by_text("Passed", exact=False).first.wait_for()
    shoot(page, "check")


def test_each_epoch_is_a_partition_of_the_state(server, page):
    page.goto(f"{server}/assets/state/flights-by-aircraft?view=partitions")
    page.get_by_text("2013-11-06").first.wait_for()
    shoot(page, "partitions")
