"""Schedules: epochs, materialization and deep verification."""

import dagster as dg

from dstl_dagster.pipelines.epochs import time_windows
from dstl_dagster.pipelines.jobs import Job
from dstl_dagster.pipelines.leases import working_runs
from dstl_dagster.pipelines.pipeline import StatefulPipeline
from dstl_dagster.pipelines.windows import Windows
from dstl_dagster.resources.storage_resource import DstlStorageResource

STOPPED = dg.DefaultScheduleStatus.STOPPED
RANGE_START, RANGE_END = (
    "dagster/asset_partition_range_start",
    "dagster/asset_partition_range_end",
)
"""Tags of a run of several partitions."""


def build_epochs_schedule(
    pipeline: StatefulPipeline,
    epochs: dg.AssetsDefinition,
    *,
    cron_schedule: str,
    execution_timezone: str = "UTC",
    default_status: dg.DefaultScheduleStatus = STOPPED,
) -> dg.ScheduleDefinition:
    """Runs all windows that are due: those that have ended and follow the last committed one.

    They are one run, in order. So a window that failed runs again before the next one. The schedule
    reads the commit log. It launches nothing while a run is at work on the pipeline.

    Args:
        pipeline: The pipeline.
        epochs: The result of ``dstl_assets``.
        cron_schedule: When to look.
        execution_timezone: Time zone of the cron schedule.
        default_status: Whether the schedule runs by default.
    """
    partitions = time_windows(epochs.partitions_def)
    job = dg.define_asset_job(
        pipeline.python_name("epochs"),
        selection=dg.AssetSelection.assets(*epochs.keys),
        description="Runs windows of input, in order.",
        tags=pipeline.run_tags,
        executor_def=dg.in_process_executor,
    )

    @dg.schedule(
        name=pipeline.python_name("epochs_schedule"),
        job=job,
        cron_schedule=cron_schedule,
        execution_timezone=execution_timezone,
        default_status=default_status,
    )
    def epochs_schedule(
        context: dg.ScheduleEvaluationContext, storage: DstlStorageResource
    ) -> dg.RunRequest | dg.SkipReason:
        store = pipeline.store(storage)
        working = working_runs(context.instance, store)
        if working:
            return dg.SkipReason(f"Run {working[0]} is at work on the pipeline.")
        committed = Windows(pipeline.name, store, partitions).read()
        due = committed.due(context.scheduled_execution_time)
        if not due:
            return dg.SkipReason("Every window that has ended is committed.")
        if len(due) == 1:
            return dg.RunRequest(partition_key=due[0])
        return dg.RunRequest(tags={RANGE_START: due[0], RANGE_END: due[-1]})

    return epochs_schedule


def build_materialization_schedule(
    pipeline: StatefulPipeline,
    job: Job,
    *,
    cron_schedule: str = "0 3 * * *",
    execution_timezone: str = "UTC",
    default_status: dg.DefaultScheduleStatus = STOPPED,
) -> dg.ScheduleDefinition:
    """Materializes the full state on a schedule, whatever the size of the log."""
    return dg.ScheduleDefinition(
        name=pipeline.python_name("materialization_schedule"),
        target=job,
        cron_schedule=cron_schedule,
        execution_timezone=execution_timezone,
        tags=pipeline.run_tags,
        default_status=default_status,
    )


def build_verify_schedule(
    pipeline: StatefulPipeline,
    job: Job,
    *,
    cron_schedule: str = "30 4 * * *",
    execution_timezone: str = "UTC",
    default_status: dg.DefaultScheduleStatus = STOPPED,
) -> dg.ScheduleDefinition:
    """Reads and checks the whole latest checkpoint on a schedule."""
    return dg.ScheduleDefinition(
        name=pipeline.python_name("verify_schedule"),
        target=job,
        cron_schedule=cron_schedule,
        execution_timezone=execution_timezone,
        tags=pipeline.run_tags,
        default_status=default_status,
    )
