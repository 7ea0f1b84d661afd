"""The verbs by themselves: persist, confirm, gc, rewind; and what the automation asks for."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from dstl_core import Snapshot
from dstl_core.errors import ConfigError, FencedError
from dstl_dagster import DstlStorageResource, dstl_assets
from dstl_dagster.pipelines import build_protocol_job
from dstl_dagster.pipelines.jobs import build_gc_job
from dstl_dagster.pipelines.windows import REWIND_TAG
from dstl_dagster.resources import UploadSchedulerResource
from tests.integration.dagster.small_pipeline import (
    DAYS,
    LOCAL,
    PAYMENTS,
    ROWS,
    expected_totals,
    rows_of,
    small_defs,
    totals_in,
)

pytestmark = pytest.mark.dagster

DAY = "2026-01-01"


@pytest.fixture
def run_protocol(storage, instance):
    def run(day=DAY, between=None, batch=rows_of, tags=None, pipeline=PAYMENTS, uploads=None):
        def checked(session, key):
            return batch(session, key)

        resources = {"storage": storage, "engine": LOCAL}
        if uploads is not None:
            resources["own_uploads"] = uploads
        named = None if uploads is None else "own_uploads"
        job = build_protocol_job(pipeline, checked, DAYS, uploads=named)
        hooks = {between} if between is not None else set()
        return job.with_hooks(hooks).execute_in_process(
            partition_key=day,
            instance=instance,
            resources=resources,
            raise_on_error=False,
            tags=tags,
        )

    return run


def materialized(instance, kind, day):
    wanted = dg.AssetRecordsFilter(PAYMENTS.key(kind), asset_partitions=[day])
    return [
        fetched.asset_materialization
        for fetched in instance.fetch_materializations(wanted, 9).records
    ]


def test_persist_and_confirm_are_the_epoch(run_protocol, storage, instance):
    assert run_protocol().success
    assert totals_in(storage) == expected_totals(DAY)
    store = PAYMENTS.store(storage)
    version = store.require_latest().data_version
    for kind in ("state", "changelog", "checkpoint"):
        [event] = materialized(instance, kind, DAY)
        assert event.tags["dagster/data_version"] == version
    assert store.leases() == []
    assert run_protocol().success
    assert store.require_latest().data_version == version


def test_between_the_two_the_run_counts_as_working_and_nothing_is_committed(run_protocol, storage):
    seen = {}

    @dg.success_hook(required_resource_keys={"storage"})
    def look(context):
        if context.op.name == "payments_persist_op":
            store = PAYMENTS.store(context.resources.storage)
            seen["leases"] = [lease.run_id for lease in store.leases()]
            seen["epochs"] = [each for each in store.history() if each.facts.kind == "epoch"]
            seen["orphans"] = store.orphans()

    done = run_protocol(between=look)
    assert done.success
    assert seen["leases"] == [done.run_id]
    assert seen["epochs"] == []
    assert seen["orphans"]


def test_a_takeover_between_the_two_ends_the_run_and_loses_nothing(run_protocol, storage):
    @dg.success_hook(required_resource_keys={"storage"})
    def take_over(context):
        if context.op.name == "payments_persist_op":
            PAYMENTS.store(context.resources.storage).reset("another", lambda run_id: False)

    done = run_protocol(between=take_over)
    assert not done.success
    [failure] = [event for event in done.all_events if event.is_step_failure]
    assert FencedError.__name__ in str(failure.event_specific_data.error) or "claimed" in str(
        failure.event_specific_data.error.message
    )
    assert [each for each in PAYMENTS.store(storage).history() if each.facts.input] == []
    assert run_protocol().success
    assert totals_in(storage) == expected_totals(DAY)


def segments_in(storage):
    """The changelog segments of the latest checkpoint."""
    store = PAYMENTS.store(storage)
    snapshot = Snapshot.load(store.path_of(store.require_latest()))
    subtasks = snapshot["uid:totals"].state.subtasks
    logs = [log for each in subtasks for log in each.managed_keyed_state.non_materialized]
    files = [stream.path for log in logs for stream, _ in log.handles_and_offsets]
    return [Path(each.removeprefix("file:")) for each in files]


def test_changes_are_uploaded_as_the_resource_says(run_protocol, storage):
    assert run_protocol().success
    compressed = segments_in(storage)
    assert run_protocol("2026-01-02", uploads=UploadSchedulerResource(compress=False)).success
    plain = set(segments_in(storage)) - set(compressed)
    assert {each.read_bytes()[0] for each in plain} == {0}
    assert {each.read_bytes()[0] for each in compressed} == {1}
    assert totals_in(storage) == expected_totals(DAY, "2026-01-02")


def test_the_log_is_folded_into_the_base_where_the_pipeline_says_so(run_protocol, storage):
    assert run_protocol(pipeline=replace(PAYMENTS, materialize_at_ratio=1e9)).success
    assert segments_in(storage)
    eager = replace(PAYMENTS, materialize_at_ratio=0.0, small_log_bytes=0)
    assert run_protocol("2026-01-02", pipeline=eager).success
    assert PAYMENTS.store(storage).require_latest().facts.kind == "materialization"
    assert segments_in(storage) == []
    assert totals_in(storage) == expected_totals(DAY, "2026-01-02")


def test_a_failed_persist_leaves_no_lease(run_protocol, storage):
    def broken(session, day):
        raise RuntimeError("no rows")

    assert not run_protocol(batch=broken).success
    assert PAYMENTS.store(storage).leases() == []


def test_gc_counts_and_deletes_only_when_told(run_days, storage, instance):
    assert run_days(DAY).success
    root = Path(PAYMENTS.store(storage).layout.root.path)
    lost = root / "taskowned" / "0b0e3b51-6b1f-4b9e-9d55-0c6b3a1f6e11"
    lost.parent.mkdir(exist_ok=True)
    lost.write_bytes(b"of a run that is gone")
    then = time.time() - 48 * 3600
    os.utime(lost, (then, then))
    job = build_gc_job(PAYMENTS)

    def run(**config):
        done = job.execute_in_process(
            run_config={"ops": {"payments_gc_op": {"config": config}}} if config else None,
            instance=instance,
            resources={"storage": storage},
        )
        assert done.success
        [event] = [each for each in done.all_events if each.event_type_value == "ASSET_OBSERVATION"]
        shown = event.event_specific_data.asset_observation.metadata
        return shown["dstl/garbage_files"].value, shown["dstl/garbage_deleted"].value

    assert run() == (1, 0)
    assert lost.exists()
    assert run(delete=True) == (1, 1)
    assert not lost.exists()
    assert totals_in(storage) == expected_totals(DAY)


def test_a_run_with_the_rewind_tag_goes_back_and_runs_the_corrected_days(
    storage, instance, monkeypatch
):
    pipeline_defs = small_defs(storage)
    [assets] = [each for each in pipeline_defs.assets if each.keys >= {PAYMENTS.key("checkpoint")}]

    def run(*days, **tags):
        span = {"dagster/asset_partition_range_start": days[0]}
        span["dagster/asset_partition_range_end"] = days[-1]
        return dg.materialize(
            [assets],
            instance=instance,
            tags={**span, **tags},
            resources={"storage": storage, "engine": LOCAL},
            raise_on_error=False,
        )

    days = ("2026-01-01", "2026-01-02", "2026-01-03")
    assert run(*days).success
    corrected = [(account, amount + 1000) for account, amount in ROWS[days[1]]]
    monkeypatch.setitem(ROWS, days[1], corrected)
    refused = run(*days[1:])
    assert not refused.success
    [failure] = [event for event in refused.all_events if event.is_step_failure]
    assert "rewind_to: '2026-01-02'" in failure.event_specific_data.error.message
    done = run(*days[1:], **{REWIND_TAG: "true"})
    assert done.success
    assert totals_in(storage) == expected_totals(*days)
    assert instance.get_run_by_id(done.run_id).tags[REWIND_TAG] == f"done, to before {days[1]}"


def test_persist_goes_back_where_the_tag_asks_for_it(run_protocol, storage, instance, monkeypatch):
    assert run_protocol().success
    monkeypatch.setitem(ROWS, DAY, [(account, amount + 1000) for account, amount in ROWS[DAY]])
    assert not run_protocol().success
    done = run_protocol(tags={REWIND_TAG: "true"})
    assert done.success
    assert totals_in(storage) == expected_totals(DAY)
    assert instance.get_run_by_id(done.run_id).tags[REWIND_TAG] == f"done, to before {DAY}"


def test_the_launchpad_asks_persist_for_a_rewind_and_a_gap(storage, instance):
    def run(job, day, **config):
        return job.execute_in_process(
            partition_key=day,
            instance=instance,
            resources={"storage": storage, "engine": LOCAL},
            run_config={"ops": {"late_persist_op": {"config": config}}},
            raise_on_error=False,
        ).success

    late = build_protocol_job(PAYMENTS, rows_of, DAYS, name="late")
    assert run(late, DAY)
    assert not run(late, "2026-01-03")
    assert run(late, "2026-01-03", allow_gap=True)
    assert totals_in(storage) == expected_totals(DAY, "2026-01-03")
    assert not run(late, "2026-01-02")
    assert run(late, "2026-01-02", rewind=True)
    assert totals_in(storage) == expected_totals(DAY, "2026-01-02")


def test_two_protocols_of_one_pipeline_fit_in_one_repository():
    jobs = [build_protocol_job(PAYMENTS, rows_of, DAYS, name=name) for name in (None, "late")]
    resources = {"storage": DstlStorageResource(base_path="/state"), "engine": LOCAL}
    defs = dg.Definitions(jobs=jobs, resources=resources)
    dg.Definitions.validate_loadable(defs)
    assert {node.name for job in jobs for node in job.nodes} == {
        "payments_persist_op",
        "payments_confirm_op",
        "late_persist_op",
        "late_confirm_op",
    }


@pytest.mark.parametrize(
    "partitions",
    [
        dg.MultiPartitionsDefinition(
            {"day": DAYS, "region": dg.StaticPartitionsDefinition(["eu", "us"])}
        ),
        dg.StaticPartitionsDefinition(["eu", "us"]),
    ],
    ids=["multi", "static"],
)
def test_partitions_by_region_are_refused_with_the_two_ways(partitions):
    with pytest.raises(ConfigError, match="a pipeline for each, or put the region into the key"):
        dstl_assets(pipeline=PAYMENTS, partitions_def=partitions)


def test_a_new_savepoint_asks_for_the_rewritten_one(run_days, storage, instance):
    """The automation condition of what is derived, as the daemon evaluates it."""
    defs = small_defs(storage)
    rewritten = PAYMENTS.key("rewritten")
    first = dg.evaluate_automation_conditions(
        defs, instance=instance, asset_selection=dg.AssetSelection.assets(rewritten)
    )
    assert first.get_requested_partitions(rewritten) == set()
    assert run_days(DAY).success
    behind = [
        asset for asset in defs.assets if not asset.keys & {rewritten, PAYMENTS.key("checkpoint")}
    ]
    resources = {"storage": storage, "engine": LOCAL}
    assert dg.materialize(behind, instance=instance, resources=resources).success
    second = dg.evaluate_automation_conditions(
        defs,
        instance=instance,
        asset_selection=dg.AssetSelection.assets(rewritten),
        cursor=first.cursor,
    )
    assert second.get_requested_partitions(rewritten) == {None}
