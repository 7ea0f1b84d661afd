"""What Dagster is told of epochs, and when."""

from dataclasses import replace

import dagster as dg
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest

from dstl_dagster import DagsterDstlTranslator
from dstl_dagster.checks.store_checks import build_pipeline_checks
from dstl_dagster.pipelines import drift, state_profile
from dstl_dagster.pipelines.jobs import build_report_job
from tests.integration.dagster.small_pipeline import (
    LOCAL,
    PAYMENTS,
    ROWS,
    expected_totals,
    rows_of,
    small_defs,
    totals_in,
)
from tests.integration.dagster.test_named_inputs import assets_of as without_partitions
from tests.integration.dagster.test_named_inputs import run as run_input
from tests.integration.dagster.test_windows import assets_of, materialize

pytestmark = pytest.mark.dagster

DAYS = tuple(ROWS)
KINDS = ("state", "changelog", "checkpoint")


def materializations(instance, kind):
    """Of an asset, oldest first."""
    records = instance.fetch_materializations(PAYMENTS.key(kind), limit=100).records
    return [each.asset_materialization for each in records][::-1]


def versions_in(storage):
    commits = PAYMENTS.store(storage).history()
    return {each.facts.input.id: each.data_version for each in commits if each.facts.input}


def test_each_epoch_is_reported_once_as_it_commits_and_the_newest_last(
    run_days, storage, instance, monkeypatch
):
    monkeypatch.setattr(state_profile, "PROFILED_KEYS", 2)  # keys are counted, and not by a sample
    seen = {}

    def looks_at_dagster(session, day):
        seen[day] = [each.partition for each in materializations(instance, "checkpoint")]
        return rows_of(session, day)

    assert run_days(DAYS[0], DAYS[2], batch=looks_at_dagster).success
    assert seen == {DAYS[0]: [], DAYS[1]: [DAYS[0]], DAYS[2]: [DAYS[0], DAYS[1]]}
    versions = versions_in(storage)
    for kind in KINDS:
        events = materializations(instance, kind)
        assert [each.partition for each in events] == [*DAYS[:3]]
        for event in events:
            assert event.tags["dagster/data_version"] == versions[event.partition]
    for event in materializations(instance, "state"):
        assert {"dagster/column_schema", "dstl/input_rows", "dstl/seconds"} <= set(event.metadata)
    keys = [
        materialization.metadata["dagster/row_count"].value
        for materialization in materializations(instance, "state")
    ]
    assert keys == [len(expected_totals(*DAYS[:at])) for at in (1, 2, 3)]
    for event in materializations(instance, "checkpoint"):
        assert {"dstl/state_bytes", "dstl/log_bytes", "dagster/uri"} <= set(event.metadata)
    sizes = [
        materialization.metadata["dstl/log_bytes"].value
        for materialization in materializations(instance, "changelog")
    ]
    assert sizes == sorted(set(sizes))


def test_a_backfill_that_fails_on_day_3_has_materialized_days_1_and_2(run_days, storage, instance):
    def fails_on_day_3(session, day):
        if day == DAYS[2]:
            raise RuntimeError("no rows")
        return rows_of(session, day)

    assert not run_days(DAYS[0], DAYS[3], batch=fails_on_day_3).success
    for kind in KINDS:
        events = materializations(instance, kind)
        # The retry reports what was committed once more.
        assert [each.partition for each in events] == [DAYS[0], DAYS[1]] * 2
        assert events[-1].tags["dagster/data_version"] == versions_in(storage)[DAYS[1]]


@pytest.mark.parametrize("kind", ["state", "checkpoint"])
def test_a_run_of_one_of_the_assets_reports_all(storage, instance, kind):
    [assets] = [
        asset for asset in small_defs(storage).assets if PAYMENTS.key("checkpoint") in asset.keys
    ]
    selection = dg.AssetSelection.assets(PAYMENTS.key(kind))
    assert materialize(assets, storage, instance, [DAYS[0]], selection=selection).success
    for name in KINDS:
        [event] = materializations(instance, name)
        assert event.tags["dagster/data_version"] == versions_in(storage)[DAYS[0]]


def test_a_run_of_several_windows_goes_on_with_what_comes_after(storage, instance):
    """The outputs of the op report nothing, and what depends on them runs."""
    [assets] = [
        asset for asset in small_defs(storage).assets if PAYMENTS.key("checkpoint") in asset.keys
    ]
    ran = []

    @dg.asset(
        deps=[PAYMENTS.key("checkpoint")],
        partitions_def=assets.partitions_def,
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def behind(context: dg.AssetExecutionContext) -> None:
        ran.extend(context.partition_keys)

    done = dg.materialize(
        [assets, behind],
        instance=instance,
        tags=dict(
            zip(
                ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end"),
                DAYS[:2],
                strict=True,
            )
        ),
        resources={"storage": storage, "engine": LOCAL},
    )
    assert done.success
    assert ran == [*DAYS[:2]]


def test_the_job_report_commits_repairs_what_dagster_does_not_show(run_days, storage, instance):
    assert run_days(DAYS[0], DAYS[2]).success
    with dg.DagsterInstance.ephemeral() as other:
        assert not reported(storage, other).passed
        done = build_report_job(PAYMENTS).execute_in_process(
            instance=other, resources={"storage": storage}
        )
        assert done.success
        assert [each.partition for each in materializations(other, "state")] == [*DAYS[:3]]
        assert reported(storage, other).passed
        again = build_report_job(PAYMENTS).execute_in_process(
            instance=other, resources={"storage": storage}
        )
        assert again.success
        assert len(materializations(other, "state")) == 3
        other.report_runless_asset_event(
            dg.AssetMaterialization(
                PAYMENTS.key("checkpoint"),
                partition=DAYS[1],
                tags={"dagster/data_version": "ck-99:of-nothing"},
            )
        )
        shown = reported(storage, other)
        assert not shown.passed
        assert "2026-01-02 (checkpoint 3) is not shown" in shown.metadata["problems"].value
        assert "ck-99:of-nothing is shown and is no commit" in shown.metadata["problems"].value


def test_the_job_report_commits_reports_every_commit(run_days, storage, instance, monkeypatch):
    monkeypatch.setattr(drift, "CHECKED_COMMITS", 2)  # those that a check looks at
    monkeypatch.setattr(drift, "_PAGE", 2)
    assert run_days(DAYS[0], DAYS[5]).success
    with dg.DagsterInstance.ephemeral() as other:
        done = build_report_job(PAYMENTS).execute_in_process(
            instance=other, resources={"storage": storage}
        )
        assert done.success
        for kind in KINDS:
            assert [each.partition for each in materializations(other, kind)] == [*DAYS[:6]]


def test_the_job_report_commits_reports_every_input_without_partitions(
    storage, instance, monkeypatch
):
    monkeypatch.setattr(drift, "_PAGE", 2)
    epochs = without_partitions(input_id=lambda context: context.run.tags["file"])
    for day in DAYS[:5]:
        assert run_input(epochs, storage, instance, tags={"file": day}).success
    with dg.DagsterInstance.ephemeral() as other:
        for _ in range(2):  # the second time it reports nothing
            done = build_report_job(PAYMENTS).execute_in_process(
                instance=other, resources={"storage": storage}
            )
            assert done.success
            versions = [
                materialization.tags["dagster/data_version"]
                for materialization in materializations(other, "state")
            ]
            assert versions == [versions_in(storage)[day] for day in DAYS[:5]]


def test_a_pipeline_with_the_keys_of_a_version_before_goes_on_with_new_ones(storage, instance):
    """The new assets begin without a history; one job gives it to them."""
    old = replace(PAYMENTS, translator=DagsterDstlTranslator(unique_keys=False))
    days = dg.DailyPartitionsDefinition("2026-01-01")
    for pipeline, day in ((old, DAYS[0]), (old, DAYS[1]), (PAYMENTS, DAYS[2])):
        assert materialize(assets_of(days, rows_of, pipeline), storage, instance, [day]).success
    assert [each.partition for each in materializations(instance, "state")] == [DAYS[2]]
    job = build_report_job(PAYMENTS)
    assert job.execute_in_process(instance=instance, resources={"storage": storage}).success
    for kind in KINDS:
        shown = instance.get_materialized_partitions(PAYMENTS.key(kind))
        assert shown == set(DAYS[:3])
    assert totals_in(storage) == expected_totals(*DAYS[:3])


def reported(storage, instance):
    checks = build_pipeline_checks(PAYMENTS)
    done = dg.materialize(
        checks,
        instance=instance,
        resources={"storage": storage},
        selection=dg.AssetSelection.checks(*checks),
    )
    [evaluation] = [e for e in done.get_asset_check_evaluations() if e.check_name == "reported"]
    return evaluation


def test_what_depends_on_windows_that_were_undone_is_stale(
    run_days, storage, instance, monkeypatch
):
    [assets] = [
        asset for asset in small_defs(storage).assets if PAYMENTS.key("checkpoint") in asset.keys
    ]

    @dg.asset(deps=[PAYMENTS.key("checkpoint")], partitions_def=assets.partitions_def)
    def daily(context: dg.AssetExecutionContext) -> None:
        pass

    resources = {"storage": storage, "engine": LOCAL}

    def status(day):
        defs = dg.Definitions(assets=[assets, daily], resources=resources)
        graph = defs.resolve_asset_graph()
        context = LoadingContextForTest(instance)
        return CachingStaleStatusResolver(instance, graph, context).get_status(daily.key, day)

    assert run_days(DAYS[0], DAYS[2]).success
    for day in DAYS[:3]:
        dg.materialize(
            [assets, daily],
            selection=[daily],
            partition_key=day,
            instance=instance,
            resources=resources,
        )
    assert [status(day) for day in DAYS[:3]] == [StaleStatus.FRESH] * 3
    monkeypatch.setitem(ROWS, DAYS[1], [("ada", 1)])
    config = {"ops": {"payments_state": {"config": {"rewind_to": DAYS[1]}}}}
    assert materialize(assets, storage, instance, [DAYS[1]], run_config=config).success
    assert [status(day) for day in DAYS[:3]] == [
        StaleStatus.FRESH,
        StaleStatus.STALE,
        StaleStatus.STALE,
    ]


def test_what_comes_after_the_checkpoint_has_schema_and_lineage(run_days, storage, instance):
    assert run_days(DAYS[0]).success
    keys = [PAYMENTS.key(kind) for kind in ("materialization", "savepoint")]
    behind = [each for each in small_defs(storage).assets if each.keys & set(keys)]
    resources = {"storage": storage, "engine": LOCAL}
    assert dg.materialize(behind, instance=instance, resources=resources).success
    for key in keys:
        event = instance.get_latest_materialization_event(key).asset_materialization
        columns = event.metadata["dagster/column_schema"].value.columns
        names = [each.name for each in columns]
        assert sorted(names) == ["largest", "payments", "state_key", "total"]
        lineage = event.metadata["dagster/column_lineage"].value.deps_by_column
        assert lineage["total"] == [dg.TableColumnDep(PAYMENTS.key("state"), "total")]
