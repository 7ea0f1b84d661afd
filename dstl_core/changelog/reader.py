"""Reads the changes of a changelog handle.

Source: ``StateChangelogHandleStreamHandleReader`` and ``StateChangeIteratorImpl`` of Flink 2.2.1.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import groupby
from typing import TYPE_CHECKING, Any

from dstl_core.changelog.open_segments import OpenSegments, Segment
from dstl_core.codec.change_format import check_inside, read_change_set
from dstl_core.codec.snappy_frames import Allocate
from dstl_core.errors import ConfigError, FormatError, error_context
from dstl_core.model.change import META_KEY_GROUP, StateChange
from dstl_core.model.handle import (
    ChangelogStateHandle,
    ChangelogStateHandleStream,
    FileStateHandle,
    InMemoryChangelogStateHandle,
    StreamStateHandle,
)

if TYPE_CHECKING:
    import pyarrow as pa

_LOG = logging.getLogger(__name__)

BATCH_ROWS = 65_536
BATCH_BYTES = 8 << 20
_ITERATOR_ROWS = 4_096
_SMALL_BYTES = 256 << 10
"""Payload up to this size is decoded in Python, which is faster than loading the kernels."""


class StateChangelogHandleReader:
    """Reads handles in their order: set by set, and metadata first in each set.

    Args:
        read_segment: Returns the whole segment file of a stream handle. It may run on several
            threads at once.
    """

    def __init__(self, read_segment: Callable[[StreamStateHandle], Segment]) -> None:
        self._read_segment = read_segment

    @staticmethod
    def is_small(handle: ChangelogStateHandle) -> bool:
        """Whether changes one by one are read faster than batches."""
        in_memory = isinstance(handle, InMemoryChangelogStateHandle)
        return in_memory or handle.state_size <= _SMALL_BYTES

    def get_changes(
        self, handle: ChangelogStateHandle, *, local: ChangelogStateHandleStream | None = None
    ) -> Iterator[StateChange]:
        """Yields the changes of the handle's key groups, and all metadata.

        Args:
            handle: A handle of a checkpoint.
            local: The same handle with copies on this machine. If a copy cannot be read, the
                remote file is read instead.

        Raises:
            StorageError: A segment is missing.
            FormatError: A segment is damaged. The message names the file and the position.
        """
        if self.is_small(handle):
            yield from self._changes_one_by_one(handle, local)
            return
        for batch in self.read_batches(handle, local=local, batch_rows=_ITERATOR_ROWS):
            key_groups: list[Any] = batch.column("key_group").to_pylist()
            values: list[Any] = batch.column("value").to_pylist()
            for key_group, value in zip(key_groups, values, strict=True):
                yield StateChange(key_group, value)

    def _changes_one_by_one(
        self, handle: ChangelogStateHandle, local: ChangelogStateHandleStream | None
    ) -> Iterator[StateChange]:
        changes: Iterator[StateChange]
        if isinstance(handle, InMemoryChangelogStateHandle):
            changes = (StateChange(key_group, change) for key_group, change in handle.changes)
        else:
            changes = self._decoded_sets(handle, local)
        for own_change in changes:
            if own_change.key_group == META_KEY_GROUP or handle.key_group_range.contains(
                own_change.key_group
            ):
                yield own_change

    def _decoded_sets(
        self, handle: ChangelogStateHandleStream, local: ChangelogStateHandleStream | None
    ) -> Iterator[StateChange]:
        for _, body, offset, location in self._sets(handle, local):
            with error_context(location=location):
                yield from read_change_set(body, offset)

    def read_batches(
        self,
        handle: ChangelogStateHandle,
        *,
        local: ChangelogStateHandleStream | None = None,
        batch_rows: int = BATCH_ROWS,
        batch_bytes: int = BATCH_BYTES,
    ) -> Iterator[pa.RecordBatch]:
        """Yields the same changes as record batches of ``CHANGE_SCHEMA``.

        A batch has at most ``batch_rows`` rows and ``batch_bytes`` bytes of values, or one larger
        value. Raises the errors of ``get_changes``.
        """
        from dstl_core.changelog import columnar_sets
        from dstl_core.codec.columnar.types.scratch import scratch_bytes

        if batch_rows < 1 or batch_bytes < 1:
            raise ConfigError(
                f"A batch is too small: expected at least 1 row and 1 byte, got "
                f"{batch_rows} and {batch_bytes}."
            )
        if isinstance(handle, InMemoryChangelogStateHandle):
            yield from columnar_sets.read_inlined(handle, batch_rows)
        else:
            yield from columnar_sets.read_sets(
                self._sets(handle, local, scratch_bytes),
                handle.key_group_range,
                batch_rows,
                batch_bytes,
            )

    def open_segment(self, handle: StreamStateHandle) -> AbstractContextManager[Segment]:
        """Opens a segment for the length of the block."""
        return nullcontext(self._read_segment(handle))

    def _sets(
        self,
        handle: ChangelogStateHandleStream,
        local: ChangelogStateHandleStream | None,
        allocate: Allocate = bytearray,
    ) -> Iterator[tuple[int, memoryview, int, str | None]]:
        """Yields each set: its number in the handle, the body that holds it, its offset there and
        the file. Consecutive sets of one segment open it once; the next segments are read ahead.
        """
        copies = local.handles_and_offsets if local is not None else ()
        streams = (stream for stream, _ in handle.handles_and_offsets)
        # Which of the remote files are needed depends on the copies.
        expected = [] if copies else [stream for stream, _ in groupby(streams)]
        with OpenSegments(self.open_segment, expected, allocate) as segment:
            for index, (stream, offset) in enumerate(handle.handles_and_offsets):
                if index < len(copies) and copies[index][0] != stream:
                    copy, copy_offset = copies[index]
                    body = _body_of_copy(segment, copy, copy_offset)
                    if body is not None:
                        yield index, body, copy_offset, _location(copy)
                        continue
                with error_context(location=_location(stream)):
                    body = segment.body(stream)
                    check_inside(body, offset)
                yield index, body, offset, _location(stream)


def _body_of_copy(segment: OpenSegments, copy: StreamStateHandle, offset: int) -> memoryview | None:
    """The body of a local copy, if its set is intact; None if the remote file must be read."""
    from dstl_core.changelog import columnar_sets

    try:
        body = segment.body(copy)
        columnar_sets.check_set(body, offset)
    except (OSError, FormatError) as error:
        _LOG.warning("a local segment is ignored: path=%s error=%s", _location(copy), error)
        return None
    return body


def _location(stream: StreamStateHandle) -> str | None:
    return stream.path if isinstance(stream, FileStateHandle) else None
