"""``make demo``: the main job end to end, through Dagster on local Spark, and what it did."""

from __future__ import annotations

import logging
import os
import sys
import time
import warnings
import webbrowser
from pathlib import Path
from typing import Any

warnings.filterwarnings("ignore", module="dagster.*")
if __name__ == "__main__":
    print("Dagster and Spark start", flush=True)

import dagster as dg  # noqa: E402  # after the filter: Dagster warns while it is imported
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from definitions import DEMO_FOLDER, SPARK, STORAGE  # noqa: E402
from dstl_core import StatefulJob  # noqa: E402
from dstl_core.errors import DstlError  # noqa: E402
from examples.flights import assets as flights  # noqa: E402
from examples.flights.events import STATES, aggregate, events_of  # noqa: E402
from examples.flights.pipeline import flights_job  # noqa: E402

CONSOLE = Console(highlight=False, width=max(Console().width, 88))
DAGSTER_YAML = """telemetry:
  enabled: false
nux:
  enabled: false
python_logs:
  python_log_level: WARNING
"""
RETRIED = "state"
RANGE_START = "dagster/asset_partition_range_start"
RANGE_END = "dagster/asset_partition_range_end"


def instance(folder: Path) -> dg.DagsterInstance:
    """The demo's own Dagster instance, which ``make ui`` opens too."""
    home = folder / "dagster_home"
    home.mkdir(parents=True, exist_ok=True)
    (home / "dagster.yaml").write_text(DAGSTER_YAML)
    os.environ["DAGSTER_HOME"] = str(home)
    return dg.DagsterInstance.get()


def step(title: str, selection: list[Any], tags: dict[str, str] | None = None) -> None:
    """Materializes some assets with their checks in one run."""
    started = time.monotonic()
    CONSOLE.print(f"[bold]{title}[/bold]")
    result = dg.materialize(
        [*flights.ASSETS, *flights.ALL_CHECKS],
        selection=dg.AssetSelection.assets(*selection),
        instance=dg.DagsterInstance.get(),
        resources={"storage": STORAGE, "spark": SPARK},
        tags=tags,
        raise_on_error=False,
    )
    CONSOLE.print(f"  {time.monotonic() - started:.1f} s, Dagster run {result.run_id[:8]}")
    retries = [
        event
        for event in result.all_events
        if event.is_step_up_for_retry and RETRIED in event.node_name
    ]
    if retries:
        CONSOLE.print(
            f"  {flights.PLANNED_FAILURE} failed on purpose: aborted, reset, run again by Dagster"
        )
    for check in result.get_asset_check_evaluations():
        figures = {name: value.value for name, value in check.metadata.items()}
        counts = ""
        if "differing" in figures:
            counts = f", {figures['differing']} of {figures['keys']:,} keys differ"
        CONSOLE.print(
            f"  check {check.check_name}: {'passed' if check.passed else 'FAILED'}{counts}"
        )
        if not check.passed and check.severity is dg.AssetCheckSeverity.ERROR:
            raise SystemExit(1)
    if not result.success:
        CONSOLE.print("[red]the run failed; see its log in the UI (make ui)[/red]")
        raise SystemExit(1)


def print_epochs(job: StatefulJob, ran_now: set[int]) -> None:
    """The table of commits: what each one logged against what the full state is."""
    table = Table("chk", "what", "events", "keys changed", "log", "full state", "seconds")
    for column in table.columns[2:]:
        column.justify = "right"
    full = 0
    for commit in job.history():
        facts = commit.facts
        full = facts.materialized_bytes or full
        epoch_input = facts.input
        what = str(facts.kind if epoch_input is None else epoch_input.id)
        table.add_row(
            str(commit.checkpoint_id),
            what if commit.checkpoint_id in ran_now else f"{what} (before)",
            "" if epoch_input is None else f"{epoch_input.rows:,}",
            "" if epoch_input is None else f"{facts.changed_keys:,}",
            "" if epoch_input is None else f"{facts.log_bytes:,} B",
            f"{full:,} B" if epoch_input is None else "",
            "" if epoch_input is None else f"{facts.seconds:.1f}",
        )
    CONSOLE.print(table)
    epochs = [commit.facts for commit in job.history() if commit.facts.input is not None]
    logged = sum(facts.log_bytes for facts in epochs)
    CONSOLE.print(
        f"{len(epochs)} epochs logged {logged:,} bytes; full snapshots: {full * len(epochs):,}."
    )


def check_dump(job: StatefulJob) -> None:
    """What ``dstl dump`` prints of the last checkpoint, against the plain aggregation."""
    session = SPARK.spark_session
    last_day = flights.last_committed_day(STORAGE)
    rows = events_of(
        session,
        flights.events_folder(STORAGE.base_path),
        flights.BOOTSTRAP_DAYS[0],
        last_day,
    )
    expected = {
        (name, row["tailnum"]): row[name] for row in aggregate(rows).collect() for name in STATES
    }
    got = {
        (line["state"], line["key"]): line["value"]
        for operator in job.snapshot().operators
        for line in operator.dump()
    }
    differing = sum(expected.get(key) != got.get(key) for key in expected.keys() | got.keys())
    CONSOLE.print(
        f"  dstl dump of the last checkpoint: {differing} of {len(got):,} entries differ "
        f"(events up to {last_day})"
    )
    if differing:
        raise SystemExit(1)


def write_report(job: StatefulJob) -> Path:
    """Writes the report of the last checkpoint. A desktop opens it."""
    page = DEMO_FOLDER / "report.html"
    job.report(show_keys=True).write(page)
    has_display = sys.platform == "darwin" or {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys()
    if has_display and sys.stdout.isatty():
        webbrowser.open(page.as_uri())
    return page


def main() -> None:
    """Runs the demo; a second run on the same folder re-runs nothing that is committed."""
    started = time.monotonic()
    logging.getLogger("py4j").setLevel(logging.ERROR)
    logging.getLogger("dstl_core").setLevel(logging.ERROR)
    instance(DEMO_FOLDER)
    days = flights.NOVEMBER.get_partition_keys()
    step("events and bootstrap", [flights.flight_events, flights.bootstrapped_savepoint])
    job = flights_job(SPARK.spark_session, STORAGE.jobs)
    before = {commit.checkpoint_id for commit in job.history()}
    step(
        f"one epoch a day, {days[0]} to {days[-1]}, in one backfill run",
        [flights.state],
        {RANGE_START: days[0], RANGE_END: days[-1]},
    )
    step(
        "materialization, savepoint, rewritten savepoint, checks",
        [flights.FLIGHTS.key(kind) for kind in ("materialization", "savepoint", "rewritten")],
    )
    check_dump(job)
    ran_now = {commit.checkpoint_id for commit in job.history()} - before
    print_epochs(job, ran_now)
    if not ran_now:
        CONSOLE.print("Everything was committed by an earlier run: nothing was run again.")
    latest = job.latest_path()
    if latest.startswith("file:"):
        latest = os.path.relpath(latest.removeprefix("file:"))
    CONSOLE.print(
        f"\nDone in {time.monotonic() - started:.0f} s. Look into it:\n"
        f"  {os.path.relpath(write_report(job))}       the report of the state, for a browser\n"
        f"  .venv/bin/dstl inspect {latest}\n"
        f"  .venv/bin/dstl dump {latest} --state total_delay\n"
        f"  make ui                 the Dagster UI on this very instance",
        soft_wrap=True,
    )


if __name__ == "__main__":
    try:
        main()
    except (DstlError, OSError) as error:
        sys.exit(f"dstl: {error}")
