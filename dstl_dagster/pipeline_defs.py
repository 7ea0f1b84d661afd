"""Builds all definitions of a pipeline in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import dagster as dg

from dstl_core.errors import ConfigError
from dstl_dagster.checks.snapshot_check import Check, build_snapshot_checks, check_distinct
from dstl_dagster.checks.store_checks import build_pipeline_checks
from dstl_dagster.option_kinds import check_options
from dstl_dagster.pipelines.jobs import (
    RUNTIME_S,
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
    build_input_sensor,
    build_reset_sensors,
    build_sweeper_sensor,
    build_truncation_sensor,
)
from dstl_dagster.snapshots.edits import Rewrite
from dstl_dagster.snapshots.evolution import build_evolution_asset
from dstl_dagster.snapshots.snapshot_assets import (
    build_materialization_asset,
    build_report_asset,
    build_rewritten_asset,
    build_savepoint_asset,
)
from dstl_dagster.snapshots.sources import checkpoint_of, savepoint_of


def build_pipeline_defs(
    pipeline: StatefulPipeline,
    assets: Sequence[Any],
    *,
    checks: Sequence[Check] = (),
    savepoint_checks: Sequence[Check] = (),
    rewrite: Rewrite | None = None,
    inputs: Callable[[], Iterable[str]] | None = None,
    epochs_schedule: str | None = None,
    materialization_schedule: str | None = "0 3 * * *",
    verify_schedule: str | None = "30 4 * * *",
    schedule_timezone: str = "UTC",
    schedules_running: bool = False,
    max_log_ratio: float = 1.0,
    max_log_bytes: float | None = None,
    sensor_interval_seconds: int = 60,
    sensors_running: bool = False,
    max_runtime_s: int = RUNTIME_S,
    materialization_pool: str | None = None,
    with_jobs: bool = True,
    with_sensors: bool = True,
    resources: Mapping[str, Any] | None = None,
) -> dg.Definitions:
    """Builds the assets, jobs, sensors, schedules and checks of a pipeline.

    Args:
        pipeline: The pipeline; with ``evolve``, an asset shows what a changed definition would do.
        assets: The result of ``dstl_assets``, and upstream assets.
        checks: More checks of the checkpoint: values of ``dstl_dagster.checks``, or Dagster's own.
        savepoint_checks: Checks of the savepoint.
        rewrite: The edit of an asset that is a copy of the savepoint; None makes no such asset.
        inputs: Lists the ids of inputs; a sensor runs those after the last committed one.
        epochs_schedule: Cron of a run of all windows that are due; None for none.
        materialization_schedule: Cron of the materialization; None for none.
        verify_schedule: Cron of the full check of the checkpoint; None for none.
        schedule_timezone: Time zone of the crons.
        schedules_running: Whether schedules run by default.
        max_log_ratio: Ratio of the log to the full state at which the truncation sensor acts.
        max_log_bytes: Bytes of the log at which it acts, too.
        sensor_interval_seconds: Seconds between two ticks of a sensor.
        sensors_running: Whether sensors run by default.
        max_runtime_s: Seconds after which Dagster ends a job.
        materialization_pool: Dagster's concurrency pool of the materialization.
        with_jobs: Whether to add jobs, and the sensors and schedules that launch them.
        with_sensors: Whether to add sensors.
        resources: ``storage``, ``spark``, ..

    Raises:
        ConfigError: An argument is wrong, or no result of ``dstl_assets`` could run the inputs.
    """
    check_options(pipeline, build_pipeline_defs, locals())
    epochs = _epochs_of(pipeline, assets)
    pipeline = pipeline.as_defined(_specs_of(assets))
    jobs = _Jobs(pipeline, max_runtime_s)
    watched = _options_of_sensors(sensor_interval_seconds, sensors_running)
    timed = _options_of_schedules(schedule_timezone, schedules_running)
    sensors = [
        *jobs.sensors(max_log_ratio, max_log_bytes, watched),
        *_input_sensors(pipeline, epochs, inputs, watched),
    ]
    schedules = jobs.schedules(materialization_schedule, verify_schedule, timed)
    schedules += _epochs_schedules(pipeline, epochs, epochs_schedule, timed)
    return dg.Definitions(
        assets=[*assets, *_assets_behind(pipeline, materialization_pool, rewrite)],
        asset_checks=_checks(pipeline, epochs, max_log_ratio, checks, savepoint_checks),
        jobs=jobs.all if with_jobs else [],
        sensors=sensors if with_jobs and with_sensors else [],
        schedules=schedules if with_jobs else [],
        resources=dict(resources or {}),
    )


class _Jobs:
    """The jobs of a pipeline, and what launches them."""

    def __init__(self, pipeline: StatefulPipeline, max_runtime_s: int) -> None:
        self._pipeline = pipeline
        self._materialize = build_materialization_job(pipeline, max_runtime_s=max_runtime_s)
        self._reset = build_reset_job(pipeline)
        self._verify = build_verify_job(pipeline, max_runtime_s=max_runtime_s)
        self.all: list[Job] = [
            self._materialize,
            self._reset,
            self._verify,
            build_savepoint_job(pipeline, max_runtime_s=max_runtime_s),
            build_gc_job(pipeline),
            build_report_job(pipeline),
        ]

    def sensors(
        self, max_log_ratio: float, max_log_bytes: float | None, watched: Mapping[str, Any]
    ) -> list[dg.SensorDefinition]:
        """The sensors that launch a materialization or a reset."""
        truncation = build_truncation_sensor(
            self._pipeline,
            self._materialize,
            max_log_ratio=max_log_ratio,
            max_log_bytes=max_log_bytes,
            **watched,
        )
        status = watched["default_status"]
        return [
            truncation,
            build_sweeper_sensor(self._pipeline, self._reset, **watched),
            *build_reset_sensors(self._pipeline, self._reset, default_status=status),
        ]

    def schedules(
        self, materialization: str | None, verify: str | None, timed: Mapping[str, Any]
    ) -> list[dg.ScheduleDefinition]:
        """The schedules of the materialization and of the full check."""
        schedules = []
        if materialization is not None:
            schedules.append(
                build_materialization_schedule(
                    self._pipeline, self._materialize, cron_schedule=materialization, **timed
                )
            )
        if verify is not None:
            schedules.append(
                build_verify_schedule(self._pipeline, self._verify, cron_schedule=verify, **timed)
            )
        return schedules


def _assets_behind(
    pipeline: StatefulPipeline, pool: str | None, rewrite: Rewrite | None
) -> list[dg.AssetsDefinition]:
    """The assets that come after the checkpoint."""
    _check_rewrite(pipeline, rewrite)
    assets = [
        build_materialization_asset(pipeline, pool=pool),
        build_savepoint_asset(pipeline),
        build_report_asset(pipeline),
    ]
    if pipeline.evolve is not None:
        assets.append(build_evolution_asset(pipeline))
    if rewrite is not None:
        assets.append(build_rewritten_asset(pipeline, rewrite))
    return assets


def _check_rewrite(pipeline: StatefulPipeline, rewrite: Any) -> None:
    if rewrite is not None and not isinstance(rewrite, Rewrite):
        raise ConfigError(
            f"The rewrite of pipeline {pipeline.name!r} is wrong: expected "
            f"dstl_dagster.snapshots.Rewrite, for example Rewrite(rename={{'totals': 'sums'}}), "
            f"got {rewrite!r}."
        )


def _options_of_sensors(interval_seconds: int, running: bool) -> dict[str, Any]:
    status = dg.DefaultSensorStatus
    return {
        "minimum_interval_seconds": interval_seconds,
        "default_status": status.RUNNING if running else status.STOPPED,
    }


def _options_of_schedules(timezone: str, running: bool) -> dict[str, Any]:
    status = dg.DefaultScheduleStatus
    return {
        "execution_timezone": timezone,
        "default_status": status.RUNNING if running else status.STOPPED,
    }


def _checks(
    pipeline: StatefulPipeline,
    epochs: dg.AssetsDefinition | None,
    max_log_ratio: float,
    checks: Sequence[Check],
    savepoint_checks: Sequence[Check],
) -> list[dg.AssetChecksDefinition]:
    """The checks that every pipeline has, and those of the user."""
    uid, windows = pipeline.uid, None if epochs is None else _windows_of(epochs)
    checkpoint, savepoint = pipeline.key("checkpoint"), pipeline.key("savepoint")
    definitions = [
        *build_pipeline_checks(pipeline, max_log_ratio=2 * max_log_ratio, partitions_def=windows),
        *build_snapshot_checks(checkpoint, checkpoint_of(pipeline), checks, uid=uid),
        *build_snapshot_checks(savepoint, savepoint_of(pipeline), savepoint_checks, uid=uid),
    ]
    check_distinct(definitions)
    return definitions


def _input_sensors(
    pipeline: StatefulPipeline,
    epochs: dg.AssetsDefinition | None,
    inputs: Callable[[], Iterable[str]] | None,
    watched: Mapping[str, Any],
) -> list[dg.SensorDefinition]:
    if inputs is None:
        return []
    if epochs is None:
        raise _nothing_to_run(pipeline, "inputs")
    if _windows_of(epochs) is not None:
        raise ConfigError(
            f"The inputs of pipeline {pipeline.name!r} are wrong: expected dstl_assets without "
            f"partitions or with dynamic ones, got time windows; a pipeline of windows has an "
            f"epochs_schedule instead."
        )
    return [build_input_sensor(pipeline, epochs, inputs, **watched)]


def _epochs_schedules(
    pipeline: StatefulPipeline,
    epochs: dg.AssetsDefinition | None,
    cron: str | None,
    timed: Mapping[str, Any],
) -> list[dg.ScheduleDefinition]:
    if cron is None:
        return []
    if epochs is None:
        raise _nothing_to_run(pipeline, "epochs_schedule")
    return [build_epochs_schedule(pipeline, epochs, cron_schedule=cron, **timed)]


def _nothing_to_run(pipeline: StatefulPipeline, what: str) -> ConfigError:
    return ConfigError(
        f"The {what} of pipeline {pipeline.name!r} has nothing to run: expected the result "
        f"of dstl_assets among the assets."
    )


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
