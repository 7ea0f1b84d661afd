"""Builds all definitions of a pipeline in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from dstl_core.errors import ConfigError
from dstl_dagster.checks.store_checks import build_pipeline_checks
from dstl_dagster.pipelines.jobs import (
    Job,
    build_gc_job,
    build_materialization_job,
    build_report_job,
    build_reset_job,
    build_savepoint_job,
    build_verify_job,
)
from dstl_dagster.pipelines.pipeline import KIND, PIPELINE, StatefulPipeline
from dstl_dagster.pipelines.schedules import (
    build_epochs_schedule,
    build_materialization_schedule,
    build_verify_schedule,
)
from dstl_dagster.sensors import (
    build_reset_sensors,
    build_sweeper_sensor,
    build_truncation_sensor,
)
from dstl_dagster.snapshots.snapshot_assets import (
    build_materialization_asset,
    build_rewritten_asset,
    build_savepoint_asset,
)

_RUNNING, _STOPPED = dg.DefaultSensorStatus.RUNNING, dg.DefaultSensorStatus.STOPPED


def build_pipeline_defs(
    pipeline: StatefulPipeline,
    assets: Sequence[Any],
    *,
    rewrite: Mapping[str, Any] | None = None,
    max_log_ratio: float = 1.0,
    sensor_interval_seconds: int = 60,
    sensors_running: bool = False,
    materialization_cron: str | None = "0 3 * * *",
    verify_cron: str | None = "30 4 * * *",
    schedule: str | None = None,
    checks: Sequence[dg.AssetChecksDefinition] = (),
    with_jobs: bool = True,
    with_sensors: bool = True,
    resources: Mapping[str, Any] | None = None,
) -> dg.Definitions:
    """Builds the definitions of a pipeline: epochs, downstream assets, jobs, sensors and checks.

    Args:
        pipeline: The pipeline.
        assets: The result of ``dstl_assets``, and upstream assets.
        rewrite: Arguments of ``build_rewritten_asset``; None makes no such asset.
        max_log_ratio: Ratio of the log to the full state at which the truncation sensor acts.
        sensor_interval_seconds: Seconds between two ticks of a sensor.
        sensors_running: Whether sensors run by default.
        materialization_cron: Schedule of the materialization; None for none.
        verify_cron: Schedule of the full check of the checkpoint; None for none.
        schedule: Cron of a schedule that runs all windows which are due; None for none.
        checks: Further checks, e.g. from ``build_state_check``.
        with_jobs: Whether to add jobs. Without, there are neither sensors nor schedules, which
            launch them.
        with_sensors: Whether to add sensors.
        resources: ``storage``, ``spark``, ..

    Raises:
        ConfigError: There is a schedule, and no result of ``dstl_assets`` among the assets.
    """
    epochs = _epochs_of(pipeline, assets)
    pipeline = pipeline.as_defined(_specs_of(assets))
    materialize, reset, verify = (
        build_materialization_job(pipeline),
        build_reset_job(pipeline),
        build_verify_job(pipeline),
    )
    behind = [build_materialization_asset(pipeline), build_savepoint_asset(pipeline)]
    if rewrite is not None:
        behind.append(build_rewritten_asset(pipeline, **rewrite))
    watched: dict[str, Any] = {
        "minimum_interval_seconds": sensor_interval_seconds,
        "default_status": _RUNNING if sensors_running else _STOPPED,
    }
    others = [build(pipeline) for build in (build_savepoint_job, build_gc_job, build_report_job)]
    sensors = _sensors(pipeline, materialize, reset, max_log_ratio, watched)
    return dg.Definitions(
        assets=[*assets, *behind],
        asset_checks=[*_checks(pipeline, epochs, max_log_ratio), *checks],
        jobs=[materialize, reset, verify, *others] if with_jobs else [],
        sensors=sensors if with_jobs and with_sensors else [],
        schedules=[
            *_epochs_schedules(pipeline, epochs, schedule),
            *_upkeep_schedules(pipeline, materialize, materialization_cron, verify, verify_cron),
        ]
        if with_jobs
        else [],
        resources=dict(resources or {}),
    )


def _checks(
    pipeline: StatefulPipeline, epochs: dg.AssetsDefinition | None, max_log_ratio: float
) -> list[dg.AssetChecksDefinition]:
    return build_pipeline_checks(
        pipeline,
        max_log_ratio=2 * max_log_ratio,
        partitions_def=None if epochs is None else _windows_of(epochs),
    )


def _sensors(
    pipeline: StatefulPipeline,
    materialize: Job,
    reset: Job,
    max_log_ratio: float,
    watched: Mapping[str, Any],
) -> list[dg.SensorDefinition]:
    return [
        build_truncation_sensor(pipeline, materialize, max_log_ratio=max_log_ratio, **watched),
        build_sweeper_sensor(pipeline, reset, **watched),
        *build_reset_sensors(pipeline, reset, default_status=watched["default_status"]),
    ]


def _epochs_schedules(
    pipeline: StatefulPipeline, epochs: dg.AssetsDefinition | None, cron: str | None
) -> list[dg.ScheduleDefinition]:
    if cron is None:
        return []
    if epochs is None:
        raise ConfigError(
            f"The schedule of pipeline {pipeline.name!r} has nothing to run: expected the result "
            f"of dstl_assets among the assets."
        )
    return [build_epochs_schedule(pipeline, epochs, cron_schedule=cron)]


def _upkeep_schedules(
    pipeline: StatefulPipeline,
    materialize: Job,
    materialization_cron: str | None,
    verify: Job,
    verify_cron: str | None,
) -> list[dg.ScheduleDefinition]:
    """The schedules of the materialization and of the full check."""
    schedules = []
    if materialization_cron is not None:
        schedules.append(
            build_materialization_schedule(
                pipeline, materialize, cron_schedule=materialization_cron
            )
        )
    if verify_cron is not None:
        schedules.append(build_verify_schedule(pipeline, verify, cron_schedule=verify_cron))
    return schedules


def _epochs_of(pipeline: StatefulPipeline, assets: Sequence[Any]) -> dg.AssetsDefinition | None:
    """The assets that ``dstl_assets`` made."""
    for asset in assets:
        if any(_is_state_of(pipeline, spec) for spec in _specs_of([asset])):
            return asset  # type: ignore[no-any-return]
    return None


def _is_state_of(pipeline: StatefulPipeline, spec: dg.AssetSpec) -> bool:
    return (spec.metadata.get(PIPELINE), spec.metadata.get(KIND)) == (pipeline.name, "state")


def _specs_of(assets: Sequence[Any]) -> list[dg.AssetSpec]:
    """The specs of the assets that run here, and not in another code location."""
    return [s for each in assets if isinstance(each, dg.AssetsDefinition) for s in each.specs]


def _windows_of(epochs: dg.AssetsDefinition) -> dg.TimeWindowPartitionsDefinition | None:
    """The partitions of the epochs, where they are windows."""
    windows = epochs.partitions_def
    return windows if isinstance(windows, dg.TimeWindowPartitionsDefinition) else None
