"""Many small segments of earlier runs become one file.

Every run of a short job adds a segment to the log of each subtask. Reading a log costs a request
for each, so the log of earlier runs is written together from time to time. Its change sets stay as
they are: a set describes its states before it changes them, and the next one may number them anew.
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
    """The number of files behind a log."""
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
    """The same changes in the same order, in as few files as the writer makes of them.

    Args:
        log: Handles that belong to one subtask as a whole.
        reader: Reads them.
        writer: A new one, for this; it is closed.
        checkpoint_id: The first checkpoint that will name the new files.

    Raises:
        UploadFailedError: The new files could not be written; the old log still holds.
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
        # The old files go when no checkpoint names them; the new ones are the checkpoint's.
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
