"""The checkpoint protocol as ops: persist here, confirm there. ``run_epochs`` is both in one.

What was persisted and not confirmed was never there: the reset job removes it, and the sensors
launch that when a run fails, is cancelled or is killed between the two.
"""

from typing import Any

import dagster as dg

from dstl_dagster.epoch_metadata import EPOCH_KINDS, EpochMetadata
from dstl_dagster.epochs import (
    REWIND,
    REWIND_TAG,
    Batch,
    mark_rewound,
    no_retry_of_permanent_errors,
)
from dstl_dagster.pipeline import StatefulPipeline
from dstl_dagster.spark_resource import DstlSparkResource
from dstl_dagster.storage_resource import DstlStorageResource


def build_persist_op(pipeline: StatefulPipeline, batch: Batch) -> dg.OpDefinition:
    """An op that applies the batch of its partition and writes all, but commits nothing.

    Its output is for the confirm op. The run counts as working on the pipeline until that ends.

    Args:
        pipeline: The pipeline.
        batch: The rows of one partition key.
    """

    @dg.op(name=pipeline.python_name("persist_op"), tags=pipeline.run_tags)
    def persist(
        context: dg.OpExecutionContext, storage: DstlStorageResource, spark: DstlSparkResource
    ) -> dict[str, Any]:
        store, run_id, key = pipeline.store(storage), context.run.run_id, context.partition_key
        context.instance.add_run_tags(run_id, pipeline.run_tags)
        store.begin(run_id)
        try:
            with (
                no_retry_of_permanent_errors(),
                spark.tagged("dstl", run_id, pipeline.name) as session,
            ):
                job = pipeline.open(session, storage)
                if pipeline.starts_from is not None:
                    job.start(storage.path_of(pipeline.starts_from))
                rows = batch(session, key)
                rewind = context.run.tags.get(REWIND_TAG) == REWIND
                persisted = job.persist(rows, key, pipeline.order_by or None, rewind=rewind)
        except BaseException:
            store.end(run_id)
            raise
        context.log.info(f"persisted checkpoint {persisted.checkpoint_id}, not yet confirmed")
        return persisted.to_json()

    return persist


def build_confirm_op(pipeline: StatefulPipeline) -> dg.OpDefinition:
    """An op that commits what a persist op has written, and reports the pipeline's assets.

    A retry after the commit reports the same. It fails if another run took the pipeline over.
    """

    @dg.op(name=pipeline.python_name("confirm_op"), tags=pipeline.run_tags)
    def confirm(
        context: dg.OpExecutionContext,
        persisted: dict[str, Any],
        storage: DstlStorageResource,
        spark: DstlSparkResource,
    ) -> None:
        from dstl_core.spark import PersistedCheckpoint

        store, run_id = pipeline.store(storage), context.run.run_id
        with (
            no_retry_of_permanent_errors(),
            store.lease(run_id),
            spark.tagged("dstl", run_id, pipeline.name) as session,
        ):
            job = pipeline.open(session, storage)
            result = job.confirm(PersistedCheckpoint.from_json(persisted))
            context.log.info(str(result))
            if context.run.tags.get(REWIND_TAG) == REWIND:
                mark_rewound(context.instance, run_id, context.partition_key)
            metadata = EpochMetadata(pipeline, job, store, run_id)
            assets = {kind: pipeline.key(kind) for kind in EPOCH_KINDS}
            for event in metadata.events(context.partition_key, result.checkpoint, assets):
                context.log_event(event)

    return confirm


def build_protocol_job(
    pipeline: StatefulPipeline, batch: Batch, partitions_def: dg.TimeWindowPartitionsDefinition
) -> dg.JobDefinition:
    """Persist and confirm, one after the other, for one window of input.

    Put ops of your own between the two where a commit has to wait for something.
    """
    persist, confirm = build_persist_op(pipeline, batch), build_confirm_op(pipeline)

    @dg.job(
        name=pipeline.python_name("protocol"),
        partitions_def=partitions_def,
        tags=pipeline.run_tags,
        executor_def=dg.in_process_executor,
    )
    def protocol() -> None:
        confirm(persist())

    return protocol
