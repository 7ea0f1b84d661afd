"""From a changelog handle back to its changes.

Source: ``StateChangelogHandleStreamHandleReader`` and ``StateChangeIteratorImpl`` of Flink 2.2.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dstl_core.codec.change_format import read_change_set, segment_body
from dstl_core.errors import error_context
from dstl_core.model.change import META_KEY_GROUP, StateChange
from dstl_core.model.handle import (
    ChangelogStateHandle,
    FileStateHandle,
    InMemoryChangelogStateHandle,
    StreamStateHandle,
)


class StateChangelogHandleReader:
    """Reads handles in their order: set by set, metadata first inside a set.

    Args:
        read_segment: Gives the whole segment file behind a stream handle.
    """

    def __init__(self, read_segment: Callable[[StreamStateHandle], bytes]) -> None:
        self._read_segment = read_segment

    def get_changes(self, handle: ChangelogStateHandle) -> Iterator[StateChange]:
        """Yields the changes of the handle's key groups, and all metadata."""
        changes: Iterator[StateChange]
        if isinstance(handle, InMemoryChangelogStateHandle):
            changes = (StateChange(key_group, change) for key_group, change in handle.changes)
        else:
            changes = self._segments(handle.handles_and_offsets)
        key_groups = handle.key_group_range
        for change in changes:
            if change.key_group == META_KEY_GROUP or key_groups.contains(change.key_group):
                yield change

    def _segments(
        self, handles_and_offsets: tuple[tuple[StreamStateHandle, int], ...]
    ) -> Iterator[StateChange]:
        segment: StreamStateHandle | None = None
        body = b""
        for stream, offset in handles_and_offsets:
            location = stream.path if isinstance(stream, FileStateHandle) else None
            with error_context(location=location):
                if stream != segment:
                    segment, body = stream, segment_body(self._read_segment(stream))
                yield from read_change_set(body, offset)
