"""The whole checkpoint protocol in one op: restore, apply, log, persist, commit, or reset.

A retry, a second run and a re-materialization all go the same way: what is committed runs nothing
and reports the version that was recorded. The commit log is authoritative; Dagster's event log
mirrors it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import dagster as dg

from dstl_core.errors import (
    ConfigError,
    FencedError,
    FormatError,
    InputChangedError,
    RestoreError,
)
from dstl_dagster.pipelines.epoch_metadata import EPOCH_KINDS, EpochMetadata
from dstl_dagster.pipelines.pipeline import StatefulPipeline
from dstl_dagster.resources.storage_resource import DstlStorageResource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
    from dstl_core.spark.job.stateful_job import StatefulJob
    from dstl_dagster.resources.spark_resource import DstlSparkResource
    from dstl_dagster.resources.upload_resource import UploadSchedulerResource

Batch = Callable[["SparkSession", str], "DataFrame"]
Events = Iterator[dg.MaterializeResult | dg.AssetMaterialization]

REWIND_TAG, REWIND = "dstl/rewind", "true"
"""A run with this tag and value goes back to before its first window, whatever was committed."""

_PERMANENT = (FencedError, InputChangedError, ConfigError, RestoreError, FormatError)


@contextmanager
def no_retry_of_permanent_errors() -> Iterator[None]:
    """Turns what a retry cannot mend into a failure that Dagster does not retry."""
    try:
        yield
    except _PERMANENT as error:
        hint = ""
        if isinstance(error, InputChangedError):
            hint = f" In Dagster, rewind=True is the run tag {REWIND_TAG}={REWIND}."
        raise dg.Failure(f"{error}{hint}", allow_retries=False) from error


def run_epochs(
    context: dg.AssetExecutionContext,
    pipeline: StatefulPipeline,
    batch: Batch,
    *,
    storage: DstlStorageResource,
    spark: DstlSparkResource,
    uploads: UploadSchedulerResource | None = None,
) -> Events:
    """Runs one epoch for each partition of this run, in order, and reports its assets.

    Args:
        context: Of the op that ``dstl_assets`` made.
        pipeline: The pipeline.
        batch: The rows of one partition key.
        storage: Where the state lies.
        spark: The session.
        uploads: How changes are uploaded; the job's own way by default.

    Raises:
        dagster.Failure: Not retried: another run took over, the input of a committed window
            changed, a window comes after a later one was committed, the state cannot be restored.
    """
    run_id = context.run.run_id
    store = pipeline.store(storage)
    context.instance.add_run_tags(run_id, pipeline.run_tags)
    with (
        no_retry_of_permanent_errors(),
        store.lease(run_id),
        spark.tagged("dstl", run_id, pipeline.name) as session,
    ):
        options = uploads.changelog_options() if uploads is not None else None
        job = pipeline.open(session, storage, options)
        if pipeline.starts_from is not None:
            job.start(storage.path_of(pipeline.starts_from))
        report = _Report(context, pipeline, EpochMetadata(pipeline, job, store, run_id))
        commits: dict[str, CompletedCheckpoint] = {}
        rewind = context.run.tags.get(REWIND_TAG) == REWIND
        for key in sorted(context.partition_keys):
            rows = batch(session, key)
            result = job.run(rows, key, pipeline.order_by or None, rewind=rewind)
            if rewind:
                mark_rewound(context.instance, run_id, key)
                rewind = False
            context.log.info(str(result))
            commits[key] = result.checkpoint
            report.partition(key, result.checkpoint, result.committed_before)
            materialize_if_large(context, pipeline, job)
    latest = max(commit.checkpoint_id for commit in commits.values())
    context.instance.add_run_tags(run_id, {"dstl/checkpoint_id": str(latest)})
    yield from report.results(commits)


def mark_rewound(instance: dg.DagsterInstance, run_id: str, key: str) -> None:
    """A run goes back once: a retry of it, or a run like it, goes on from there."""
    instance.add_run_tags(run_id, {REWIND_TAG: f"done, to before {key}"})


def materialize_if_large(
    context: dg.OpExecutionContext | dg.AssetExecutionContext,
    pipeline: StatefulPipeline,
    job: StatefulJob,
) -> None:
    """Folds the log into the base where the pipeline's ``materialize_at_ratio`` asks for it."""
    if pipeline.materialize_at_ratio is None:
        return
    size = job.state_size()
    if size.log_ratio > pipeline.materialize_at_ratio:
        job.materialize()
        context.log.info(
            f"materialized: the log had {size.log:,} bytes on {size.materialized:,} of state"
        )


class _Report:
    """The events that report the epochs of a run to Dagster."""

    def __init__(
        self,
        context: dg.AssetExecutionContext,
        pipeline: StatefulPipeline,
        metadata: EpochMetadata,
    ) -> None:
        self._context = context
        self._pipeline = pipeline
        self._metadata = metadata
        self._keys = {
            kind: pipeline.key(kind)
            for kind in EPOCH_KINDS
            if pipeline.key(kind) in context.selected_asset_keys
        }

    def partition(self, key: str, commit: CompletedCheckpoint, committed_before: bool) -> None:
        """Metadata of one partition, given to Dagster before the outputs are."""
        for kind, asset in self._keys.items():
            metadata = self._metadata.of_commit(kind, commit, committed_before=committed_before)
            self._context.add_asset_metadata(metadata, asset_key=asset, partition_key=key)

    def results(self, commits: dict[str, CompletedCheckpoint]) -> Events:
        """The outputs; then, for a run of several partitions, each partition's own version.

        Dagster gives all partitions of an output one data version, so those that differ are
        reported once more with theirs.
        """
        last = commits[max(commits)]
        upstream = _first_upstream(self._context, self._pipeline)
        metadata = self._metadata.of_state(upstream)
        for kind, asset in self._keys.items():
            yield dg.MaterializeResult(
                asset, metadata=metadata.get(kind), data_version=dg.DataVersion(last.data_version)
            )
        for key, commit in commits.items():
            if commit != last:
                yield from self._metadata.events(key, commit, self._keys)


def _first_upstream(
    context: dg.AssetExecutionContext, pipeline: StatefulPipeline
) -> dg.AssetKey | None:
    own = {pipeline.key(kind) for kind in EPOCH_KINDS}
    for spec in context.assets_def.specs:
        if spec.key == pipeline.key("state"):
            others: Sequence[dg.AssetKey] = [
                d.asset_key for d in spec.deps if d.asset_key not in own
            ]
            return others[0] if others else None
    return None
