"""The whole checkpoint protocol in one op: restore, apply, log, persist, commit, or reset.

A retry, a second run and a re-materialization of a committed input run nothing. They report the
recorded version. The commit log is authoritative; Dagster's event log mirrors it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dagster as dg

from dstl_core.checkpoint.store.pipeline_store import PipelineStore
from dstl_core.errors import ConfigError, DstlError
from dstl_dagster.pipelines.epoch_metadata import EpochMetadata, epoch_keys
from dstl_dagster.pipelines.epoch_report import EpochReport, Events
from dstl_dagster.pipelines.epoch_runs import Batch, InputId, InputRuns, WindowRuns
from dstl_dagster.pipelines.failures import no_retry_of_permanent_errors
from dstl_dagster.pipelines.pipeline import StatefulPipeline
from dstl_dagster.pipelines.run_options import begin_tags
from dstl_dagster.pipelines.windows import Windows
from dstl_dagster.resources.engines import engine_of
from dstl_dagster.resources.storage_resource import DstlStorageResource

if TYPE_CHECKING:
    from dstl_core.stateful_job import StatefulJob
    from dstl_dagster.resources.upload_resource import UploadSchedulerResource


def run_epochs(
    context: dg.AssetExecutionContext,
    pipeline: StatefulPipeline,
    batch: Batch,
    *,
    storage: DstlStorageResource,
    engine: Any,
    uploads: UploadSchedulerResource | None = None,
    input_id: InputId | None = None,
) -> Events:
    """Runs one epoch for each window or input of this run, in order, and reports each as it
    commits.

    Args:
        context: Context of the op that ``dstl_assets`` made.
        pipeline: The pipeline.
        batch: Gives the rows of one partition key, or of one input id for assets without
            partitions, from what ``engine`` gives: a session, or a ``LocalEngine``.
        storage: Where the state is.
        engine: What runs them: a ``DstlSparkResource``, a ``DstlLocalEngineResource``, a
            ``PySparkResource`` or ``LazyPySparkResource`` of dagster_pyspark, or a session.
        uploads: How changes are uploaded; by default as the pipeline says.
        input_id: Gives the id of the input of a run without partitions, e.g. the name of a file.
            Ids are all text or all whole numbers, and grow.

    Raises:
        dagster.Failure: Not retried: another run took over, the input of a committed window
            changed, a window leaves others out, the state cannot be restored.
    """
    pipeline = pipeline.as_run(context)
    run_id = context.run.run_id
    store = pipeline.store(storage)
    context.instance.add_run_tags(run_id, {**pipeline.run_tags, **begin_tags(context.run)})
    with (
        no_retry_of_permanent_errors(),
        store.lease(run_id),
        engine_of(engine, "dstl", run_id, pipeline.name) as session,
    ):
        options = uploads.changelog_options() if uploads is not None else None
        job = pipeline.open(session, storage, options)
        if pipeline.starts_from is not None:
            job.start(storage.path_of(pipeline.starts_from))
        runs = _runs(context, pipeline, store, input_id)
        upstream = first_upstream(context, pipeline)
        metadata = EpochMetadata(pipeline, store, run_id, upstream, warn=context.log.warning)
        report = EpochReport(context, metadata, runs.keys)
        for number, key in enumerate(runs.keys):
            result = runs.run(context, job, batch, session, number)
            context.log.info(f"epoch {number + 1} of {len(runs.keys)}: {result}")
            yield from report.epoch(key, result.checkpoint, result.committed_before)
            materialize_if_large(context, pipeline, job)
    yield from report.outputs()


def _runs(
    context: dg.AssetExecutionContext,
    pipeline: StatefulPipeline,
    store: PipelineStore,
    input_id: InputId | None,
) -> WindowRuns | InputRuns:
    partitions = context.assets_def.partitions_def
    if not isinstance(partitions, dg.TimeWindowPartitionsDefinition):
        return InputRuns.of(context, pipeline, input_id)
    windows = Windows(pipeline.name, store, partitions, context.op_def.name)
    return WindowRuns.of(context, pipeline, windows)


def time_windows(
    partitions: dg.PartitionsDefinition[Any] | None,
) -> dg.TimeWindowPartitionsDefinition:
    """The definition of the windows of an op.

    Raises:
        ConfigError: The partitions are no time windows.
    """
    if isinstance(partitions, dg.TimeWindowPartitionsDefinition):
        return partitions
    raise ConfigError(
        f"Epochs run by time windows: expected a TimeWindowPartitionsDefinition, got "
        f"{type(partitions).__name__}; make the assets with dstl_assets."
    )


def materialize_if_large(
    context: dg.OpExecutionContext | dg.AssetExecutionContext,
    pipeline: StatefulPipeline,
    job: StatefulJob,
) -> None:
    """Folds the log into the base where the pipeline's ``materialize_at_ratio`` asks for it.

    The epoch is committed: where that fails, the log stays, and a warning says why.
    """
    if pipeline.materialize_at_ratio is None:
        return
    try:
        size = job.state_size()
        if size.has_large_log(pipeline.materialize_at_ratio, least=pipeline.small_log_bytes):
            job.materialize()
            context.log.info(
                f"materialized: the log had {size.log:,} bytes on {size.materialized:,} of state"
            )
    except DstlError as error:
        context.log.warning(f"The epoch is committed, and its log stays as it is: {error}")


def first_upstream(
    context: dg.AssetExecutionContext, pipeline: StatefulPipeline
) -> dg.AssetKey | None:
    """The first asset that the state is made of."""
    keys_of_epochs = set(epoch_keys(pipeline))
    for spec in context.assets_def.specs:
        if spec.key == pipeline.key("state"):
            others = [each.asset_key for each in spec.deps if each.asset_key not in keys_of_epochs]
            return others[0] if others else None
    return None
