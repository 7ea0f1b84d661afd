"""Automation conditions of a pipeline, evaluated as the daemon does, over simulated hours."""

import datetime as dt
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

import dstl_dagster as dstl
from dstl_core import Snapshot, aggregates
from tests.integration.dagster.small_pipeline import LOCAL, payments

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
    condition: dg.AutomationCondition,
    *,
    updates: dict[int, str] | None,
    minutes: int = 240,
    prefix: str | None = None,
) -> list[tuple[int, str]]:
    """When the state of which windows is requested, in minutes after ``START``.

    Args:
        condition: The condition of the pipeline.
        updates: Minutes to the partition of the upstream asset that is ready then; None: the
            pipeline has no upstream asset.
        minutes: How long is simulated.
        prefix: What the keys of the assets get.
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

    if prefix is not None:
        own = {key: key.with_prefix(prefix) for key in epochs.keys}
        epochs = epochs.with_attributes(asset_key_replacements=own)
    state = next(key for key in epochs.keys if "state" in key.path[-1])
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
                assert not windows or key == state
                requests += [(minute, window) for window in windows]
    return requests


@pytest.mark.parametrize("prefix", [None, "team"])
def test_a_cron_condition_requests_the_last_window_of_each_hour(prefix: str | None) -> None:
    requests = requested_in(CONDITIONS["on_cron"], updates=None, prefix=prefix)
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


DAYS = dg.DailyPartitionsDefinition("2026-01-01")
SOLD = {f"2026-01-0{day}": [("a", day), (f"only-{day}", 10 * day)] for day in (1, 2, 3)}
MORNINGS = dg.AutomationCondition.on_cron("0 2 * * *")


@pytest.mark.parametrize("prefix", [None, "team"])
def test_automation_runs_a_pipeline_for_days(
    storage: dstl.DstlStorageResource, prefix: str | None
) -> None:
    """Each window once, in order, on its morning; a savepoint after it, and a copy after that."""
    pipeline = dstl.aggregating_pipeline(
        "sales",
        uid="totals",
        key_by="account",
        states={"total": aggregates.sum("amount")},
        schema="account string, amount long",
        engine="engine",
    )

    @dstl.dstl_assets(pipeline=pipeline, partitions_def=DAYS, automation_condition=MORNINGS)
    def epochs(
        context: dg.AssetExecutionContext,
        storage: dstl.DstlStorageResource,
        engine: dg.ResourceParam[Any],
    ) -> Iterator[Any]:
        yield from dstl.run_epochs(
            context, pipeline, lambda _, day: payments(*SOLD[day]), storage=storage, engine=engine
        )

    if prefix is not None:
        own = {key: key.with_prefix(prefix) for key in epochs.keys}
        epochs = epochs.with_attributes(asset_key_replacements=own)
    resources = {"storage": storage, "engine": LOCAL}
    defs = dstl.build_pipeline_defs(
        pipeline,
        [epochs],
        rewrite=dstl.snapshots.Rewrite(rename={"totals": "sums"}),
        resources=resources,
    )
    job = defs.resolve_implicit_global_asset_job_def()
    launched, cursor = [], None
    with dg.DagsterInstance.ephemeral() as instance:
        for hour in range(24 * 3):
            now = dt.datetime(2026, 1, 2, 0, 30) + dt.timedelta(hours=hour)
            if now.hour == 5:  # somebody takes a savepoint each day
                job.execute_in_process(
                    instance=instance, asset_selection=[pipeline.key("savepoint")]
                )
            result = dg.evaluate_automation_conditions(
                defs=defs, instance=instance, cursor=cursor, evaluation_time=now
            )
            cursor = result.cursor
            for evaluation in result.results:
                for key in [evaluation.key] if evaluation.true_subset.size else []:
                    for day in sorted(result.get_requested_partitions(key)):
                        launched.append((f"{now:%d %H}", key.path[-1], day))
                        assert job.execute_in_process(
                            instance=instance, asset_selection=[key], partition_key=day
                        ).success
    assert launched == [
        (f"0{morning} {hour}", f"sales_{part}", day)
        for morning in (2, 3, 4)
        for hour, part, day in (
            ("02", "state_totals", f"2026-01-0{morning - 1}"),
            ("05", "rewritten", None),
        )
    ]
    store = pipeline.store(storage)
    state = Snapshot.load(store.path_of(store.require_latest()))["totals"].dump("total")
    assert {line["key"]: line["value"] for line in state} == {
        "a": 6,
        "only-1": 10,
        "only-2": 20,
        "only-3": 30,
    }
