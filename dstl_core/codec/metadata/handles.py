"""State handles inside ``_metadata``: one tag byte, then the payload.

Source: ``MetadataV2V3SerializerBase`` and ``MetadataV3Serializer`` of Flink 2.2.1.

Keyed handle tags: 0 none, 3 key groups (older form), 7 canonical key groups, 9 changes inline,
11 RocksDB files, 12 heap key groups, 13 change-log segments, 14 base plus log. Stream tags: 0 none,
1 inline bytes, 2 file, 6 relative file, 15 segment of a merged file, 16 empty segment. Operator
state tags: 0 none, 4, and 17 for merged files. Only releases before 1.16 wrote tags 5, 8 and 10,
and stream tag 3; reading one raises an error that names it.
"""

from __future__ import annotations

from collections.abc import Callable

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.errors import FormatError, InvariantViolation
from dstl_core.model.handle import (
    NO_OFFSET,
    ByteStreamStateHandle,
    ChangelogStateBackendHandle,
    ChangelogStateHandle,
    ChangelogStateHandleStream,
    CheckpointedStateScope,
    EmptySegmentFileStateHandle,
    FileMergingInfo,
    FileStateHandle,
    IncrementalRemoteKeyedStateHandle,
    InMemoryChangelogStateHandle,
    KeyedStateHandle,
    KeyGroupRangeOffsets,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
    OperatorStateMetaInfo,
    OperatorStateMode,
    OperatorStreamStateHandle,
    RelativeFileStateHandle,
    SegmentFileStateHandle,
    StreamStateHandle,
)
from dstl_core.model.key_group import UPPER_BOUND_MAX_PARALLELISM, KeyGroupRange

NULL_HANDLE = 0
BYTE_STREAM_STATE_HANDLE = 1
FILE_STREAM_STATE_HANDLE = 2
KEY_GROUPS_HANDLE = 3
PARTITIONABLE_OPERATOR_STATE_HANDLE = 4
RELATIVE_STREAM_STATE_HANDLE = 6
SAVEPOINT_KEY_GROUPS_HANDLE = 7
CHANGELOG_BYTE_INCREMENT_HANDLE = 9
INCREMENTAL_KEY_GROUPS_HANDLE_V2 = 11
KEY_GROUPS_HANDLE_V2 = 12
CHANGELOG_FILE_INCREMENT_HANDLE_V2 = 13
CHANGELOG_HANDLE_V2 = 14
SEGMENT_FILE_HANDLE = 15
EMPTY_SEGMENT_FILE_HANDLE = 16
SEGMENT_PARTITIONABLE_OPERATOR_STATE_HANDLE = 17

_LEGACY = {
    3: "key groups as a stream",
    5: "incremental key groups (before 1.15)",
    8: "changelog state (before 1.16)",
    10: "changelog segments (before 1.16)",
}

_MAX_NESTING = 8
"""Changelog handles hold keyed handles. Those hold no further handles in any file of Flink."""

# --------------------------------------------------------------------------------- streams


def read_stream_handle(data: DataInput) -> StreamStateHandle | None:
    """Reads a stream handle; None is the null handle."""
    at = data.position
    tag = data.read_u8("stream handle type")
    match tag:
        case 0:
            return None
        case 1:
            name = data.read_utf("handle name")
            return ByteStreamStateHandle(name, data.read_bytes(data.read_length("inline size")))
        case 2:
            size = _read_size(data, "file size")
            return FileStateHandle(data.read_utf("file path"), size)
        case 6:
            path = data.read_utf("relative path")
            return RelativeFileStateHandle(path, _read_size(data, "file size"))
        case 15:
            start = _read_size(data, "segment start")
            size = _read_size(data, "segment size")
            scope_at = data.position
            scope = data.read_i32("segment scope")
            if scope not in (0, 1):
                raise FormatError(
                    "A segment scope is unknown", offset=scope_at, expected="0 or 1", got=scope
                )
            return SegmentFileStateHandle(
                data.read_utf("segment file"),
                start,
                size,
                CheckpointedStateScope(scope),
                data.read_utf("logical file id"),
            )
        case 16:
            return EmptySegmentFileStateHandle()
    raise _unknown_tag("stream handle", at, tag)


def read_required_stream_handle(data: DataInput, field: str) -> StreamStateHandle:
    at = data.position
    handle = read_stream_handle(data)
    if handle is None:
        raise FormatError("A stream handle is missing", offset=at, field=field)
    return handle


def write_stream_handle(out: DataOutput, handle: StreamStateHandle | None) -> None:
    match handle:
        case None:
            out.write_u8(NULL_HANDLE)
        case ByteStreamStateHandle():
            out.write_u8(BYTE_STREAM_STATE_HANDLE)
            out.write_utf(handle.handle_name)
            out.write_sized(handle.data)
        case FileStateHandle():
            out.write_u8(FILE_STREAM_STATE_HANDLE)
            out.write_i64(handle.state_size)
            out.write_utf(handle.path)
        case RelativeFileStateHandle():
            out.write_u8(RELATIVE_STREAM_STATE_HANDLE)
            out.write_utf(handle.relative_path)
            out.write_i64(handle.state_size)
        case SegmentFileStateHandle():
            out.write_u8(SEGMENT_FILE_HANDLE)
            out.write_i64(handle.start_position)
            out.write_i64(handle.state_size)
            out.write_i32(handle.scope.value)
            out.write_utf(handle.path)
            out.write_utf(handle.logical_file_id)
        case EmptySegmentFileStateHandle():
            out.write_u8(EMPTY_SEGMENT_FILE_HANDLE)


# ----------------------------------------------------------------------------- keyed state


def read_keyed_handle(data: DataInput, depth: int = 0) -> KeyedStateHandle | None:
    """Reads a keyed state handle; None means "no keyed state"."""
    at = data.position
    tag = data.read_u8("keyed handle type")
    if tag == NULL_HANDLE:
        return None
    reader = _KEYED_READERS.get(tag)
    if reader is None:
        raise _unknown_tag("keyed state handle", at, tag)
    if depth > _MAX_NESTING:
        raise FormatError("State handles are nested too deeply", offset=at, got=depth)
    return reader(data, depth)


def _read_key_groups(data: DataInput, depth: int) -> KeyGroupsStateHandle:
    offsets = _read_key_group_offsets(data, _least_offset(depth))
    return KeyGroupsStateHandle(offsets, read_required_stream_handle(data, "state stream"), None)


def _read_savepoint_key_groups(data: DataInput, depth: int) -> KeyGroupsSavepointStateHandle:
    offsets = _read_key_group_offsets(data)
    return KeyGroupsSavepointStateHandle(offsets, read_required_stream_handle(data, "state stream"))


def _read_key_groups_v2(data: DataInput, depth: int) -> KeyGroupsStateHandle:
    offsets = _read_key_group_offsets(data, _least_offset(depth))
    stream = read_required_stream_handle(data, "state stream")
    return KeyGroupsStateHandle(offsets, stream, data.read_utf("state handle id"))


def _read_incremental(data: DataInput, depth: int) -> IncrementalRemoteKeyedStateHandle:
    checkpoint_id = data.read_i64("checkpoint id")
    backend_id = data.read_utf("backend id")
    key_groups = _read_key_group_range(data)
    checkpointed_size = data.read_i64("checkpointed size")
    return IncrementalRemoteKeyedStateHandle(
        backend_id,
        key_groups,
        checkpoint_id,
        checkpointed_size,
        read_required_stream_handle(data, "meta stream"),
        _read_file_list(data, "shared files"),
        _read_file_list(data, "private files"),
        data.read_utf("state handle id"),
    )


def _read_in_memory_changes(data: DataInput, depth: int) -> InMemoryChangelogStateHandle:
    key_groups = _read_key_group_range(data)
    from_number = data.read_i64("from sequence number")
    to_number = data.read_i64("to sequence number")
    changes = tuple(
        (data.read_i32("key group"), data.read_bytes(data.read_length("change length")))
        for _ in range(data.read_count("changes", 8))
    )
    return InMemoryChangelogStateHandle(
        changes, key_groups, from_number, to_number, data.read_utf("state handle id")
    )


def _read_changelog_stream(data: DataInput, depth: int) -> ChangelogStateHandleStream:
    key_groups = _read_key_group_range(data)
    handles: list[tuple[StreamStateHandle, int]] = []
    for _ in range(data.read_count("change sets", 9)):
        offset = data.read_i64("change set offset")
        handles.append((read_required_stream_handle(data, "segment"), offset))
    return ChangelogStateHandleStream(
        tuple(handles),
        key_groups,
        data.read_i64("state size"),
        data.read_i64("checkpointed size"),
        data.read_utf("state handle id"),
        data.read_utf("storage identifier"),
    )


def _read_changelog_backend(data: DataInput, depth: int) -> ChangelogStateBackendHandle:
    key_groups = _read_key_group_range(data)
    checkpointed_size = data.read_i64("checkpointed size")
    base: list[KeyedStateHandle] = []
    for _ in range(data.read_count("materialized handles", 1)):
        handle = read_keyed_handle(data, depth + 1)
        if handle is not None:  # Flink skips null members with a warning.
            base.append(handle)
    log: list[ChangelogStateHandle] = []
    for _ in range(data.read_count("changelog handles", 1)):
        at = data.position
        delta = read_keyed_handle(data, depth + 1)
        if not isinstance(delta, ChangelogStateHandle):
            raise FormatError(
                "A changelog handle lists a handle that is not a changelog",
                offset=at,
                expected="changelog handle",
                got=type(delta).__name__,
            )
        log.append(delta)
    return ChangelogStateBackendHandle(
        tuple(base),
        tuple(log),
        key_groups,
        data.read_i64("materialization id"),
        data.read_i64("checkpoint id"),
        checkpointed_size,
        data.read_utf("state handle id"),
    )


_KEYED_READERS: dict[int, Callable[[DataInput, int], KeyedStateHandle]] = {
    KEY_GROUPS_HANDLE: _read_key_groups,
    SAVEPOINT_KEY_GROUPS_HANDLE: _read_savepoint_key_groups,
    CHANGELOG_BYTE_INCREMENT_HANDLE: _read_in_memory_changes,
    INCREMENTAL_KEY_GROUPS_HANDLE_V2: _read_incremental,
    KEY_GROUPS_HANDLE_V2: _read_key_groups_v2,
    CHANGELOG_FILE_INCREMENT_HANDLE_V2: _read_changelog_stream,
    CHANGELOG_HANDLE_V2: _read_changelog_backend,
}


def write_keyed_handle(out: DataOutput, handle: KeyedStateHandle | None) -> None:
    match handle:
        case None:
            out.write_u8(NULL_HANDLE)
        case KeyGroupsSavepointStateHandle():
            out.write_u8(SAVEPOINT_KEY_GROUPS_HANDLE)
            _write_key_group_offsets(out, handle.offsets)
            write_stream_handle(out, handle.stream)
        case KeyGroupsStateHandle():
            old = handle.state_handle_id is None
            out.write_u8(KEY_GROUPS_HANDLE if old else KEY_GROUPS_HANDLE_V2)
            _write_key_group_offsets(out, handle.offsets)
            write_stream_handle(out, handle.stream)
            if handle.state_handle_id is not None:
                out.write_utf(handle.state_handle_id)
        case IncrementalRemoteKeyedStateHandle():
            out.write_u8(INCREMENTAL_KEY_GROUPS_HANDLE_V2)
            out.write_i64(handle.checkpoint_id)
            out.write_utf(handle.backend_id)
            _write_key_group_range(out, handle.key_group_range)
            out.write_i64(handle.checkpointed_size)
            write_stream_handle(out, handle.meta_stream)
            _write_file_list(out, handle.shared)
            _write_file_list(out, handle.private)
            out.write_utf(handle.state_handle_id)
        case InMemoryChangelogStateHandle():
            _write_in_memory_changes(out, handle)
        case ChangelogStateHandleStream():
            _write_changelog_stream(out, handle)
        case ChangelogStateBackendHandle():
            _write_changelog_backend(out, handle)


def _write_in_memory_changes(out: DataOutput, handle: InMemoryChangelogStateHandle) -> None:
    out.write_u8(CHANGELOG_BYTE_INCREMENT_HANDLE)
    _write_key_group_range(out, handle.key_group_range)
    out.write_i64(handle.from_sequence_number)
    out.write_i64(handle.to_sequence_number)
    out.write_i32(len(handle.changes))
    for key_group, change in handle.changes:
        out.write_i32(key_group)
        out.write_sized(change)
    out.write_utf(handle.state_handle_id)


def _write_changelog_stream(out: DataOutput, handle: ChangelogStateHandleStream) -> None:
    out.write_u8(CHANGELOG_FILE_INCREMENT_HANDLE_V2)
    _write_key_group_range(out, handle.key_group_range)
    out.write_i32(len(handle.handles_and_offsets))
    for stream, offset in handle.handles_and_offsets:
        out.write_i64(offset)
        write_stream_handle(out, stream)
    out.write_i64(handle.state_size)
    out.write_i64(handle.incremental_size)
    out.write_utf(handle.state_handle_id)
    out.write_utf(handle.storage_identifier)


def _write_changelog_backend(out: DataOutput, handle: ChangelogStateBackendHandle) -> None:
    out.write_u8(CHANGELOG_HANDLE_V2)
    _write_key_group_range(out, handle.key_group_range)
    out.write_i64(handle.checkpointed_size)
    out.write_i32(len(handle.materialized))
    for base in handle.materialized:
        write_keyed_handle(out, base)
    out.write_i32(len(handle.non_materialized))
    for log in handle.non_materialized:
        write_keyed_handle(out, log)
    out.write_i64(handle.materialization_id)
    out.write_i64(handle.checkpoint_id)
    out.write_utf(handle.state_handle_id)


# -------------------------------------------------------------------------- operator state


def read_operator_handle(data: DataInput) -> OperatorStreamStateHandle | None:
    at = data.position
    tag = data.read_u8("operator handle type")
    if tag == NULL_HANDLE:
        return None
    merged = tag == SEGMENT_PARTITIONABLE_OPERATOR_STATE_HANDLE
    if not merged and tag != PARTITIONABLE_OPERATOR_STATE_HANDLE:
        raise _unknown_tag("operator state handle", at, tag)
    states = tuple(_read_operator_state(data) for _ in range(data.read_count("states", 7)))
    info = None
    if merged:
        info = FileMergingInfo(
            data.read_utf("task-owned folder"),
            data.read_utf("shared folder"),
            data.read_bool("is empty"),
        )
    return OperatorStreamStateHandle(
        states, read_required_stream_handle(data, "operator state stream"), info
    )


def _read_operator_state(data: DataInput) -> OperatorStateMetaInfo:
    name = data.read_utf("operator state name")
    at = data.position
    mode = data.read_u8("distribution mode")
    if mode > 2:
        raise FormatError("A distribution mode is unknown", offset=at, expected="0..2", got=mode)
    offsets = data.read_counted_i64s("element offsets")
    return OperatorStateMetaInfo(name, OperatorStateMode(mode), offsets)


def write_operator_handle(out: DataOutput, handle: OperatorStreamStateHandle | None) -> None:
    if handle is None:
        out.write_u8(NULL_HANDLE)
        return
    info = handle.file_merging
    out.write_u8(
        PARTITIONABLE_OPERATOR_STATE_HANDLE
        if info is None
        else SEGMENT_PARTITIONABLE_OPERATOR_STATE_HANDLE
    )
    out.write_i32(len(handle.states))
    for state in handle.states:
        out.write_utf(state.name)
        out.write_u8(state.mode.value)
        out.write_i32(len(state.offsets))
        for offset in state.offsets:
            out.write_i64(offset)
    if info is not None:
        out.write_utf(info.task_owned_dir)
        out.write_utf(info.shared_dir)
        out.write_bool(info.is_empty)
    write_stream_handle(out, handle.stream)


# ---------------------------------------------------------------------------------- pieces


def _read_size(data: DataInput, field: str) -> int:
    at = data.position
    size = data.read_i64(field)
    if size < 0:
        raise FormatError("A size is negative", offset=at, field=field, expected=">= 0", got=size)
    return size


def _read_key_group_range(data: DataInput) -> KeyGroupRange:
    at = data.position
    start = data.read_i32("start key group")
    number = data.read_i32("number of key groups")
    if start < 0 or number < 0 or start + number > UPPER_BOUND_MAX_PARALLELISM:
        raise FormatError(
            "A key-group range is out of bounds",
            offset=at,
            expected=f"0..{UPPER_BOUND_MAX_PARALLELISM}",
            got=f"{number} from {start}",
        )
    return KeyGroupRange.of(start, start + number - 1)


def _write_key_group_range(out: DataOutput, key_groups: KeyGroupRange) -> None:
    out.write_i32(key_groups.start_key_group)
    out.write_i32(len(key_groups))


def _least_offset(depth: int) -> int:
    """-1 for raw keyed state, which marks key groups without data and is never nested;
    otherwise 0.
    """
    return 0 if depth else NO_OFFSET


def _read_key_group_offsets(data: DataInput, least: int = 0) -> KeyGroupRangeOffsets:
    key_groups = _read_key_group_range(data)
    at = data.position
    offsets = data.read_i64s(len(key_groups), "key-group offsets")
    if min(offsets, default=0) < least:
        raise FormatError(
            "A key-group offset is negative", offset=at, expected=f">= {least}", got=min(offsets)
        )
    return KeyGroupRangeOffsets(key_groups, offsets)


def _write_key_group_offsets(out: DataOutput, offsets: KeyGroupRangeOffsets) -> None:
    if len(offsets.offsets) != len(offsets.key_group_range):
        raise InvariantViolation("a key-group range and its offsets differ in length")
    _write_key_group_range(out, offsets.key_group_range)
    for offset in offsets.offsets:
        out.write_i64(offset)


def _read_file_list(data: DataInput, field: str) -> tuple[tuple[str, StreamStateHandle], ...]:
    return tuple(
        (data.read_utf("local file name"), read_required_stream_handle(data, field))
        for _ in range(data.read_count(field, 3))
    )


def _write_file_list(out: DataOutput, files: tuple[tuple[str, StreamStateHandle], ...]) -> None:
    out.write_i32(len(files))
    for name, stream in files:
        out.write_utf(name)
        write_stream_handle(out, stream)


def _unknown_tag(what: str, at: int, tag: int) -> FormatError:
    legacy = _LEGACY.get(tag)
    hint = f" ({legacy}, not read by dstl)" if legacy else ""
    return FormatError(f"A {what} has an unknown type{hint}", offset=at, got=tag)
