"""The verbs of a pipeline as jobs: materialize, savepoint, verify, reset, gc."""

from typing import Any

import dagster as dg
from pydantic import Field

from dstl_core.savepoint.gc import collect_garbage
from dstl_dagster.pipelines.drift import Drift
from dstl_dagster.pipelines.epoch_metadata import EpochMetadata
from dstl_dagster.pipelines.pipeline import StatefulPipeline
from dstl_dagster.pipelines.verb_ops import build_reset_op
from dstl_dagster.resources.storage_resource import DstlStorageResource

Job = Any
"""A job, or the result of ``dagster.define_asset_job``, whose class is not public."""

MAX_RUNTIME_TAG = "dagster/max_runtime"
RUNTIME_S = 3_600


def build_materialization_job(pipeline: StatefulPipeline, *, max_runtime_s: int = RUNTIME_S) -> Job:
    """Writes the full state as a new base, with which the log is truncated."""
    return dg.define_asset_job(
        pipeline.python_name("materialize"),
        selection=dg.AssetSelection.assets(pipeline.key("materialization")),
        description="Writes the full state as a new base and drops the log before it.",
        tags=_tags(pipeline, max_runtime_s),
        executor_def=dg.in_process_executor,
    )


def build_savepoint_job(
    pipeline: StatefulPipeline, *, name: str = "savepoint", max_runtime_s: int = RUNTIME_S
) -> Job:
    """Writes the latest checkpoint as a savepoint."""
    return dg.define_asset_job(
        pipeline.python_name(f"write_{name}"),
        selection=dg.AssetSelection.assets(pipeline.key("savepoint", name)),
        tags=_tags(pipeline, max_runtime_s),
        executor_def=dg.in_process_executor,
    )


def build_verify_job(pipeline: StatefulPipeline, *, max_runtime_s: int = RUNTIME_S) -> Job:
    """Runs the checks of the checkpoint, with the full check. It materializes nothing."""
    return dg.define_asset_job(
        pipeline.python_name("verify"),
        selection=dg.AssetSelection.checks_for_assets(pipeline.key("checkpoint")),
        tags=_tags(pipeline, max_runtime_s),
        executor_def=dg.in_process_executor,
    )


def build_reset_job(pipeline: StatefulPipeline) -> dg.JobDefinition:
    """Takes the pipeline over from dead runs, and deletes their files. It needs no Spark."""
    reset = build_reset_op(pipeline, name=pipeline.python_name("reset_job_op"))

    return _job_of(reset, pipeline, "reset", 600)


def build_report_job(pipeline: StatefulPipeline) -> dg.JobDefinition:
    """Reports every commit of the latest state that Dagster's event log lacks. No Spark."""

    @dg.op(name=pipeline.python_name("report_commits_op"), tags=pipeline.run_tags)
    def report(context: dg.OpExecutionContext, storage: DstlStorageResource) -> None:
        store, seen = pipeline.store(storage), pipeline.as_run(context)
        drift = Drift.of(context.instance, seen, store, limit=None)
        again = list(drift.unreported)
        if drift.commits and (again or drift.foreign) and drift.commits[-1] not in again:
            again.append(drift.commits[-1])  # what the asset's page shows is what came last
        metadata = EpochMetadata(seen, store, context.run.run_id, warn=context.log.warning)
        for epoch in again:
            for event in metadata.events(
                epoch.key, epoch.commit, committed_before=True, profiled=False
            ):
                context.log_event(event)
        context.log.info(f"reported {len(again)} of {len(drift.commits)} commits")

    return _job_of(report, pipeline, "report_commits", 600)


class GcConfig(dg.Config):
    """Options of a gc."""

    delete: bool = Field(default=False, description="Delete the files; else they are counted.")
    older_than_hours: float = Field(
        default=24.0, ge=0, description="Younger files stay: somebody may be about to name them."
    )


def build_gc_job(pipeline: StatefulPipeline) -> dg.JobDefinition:
    """Finds unreferenced files of the pipeline, and deletes them on request. It needs no Spark.

    All savepoints below the storage's base path count as references.
    """

    @dg.op(name=pipeline.python_name("gc_op"), tags=pipeline.run_tags)
    def gc(context: dg.OpExecutionContext, config: GcConfig, storage: DstlStorageResource) -> None:
        collected = collect_garbage(
            pipeline.store(storage).layout.root,
            delete=config.delete,
            older_than_ms=int(config.older_than_hours * 3_600_000),
            also_referenced_from=[storage.base_path],
        )
        context.log.info(
            f"{len(collected.garbage)} unreferenced files, {collected.size:,} bytes; "
            f"{collected.deleted} deleted"
        )
        context.log_event(
            dg.AssetObservation(
                pipeline.as_run(context).key("checkpoint"),
                metadata={
                    "dstl/garbage_files": len(collected.garbage),
                    "dstl/garbage_bytes": collected.size,
                    "dstl/garbage_deleted": collected.deleted,
                    "dstl/garbage_kept": dg.MetadataValue.json(collected.to_json()["kept"]),
                },
            )
        )

    return _job_of(gc, pipeline, "gc", RUNTIME_S)


def _job_of(
    op: dg.OpDefinition, pipeline: StatefulPipeline, name: str, max_runtime_s: int
) -> dg.JobDefinition:
    """A job of one op, in the process of its run."""

    @dg.job(
        name=pipeline.python_name(name),
        executor_def=dg.in_process_executor,
        tags=_tags(pipeline, max_runtime_s),
    )
    def job() -> None:
        op()

    return job


def _tags(pipeline: StatefulPipeline, max_runtime_s: int) -> dict[str, str]:
    return {**pipeline.run_tags, MAX_RUNTIME_TAG: str(max_runtime_s)}
