"""Inputs that are no windows: without partitions, with dynamic ones, as files arrive."""

from typing import Any

import dagster as dg
import pytest

import dstl_dagster as dstl
from dstl_core.errors import ConfigError
from dstl_dagster.checks.store_checks import build_pipeline_checks
from dstl_dagster.sensors import build_input_sensor
from tests.integration.dagster.small_pipeline import (
    LOCAL,
    PAYMENTS,
    ROWS,
    epochs_of,
    expected_totals,
    rows_of,
    totals_in,
)

pytestmark = pytest.mark.dagster

FILES = dg.DynamicPartitionsDefinition(name="files")
FIRST, SECOND, THIRD = sorted(ROWS)[:3]


def payments_in(session: Any, file: str) -> Any:
    """The rows of a file; any other name stands for the first one."""
    return rows_of(session, file if file in ROWS else FIRST)


def assets_of(partitions=None, input_id=None):
    return epochs_of(PAYMENTS, payments_in, partitions, input_id=input_id)


def run(epochs, storage, instance, **options):
    return dg.materialize(
        [epochs, *build_pipeline_checks(PAYMENTS)],
        instance=instance,
        resources={"storage": storage, "engine": LOCAL},
        raise_on_error=False,
        **options,
    )


def config(**values):
    return {"ops": {"payments_state": {"config": values}}}


def failure_of(done):
    [failed] = [event for event in done.all_events if event.is_step_failure]
    return failed.event_specific_data.error.message


def test_an_asset_without_partitions_runs_the_input_that_it_is_told(storage, instance):
    epochs = assets_of(input_id=lambda context: context.run.tags["file"])
    first = run(epochs, storage, instance, tags={"file": FIRST})
    second = run(epochs, storage, instance, tags={"file": SECOND})
    assert first.success and second.success
    assert totals_in(storage) == expected_totals(FIRST, SECOND)
    checks = {each.check_name: each.passed for each in second.get_asset_check_evaluations()}
    assert checks["reported"] and checks["committed"]

    # What the launchpad says comes before the function. A committed input runs nothing.
    again = run(epochs, storage, instance, tags={"file": "x"}, run_config=config(input_id=SECOND))
    [event] = [
        materialized_event
        for materialized_event in again.get_asset_materialization_events()
        if materialized_event.asset_key == PAYMENTS.key("checkpoint")
    ]
    assert event.partition is None
    metadata = event.step_materialization_data.materialization.metadata
    assert metadata["dstl/committed_before"].value is True

    late = run(epochs, storage, instance, run_config=config(input_id="2025-01-01"))
    assert "comes before the last committed one, '2026-01-02'" in failure_of(late)
    back = run(epochs, storage, instance, run_config=config(input_id=FIRST, rewind=True))
    assert back.success
    assert totals_in(storage) == expected_totals(FIRST)

    nameless = run(assets_of(), storage, instance)
    assert "has no input id: give run_epochs a function input_id" in failure_of(nameless)


def test_each_dynamic_partition_is_an_input_and_files_run_as_they_arrive(storage, instance):
    epochs = assets_of(FILES)
    files = [SECOND, FIRST]
    sensor = build_input_sensor(PAYMENTS, epochs, lambda: files)

    def tick():
        with dg.build_sensor_context(instance) as context:
            return sensor(context, storage=storage)

    for expected in (FIRST, SECOND):
        result = tick()
        [request] = result.run_requests
        assert request.partition_key == expected
        [added] = result.dynamic_partitions_requests
        instance.add_dynamic_partitions(added.partitions_def_name, added.partition_keys)
        done = run(epochs, storage, instance, partition_key=expected)
        assert done.success
        assert {each.partition for each in done.get_asset_materialization_events()} == {expected}
    assert "every input that is there is committed" in tick().skip_message
    assert totals_in(storage) == expected_totals(FIRST, SECOND)
    files.append(THIRD)
    with PAYMENTS.store(storage).lease("a-run-of-somebody-else"):
        assert "is at work" in tick().skip_message


def test_files_run_without_partitions_too(storage, instance):
    epochs = assets_of()
    sensor = build_input_sensor(PAYMENTS, epochs, lambda: [FIRST])
    with dg.build_sensor_context(instance) as context:
        [request] = sensor(context, storage=storage).run_requests
    done = run(epochs, storage, instance, run_config=request.run_config, tags=request.tags)
    assert done.success
    assert totals_in(storage) == expected_totals(FIRST)

    numbers = dstl.DstlStorageResource(base_path=f"{storage.base_path}-numbers")
    assert run(assets_of(input_id=lambda _: 7), numbers, instance).success
    with (
        dg.build_sensor_context(instance) as context,
        pytest.raises(ConfigError, match=r"expected ids that are text, .* got 7 as the last"),
    ):
        sensor(context, storage=numbers)
