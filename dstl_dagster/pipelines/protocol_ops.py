"""The checkpoint protocol as two ops: persist and confirm. ``run_epochs`` does both in one op.

Files that were persisted and not confirmed are unreferenced; the reset job deletes them. Sensors
launch it when a run fails, is cancelled or is killed between the two ops.
"""

from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from dstl_dagster.option_kinds import TEXT, check_options
from dstl_dagster.pipelines.epoch_metadata import EpochMetadata
from dstl_dagster.pipelines.epoch_runs import Batch
from dstl_dagster.pipelines.epochs import materialize_if_large, time_windows
from dstl_dagster.pipelines.failures import no_retry_of_permanent_errors
from dstl_dagster.pipelines.pipeline import StatefulPipeline
from dstl_dagster.pipelines.run_options import RunOptions, mark_rewound
from dstl_dagster.pipelines.windows import REWIND_TAG, TRUE, Windows
from dstl_dagster.resources.engines import engine_of, rows_of

if TYPE_CHECKING:
    from dstl_core.stateful_job import StatefulJob


class PersistConfig(dg.Config):
    """The options of a persist op in the launchpad; the tags of ``run_epochs`` say the same."""

    rewind: bool = Field(
        default=False,
        description="Whether state goes back to before the window. Later windows are undone.",
    )
    allow_gap: bool = Field(
        default=False,
        description="Whether windows may be missing between the last committed one and this one.",
    )


def build_persist_op(
    pipeline: StatefulPipeline,
    batch: Batch,
    *,
    uploads: str | None = None,
    name: str | None = None,
) -> dg.OpDefinition:
    """Builds an op that applies the batch of its partition and writes all files, without a commit.

    Its output is the input of the confirm op. The run has a lease until the confirm op ends. The
    launchpad shows the options of ``PersistConfig``.

    Args:
        pipeline: The pipeline.
        batch: The rows of one partition key.
        uploads: Name of the ``UploadSchedulerResource``; by default the job's own options apply.
        name: Name of the op; by default ``<pipeline>_persist_op``.
    """
    check_options("build_persist_op", build_persist_op, locals(), but={"uploads": TEXT})

    @dg.op(
        name=name or pipeline.python_name("persist_op"),
        tags=pipeline.run_tags,
        required_resource_keys=_resource_keys(pipeline, uploads),
    )
    def persist(context: dg.OpExecutionContext, config: PersistConfig) -> dict[str, Any]:
        storage, runs = context.resources.storage, getattr(context.resources, pipeline.engine)
        store, run_id, key = pipeline.store(storage), context.run.run_id, context.partition_key
        context.instance.add_run_tags(run_id, pipeline.run_tags)
        store.begin(run_id)
        try:
            with (
                no_retry_of_permanent_errors(),
                engine_of(runs, "dstl", run_id, pipeline.name) as session,
            ):
                job = _open(context, pipeline, session, uploads)
                if pipeline.starts_from is not None:
                    job.start(storage.path_of(pipeline.starts_from))
                asked = RunOptions.of(context)
                rewind = asked.rewinds or bool(asked.config.get("rewind"))
                partitions = time_windows(context.job_def.partitions_def)
                windows = Windows(pipeline.name, store, partitions).read()
                windows.check(key, allow_gap=asked.allow_gap, rewind=rewind)
                rows, input_id = rows_of(batch, session, key), windows.input_id(key)
                pipeline.as_run(context).migrate(
                    job,
                    context.instance,
                    input_id if rewind else None,
                    lambda past: rows_of(batch, session, windows.key_of_input(past)),
                )
                persisted: dict[str, Any] = job.persist(
                    rows,
                    input_id,
                    pipeline.order_by or None,
                    rewind=rewind,
                    notes=windows.notes(key),
                ).to_json()
        except BaseException:
            store.end(run_id)
            raise
        context.log.info(f"persisted checkpoint {persisted['checkpoint_id']}, not yet confirmed")
        return persisted

    return persist


def build_confirm_op(
    pipeline: StatefulPipeline, *, uploads: str | None = None, name: str | None = None
) -> dg.OpDefinition:
    """Builds an op that commits the files of a persist op, and reports the pipeline's assets.

    A retry after the commit reports the same. The op fails if another run took the pipeline over.
    After the commit it materializes the full state if the log is larger than the pipeline's
    ``materialize_at_ratio``.

    Args:
        pipeline: The pipeline.
        uploads: See ``build_persist_op``.
        name: Name of the op; by default ``<pipeline>_confirm_op``.
    """
    check_options("build_confirm_op", build_confirm_op, locals(), but={"uploads": TEXT})

    @dg.op(
        name=name or pipeline.python_name("confirm_op"),
        tags=pipeline.run_tags,
        required_resource_keys=_resource_keys(pipeline, uploads),
    )
    def confirm(context: dg.OpExecutionContext, persisted: dict[str, Any]) -> None:
        from dstl_core.job.coordination.job_coordinator import PersistedCheckpoint

        storage, runs = context.resources.storage, getattr(context.resources, pipeline.engine)
        store, run_id = pipeline.store(storage), context.run.run_id
        with (
            no_retry_of_permanent_errors(),
            store.lease(run_id),
            engine_of(runs, "dstl", run_id, pipeline.name) as session,
        ):
            job = _open(context, pipeline, session, uploads)
            result = job.confirm(PersistedCheckpoint.from_json(persisted))
            context.log.info(str(result))
            key = context.partition_key
            if context.run.tags.get(REWIND_TAG) == TRUE:
                mark_rewound(context.instance, run_id, key, key)
            seen = pipeline.as_run(context)
            metadata = EpochMetadata(seen, store, run_id, warn=context.log.warning)
            for event in metadata.events(key, result.checkpoint):
                context.log_event(event)
            materialize_if_large(context, pipeline, job)

    return confirm


def _resource_keys(pipeline: StatefulPipeline, uploads: str | None) -> set[str]:
    return {"storage", pipeline.engine, *(() if uploads is None else (uploads,))}


def _open(
    context: dg.OpExecutionContext,
    pipeline: StatefulPipeline,
    session: Any,
    uploads: str | None,
) -> "StatefulJob":
    """Opens the job with the uploads of the resource of that name."""
    resources = context.resources
    options = None if uploads is None else getattr(resources, uploads).changelog_options()
    return pipeline.open(session, resources.storage, options)


def build_protocol_job(
    pipeline: StatefulPipeline,
    batch: Batch,
    partitions_def: dg.TimeWindowPartitionsDefinition,
    *,
    uploads: str | None = None,
    name: str | None = None,
) -> dg.JobDefinition:
    """Builds a job that persists and confirms one window of input.

    Put your own ops between the two ops if the commit must wait for something. See
    ``build_persist_op`` for ``uploads``. ``name`` is that of the job, by default
    ``<pipeline>_protocol``; its ops are then ``<name>_persist_op`` and ``<name>_confirm_op``.
    """
    check_options("build_protocol_job", build_protocol_job, locals(), but={"uploads": TEXT})
    partitions_def = time_windows(partitions_def)
    names = [None, None] if name is None else [f"{name}_persist_op", f"{name}_confirm_op"]
    persist = build_persist_op(pipeline, batch, uploads=uploads, name=names[0])
    confirm = build_confirm_op(pipeline, uploads=uploads, name=names[1])

    @dg.job(
        name=name or pipeline.python_name("protocol"),
        partitions_def=partitions_def,
        tags=pipeline.run_tags,
        executor_def=dg.in_process_executor,
    )
    def protocol() -> None:
        confirm(persist())

    return protocol
