"""Sensors. They read the store, so a lost cursor or a lost event does no harm.

After a failed run, a sensor requests another run. Its run key counts the earlier runs, because
Dagster never launches a key twice. No sensor starts Spark.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import dagster as dg

from dstl_core.codec.serializers import SerializerRegistry
from dstl_core.errors import DAMAGED, ConfigError
from dstl_core.job.coordination.input_windows import commits_of_inputs
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.state.tables.named_objects import registry_from
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import METADATA_FILE_NAME, Location, checkpoint_id_of
from dstl_dagster import metadata as show
from dstl_dagster.pipelines.jobs import Job
from dstl_dagster.pipelines.leases import working_runs
from dstl_dagster.pipelines.pipeline import StatefulPipeline
from dstl_dagster.resources.savepoint_resource import version_of
from dstl_dagster.resources.storage_resource import DstlStorageResource

STOPPED = dg.DefaultSensorStatus.STOPPED
MAX_ATTEMPTS = 5
MAX_EVENTS_PER_TICK = 20


def build_truncation_sensor(
    pipeline: StatefulPipeline,
    job: Job,
    *,
    max_log_ratio: float = 1.0,
    max_log_bytes: float | None = None,
    minimum_interval_seconds: int = 60,
    default_status: dg.DefaultSensorStatus = STOPPED,
) -> dg.SensorDefinition:
    """Requests a materialization when the log of the latest checkpoint is too large.

    Args:
        pipeline: The pipeline.
        job: The job to launch, e.g. from ``build_materialization_job``.
        max_log_ratio: Largest ratio of the log to the full state.
        max_log_bytes: Largest log in bytes.
        minimum_interval_seconds: Seconds between two ticks.
        default_status: Status of the sensor until somebody changes it.
    """

    @dg.sensor(
        name=pipeline.python_name("truncation"),
        job=job,
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
        description="Launches a materialization when the changelog has grown too large.",
    )
    def truncation(
        context: dg.SensorEvaluationContext, storage: DstlStorageResource
    ) -> dg.SensorResult | dg.SkipReason:
        store = pipeline.store(storage)
        latest = store.latest()
        if latest is None:
            return dg.SkipReason("there is no checkpoint yet")
        try:
            size = store.size()
        except FileNotFoundError:
            return dg.SkipReason("the checkpoint was retired while it was looked at")
        seen = f"{size.log:,} bytes of log on {size.materialized:,} of state"
        if not size.has_large_log(max_log_ratio, least=1, most=max_log_bytes):
            return dg.SkipReason(f"nothing to truncate: {seen}")
        working = working_runs(context.instance, store)
        if working:
            # A materialization would take the pipeline over from it.
            return dg.SkipReason(f"{seen}, but run {working[0]} is at work")
        context.log.info(seen)
        cursor = json.dumps({"checkpoint": latest.checkpoint_id, "log_bytes": size.log})
        what = f"{pipeline.name}:{pipeline.uid}:{latest.checkpoint_id}"
        return _request(context, "dstl/truncation", what, pipeline.run_tags, cursor)

    return truncation


def build_sweeper_sensor(
    pipeline: StatefulPipeline,
    job: Job,
    *,
    minimum_interval_seconds: int = 60,
    default_status: dg.DefaultSensorStatus = STOPPED,
) -> dg.SensorDefinition:
    """Requests a reset after a run was killed. Such a run leaves its lease."""

    @dg.sensor(
        name=pipeline.python_name("sweeper"),
        job=job,
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
        description="Launches a reset for what killed runs left behind.",
    )
    def sweeper(
        context: dg.SensorEvaluationContext, storage: DstlStorageResource
    ) -> dg.SensorResult | dg.SkipReason:
        store = pipeline.store(storage)
        leases = store.leases()
        working = working_runs(context.instance, store)
        if working:
            return dg.SkipReason(f"run {working[0]} is at work")
        if not leases:
            return dg.SkipReason("no run was killed")
        what = f"{pipeline.name}:{leases[0].run_id}"
        return _request(context, "dstl/reset", what, pipeline.run_tags, context.cursor)

    return sweeper


def build_reset_sensors(
    pipeline: StatefulPipeline,
    job: dg.JobDefinition,
    *,
    default_status: dg.DefaultSensorStatus = STOPPED,
) -> list[dg.SensorDefinition]:
    """Makes sensors that request a reset after a run of the pipeline was cancelled or has failed.

    They do so only if the run left files or a lease. They also run after a cancel, unlike hooks.
    """
    return [
        _reset_after(pipeline, job, status, default_status)
        for status in (dg.DagsterRunStatus.CANCELED, dg.DagsterRunStatus.FAILURE)
    ]


def _reset_after(
    pipeline: StatefulPipeline,
    job: dg.JobDefinition,
    status: dg.DagsterRunStatus,
    default_status: dg.DefaultSensorStatus,
) -> dg.SensorDefinition:
    @dg.run_status_sensor(
        name=pipeline.python_name(f"reset_after_{status.value.lower()}"),
        run_status=status,
        request_job=job,
        default_status=default_status,
    )
    def reset_after(
        context: dg.RunStatusSensorContext, storage: DstlStorageResource
    ) -> dg.RunRequest | dg.SkipReason:
        run_id = context.dagster_run.run_id
        if all(lease.run_id != run_id for lease in pipeline.store(storage).leases()):
            return dg.SkipReason(f"run {run_id} left nothing behind")
        what = {"dstl/reset": f"{pipeline.name}:{run_id}"}
        if any(not run.is_finished for run in context.instance.get_runs(dg.RunsFilter(tags=what))):
            return dg.SkipReason(f"a reset for run {run_id} is queued or runs")
        return dg.RunRequest(
            run_key=f"{pipeline.name}:{run_id}:status", tags={**pipeline.run_tags, **what}
        )

    return reset_after


def _request(
    context: dg.SensorEvaluationContext,
    tag: str,
    what: str,
    tags: Mapping[str, str],
    cursor: str | None,
    *,
    partitions: dg.DynamicPartitionsDefinition | None = None,
    **options: Any,
) -> dg.SensorResult | dg.SkipReason:
    """Requests one run for ``what``, unless one is in progress or too many have failed.

    With dynamic ``partitions`` it adds the partition of the run.
    """
    runs = context.instance.get_runs(filters=dg.RunsFilter(tags={tag: what}))
    for run in runs:
        if not run.is_finished:
            return dg.SkipReason(f"run {run.run_id} is at it")
    if len(runs) >= MAX_ATTEMPTS:
        return dg.SkipReason(f"gave up after {len(runs)} runs for {what}; look at their logs")
    request = dg.RunRequest(run_key=f"{what}:{len(runs)}", tags={**tags, tag: what}, **options)
    added = [partition for partition in [request.partition_key] if partition is not None]
    adding = [] if partitions is None else [partitions.build_add_request(added)]
    return dg.SensorResult([request], cursor=cursor, dynamic_partitions_requests=adding)


def build_input_sensor(
    pipeline: StatefulPipeline,
    epochs: dg.AssetsDefinition,
    inputs: Callable[[], Iterable[str]],
    *,
    minimum_interval_seconds: int = 60,
    default_status: dg.DefaultSensorStatus = STOPPED,
) -> dg.SensorDefinition:
    """Runs inputs as they arrive, e.g. files: one at a time, in the order of their ids.

    It requests the first input after the last committed one, which it reads from the commit log. An
    input whose id comes before that is never requested, because state does not go back by itself.

    Args:
        pipeline: The pipeline.
        epochs: The result of ``dstl_assets``, without partitions or with dynamic ones.
        inputs: Lists the ids of the inputs that are there, in any order.
        minimum_interval_seconds: Seconds between two ticks.
        default_status: Status of the sensor until somebody changes it.
    """
    partitions = epochs.partitions_def
    job = dg.define_asset_job(
        pipeline.python_name("inputs"),
        selection=dg.AssetSelection.assets(*epochs.keys),
        description="Runs one input.",
        tags=pipeline.run_tags,
        executor_def=dg.in_process_executor,
    )

    @dg.sensor(
        name=pipeline.python_name("arrivals"),
        job=job,
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
        description="Launches a run for the next input that has arrived.",
    )
    def arrivals(
        context: dg.SensorEvaluationContext, storage: DstlStorageResource
    ) -> dg.SensorResult | dg.SkipReason:
        store = pipeline.store(storage)
        working = working_runs(context.instance, store)
        if working:
            return dg.SkipReason(f"run {working[0]} is at work")
        last = next(commits_of_inputs(store), None)
        done = "" if last is None or last.facts.input is None else last.facts.input.id
        if not isinstance(done, str):
            raise ConfigError(
                f"The sensor cannot order the inputs of pipeline {pipeline.name!r}: expected ids "
                f"that are text, as a sensor requests them, got {done!r} as the last committed one."
            )
        due = sorted(each for each in inputs() if each > done)
        if not due:
            return dg.SkipReason("every input that is there is committed")
        what = f"{pipeline.name}:{due[0]}"
        options: dict[str, Any] = {
            "run_config": {"ops": {epochs.op.name: {"config": {"input_id": due[0]}}}}
        }
        if isinstance(partitions, dg.DynamicPartitionsDefinition):
            options = {"partitions": partitions, "partition_key": due[0]}
        return _request(context, "dstl/input", what, pipeline.run_tags, context.cursor, **options)

    return arrivals


def build_external_checkpoint_sensor(
    asset: dg.AssetSpec | dg.AssetKey,
    folder: str | os.PathLike[str],
    *,
    name: str,
    minimum_interval_seconds: int = 60,
    default_status: dg.DefaultSensorStatus = STOPPED,
    serializers: SerializerRegistry | str | None = None,
) -> dg.SensorDefinition:
    """Reports the completed checkpoints of an external Flink job as an asset.

    Args:
        asset: The external asset.
        folder: The folder in which Flink writes ``chk-<n>`` (checkpoint folder and job id).
        name: Name of the sensor.
        minimum_interval_seconds: Seconds between two ticks.
        default_status: Status of the sensor until somebody changes it.
        serializers: The registry of types, with readers of your own serializers; or
            ``package.module:name``.
    """
    key = asset.key if isinstance(asset, dg.AssetSpec) else asset

    @dg.sensor(
        name=name,
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
        description=f"Reports the checkpoints in {folder}.",
    )
    def external_checkpoints(
        context: dg.SensorEvaluationContext, storage: DstlStorageResource
    ) -> dg.SensorResult | dg.SkipReason:
        storage.connect()
        last = _last_reported(context, key)
        types = registry_from(serializers, f"the sensor {name!r}")
        events: list[dg.AssetMaterialization] = []
        for checkpoint_id, path in _completed(folder):
            if checkpoint_id <= last or len(events) == MAX_EVENTS_PER_TICK:
                continue
            event = _materialization(key, checkpoint_id, path, types)
            if event is not None:
                events.append(event)
                last = checkpoint_id
        if not events:
            return dg.SkipReason(f"no checkpoint after {last} in {folder}")
        return dg.SensorResult(asset_events=events, cursor=str(last))

    return external_checkpoints


def _last_reported(context: dg.SensorEvaluationContext, key: dg.AssetKey) -> int:
    """The checkpoint in the cursor, or in the event log if there is no cursor."""
    if context.cursor:
        return int(context.cursor)
    event = context.instance.get_latest_materialization_event(key)
    seen = event.asset_materialization if event is not None else None
    value = seen.metadata.get("dstl/checkpoint_id") if seen is not None else None
    return int(str(value.value)) if value is not None else 0


def _completed(folder: str | os.PathLike[str]) -> list[tuple[int, str]]:
    """The completed checkpoints, which have a ``_metadata``, oldest first."""
    root = Location.parse(folder)
    file_io = open_file_io(root)
    checkpoints = []
    for status in file_io.list_folder(root):
        checkpoint_id = checkpoint_id_of(status.location.name)
        metadata = status.location.child(METADATA_FILE_NAME)
        if checkpoint_id is not None and file_io.size(metadata) is not None:
            checkpoints.append((checkpoint_id, str(status.location)))
    return sorted(checkpoints)


def _materialization(
    key: dg.AssetKey, checkpoint_id: int, path: str, types: SerializerRegistry
) -> dg.AssetMaterialization | None:
    try:
        snapshot = Snapshot.load(path, serializers=types)
        metadata: dict[str, Any] = show.snapshot_metadata(snapshot)
    except FileNotFoundError:  # Flink has retired it since the listing
        return None
    except DAMAGED as error:
        metadata = {"dagster/uri": path, "dstl/problem": str(error)}
        return dg.AssetMaterialization(
            key, metadata={**metadata, "dstl/checkpoint_id": checkpoint_id}
        )
    return dg.AssetMaterialization(
        key,
        metadata={**metadata, "dstl/checkpoint_id": checkpoint_id},
        tags={"dagster/data_version": version_of(snapshot)},
    )
