"""Compacts many small log segments of earlier runs into one file.

Every run of a short job adds a segment to the log of each subtask. Reading a log takes a request
per segment, so the segments of earlier runs are merged from time to time. Change sets stay
unchanged: each describes its states before it changes them, with its own state ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from dstl_core.changelog.interfaces import StateChangelogWriter
from dstl_core.changelog.reader import StateChangelogHandleReader
from dstl_core.model.change import META_KEY_GROUP
from dstl_core.model.handle import ChangelogStateHandle, ChangelogStateHandleStream


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


def compact_log(
    log: tuple[ChangelogStateHandle, ...],
    reader: StateChangelogHandleReader,
    writer: StateChangelogWriter,
    checkpoint_id: int,
) -> tuple[ChangelogStateHandle, ...]:
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
            for change_set in _change_sets(handle):
                for change in reader.get_changes(change_set):
                    if change.key_group == META_KEY_GROUP:
                        writer.append_meta(change.change)
                    else:
                        writer.append(change.key_group, change.change)
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


def _change_sets(handle: ChangelogStateHandle) -> Iterator[ChangelogStateHandle]:
    if not isinstance(handle, ChangelogStateHandleStream):
        yield handle
        return
    for each in handle.handles_and_offsets:
        yield replace(handle, handles_and_offsets=(each,))
