"""Failures that no retry can mend."""

import dagster as dg
import pytest

import dstl_dagster as dstl
from dstl_core import KeyedOperator, StatefulJob, ValueStateDescriptor
from dstl_core.errors import ConfigError, StorageError, UserFunctionError, is_permanent
from dstl_core.functions import KeyedProcessFunction
from tests.integration.dagster.small_pipeline import SPARK

pytestmark = [pytest.mark.dagster, pytest.mark.spark]


class Total(KeyedProcessFunction):
    """The sum of an account, in state of any type."""

    order_insensitive = True

    def __init__(self, kind):
        self._kind = kind

    def open(self, runtime_context):
        self._total = runtime_context.get_state(ValueStateDescriptor("total", self._kind))

    def process_element(self, value, ctx):
        self._total.update((self._total.value() or 0) + value["amount"])


def run(storage, instance, kind):
    """The first window of a pipeline that sums doubles into state of some type."""

    def job(session, base_path):
        operator = KeyedOperator("sums", "account", "string", Total(kind))
        return StatefulJob(session, "typed", base_path, operator)

    pipeline = dstl.StatefulPipeline("typed", "sums", job)

    @dstl.dstl_assets(
        pipeline=pipeline,
        partitions_def=dg.DailyPartitionsDefinition("2026-01-01"),
        retry_policy=dg.RetryPolicy(max_retries=1),
    )
    def epochs(
        context: dg.AssetExecutionContext,
        storage: dstl.DstlStorageResource,
        spark: dstl.DstlSparkResource,
    ):
        def batch(session, day):
            return session.createDataFrame([("ada", 1.5)], "account string, amount double")

        yield from dstl.run_epochs(context, pipeline, batch, storage=storage, engine=spark)

    done = dg.materialize(
        [epochs],
        partition_key="2026-01-01",
        instance=instance,
        resources={"storage": storage, "spark": SPARK},
        raise_on_error=False,
    )
    return pipeline, done


def test_a_wrong_type_is_said_first_is_not_retried_and_pins_nothing(storage, instance):
    _, done = run(storage, instance, "long")
    assert not done.success
    assert not [event for event in done.all_events if event.is_step_up_for_retry]
    [failure] = [event for event in done.all_events if event.is_step_failure]
    message = failure.event_specific_data.user_failure_data.description
    first, empty, worker = message.split("\n", 2)
    assert first.startswith("The function Total.process_element raised FormatError")
    assert "expected Long, got float" in first
    assert empty == "" and "Traceback" in worker

    # Before the first commit nothing is pinned: the corrected type runs.
    pipeline, done = run(storage, instance, "double")
    assert done.success
    snapshot = pipeline.open(SPARK.spark_session, storage).snapshot()
    assert [each.value for each in snapshot["uid:sums"].keyed_entries("total")] == [1.5]


def test_which_errors_are_permanent():
    assert is_permanent(ConfigError("an option"))
    assert is_permanent(UserFunctionError("The function F.open raised StateMigrationError: State"))
    assert not is_permanent(UserFunctionError("The function F.open raised ValueError: no"))
    assert not is_permanent(StorageError("busy"))
