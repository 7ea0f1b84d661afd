"""Divides the log of a changelog by key groups, for a reader that reads a few of them at a time.

A segment holds changes of any key groups, so each read of some of them unpacks the whole log. A log
that is divided is unpacked once: its changes go to a temporary file, as compressed change sets of a
few key groups.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import IO

import numpy as np
import pyarrow as pa

from dstl_core.changelog.columnar_sets import encode
from dstl_core.changelog.reader import StateChangelogHandleReader
from dstl_core.codec.change_format import COMPRESSED_FLAG
from dstl_core.codec.columnar.changes.sets import ChangeColumns, Int64s
from dstl_core.codec.snappy_frames import compress_together
from dstl_core.model.change import META_KEY_GROUP
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    ChangelogStateBackendHandle,
    ChangelogStateHandle,
    ChangelogStateHandleStream,
    InMemoryChangelogStateHandle,
)
from dstl_core.model.key_group import KeyGroupRange, divided
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.temporary_files import let_go

BYTES_OF_PART = 16 << 20
"""About the bytes of changes in a part."""
_MOST_PARTS = 1024


@dataclass
class _Part:
    """Change sets of some key groups: their offsets when unpacked, and their places in the file."""

    key_groups: KeyGroupRange
    offsets: list[int] = field(default_factory=list)
    size: int = 0
    places: list[tuple[int, int]] = field(default_factory=list)


class DividedLog:
    """The log of one handle, divided.

    Args:
        handle: A changelog.
        within: The key groups that will be read, in the range of the handle.
        resolver: Reads the segments.

    Raises:
        FormatError: A segment is damaged.
        StorageError: A segment is missing.
        OSError: The temporary folder is full.
    """

    def __init__(
        self,
        handle: ChangelogStateBackendHandle,
        within: KeyGroupRange,
        resolver: HandleResolver,
    ) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="dstl-")  # noqa: SIM115  # lives as long as the log
        weakref.finalize(self, let_go, self._file)
        self._end = 0
        size = handle.non_materialized_size * len(within) // len(handle.key_group_range)
        self._ranges = divided(within, max(1, min(_MOST_PARTS, -(-size // BYTES_OF_PART))))
        reader = StateChangelogHandleReader(resolver.read_segment)
        self._logs: list[list[_Part] | InMemoryChangelogStateHandle] = []
        for log in handle.non_materialized:
            if isinstance(log, InMemoryChangelogStateHandle):
                self._logs.append(log)
                continue
            wanted = log.get_intersection(within)
            if wanted is not None:
                self._logs.append(self._divided(reader.read_batches(wanted)))
        self._file.flush()

    def part(
        self, handle: ChangelogStateBackendHandle, key_groups: KeyGroupRange
    ) -> ChangelogStateBackendHandle:
        """The handle with a log that holds the changes of some key groups, and perhaps others."""
        logs: list[ChangelogStateHandle] = []
        for log in self._logs:
            if isinstance(log, list):
                logs += [self._handle(part) for part in log if _overlap(part, key_groups)]
            else:
                logs.append(log)
        return replace(handle, non_materialized=tuple(logs))

    def _handle(self, part: _Part) -> ChangelogStateHandleStream:
        frames = [os.pread(self._file.fileno(), size, at) for at, size in part.places]
        name = f"changes of key groups {part.key_groups}"
        stream = ByteStreamStateHandle(name, COMPRESSED_FLAG + b"".join(frames))
        places = tuple((stream, offset) for offset in part.offsets)
        return ChangelogStateHandleStream(places, part.key_groups, part.size, part.size, name)

    # ------------------------------------------------------------------------------- dividing

    def _divided(self, changes: Iterable[pa.RecordBatch]) -> list[_Part]:
        parts = [_Part(key_groups) for key_groups in self._ranges]
        starts = np.array([part.key_groups.start_key_group for part in parts])
        for batch in changes:
            self._add(batch, parts, starts)
        return parts

    def _add(self, batch: pa.RecordBatch, parts: list[_Part], starts: Int64s) -> None:
        """Adds changes. A description of a state goes to all parts, between the same changes."""
        groups = batch.column("key_group").to_numpy()
        bounds = np.flatnonzero(np.diff(groups == META_KEY_GROUP)) + 1
        for start, end in zip([0, *bounds], [*bounds, len(groups)], strict=True):
            key_groups, values = groups[start:end], batch.column("value").slice(start, end - start)
            if key_groups[0] == META_KEY_GROUP:
                for part in parts:
                    self._write(part, _columns(key_groups, values))
                continue
            places = np.searchsorted(starts, key_groups, side="right") - 1
            order = np.argsort(places, kind="stable")
            columns = _columns(key_groups[order], values.take(pa.array(order)))
            ends = np.searchsorted(places[order], np.arange(len(parts) + 1))
            for at in np.flatnonzero(np.diff(ends)):
                self._write(parts[at], columns.slice(int(ends[at]), int(ends[at + 1])))

    def _write(self, part: _Part, changes: ChangeColumns) -> None:
        raw = encode([changes], part.key_groups, None)
        frames = compress_together([raw])
        self._file.write(frames)
        part.offsets.append(part.size)
        part.places.append((self._end, len(frames)))
        part.size += len(raw)
        self._end += len(frames)


def _overlap(part: _Part, key_groups: KeyGroupRange) -> bool:
    return len(part.key_groups.get_intersection(key_groups)) > 0


def _columns(key_groups: Int64s, values: pa.Array) -> ChangeColumns:
    _, offsets, data = values.buffers()
    bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    payload = np.frombuffer(data if data is not None else b"", np.uint8)
    return ChangeColumns(np.ascontiguousarray(key_groups), bounds.astype(np.int64), payload)
