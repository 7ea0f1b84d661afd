"""Windows of input: their order, gaps between them, the way back, definitions that change."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

import dstl_dagster as dstl
from dstl_core import aggregates
from dstl_core.checkpoint.store.pipeline_store import PipelineStore
from dstl_core.errors import ConfigError
from dstl_core.local.local_engine import LocalEngine
from dstl_dagster.pipelines.windows import Windows
from tests.integration.dagster.small_pipeline import (
    DAYS as SMALL_DAYS,
)
from tests.integration.dagster.small_pipeline import (
    LOCAL,
    PAYMENTS,
    ROWS,
    epochs_of,
    expected_totals,
    payments,
    rows_of,
    small_defs,
    totals_in,
)

pytestmark = pytest.mark.dagster

RANGE = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
DAYS = tuple(ROWS)
COUNTED = {"n": aggregates.count()}
REWIND = {"ops": {"payments_state": {"config": {"rewind_to": DAYS[1]}}}}


@pytest.fixture
def run(storage, instance):
    """Runs windows of any definition; each of them has one payment of 1."""

    def run(partitions: Any, *keys: str, **options: Any) -> dg.ExecuteInProcessResult:
        def one_payment(session: Any, key: str) -> Any:
            return payments(("ada", 1))

        return materialize(assets_of(partitions, one_payment), storage, instance, keys, **options)

    return run


def assets_of(partitions: Any, batch: Any, pipeline: Any = PAYMENTS) -> dg.AssetsDefinition:
    return epochs_of(pipeline, batch, partitions)


def materialize(assets, storage, instance, keys, tags=None, **options):
    span = dict(zip(RANGE, (keys[0], keys[-1]), strict=True))
    return dg.materialize(
        [assets],
        instance=instance,
        partition_key=keys[0] if len(keys) == 1 else None,
        tags={**(span if len(keys) > 1 else {}), **(tags or {})},
        resources={"storage": storage, "engine": LOCAL},
        raise_on_error=False,
        **options,
    )


def failure_of(done: dg.ExecuteInProcessResult) -> str:
    assert not done.success
    assert not [event for event in done.all_events if event.is_step_up_for_retry]
    [failure] = [event for event in done.all_events if event.is_step_failure]
    return failure.event_specific_data.error.message


def inputs_in(storage) -> list[Any]:
    commits = PAYMENTS.store(storage).history()
    return [each.facts.input.id for each in commits if each.facts.input]


def check(name, storage, instance):
    [checks] = small_defs(storage).asset_checks
    [key] = [each for each in checks.check_keys if each.name == name]
    done = dg.materialize(
        [checks],
        selection=dg.AssetSelection.checks(key),
        instance=instance,
        resources={"storage": storage, "engine": LOCAL},
    )
    [evaluation] = done.get_asset_check_evaluations()
    return evaluation


# ------------------------------------------------------------------------------------- order


def test_windows_run_in_the_order_of_time_and_not_of_their_text(run, storage):
    partitions = dg.DailyPartitionsDefinition("30/01/2026", fmt="%d/%m/%Y")
    assert run(partitions, "30/01/2026", "02/02/2026").success
    assert run(partitions, "03/02/2026").success
    assert inputs_in(storage) == [
        "2026-01-30",
        "2026-01-31",
        "2026-02-01",
        "2026-02-02",
        "2026-02-03",
    ]
    assert totals_in(storage)["ada"] == (5, 5, 1)


def test_windows_of_hours_are_called_by_their_start(run, storage):
    partitions = dg.HourlyPartitionsDefinition("2026-01-01-22:00", timezone="Europe/Berlin")
    assert run(partitions, "2026-01-01-22:00", "2026-01-02-01:00").success
    assert inputs_in(storage) == [
        "2026-01-01T21:00Z",
        "2026-01-01T22:00Z",
        "2026-01-01T23:00Z",
        "2026-01-02T00:00Z",
    ]


@pytest.mark.parametrize(
    ("changed", "key", "shown"),
    [
        (dg.HourlyPartitionsDefinition("2026-01-01-00:00"), "2026-01-03-00:00", "'0 * * * *'"),
        (dg.DailyPartitionsDefinition("01/01/2026", fmt="%d/%m/%Y"), "03/01/2026", "%d/%m/%Y"),
        (dg.DailyPartitionsDefinition("2026-01-01", timezone="Asia/Tokyo"), DAYS[2], "Asia/Tokyo"),
    ],
)
def test_windows_of_another_definition_are_refused(run, storage, changed, key, shown):
    daily = dg.DailyPartitionsDefinition("2026-01-01")
    assert run(daily, *DAYS[:2]).success
    message = failure_of(run(changed, key))
    assert "had another definition" in message and shown in message
    assert inputs_in(storage) == [*DAYS[:2]]
    assert run(daily, DAYS[2]).success


@pytest.mark.parametrize(
    ("partitions", "keys", "expected"),
    [
        (dg.DailyPartitionsDefinition("2026-01-01"), DAYS[:3], [*DAYS[:3]]),
        (
            dg.HourlyPartitionsDefinition("2026-01-01-22:00", timezone="Asia/Tokyo"),
            ("2026-01-01-22:00", "2026-01-01-23:00", "2026-01-02-00:00"),
            ["2026-01-01-22:00", "2026-01-01-23:00", "2026-01-02-00:00"],
        ),
    ],
)
def test_a_pipeline_whose_inputs_are_partition_keys_goes_on(
    run, storage, instance, partitions, keys, expected
):
    """The version before this one committed partition keys, and no notes."""
    job = PAYMENTS.open(LocalEngine(), storage)
    for key in keys[:2]:
        job.run(payments(("ada", 1)), key)
    assert run(partitions, keys[1]).success  # committed before: nothing runs
    assert run(partitions, keys[2]).success
    assert inputs_in(storage) == expected
    assert totals_in(storage)["ada"] == (3, 3, 1)


def test_a_pipeline_of_another_definition_from_before_is_refused(run, storage):
    PAYMENTS.open(LocalEngine(), storage).run(payments(("ada", 1)), "2026-01-01")
    hourly = dg.HourlyPartitionsDefinition("2026-01-01-00:00")
    assert "had another definition" in failure_of(run(hourly, "2026-01-01-05:00"))


# -------------------------------------------------------------------------------------- gaps


def test_a_window_that_leaves_one_out_is_refused(run_days, storage, instance):
    message = failure_of(run_days(DAYS[1]))
    assert "does not follow the first one: '2026-01-01' is missing" in message
    assert run_days(DAYS[0]).success
    message = failure_of(run_days(DAYS[3]))
    assert "'2026-01-02' to '2026-01-03' (2 windows) are missing" in message
    assert "launch a run of '2026-01-02' to '2026-01-04'" in message
    assert inputs_in(storage) == [DAYS[0]]
    assert check("no_gaps", storage, instance).passed
    assert run_days(DAYS[1], DAYS[3]).success


def test_a_failed_window_is_put_in_by_one_run(run_days, storage, instance):
    """Day 2 fails, day 3 runs by permission, and day 2 comes in later."""
    [assets] = [
        asset for asset in small_defs(storage).assets if PAYMENTS.key("checkpoint") in asset.keys
    ]
    assert run_days(DAYS[0]).success
    gap = {"dstl/allow-gap": "true"}
    assert materialize(assets, storage, instance, [DAYS[2]], gap).success
    assert run_days(DAYS[3]).success
    shown = check("no_gaps", storage, instance)
    assert not shown.passed
    assert shown.metadata["windows_missing"].value == 1
    assert shown.metadata["shown"].value == DAYS[1]
    message = failure_of(run_days(DAYS[1]))
    assert "was left out" in message
    assert "{ops: {payments_state: {config: {rewind_to: '2026-01-02'}}}}" in message
    assert "runs '2026-01-02' to '2026-01-04' again" in message
    assert totals_in(storage) == expected_totals(DAYS[0], DAYS[2], DAYS[3])

    assert materialize(assets, storage, instance, [DAYS[1]], run_config=REWIND).success
    assert totals_in(storage) == expected_totals(*DAYS[:4])
    assert check("no_gaps", storage, instance).passed
    assert check("reported", storage, instance).passed


def test_a_run_that_failed_after_it_went_back_goes_on(storage, instance, run_days):
    attempts = []

    def fails_once_on_day_3(session, day):
        attempts.append(day)
        if day == DAYS[2] and attempts.count(day) == 1:
            raise RuntimeError("no rows yet")
        return rows_of(session, day)

    assert run_days(DAYS[0], DAYS[3]).success
    defs = small_defs(storage, batch=fails_once_on_day_3)
    [assets] = [each for each in defs.assets if PAYMENTS.key("checkpoint") in each.keys]
    before = len(PAYMENTS.store(storage).history())
    assert materialize(assets, storage, instance, [DAYS[1]], run_config=REWIND).success
    assert attempts == [DAYS[1], DAYS[2], DAYS[1], DAYS[2], DAYS[3]]
    assert len(PAYMENTS.store(storage).history()) == before + 3
    assert totals_in(storage) == expected_totals(*DAYS[:4])


def test_a_run_cannot_go_back_to_a_window_after_its_own(run_days, storage, instance):
    assert run_days(DAYS[0]).success
    [assets] = [
        asset for asset in small_defs(storage).assets if PAYMENTS.key("checkpoint") in asset.keys
    ]
    config = {"ops": {"payments_state": {"config": {"rewind_to": DAYS[4]}}}}
    message = failure_of(materialize(assets, storage, instance, [DAYS[1]], run_config=config))
    assert "cannot go back to '2026-01-05'" in message


def test_an_input_that_changed_says_which_run_to_launch(run_days):
    assert run_days(DAYS[0], DAYS[2]).success

    def other_rows(session, day):
        return payments(("ada", 1))

    message = failure_of(run_days(DAYS[1], batch=other_rows))
    assert "with other rows" in message
    assert "rewind_to: '2026-01-02'" in message and "'2026-01-02' to '2026-01-03'" in message


def test_a_pipeline_keeps_enough_checkpoints_to_go_back_14_windows(storage):
    assert PAYMENTS.open(LocalEngine(), storage).num_retained >= 2 * 15
    few = dstl.aggregating_pipeline(
        "few", uid="u", key_by="k", key_type="string", states=COUNTED, num_retained=3
    )
    assert few.open(LocalEngine(), storage).num_retained == 3


def test_a_pipeline_keeps_checkpoints_by_age_and_its_op_can_say_so(storage, instance):
    """``build_pipeline_defs`` gives the retention of the op to what else commits."""
    aged = dstl.aggregating_pipeline(
        "p", uid="u", key_by="k", key_type="string", states=COUNTED, retain="14 days"
    )
    assert aged.open(LocalEngine(), storage).retain == "14 days"
    with pytest.raises(ConfigError, match=r"expected a duration such .* or '12 h', got '2 weeks'"):
        replace(PAYMENTS, retain="2 weeks")

    def made(**retention):
        @dstl.dstl_assets(pipeline=PAYMENTS, partitions_def=SMALL_DAYS, **retention)
        def payments_state(
            context: dg.AssetExecutionContext,
            storage: dstl.DstlStorageResource,
            engine: dstl.DstlLocalEngineResource,
        ) -> Iterator[Any]:
            yield from dstl.run_epochs(context, PAYMENTS, rows_of, storage=storage, engine=engine)

        return payments_state

    def checkpoints():
        return len(list(Path(PAYMENTS.store(storage).layout.root.path).glob("chk-*/_metadata")))

    assert materialize(made(num_retained=1, retain="1 h"), storage, instance, DAYS[:3]).success
    assert checkpoints() == 4, "of three days, and of the start"
    assert materialize(made(num_retained=2), storage, instance, DAYS[3:5]).success
    assert checkpoints() == 2
    with pytest.raises(ConfigError, match=r"option num_retained .*above 0, got 0"):
        made(num_retained=0)
    for wrong in (1000, timedelta(days=14)):
        with pytest.raises(ConfigError, match="expected a duration such as '14 days'"):
            replace(PAYMENTS, retain=wrong)

    behind = dstl.build_pipeline_defs(PAYMENTS, [made(num_retained=1)]).assets[1]
    resources = {"storage": storage, "engine": LOCAL}
    assert dg.materialize([behind], instance=instance, resources=resources).success
    assert checkpoints() == 1


def test_a_long_backfill_folds_its_log_into_the_base(storage, instance):
    """By default, once the log is as large as the base, unless it is small."""
    assert (PAYMENTS.materialize_at_ratio, PAYMENTS.small_log_bytes) == (1.0, 1 << 20)
    eager = replace(PAYMENTS, small_log_bytes=0)
    days = dg.DailyPartitionsDefinition("2026-01-01")
    assets = assets_of(days, rows_of, eager)
    assert materialize(assets, storage, instance, DAYS[:3]).success
    kinds = [each.facts.kind for each in PAYMENTS.store(storage).history()]
    assert kinds.count("epoch") == 3
    last_epoch = max(at for at, kind in enumerate(kinds) if kind == "epoch")
    assert "materialization" in kinds[:last_epoch]
    assert PAYMENTS.store(storage).size().log_ratio <= 1.0
    assert totals_in(storage) == expected_totals(*DAYS[:3])
    assert check("log_size", storage, instance).passed


def test_a_schedule_runs_all_windows_that_are_due(storage, instance_on_disk):
    instance = instance_on_disk
    fails: list[str] = []

    def batch(session: Any, day: str) -> Any:
        if day in fails:
            raise OSError("the source is away")
        return rows_of(session, day)

    defs = small_defs(storage, batch, epochs_schedule="10 0 * * *")
    schedule = defs.resolve_schedule_def("payments_epochs_schedule")
    job = defs.resolve_job_def("payments_epochs")

    def tick(day: int) -> Any:
        now = datetime(2026, 1, day, 0, 10, tzinfo=UTC)
        with dg.build_schedule_context(instance, now) as context:
            return schedule(context, storage=storage)

    def launch(request: dg.RunRequest) -> bool:
        return job.execute_in_process(
            instance=instance,
            partition_key=request.partition_key,
            tags=dict(request.tags),
            raise_on_error=False,
        ).success

    first = tick(2)
    assert first.partition_key == DAYS[0] and launch(first)
    fails.append(DAYS[1])
    assert not launch(tick(3))
    # The next day brings both. A window that has not ended is not due.
    fails.clear()
    both = tick(4)
    assert (both.tags[RANGE[0]], both.tags[RANGE[1]]) == (DAYS[1], DAYS[2])
    assert launch(both)
    assert totals_in(storage) == expected_totals(*DAYS[:3])
    assert "Every window that has ended" in tick(4).skip_message
    # Nothing is due after the last window of the definition.
    assert tick(31).tags[RANGE[1]] == DAYS[-1]
    store = PAYMENTS.store(storage)
    with store.lease("a-run-of-somebody-else"):
        assert "is at work" in tick(5).skip_message


def test_the_commit_log_is_read_once_for_a_window(run_days, storage, instance):
    run_days(DAYS[0], DAYS[1])

    class Counted(PipelineStore):
        reads = 0

        def commits(self) -> Any:
            Counted.reads += 1
            return super().commits()

    partitions = dg.DailyPartitionsDefinition(DAYS[0], end_date="2026-01-08")
    store = Counted(storage.jobs, PAYMENTS.name)
    committed = Windows(PAYMENTS.name, store, partitions, "payments_state").read()
    committed.check(DAYS[2])
    assert committed.input_id(DAYS[2]) == DAYS[2]
    assert committed.notes(DAYS[2])["window"]["named"] == "start"
    assert committed.commit_of(DAYS[0]) is not None
    assert f"'{DAYS[0]}' to '{DAYS[1]}' again" in committed.way_back(DAYS[0])
    assert committed.missing(100) == []
    assert Counted.reads == 1
