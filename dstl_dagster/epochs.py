"""The whole checkpoint protocol in one op: restore, apply, log, persist, commit, or reset.

A retry, a second run and a re-materialization all go the same way: what is committed runs nothing
and reports the version that was recorded. Dagster's event log is told; the commit log decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import dagster as dg

from dstl_core.errors import (
    ConfigError,
    FencedError,
    FormatError,
    InputChangedError,
    RestoreError,
)
from dstl_core.model.state_size import StateSize
from dstl_dagster import metadata as show
from dstl_dagster.pipeline import StatefulPipeline
from dstl_dagster.pipeline_store import PipelineStore
from dstl_dagster.storage_resource import DstlStorageResource
from dstl_dagster.translator import DstlAssetKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from dstl_core.checkpoint.completed_checkpoint import CompletedCheckpoint
    from dstl_core.spark import StatefulJob
    from dstl_dagster.spark_resource import DstlSparkResource
    from dstl_dagster.upload_resource import UploadSchedulerResource

Batch = Callable[["SparkSession", str], "DataFrame"]
Events = Iterator[dg.MaterializeResult | dg.AssetMaterialization]

EPOCH_KINDS: tuple[DstlAssetKind, ...] = ("state", "changelog", "checkpoint")
_PERMANENT = (FencedError, InputChangedError, ConfigError, RestoreError, FormatError)


@contextmanager
def no_retry_of_permanent_errors() -> Iterator[None]:
    """Turns what a retry cannot mend into a failure that Dagster does not retry."""
    try:
        yield
    except _PERMANENT as error:
        raise dg.Failure(str(error), allow_retries=False) from error


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
        report = _Report(context, pipeline, job, store)
        commits: dict[str, CompletedCheckpoint] = {}
        for key in sorted(context.partition_keys):
            result = job.run(batch(session, key), input_id=key, order_by=pipeline.order_by or None)
            context.log.info(str(result))
            commits[key] = result.checkpoint
            report.partition(key, result.checkpoint, result.committed_before)
            _materialize_if_large(context, pipeline, job)
    latest = max(commit.checkpoint_id for commit in commits.values())
    context.instance.add_run_tags(run_id, {"dstl/checkpoint_id": str(latest)})
    yield from report.results(commits)


def _materialize_if_large(
    context: dg.AssetExecutionContext, pipeline: StatefulPipeline, job: StatefulJob
) -> None:
    if pipeline.materialize_at_ratio is None:
        return
    size = job.state_size()
    if size.log_ratio > pipeline.materialize_at_ratio:
        job.materialize()
        context.log.info(
            f"materialized: the log had {size.log:,} bytes on {size.materialized:,} of state"
        )


class _Report:
    """What the event log is told of the epochs of a run."""

    def __init__(
        self,
        context: dg.AssetExecutionContext,
        pipeline: StatefulPipeline,
        job: StatefulJob,
        store: PipelineStore,
    ) -> None:
        self._context = context
        self._pipeline = pipeline
        self._job = job
        self._store = store
        self._keys = {
            kind: pipeline.key(kind)
            for kind in EPOCH_KINDS
            if pipeline.key(kind) in context.selected_asset_keys
        }

    def partition(self, key: str, commit: CompletedCheckpoint, committed_before: bool) -> None:
        """Metadata of one partition, given to Dagster before the outputs are."""
        for kind, asset in self._keys.items():
            metadata = self._metadata(kind, commit, committed_before)
            self._context.add_asset_metadata(metadata, asset_key=asset, partition_key=key)

    def _metadata(
        self, kind: DstlAssetKind, commit: CompletedCheckpoint, committed_before: bool
    ) -> dict[str, Any]:
        history = [
            each for each in self._job.history() if each.checkpoint_id <= commit.checkpoint_id
        ]
        common = {
            "dstl/checkpoint_id": commit.checkpoint_id,
            "dstl/committed_before": committed_before,
            "dstl/run": dg.MetadataValue.dagster_run(self._context.run.run_id),
            "dstl/log_chart": show.log_chart(history),
        }
        match kind:
            case "state":
                return {**common, **show.epoch_metadata(commit)}
            case "changelog":
                numbers = show.epoch_metadata(commit)
                return {**common, "dstl/epoch_log_bytes": numbers["dstl/epoch_log_bytes"]}
            case _:
                details = show.checkpoint_metadata(commit, self._store.path_of(commit))
                return {**common, **details, "dstl/commits": show.epochs_table(history)}

    def results(self, commits: dict[str, CompletedCheckpoint]) -> Events:
        """The outputs; then, for a run of several partitions, each partition's own version.

        Dagster gives all partitions of an output one data version, so those that differ are
        reported once more with theirs.
        """
        last = commits[max(commits)]
        metadata = self._run_metadata()
        for kind, asset in self._keys.items():
            yield dg.MaterializeResult(
                asset, metadata=metadata.get(kind), data_version=dg.DataVersion(last.data_version)
            )
        for key, commit in commits.items():
            if commit == last:
                continue
            for kind, asset in self._keys.items():
                yield dg.AssetMaterialization(
                    asset,
                    partition=key,
                    metadata=self._metadata(kind, commit, committed_before=False),
                    tags={"dagster/data_version": commit.data_version},
                )

    def _run_metadata(self) -> dict[DstlAssetKind, dict[str, Any]]:
        """What is the same for all partitions of the run: schema, lineage, sizes."""
        snapshot = self._job.snapshot()
        size = StateSize.of(snapshot.metadata)
        found: dict[DstlAssetKind, dict[str, Any]] = {
            "state": {"dagster/column_schema": show.column_schema(snapshot, self._pipeline.uid)},
            "changelog": {"dstl/log_bytes": size.log, "dstl/handles": show.handles_table(snapshot)},
            "checkpoint": {"dstl/state_bytes": size.materialized, "dstl/log_bytes": size.log},
        }
        upstream = _first_upstream(self._context, self._pipeline)
        if self._pipeline.lineage and upstream is not None:
            lineage = show.column_lineage(self._pipeline.lineage, upstream)
            found["state"]["dagster/column_lineage"] = lineage
        return found


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
