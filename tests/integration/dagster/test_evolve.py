"""A pipeline whose states change between days: renamed, dropped, wider, begun anew, restated."""

from typing import Any

import dagster as dg
import pytest

from dstl_core import Snapshot, aggregates
from dstl_core.errors import ConfigError
from dstl_dagster import (
    DstlStorageResource,
    StatefulPipeline,
    StatefulPipelineComponent,
    aggregating_pipeline,
    build_pipeline_defs,
)
from dstl_dagster.pipelines import build_protocol_job
from dstl_dagster.pipelines.windows import REWIND_TAG
from dstl_dagster.snapshots.evolution import build_evolution_asset
from tests.integration.dagster.small_pipeline import DAYS, LOCAL, ROWS, epochs_of, payments

FIRST, SECOND, THIRD = "2026-01-01", "2026-01-02", "2026-01-03"
OLD = {
    "payments": aggregates.count(),
    "total": aggregates.sum("amount"),
    "largest": aggregates.max("amount", type="int"),
}
NEW = {
    "revenue": aggregates.sum("amount"),
    "largest": aggregates.max("amount", type="bigint"),
    "least": aggregates.min("amount"),
}
EVOLVE: dict[str, Any] = {"rename": {"total": "revenue"}, "drop": ["payments"]}


def pipeline_of(states: Any, amount: str, evolve: Any = None) -> StatefulPipeline:
    return aggregating_pipeline(
        "payments",
        uid="totals",
        key_by="account",
        states=states,
        schema=f"account string, amount {amount}",
        engine="engine",
        evolve=evolve,
    )


def run(
    pipeline: StatefulPipeline,
    storage: DstlStorageResource,
    instance: dg.DagsterInstance,
    day: str,
    rows: Any = None,
    **options: Any,
) -> dg.ExecuteInProcessResult:
    batches = ROWS if rows is None else rows
    days = epochs_of(pipeline, lambda _, day: payments(*batches[day]))
    resources = {"storage": storage, "engine": LOCAL}
    return dg.materialize(
        [days],
        partition_key=day,
        resources=resources,
        instance=instance,
        raise_on_error=False,
        **options,
    )


def values_of(pipeline: StatefulPipeline, storage: DstlStorageResource) -> dict[str, Any]:
    store = pipeline.store(storage)
    operator = Snapshot.load(store.path_of(store.require_latest()))["uid:totals"]
    return {
        state.name: {entry.key: entry.value for entry in operator.keyed_entries(state.name)}
        for state in operator.states
    }


def expected(days: Any, rows: Any, since: str = SECOND) -> dict[str, dict[str, int]]:
    """The states of ``NEW``, by hand: ``least`` is kept since the day of the change."""
    revenue: dict[str, int] = {}
    largest: dict[str, int] = {}
    least: dict[str, int] = {}
    for day in days:
        for account, amount in rows[day]:
            revenue[account] = revenue.get(account, 0) + amount
            largest[account] = max(largest.get(account, amount), amount)
            if day >= since:
                least[account] = min(least.get(account, amount), amount)
    return {"revenue": revenue, "largest": largest, "least": least}


def test_days_go_on_under_a_changed_definition(
    storage: DstlStorageResource, instance: dg.DagsterInstance
) -> None:
    before = pipeline_of(OLD, "int")
    after = pipeline_of(NEW, "long", EVOLVE)
    assert run(before, storage, instance, FIRST).success
    refused = run(pipeline_of(NEW, "long"), storage, instance, SECOND)
    assert not refused.success
    for day in (SECOND, THIRD):
        assert run(after, storage, instance, day).success
    assert values_of(after, storage) == expected([FIRST, SECOND, THIRD], ROWS)
    kinds = [commit.facts.kind for commit in after.store(storage).commits()]
    assert kinds.count("migration") == 1

    # The first day is restated, and with it all later ones: all days have the new definition.
    restated = {**ROWS, FIRST: [("account-1", 1000)]}
    assert run(after, storage, instance, FIRST, restated, tags={REWIND_TAG: "true"}).success
    assert values_of(after, storage) == expected([FIRST, SECOND, THIRD], restated, FIRST)


def test_a_day_between_is_restated_behind_the_change(
    storage: DstlStorageResource, instance: dg.DagsterInstance
) -> None:
    before = pipeline_of(OLD, "int")
    after = pipeline_of(NEW, "long", EVOLVE)
    for day in (FIRST, SECOND):
        assert run(before, storage, instance, day).success
    assert run(after, storage, instance, THIRD).success
    restated = {**ROWS, SECOND: [("account-1", 7)]}
    assert run(after, storage, instance, SECOND, restated, tags={REWIND_TAG: "true"}).success
    assert run(after, storage, instance, THIRD).success
    assert values_of(after, storage) == expected([FIRST, SECOND, THIRD], restated)


def test_an_added_aggregate_gets_the_values_of_past_days(
    storage: DstlStorageResource, instance: dg.DagsterInstance
) -> None:
    before = pipeline_of(OLD, "int")
    after = pipeline_of(NEW, "long", {**EVOLVE, "backfill": ["least"]})
    for day in (FIRST, SECOND):
        assert run(before, storage, instance, day).success
    assert run(after, storage, instance, THIRD).success
    assert values_of(after, storage) == expected([FIRST, SECOND, THIRD], ROWS, FIRST)
    restated = {**ROWS, SECOND: [("account-1", 7)]}
    assert run(after, storage, instance, SECOND, restated, tags={REWIND_TAG: "true"}).success
    assert values_of(after, storage) == expected([FIRST, SECOND, THIRD], restated, FIRST)


def plan(
    pipeline: StatefulPipeline,
    storage: DstlStorageResource,
    instance: dg.DagsterInstance,
    **config: Any,
) -> tuple[dict[str, Any], dg.AssetCheckEvaluation]:
    """The metadata of the plan of a pipeline, and the result of its check."""
    ran = dg.materialize(
        [build_evolution_asset(pipeline)],
        instance=instance,
        resources={"storage": storage, "engine": LOCAL},
        run_config={"ops": {"payments_evolution": {"config": config}}},
    )
    [check] = ran.get_asset_check_evaluations()
    [made] = ran.asset_materializations_for_node("payments_evolution")
    return dict(made.metadata), check


def test_a_plan_says_what_a_change_would_do_and_waits_for_approval(
    storage: DstlStorageResource, instance: dg.DagsterInstance
) -> None:
    before = pipeline_of(OLD, "int")
    after = pipeline_of(NEW, "long", {**EVOLVE, "backfill": ["least"], "needs_approval": True})
    defs = build_pipeline_defs(after, [], resources={"storage": storage, "engine": LOCAL})
    assert after.key("evolution") in defs.resolve_asset_graph().get_all_asset_keys()
    for day in (FIRST, SECOND):
        assert run(before, storage, instance, day).success
    shown, check = plan(after, storage, instance)
    assert [tuple(row.data.values()) for row in shown["dstl/changes"].records] == [
        ("totals", "largest", "widened", "largest Integer", "largest Long"),
        ("totals", "least", "backfilled", "", "least Long"),
        ("totals", "revenue", "renamed", "total Long", "revenue Long"),
        ("totals", "payments", "dropped", "payments Long", ""),
    ]
    assert (shown["dstl/changed"].value, shown["dstl/inputs_to_apply_again"].value) == (4, 2)
    assert not check.passed and check.severity == dg.AssetCheckSeverity.WARN
    assert check.metadata["dstl/losses"].value == "payments (dropped)"

    latest = after.store(storage).require_latest()
    refused = run(after, storage, instance, THIRD)
    assert not refused.success
    [failure] = [event for event in refused.all_events if event.is_step_failure]
    assert "payments/payments_evolution, and materialize it" in str(
        failure.step_failure_data.user_failure_data
    )
    assert after.store(storage).require_latest() == latest
    plan(after, storage, instance, approve=True)
    assert run(after, storage, instance, THIRD).success
    assert values_of(after, storage) == expected([FIRST, SECOND, THIRD], ROWS, FIRST)
    shown, check = plan(after, storage, instance)
    assert shown["dstl/changed"].value == 0 and check.passed
    assert run(after, storage, instance, "2026-01-04").success
    # A day before the change is restated: the same change is made again, and needs no new approval.
    assert run(after, storage, instance, SECOND, tags={REWIND_TAG: "true"}).success

    other = pipeline_of({**NEW, "least": aggregates.max("amount")}, "long", EVOLVE)
    shown, check = plan(other, storage, instance)
    assert str(shown["dstl/refused"].value).startswith(
        "The aggregate 'least' of operator 'totals' was changed"
    )
    assert not check.passed and check.severity == dg.AssetCheckSeverity.ERROR


def test_a_day_before_two_approved_changes_is_restated(
    storage: DstlStorageResource, instance: dg.DagsterInstance
) -> None:
    approval = {"needs_approval": True}
    last = {"income": NEW["revenue"], "largest": NEW["largest"], "payments": OLD["payments"]}
    pipelines = {
        FIRST: pipeline_of(OLD, "int"),
        SECOND: pipeline_of(NEW, "long", {**EVOLVE, **approval}),
        THIRD: pipeline_of(
            last, "long", {"rename": {"revenue": "income"}, "drop": ["least"], **approval}
        ),
    }
    for day, pipeline in pipelines.items():
        if day != FIRST:
            assert not run(pipeline, storage, instance, day).success
            plan(pipeline, storage, instance, approve=True)
        assert run(pipeline, storage, instance, day).success
    restated = {**ROWS, FIRST: [("account-1", 1000)]}
    assert run(pipeline, storage, instance, FIRST, restated, tags={REWIND_TAG: "true"}).success
    by_hand = expected(pipelines, restated, FIRST)
    counts: dict[str, int] = {}
    for day in pipelines:
        for account, _ in restated[day]:
            counts[account] = counts.get(account, 0) + 1
    assert values_of(pipeline, storage) == {
        "income": by_hand["revenue"],
        "largest": by_hand["largest"],
        "payments": counts,
    }


def test_persist_migrates_too(storage: DstlStorageResource, instance: dg.DagsterInstance) -> None:
    assert run(pipeline_of(OLD, "int"), storage, instance, FIRST).success
    after = pipeline_of(NEW, "long", EVOLVE)
    job = build_protocol_job(after, lambda engine, day: payments(*ROWS[day]), DAYS)
    resources = {"storage": storage, "engine": LOCAL}
    done = job.execute_in_process(partition_key=SECOND, resources=resources, instance=instance)
    assert done.success
    assert values_of(after, storage) == expected([FIRST, SECOND], ROWS)


def test_a_component_declares_it(
    storage: DstlStorageResource, instance: dg.DagsterInstance
) -> None:
    attributes = {
        "name": "payments",
        "uid": "totals",
        "engine": "engine",
        "events": {"path": "payments", "partition_column": "day"},
        "partitions": {"start": FIRST, "end": "2026-01-08"},
        "key_by": "account",
        "columns": "account string, amount bigint",
        "states": {
            "revenue": {"how": "sum", "column": "amount"},
            "largest": {"how": "max", "column": "amount"},
            "least": {"how": "min", "column": "amount"},
        },
        "evolve": EVOLVE,
    }
    after = StatefulPipelineComponent.from_attributes_dict(attributes=attributes).pipeline
    assert run(pipeline_of(OLD, "int"), storage, instance, FIRST).success
    assert run(after, storage, instance, SECOND).success
    assert values_of(after, storage) == expected([FIRST, SECOND], ROWS)


@pytest.mark.parametrize("evolve", [["total"], {"add": ["x"]}, {"drop": "x"}, {"rename": {"x": 1}}])
def test_a_wrong_change_is_an_error_of_the_definition(evolve: Any) -> None:
    with pytest.raises(ConfigError, match="expected"):
        pipeline_of(NEW, "long", evolve)
