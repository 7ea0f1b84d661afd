"""Automation conditions of a pipeline, evaluated as the daemon does, over simulated hours."""

import datetime as dt

import dagster as dg
import pytest

import dstl_dagster as dstl
from dstl_core import aggregates

pytestmark = [
    pytest.mark.dagster,
    pytest.mark.filterwarnings("ignore::dagster.BetaWarning"),
]
HOURS = dg.HourlyPartitionsDefinition("2026-01-01-00:00")
START = dt.datetime(2026, 1, 1, 3, 0)
CONDITIONS = {
    "on_cron": dg.AutomationCondition.on_cron("15 * * * *"),
    "eager": dg.AutomationCondition.eager(),
}
"""Those that the pages and the schema of the component name."""


def requested_in(
    condition: dg.AutomationCondition, *, updates: dict[int, str] | None, minutes: int = 240
) -> list[tuple[int, str]]:
    """When the state of which windows is requested, in minutes after ``START``.

    Args:
        condition: The condition of the pipeline.
        updates: Minutes to the partition of the upstream asset that is ready then; None: the
            pipeline has no upstream asset.
        minutes: How long is simulated.
    """

    @dg.asset(partitions_def=HOURS)
    def events() -> None: ...

    pipeline = dstl.aggregating_pipeline(
        "payments",
        uid="totals",
        key_by="k",
        states={"n": aggregates.count()},
        schema="k string",
        engine="engine",
    )

    @dstl.dstl_assets(
        pipeline=pipeline,
        partitions_def=HOURS,
        deps=[] if updates is None else [events],
        automation_condition=condition,
    )
    def epochs(context: dg.AssetExecutionContext): ...

    defs = dg.Definitions(assets=[epochs, events])
    requests, cursor = [], None
    with dg.DagsterInstance.ephemeral() as instance:
        for minute in range(0, minutes, 5):
            if updates and minute in updates:
                instance.report_runless_asset_event(
                    dg.AssetMaterialization(events.key, partition=updates[minute])
                )
            result = dg.evaluate_automation_conditions(
                defs=defs,
                instance=instance,
                cursor=cursor,
                evaluation_time=START + dt.timedelta(minutes=minute),
            )
            cursor = result.cursor
            for key in epochs.keys:
                windows = sorted(result.get_requested_partitions(key))
                assert not windows or key == pipeline.key("state")
                requests += [(minute, window) for window in windows]
    return requests


def test_a_cron_condition_requests_the_last_window_of_each_hour() -> None:
    requests = requested_in(CONDITIONS["on_cron"], updates=None)
    assert requests == [(15 + 60 * n, f"2026-01-01-{2 + n:02}:00") for n in range(4)]


def test_a_cron_condition_waits_for_what_is_upstream() -> None:
    updates = {5: "2026-01-01-02:00", 100: "2026-01-01-03:00"}  # the second one is late
    requests = requested_in(CONDITIONS["on_cron"], updates=updates)
    assert [window for _, window in requests] == ["2026-01-01-03:00"]
    assert requests[0][0] == 100


def test_an_eager_condition_follows_what_is_upstream() -> None:
    updates = {5: "2026-01-01-02:00", 65: "2026-01-01-03:00"}
    requests = requested_in(CONDITIONS["eager"], updates=updates)
    assert requests == [(5, "2026-01-01-02:00"), (65, "2026-01-01-03:00")]
