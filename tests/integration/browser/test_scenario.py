"""One scenario in the real Dagster: webserver, daemon, headless Chromium, what a person would see.

Steps build on each other. The pictures are kept in ``artefacts/``.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import pytest
from playwright.sync_api import sync_playwright

from dstl_core import Snapshot
from dstl_dagster import DstlStorageResource
from examples.flights.run import RANGE_END, RANGE_START
from tests.integration.dagster.small_pipeline import PAYMENTS, ROWS, expected_totals, totals_in

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[3]
ARTEFACTS = ROOT / "artefacts"
LOCATION = Path(__file__).with_name("scenario_location.py")
REPOSITORY = {"repositoryLocationName": "scenario", "repositoryName": "__repository__"}
ALL_DAYS = [f"2026-01-{day:02}" for day in range(1, 15)]
BEFORE, FAILING, AFTER = ALL_DAYS[:6], ALL_DAYS[6], ALL_DAYS[7:]
EPOCH = ("state", "changelog", "checkpoint")
CHECKPOINT = "/assets/" + "/".join(PAYMENTS.key("checkpoint").path)
PARTITION, RANGE = "dagster/partition", (RANGE_START, RANGE_END)
ROWS_LIKE = dict(zip(ALL_DAYS, [*ROWS, *ROWS], strict=True))
CHARTS = ("log bytes per epoch", "bytes of the whole log", "bytes of state per materialization")
DAGSTER_YAML = """
telemetry: {enabled: false}
nux: {enabled: false}
run_coordinator:
  module: dagster.core.run_coordinator
  class: QueuedRunCoordinator
  config: {dequeue_interval_seconds: 1}
concurrency:
  pools: {granularity: op, default_limit: 1}
run_monitoring:
  enabled: true
  poll_interval_seconds: 5
  free_slots_after_run_end_seconds: 5
"""
PATIENCE_S = 600
"""Runs start a JVM each; the machine may have other work."""


def find_browser():
    for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"):
        browser = shutil.which(name)
        if browser:
            return browser
    pytest.fail("No Chromium was found on the PATH; install it, e.g. 'apt-get install chromium'.")


def wait_until(condition, what, seconds=PATIENCE_S):
    waiting = Event()
    for _ in range(int(seconds * 2)):
        result = condition()
        if result:
            return result
        waiting.wait(0.5)
    pytest.fail(f"{what} did not come within {seconds} s")


@dataclass
class Dagster:
    """The running server, by GraphQL, and the state it works on."""

    url: str
    folder: Path

    @property
    def store(self):
        return PAYMENTS.store(DstlStorageResource(base_path=str(self.folder / "state")))

    def query(self, text, **variables):
        body = json.dumps({"query": text, "variables": variables}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/graphql", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                answered = json.load(answer)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return None
        assert "errors" not in answered, answered["errors"]
        return answered["data"]

    def is_loaded(self):
        data = self.query("{workspaceOrError{... on Workspace{locationEntries{loadStatus}}}}")
        entries = data["workspaceOrError"]["locationEntries"] if data else []
        return bool(entries) and all(entry["loadStatus"] == "LOADED" for entry in entries)

    def launch(self, *kinds, tags=None, config=None):
        """A run of some assets; returns its id."""
        selector = {
            **REPOSITORY,
            "jobName": "__ASSET_JOB",
            "assetSelection": [{"path": PAYMENTS.key(kind).path} for kind in kinds],
        }
        tags = [{"key": key, "value": value} for key, value in (tags or {}).items()]
        data = self.query(
            "mutation($p: ExecutionParams!){launchRun(executionParams:$p){__typename "
            "... on LaunchRunSuccess{run{runId}} ... on PythonError{message}}}",
            p={
                "selector": selector,
                "runConfigData": config or {},
                "executionMetadata": {"tags": tags},
            },
        )
        assert data["launchRun"]["__typename"] == "LaunchRunSuccess", data
        return data["launchRun"]["run"]["runId"]

    def status(self, run_id):
        data = self.query("query($i: ID!){runOrError(runId:$i){... on Run{status}}}", i=run_id)
        return data["runOrError"]["status"]

    def await_end(self, run_id):
        ends = ("SUCCESS", "FAILURE", "CANCELED")
        return wait_until(
            lambda: status if (status := self.status(run_id)) in ends else None, f"run {run_id}"
        )

    def shown(self, kind):
        """What Dagster shows of an asset: the partitions that are green, and the latest event."""
        data = self.query(
            "query($k: AssetKeyInput!){assetNodeOrError(assetKey:$k){... on AssetNode{"
            "assetPartitionStatuses{... on TimePartitionStatuses{ranges{startKey endKey status}}}"
            "assetMaterializations(limit:1){partition}}}}",
            k={"path": PAYMENTS.key(kind).path},
        )["assetNodeOrError"]
        green = [
            day
            for span in data["assetPartitionStatuses"]["ranges"]
            if span["status"] == "MATERIALIZED"
            for day in ALL_DAYS
            if span["startKey"] <= day <= span["endKey"]
        ]
        return green, data["assetMaterializations"][0]["partition"]

    def runs_of(self, job):
        data = self.query(
            "query($j: String!){runsOrError(filter:{pipelineName:$j})"
            "{... on Runs{results{runId status}}}}",
            j=job,
        )
        return data["runsOrError"]["results"]

    def await_success_of(self, job):
        wait_until(
            lambda: any(run["status"] == "SUCCESS" for run in self.runs_of(job)),
            f"a run of {job} that succeeds",
        )


@pytest.fixture(scope="module")
def dagster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenario")
    home = folder / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text(DAGSTER_YAML)
    workspace = folder / "workspace.yaml"
    workspace.write_text(
        f"load_from:\n  - python_file:\n      relative_path: {LOCATION}\n"
        f"      location_name: scenario\n"
    )
    environment = {
        **os.environ,
        "DSTL_SCENARIO": str(folder),
        "DAGSTER_HOME": str(home),
        "DAGSTER_DISABLE_TELEMETRY": "yes",
        "PYTHONPATH": str(ROOT),
    }
    binaries = Path(sys.executable).parent
    # A pool whose limit is not there before its first use does not limit the first runs.
    subprocess.run(
        [binaries / "dagster", "instance", "concurrency", "set", "payments", "1"],
        cwd=ROOT,
        env=environment,
        check=True,
        timeout=120,
        capture_output=True,
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    commands = [
        ["dagster-webserver", "-w", str(workspace), "-h", "127.0.0.1", "-p", str(port)],
        ["dagster-daemon", "run", "-w", str(workspace)],
    ]
    log = (folder / "servers.log").open("w")
    processes = [
        subprocess.Popen(
            [binaries / command[0], *command[1:]],
            cwd=ROOT,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        for command in commands
    ]
    webserver = Dagster(f"http://127.0.0.1:{port}", folder)
    try:
        wait_until(webserver.is_loaded, "the webserver with its code location")
        yield webserver
    finally:
        for process in processes:
            os.killpg(process.pid, signal.SIGTERM)
        for process in processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        log.close()
        ARTEFACTS.mkdir(exist_ok=True)
        shutil.copy(folder / "servers.log", ARTEFACTS / "servers.log")


@pytest.fixture(scope="module")
def page(dagster):
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
        page.set_default_timeout(90_000)
        yield page
        browser.close()


def shoot(page, name, height=None):
    """Keeps a picture; ``height`` leaves out what is below, e.g. paths of this machine."""
    ARTEFACTS.mkdir(exist_ok=True)
    clip = None if height is None else {"x": 0, "y": 0, "width": 1500, "height": height}
    page.screenshot(path=ARTEFACTS / f"{name}.png", clip=clip)


def epochs(store):
    return [each.facts.input.id for each in store.history() if each.facts.input]


def storage_of(dagster):
    return DstlStorageResource(base_path=str(dagster.folder / "state"))


def expected(days):
    return expected_totals(*(ROWS_LIKE[day] for day in days))


def see_overview(dagster, page, name, days):
    """The asset's page shows the last of the days, and Dagster shows these as materialized."""
    for kind in EPOCH:
        assert dagster.shown(kind) == (days, days[-1])
    page.goto(f"{dagster.url}{CHECKPOINT}?view=overview")
    page.get_by_text("dstl/log_chart").first.wait_for()
    page.get_by_text(days[-1]).first.wait_for()
    shoot(page, name, height=738)


def test_a_backfill_of_14_days_that_fails_on_the_seventh_has_six(dagster, page):
    (dagster.folder / "broken").touch()
    data = dagster.query(
        "mutation($p: LaunchBackfillParams!){launchPartitionBackfill(backfillParams:$p){__typename "
        "... on LaunchBackfillSuccess{backfillId} ... on PythonError{message}}}",
        p={
            "assetSelection": [{"path": PAYMENTS.key(kind).path} for kind in EPOCH],
            "partitionNames": ALL_DAYS,
        },
    )
    backfill_id = data["launchPartitionBackfill"]["backfillId"]

    def runs():
        backfill = dagster.query(
            "query($i: String!){partitionBackfillOrError(backfillId:$i)"
            "{... on PartitionBackfill{runs(limit:9){runId}}}}",
            i=backfill_id,
        )["partitionBackfillOrError"]
        return backfill["runs"]

    [run] = wait_until(runs, "the run of the backfill")
    assert dagster.await_end(run["runId"]) == "FAILURE"
    assert epochs(dagster.store) == BEFORE
    see_overview(dagster, page, "backfill-failed", BEFORE)
    (dagster.folder / "broken").unlink()


def test_the_truncation_sensor_launches_a_run_and_the_log_shrinks(dagster):
    dagster.await_success_of("payments_materialize")
    wait_until(lambda: dagster.store.size().log == 0, "a checkpoint without a log")
    assert totals_in(storage_of(dagster)) == expected(BEFORE)


def test_savepoint_and_rewritten_savepoint(dagster):
    run_id = dagster.launch("savepoint", "rewritten")
    assert dagster.await_end(run_id) == "SUCCESS"


def test_the_tick_of_the_truncation_sensor_is_shown(dagster, page):
    selector = {**REPOSITORY, "sensorName": "payments_truncation"}
    data = dagster.query(
        "query($s: SensorSelector!){sensorOrError(sensorSelector:$s){... on Sensor{"
        "sensorState{id ticks(limit:99){status runIds}}}}}",
        s=selector,
    )
    ticks = data["sensorOrError"]["sensorState"]["ticks"]
    assert sum(len(tick["runIds"]) for tick in ticks) == 1, "one run, and then nothing to truncate"
    page.goto(f"{dagster.url}/locations/scenario/sensors/payments_truncation")
    page.get_by_text("payments_materialize", exact=True).first.wait_for()
    page.get_by_text("Loading ticks").wait_for(state="hidden")
    shoot(page, "sensor")
    # The steps after this one do not wait for further materializations.
    state = data["sensorOrError"]["sensorState"]["id"]
    stopped = dagster.query("mutation($i: String!){stopSensor(id:$i){__typename}}", i=state)
    assert stopped["stopSensor"]["__typename"] == "StopSensorMutationResult"


def start_slow_epoch(dagster):
    """A run that is in the middle of an epoch; its id, and the process of its step."""
    in_epoch = dagster.folder / "in-epoch"
    in_epoch.unlink(missing_ok=True)
    (dagster.folder / "slow").touch()
    run_id = dagster.launch(*EPOCH, tags={PARTITION: FAILING})
    wait_until(in_epoch.exists, "the middle of an epoch")
    return run_id, int(in_epoch.read_text())


def test_a_run_that_is_terminated_in_an_epoch_is_reset(dagster):
    run_id, _ = start_slow_epoch(dagster)
    assert [lease.run_id for lease in dagster.store.leases()] == [run_id]
    data = dagster.query("mutation($i: String!){terminateRun(runId:$i){__typename}}", i=run_id)
    assert data["terminateRun"]["__typename"] == "TerminateRunSuccess"
    assert dagster.await_end(run_id) == "CANCELED"
    assert dagster.store.leases() == [] and dagster.store.orphans() == []
    assert epochs(dagster.store) == BEFORE


def test_a_step_that_is_killed_is_swept(dagster, page):
    run_id, step = start_slow_epoch(dagster)
    orphan = Path(dagster.store.layout.changelog.path) / "0b0e64b0-5a9d-4f28-9c0d-6f3a3f7f6c11"
    orphan.write_bytes(b"what the killed epoch has written")
    os.kill(step, signal.SIGKILL)
    (dagster.folder / "slow").unlink()
    assert dagster.await_end(run_id) == "FAILURE"
    dagster.await_success_of("payments_reset")
    wait_until(lambda: dagster.store.leases() == [], "the end of the sweep")
    assert not orphan.exists() and dagster.store.orphans() == []
    page.goto(f"{dagster.url}/runs/{run_id}")
    page.get_by_text("Failure", exact=False).first.wait_for()
    shoot(page, "killed-run")


def test_the_days_after_the_failing_one_run_if_the_run_may_leave_it_out(dagster, page):
    """The pool slot of the killed step is free again, too."""
    days = dict(zip(RANGE, (AFTER[0], AFTER[-1]), strict=True))
    run_id = dagster.launch(*EPOCH, tags={**days, "dstl/allow-gap": "true"})
    assert dagster.await_end(run_id) == "SUCCESS"
    assert epochs(dagster.store) == [*BEFORE, *AFTER]
    assert totals_in(storage_of(dagster)) == expected([*BEFORE, *AFTER])
    see_overview(dagster, page, "gap", [*BEFORE, *AFTER])


def test_the_failing_day_is_put_in_by_one_run_and_the_state_is_exact(dagster, page):
    again = {"ops": {"payments_state": {"config": {"rewind_to": FAILING}}}}
    run_id = dagster.launch(*EPOCH, tags={PARTITION: FAILING}, config=again)
    assert dagster.await_end(run_id) == "SUCCESS"
    assert epochs(dagster.store)[-8:] == [FAILING, *AFTER]
    assert totals_in(storage_of(dagster)) == expected(ALL_DAYS)
    see_overview(dagster, page, "repaired", ALL_DAYS)


def test_a_checkpoint_shows_its_metadata_and_its_chart(dagster, page):
    page.goto(f"{dagster.url}{CHECKPOINT}?partition={ALL_DAYS[-1]}&view=partitions")
    page.get_by_text("dstl/log_chart").first.wait_for()
    for text in ("dstl/checkpoint_id", "dstl/data_version", "dstl/epochs"):
        page.get_by_text(text, exact=False).first.wait_for()
    chart = page.locator("img[alt='log bytes per epoch']").first
    chart.wait_for()
    # A picture that is broken, or hidden behind a link, has no width.
    assert chart.evaluate("image => image.naturalWidth") == 320
    shoot(page, "checkpoint", height=598)


def test_the_lineage_shows_all_assets(dagster, page):
    page.set_viewport_size({"width": 2300, "height": 700})
    page.goto(f"{dagster.url}/asset-groups")
    for name in ("totals", "checkpoint", "savepoint", "rewritten"):
        page.get_by_text(name, exact=False).first.wait_for()
    page.get_by_text("Materialized", exact=False).first.wait_for()
    shoot(page, "lineage")
    page.set_viewport_size({"width": 1500, "height": 950})


def test_the_checks_are_shown(dagster, page):
    page.goto(f"{dagster.url}{CHECKPOINT}?view=checks")
    for name in ("committed", "verified", "log_size", "no_leftovers"):
        page.get_by_text(name).first.wait_for()
    page.get_by_text("Passed", exact=False).first.wait_for()
    shoot(page, "checks")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_charts_are_drawn_in_both_themes(dagster, page, theme):
    page.emulate_media(color_scheme=theme)  # Dagster follows the system's setting
    page.goto(f"{dagster.url}{CHECKPOINT}?partition={ALL_DAYS[-1]}&view=partitions")
    for name in CHARTS:
        chart = page.locator(f"img[alt='{name}']").first
        chart.wait_for()
        assert chart.evaluate("image => image.complete && image.naturalWidth") == 320
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    shades = [int(each) for each in re.findall(r"\d+", background)[:3]]
    assert (sum(shades) < 3 * 128) == (theme == "dark"), background
    page.locator(f"img[alt='{CHARTS[0]}']").first.scroll_into_view_if_needed()
    shoot(page, f"charts-{theme}")


def evolution(dagster, **config):
    """A run of the plan of the changed definition."""
    run_id = dagster.launch("evolution", config={"ops": {"payments_evolution": {"config": config}}})
    assert dagster.await_end(run_id) == "SUCCESS"


def test_a_changed_definition_waits_until_its_plan_is_approved(dagster, page):
    page.emulate_media(color_scheme="light")
    (dagster.folder / "evolved").touch()
    reload = 'mutation{reloadRepositoryLocation(repositoryLocationName: "scenario"){__typename}}'
    assert dagster.query(reload)["reloadRepositoryLocation"]["__typename"] != "PythonError"
    wait_until(dagster.is_loaded, "the changed code location")
    latest = dagster.store.require_latest()
    evolution(dagster)
    again = {"ops": {"payments_state": {"config": {"rewind_to": ALL_DAYS[-1]}}}}
    run_id = dagster.launch(*EPOCH, tags={PARTITION: ALL_DAYS[-1]}, config=again)
    assert dagster.await_end(run_id) == "FAILURE"
    assert dagster.store.require_latest() == latest
    path = "/".join(PAYMENTS.key("evolution").path)
    page.goto(f"{dagster.url}/assets/{path}?view=overview")
    page.get_by_text("dstl/changes").first.wait_for()
    for change in ("backfilled", "renamed", "dropped"):
        page.get_by_text(change, exact=True).first.wait_for()
    page.get_by_text("dstl/plan", exact=True).first.scroll_into_view_if_needed()
    shoot(page, "evolution")


def test_a_day_is_restated_under_the_changed_definition(dagster, page):
    evolution(dagster, approve=True)
    day, correction = "2026-01-12", [["account-1", 7000], ["account-99", 1]]
    (dagster.folder / "corrected").write_text(json.dumps({day: correction}))
    again = {"ops": {"payments_state": {"config": {"rewind_to": day}}}}
    run_id = dagster.launch(*EPOCH, tags={PARTITION: day}, config=again)
    assert dagster.await_end(run_id) == "SUCCESS"
    rows = {each: ROWS[ROWS_LIKE[each]] for each in ALL_DAYS} | {day: correction}
    amounts = {}
    for paid_on in ALL_DAYS:
        for account, amount in rows[paid_on]:
            amounts.setdefault(account, []).append(amount)
    operator = Snapshot.load(dagster.store.path_of(dagster.store.require_latest()))["uid:totals"]
    for state, value_of in (("payments", len), ("revenue", sum), ("least", min)):
        held = {entry.key: entry.value for entry in operator.keyed_entries(state)}
        assert held == {account: value_of(paid) for account, paid in amounts.items()}, state
    see_overview(dagster, page, "restated", ALL_DAYS)
    run_id = dagster.launch("report")
    assert dagster.await_end(run_id) == "SUCCESS"
    page.goto(f"{dagster.url}{CHECKPOINT}?view=overview")
    page.get_by_text("dstl/report", exact=True).first.wait_for()
    page.get_by_text("payments_report").first.click()
    page.get_by_text("dstl/findings").first.wait_for()
