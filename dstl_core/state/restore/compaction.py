"""Compacts many small log segments of earlier runs into one file.

Every run of a short job adds a segment to the log of each subtask. Reading a log takes a request
per segment, so small segments of earlier runs are merged from time to time. Large segments stay:
to write them again costs more than their requests. Change sets stay unchanged. A run describes its
states before it changes them, with its own state ids, so a handle is never divided.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any

from dstl_core.changelog.interfaces import StateChangelogWriter
from dstl_core.changelog.reader import StateChangelogHandleReader
from dstl_core.model.change import META_KEY_GROUP
from dstl_core.model.handle import ChangelogStateHandle, ChangelogStateHandleStream

Log = tuple[ChangelogStateHandle, ...]
LARGE_SEGMENT_BYTES = 1 << 20
"""Size of a segment from which on reading it takes much longer than the request for it."""


def count_segments(log: Iterable[ChangelogStateHandle]) -> int:
    """The number of files of a log."""
    return len(
        {
            stream
            for handle in log
            if isinstance(handle, ChangelogStateHandleStream)
            for stream, _ in handle.handles_and_offsets
        }
    )


def small_segments(log: Log) -> tuple[int, int]:
    """The longest part of a log that has small segments only.

    Returns:
        Its first position in the log, and the position after it.
    """
    parts: list[tuple[int, int]] = []
    start = 0
    for is_large, handles in groupby(log, _has_large_segments):
        end = start + sum(1 for _ in handles)
        if not is_large:
            parts.append((start, end))
        start = end
    return max(parts, key=lambda part: count_segments(log[slice(*part)]), default=(0, 0))


def _has_large_segments(handle: ChangelogStateHandle) -> bool:
    segments = count_segments([handle])
    return segments > 0 and handle.state_size >= LARGE_SEGMENT_BYTES * segments


def compact_log(
    log: Log, reader: StateChangelogHandleReader, writer: StateChangelogWriter, checkpoint_id: int
) -> Log:
    """Writes the same changes in the same order into as few files as possible.

    Args:
        log: Handles whose key groups all belong to one subtask.
        reader: Reads the log.
        writer: A new writer for the new files; this function closes it.
        checkpoint_id: The first checkpoint that references the new files.

    Raises:
        UploadFailedError: The new files could not be written; the old log is unchanged.
    """
    try:
        for handle in log:
            for change_set in change_sets(handle):
                if reader.is_small(change_set):
                    _append_each(change_set, reader, writer)
                else:
                    _append_batches(change_set, reader, writer)
                writer.next_sequence_number()
        start, end = writer.initial_sequence_number(), writer.next_sequence_number()
        future: Any = writer.persist(start, checkpoint_id)
        compacted: ChangelogStateHandle = future.result().job_manager_owned_snapshot
        # The checkpoint owns the new files. Old files are deleted once no checkpoint references
        # them.
        writer.confirm(start, end, checkpoint_id)
        return (compacted,)
    except BaseException:
        writer.truncate_and_close(writer.initial_sequence_number())
        raise
    finally:
        writer.close()


def _append_each(
    change_set: ChangelogStateHandle,
    reader: StateChangelogHandleReader,
    writer: StateChangelogWriter,
) -> None:
    for change in reader.get_changes(change_set):
        if change.key_group == META_KEY_GROUP:
            writer.append_meta(change.change)
        else:
            writer.append(change.key_group, change.change)


def _append_batches(
    change_set: ChangelogStateHandle,
    reader: StateChangelogHandleReader,
    writer: StateChangelogWriter,
) -> None:
    for batch in reader.read_batches(change_set):
        key_groups, values = batch.column("key_group").to_numpy(), batch.column("value")
        # A set has its metadata first.
        first = int((key_groups == META_KEY_GROUP).sum())
        for meta_row in values[:first].to_pylist():
            writer.append_meta(meta_row)
        writer.append_batch(key_groups[first:], values[first:])


def change_sets(handle: ChangelogStateHandle) -> Iterator[ChangelogStateHandle]:
    """Yields a handle for each change set."""
    if not isinstance(handle, ChangelogStateHandleStream):
        yield handle
        return
    for part in handle.handles_and_offsets:
        yield replace(handle, handles_and_offsets=(part,))
