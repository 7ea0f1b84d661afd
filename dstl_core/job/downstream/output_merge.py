"""Brings a table to the latest commit of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass

from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.job.downstream.output_changes import OutputChanges, changes_since
from dstl_core.job.downstream.output_source import CHANGE, OutputSource
from dstl_core.job.downstream.sink import Sink


@dataclass(frozen=True)
class MergedOutput:
    """What a merge has done.

    Args:
        commit: The commit that the table stands at now.
        since: The checkpoint id that it stood at; None if it was made.
        undone: How many commits a rewind had undone since.
        applied: How many commits came since.
        counts: How many rows of each kind: ``insert``, ``update``, ``delete``, ``upsert``.
        whole: Whether all rows were written anew.
    """

    commit: CompletedCheckpoint
    since: int | None
    undone: int
    applied: int
    counts: dict[str, int]
    whole: bool


def merge_output(source: OutputSource, sink: Sink) -> MergedOutput:
    """Brings a table to the latest commit of a pipeline.

    Args:
        source: The output.
        sink: The table.

    Raises:
        ConfigError: The table is of something else, or output that it needs is not stored.
        CheckpointError: The pipeline has no commit yet, or another merge has changed the table.
    """
    source.store.require_latest()
    *_, first = source.store.commits()
    # A pipeline that began anew has the same ids of checkpoints, with other rows.
    began, keys = first.committed_ms, ",".join(source.keys)
    reader = f"dstl:{source.store.name}:{source.name}:{began}:{keys}"
    since = sink.position(reader)
    changes = changes_since(source, since)
    between, rows = changes.between, changes.rows
    position = between.until.checkpoint_id
    if position != since:
        _write(source, sink, changes, reader, since)
    return MergedOutput(
        between.until,
        since,
        len(between.undone),
        len(between.applied),
        {} if rows is None or position == since else changes.counts,
        changes.whole and position != since,
    )


def _write(
    source: OutputSource, sink: Sink, changes: OutputChanges, reader: str, since: int | None
) -> None:
    between, rows = changes.between, changes.rows
    position = between.until.checkpoint_id
    if not source.keys:
        if rows is not None or between.undone:
            sink.append(rows, between.common, reader, position)
    elif rows is None:
        return
    elif changes.whole or since is None:
        sink.replace(rows.drop_columns([CHANGE]), reader, position)
    else:
        sink.merge(rows, source.keys, reader, since, position)
