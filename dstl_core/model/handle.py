"""State handles: references to the bytes of state. One class per meaning, not per wire tag.

Source: ``org.apache.flink.runtime.state`` of Flink 2.2.1. A handle never opens anything; reading
goes through ``dstl_core.storage``. Sizes and offsets are bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise
from typing import Self

from dstl_core.errors import FormatError
from dstl_core.model.key_group import KeyGroupRange

# --------------------------------------------------------------------------------- streams


@dataclass(frozen=True, slots=True)
class ByteStreamStateHandle:
    """State inside ``_metadata``. The name only serves as an identity."""

    handle_name: str
    data: bytes

    @property
    def state_size(self) -> int:
        return len(self.data)


@dataclass(frozen=True, slots=True)
class FileStateHandle:
    """A whole file, by absolute path or URL."""

    path: str
    state_size: int


@dataclass(frozen=True, slots=True)
class RelativeFileStateHandle:
    """A whole file in the folder of the ``_metadata`` that names it."""

    relative_path: str
    state_size: int


class CheckpointedStateScope(Enum):
    """Ownership of a file; the value is its byte on the wire."""

    EXCLUSIVE = 0
    SHARED = 1


@dataclass(frozen=True, slots=True)
class SegmentFileStateHandle:
    """A part of a merged file."""

    path: str
    start_position: int
    state_size: int
    scope: CheckpointedStateScope
    logical_file_id: str


@dataclass(frozen=True, slots=True)
class EmptySegmentFileStateHandle:
    """A segment of a merged file that has no bytes for this state."""

    @property
    def state_size(self) -> int:
        return 0


StreamStateHandle = (
    ByteStreamStateHandle
    | FileStateHandle
    | RelativeFileStateHandle
    | SegmentFileStateHandle
    | EmptySegmentFileStateHandle
)


# ----------------------------------------------------------------------------- keyed state


NO_OFFSET = -1


@dataclass(frozen=True, slots=True)
class KeyGroupRangeOffsets:
    """Offset of each key group's section in a stream; ``len(offsets) == len(range)``.

    In raw state, 0 is a valid offset, and ``NO_OFFSET`` means that a key group has no data.
    """

    key_group_range: KeyGroupRange
    offsets: tuple[int, ...]

    def items(self) -> list[tuple[int, int]]:
        return list(zip(self.key_group_range, self.offsets, strict=True))

    def sections(
        self, size: int, key_groups: KeyGroupRange | None = None, *, zero_is_empty: bool = True
    ) -> list[tuple[int, int, int]]:
        """``(key group, start, end)`` of every stored section, in the order of the stream.

        There is nothing between sections, so each one ends where the next one starts. A stream
        with a header and no entries has no section.

        Args:
            size: Bytes of the stream.
            key_groups: The wanted key groups; None for all.
            zero_is_empty: Whether offset 0 means that a key group has no section, as in all but
                raw state.

        Raises:
            FormatError: A section starts after the end of the stream.
        """
        first = 1 if zero_is_empty else 0
        used = sorted({offset for offset in self.offsets if offset >= first})
        if used and used[-1] >= size:
            raise FormatError(
                "A key group is outside its stream",
                field="key-group offset",
                expected=f"< {size}",
                got=used[-1],
            )
        ends = dict(pairwise([*used, size]))
        wanted = self.key_group_range if key_groups is None else key_groups
        stored = (
            (key_group, start, ends[start])
            for key_group, start in self.items()
            if start >= first and wanted.contains(key_group)
        )
        return sorted(stored, key=lambda section: section[1])

    def get_intersection(self, other: KeyGroupRange) -> KeyGroupRangeOffsets:
        common = self.key_group_range.get_intersection(other)
        if not len(common):
            return KeyGroupRangeOffsets(common, ())
        first = common.start_key_group - self.key_group_range.start_key_group
        return KeyGroupRangeOffsets(common, self.offsets[first : first + len(common)])


@dataclass(frozen=True, slots=True)
class _KeyGroupsHandle:
    """The sections of key groups in one stream."""

    offsets: KeyGroupRangeOffsets
    stream: StreamStateHandle

    @property
    def key_group_range(self) -> KeyGroupRange:
        return self.offsets.key_group_range

    @property
    def state_size(self) -> int:
        return self.stream.state_size

    def get_intersection(self, other: KeyGroupRange) -> Self | None:
        cut = self.offsets.get_intersection(other)
        return replace(self, offsets=cut) if len(cut.key_group_range) else None


@dataclass(frozen=True, slots=True)
class KeyGroupsSavepointStateHandle(_KeyGroupsHandle):
    """Keyed state in canonical form. Offset 0 means that a key group has no entries."""


@dataclass(frozen=True, slots=True)
class KeyGroupsStateHandle(_KeyGroupsHandle):
    """Keyed state as the heap backend writes it.

    ``state_handle_id`` is None for the form of older releases (wire tag 3), whose content may also
    be canonical.
    """

    state_handle_id: str | None


@dataclass(frozen=True, slots=True)
class IncrementalRemoteKeyedStateHandle:
    """Keyed state as files of RocksDB.

    ``shared`` and ``private`` pair a local file name with the stream of the file's content.
    """

    backend_id: str
    key_group_range: KeyGroupRange
    checkpoint_id: int
    checkpointed_size: int
    meta_stream: StreamStateHandle
    shared: tuple[tuple[str, StreamStateHandle], ...]
    private: tuple[tuple[str, StreamStateHandle], ...]
    state_handle_id: str

    @property
    def state_size(self) -> int:
        files = self.shared + self.private
        return self.meta_stream.state_size + sum(stream.state_size for _, stream in files)

    def get_intersection(self, other: KeyGroupRange) -> IncrementalRemoteKeyedStateHandle | None:
        common = self.key_group_range.get_intersection(other)
        return self if len(common) else None


@dataclass(frozen=True, slots=True)
class ChangelogStateHandleStream:
    """Change sets in segment files, in ascending order of sequence number.

    ``handles_and_offsets`` pairs a segment with the position of one change set in its uncompressed
    body. ``state_size`` is the number of payload bytes of all sets. ``incremental_size`` is the
    number of bytes that this checkpoint added.
    """

    handles_and_offsets: tuple[tuple[StreamStateHandle, int], ...]
    key_group_range: KeyGroupRange
    state_size: int
    incremental_size: int
    state_handle_id: str
    storage_identifier: str = "filesystem"

    def get_intersection(self, other: KeyGroupRange) -> ChangelogStateHandleStream | None:
        common = self.key_group_range.get_intersection(other)
        return replace(self, key_group_range=common) if len(common) else None


@dataclass(frozen=True, slots=True)
class InMemoryChangelogStateHandle:
    """Changes inside ``_metadata``: ``(key group, bytes)`` in append order."""

    changes: tuple[tuple[int, bytes], ...]
    key_group_range: KeyGroupRange
    from_sequence_number: int
    to_sequence_number: int
    state_handle_id: str
    storage_identifier: str = "memory"

    @property
    def state_size(self) -> int:
        return sum(len(change) for _, change in self.changes)

    def get_intersection(self, other: KeyGroupRange) -> InMemoryChangelogStateHandle | None:
        common = self.key_group_range.get_intersection(other)
        return replace(self, key_group_range=common) if len(common) else None


ChangelogStateHandle = ChangelogStateHandleStream | InMemoryChangelogStateHandle


@dataclass(frozen=True, slots=True)
class ChangelogStateBackendHandle:
    """A materialized base and the log to replay on it, in order."""

    materialized: tuple[KeyedStateHandle, ...]
    non_materialized: tuple[ChangelogStateHandle, ...]
    key_group_range: KeyGroupRange
    materialization_id: int
    checkpoint_id: int
    checkpointed_size: int
    state_handle_id: str

    @property
    def materialized_size(self) -> int:
        return sum(handle.state_size for handle in self.materialized)

    @property
    def non_materialized_size(self) -> int:
        return sum(handle.state_size for handle in self.non_materialized)

    @property
    def state_size(self) -> int:
        return self.materialized_size + self.non_materialized_size

    def get_intersection(self, other: KeyGroupRange) -> ChangelogStateBackendHandle | None:
        common = self.key_group_range.get_intersection(other)
        if not len(common):
            return None
        materialized = (handle.get_intersection(common) for handle in self.materialized)
        log = (handle.get_intersection(common) for handle in self.non_materialized)
        return replace(
            self,
            materialized=tuple(handle for handle in materialized if handle is not None),
            non_materialized=tuple(handle for handle in log if handle is not None),
            key_group_range=common,
        )


KeyedStateHandle = (
    KeyGroupsSavepointStateHandle
    | KeyGroupsStateHandle
    | IncrementalRemoteKeyedStateHandle
    | ChangelogStateHandleStream
    | InMemoryChangelogStateHandle
    | ChangelogStateBackendHandle
)

# -------------------------------------------------------------------------- operator state


class OperatorStateMode(Enum):
    """How operator state is distributed over subtasks; the value is its byte on the wire."""

    SPLIT_DISTRIBUTE = 0
    UNION = 1
    BROADCAST = 2


@dataclass(frozen=True, slots=True)
class OperatorStateMetaInfo:
    """Offsets of the elements of one operator state in the stream."""

    name: str
    mode: OperatorStateMode
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FileMergingInfo:
    """The folders of a merged operator-state handle."""

    task_owned_dir: str
    shared_dir: str
    is_empty: bool


@dataclass(frozen=True, slots=True)
class OperatorStreamStateHandle:
    """Non-keyed state of one subtask; ``file_merging`` is set for the merged form."""

    states: tuple[OperatorStateMetaInfo, ...]
    stream: StreamStateHandle
    file_merging: FileMergingInfo | None = None

    @property
    def state_size(self) -> int:
        return self.stream.state_size


# --------------------------------------------------------------------------- channel state


class ChannelStateKind(Enum):
    """The kind of a channel-state handle; the value is its byte since metadata version 6."""

    INPUT_CHANNEL = 1
    RESULT_SUBPARTITION = 2
    MERGED_INPUT_CHANNEL = 3
    MERGED_RESULT_SUBPARTITION = 4


@dataclass(frozen=True, slots=True)
class ChannelStateHandle:
    """In-flight buffers of one channel.

    ``info`` is (gate, channel) or (partition, subpartition).
    """

    kind: ChannelStateKind
    subtask_index: int
    info: tuple[int, int]
    offsets: tuple[int, ...]
    state_size: int
    stream: StreamStateHandle


@dataclass(frozen=True, slots=True)
class MergedChannelStateHandle:
    """In-flight buffers of all channels of a subtask; ``blob`` lists the channels, unparsed."""

    kind: ChannelStateKind
    subtask_index: int
    state_size: int
    stream: StreamStateHandle
    blob: bytes


AnyChannelStateHandle = ChannelStateHandle | MergedChannelStateHandle
