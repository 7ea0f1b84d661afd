"""Merges the output of a pipeline into tables behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import dagster as dg

from dstl_core.errors import ConfigError
from dstl_dagster.pipelines.aggregates import AggregatingJob
from dstl_dagster.pipelines.pipeline import StatefulPipeline
from dstl_dagster.resources.storage_resource import DstlStorageResource

if TYPE_CHECKING:
    from dstl_core.job.downstream.output_changes import OutputChanges
    from dstl_core.job.downstream.output_source import OutputSource
    from dstl_core.job.downstream.sink import Sink


def merge_output(
    pipeline: StatefulPipeline,
    storage: DstlStorageResource,
    sink: Sink,
    *,
    output: str | None = None,
    key_by: str | Sequence[str] = (),
) -> dg.MaterializeResult[None]:
    """Brings a table to the latest commit of a pipeline, as ``StatefulJob.merge_into`` does.

    Call it in an asset that depends on the output. A repeated run changes nothing, and what a
    rewind has undone is taken back.

    Args:
        pipeline: The pipeline.
        storage: Where its state is.
        sink: A ``DeltaSink``, an ``IcebergSink`` or a ``ParquetSink`` of ``dstl_core``.
        output: One of the ``outputs`` of the pipeline; the first one by default.
        key_by: Columns of which the table has one row each, the last one. By default the table of
            an ``aggregating_pipeline`` has a row per key, or per key and window; that of other
            output has all rows, with the column ``dstl_checkpoint``.

    Raises:
        ConfigError: There is no such output; something else has filled the table; or output that
            the merge needs is not stored.
    """
    from dstl_core.job.downstream.output_merge import merge_output as merge

    merged = merge(output_source(pipeline, storage, output, key_by), sink)
    numbers = {f"dstl/rows_{kind}": count for kind, count in sorted(merged.counts.items())}
    return dg.MaterializeResult(
        metadata={
            "dagster/uri": sink.path,
            "dstl/checkpoint_id": merged.commit.checkpoint_id,
            "dstl/commits_applied": merged.applied,
            "dstl/commits_undone": merged.undone,
            "dstl/rewritten": merged.whole,
            **numbers,
        },
        data_version=dg.DataVersion(merged.commit.data_version),
    )


def output_changes(
    pipeline: StatefulPipeline,
    storage: DstlStorageResource,
    since: int | None = None,
    *,
    output: str | None = None,
    key_by: str | Sequence[str] = (),
) -> OutputChanges:
    """What changed in an output since a commit, as ``StatefulJob.changes`` gives it.

    Args:
        pipeline: The pipeline.
        storage: Where its state is.
        since: The id of a checkpoint; None if nothing was read yet.
        output: As for ``merge_output``.
        key_by: As for ``merge_output``.

    Raises:
        ConfigError: As for ``merge_output``.
    """
    from dstl_core.job.downstream.output_changes import changes_since

    return changes_since(output_source(pipeline, storage, output, key_by), since)


def output_source(
    pipeline: StatefulPipeline,
    storage: DstlStorageResource,
    output: str | None,
    key_by: str | Sequence[str],
) -> OutputSource:
    """The output of a pipeline, as tables behind it read it."""
    from dstl_core.job.downstream.output_source import OutputSource

    if not pipeline.outputs or output not in (None, *pipeline.outputs):
        raise ConfigError(
            f"The pipeline {pipeline.name!r} has no output {output or pipeline.uid!r} to merge: "
            f"expected one of its outputs, {', '.join(pipeline.outputs) or 'and it has none'}."
        )
    storage.connect()
    name, store = output or pipeline.outputs[0], pipeline.store(storage)
    if isinstance(pipeline.job, AggregatingJob):
        return OutputSource.of(store, pipeline.job.operator, name).keyed_by(key_by)
    return OutputSource(store, name).keyed_by(key_by)
