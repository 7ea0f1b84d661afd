"""Schedules: materialization and deep verification."""

import dagster as dg

from dstl_dagster.pipelines.jobs import Job
from dstl_dagster.pipelines.pipeline import StatefulPipeline

STOPPED = dg.DefaultScheduleStatus.STOPPED


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
