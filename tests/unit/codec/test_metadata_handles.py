"""State handles: bytes by hand from the tag tables, one test a tag; what Flink refuses."""

from __future__ import annotations

import pytest

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.metadata.handles import (
    read_keyed_handle,
    read_operator_handle,
    read_stream_handle,
    write_keyed_handle,
    write_operator_handle,
    write_stream_handle,
)
from dstl_core.errors import FormatError, InvariantViolation
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    ChangelogStateBackendHandle,
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
from dstl_core.model.key_group import KeyGroupRange
from tests.unit.codec.java_bytes import i32, i64, utf

FILE = b"\2" + i64(40) + utf("file:/f")
FILE_HANDLE = FileStateHandle("file:/f", 40)

STREAMS: list[tuple[bytes, StreamStateHandle | None]] = [
    (b"\0", None),
    (b"\1" + utf("name") + i32(3) + b"abc", ByteStreamStateHandle("name", b"abc")),
    (FILE, FILE_HANDLE),
    # A relative handle has the path first, an absolute one the size.
    (b"\6" + utf("f") + i64(40), RelativeFileStateHandle("f", 40)),
    (
        b"\x0f" + i64(10, 20) + i32(1) + utf("file:/m") + utf("id"),
        SegmentFileStateHandle("file:/m", 10, 20, CheckpointedStateScope.SHARED, "id"),
    ),
    (b"\x10", EmptySegmentFileStateHandle()),
]

RANGE = KeyGroupRange(2, 3)
OFFSETS = KeyGroupRangeOffsets(RANGE, (0, 99))
HEAD = i32(2, 2) + i64(0, 99)
IN_MEMORY = b"\x09" + i32(2, 2) + i64(5, 6) + i32(2) + i32(-1, 1) + b"M" + i32(3, 2) + b"xy"
IN_MEMORY += utf("id")
SEGMENTS = b"\x0d" + i32(2, 2) + i32(2) + i64(0) + FILE + i64(50) + FILE + i64(7, 3)
SEGMENTS += utf("id") + utf("filesystem")
CANONICAL = b"\7" + HEAD + FILE
IN_MEMORY_HANDLE = InMemoryChangelogStateHandle(((-1, b"M"), (3, b"xy")), RANGE, 5, 6, "id")
SEGMENTS_HANDLE = ChangelogStateHandleStream(
    ((FILE_HANDLE, 0), (FILE_HANDLE, 50)), RANGE, 7, 3, "id", "filesystem"
)
CANONICAL_HANDLE = KeyGroupsSavepointStateHandle(OFFSETS, FILE_HANDLE)

KEYED: list[tuple[bytes, KeyedStateHandle | None]] = [
    (b"\0", None),
    (b"\3" + HEAD + FILE, KeyGroupsStateHandle(OFFSETS, FILE_HANDLE, None)),
    (CANONICAL, CANONICAL_HANDLE),
    (IN_MEMORY, IN_MEMORY_HANDLE),
    (
        b"\x0b"
        + i64(4)
        + utf("backend")
        + i32(2, 2)
        + i64(77)
        + FILE
        + (i32(1) + utf("000034.sst") + FILE)
        + (i32(2) + utf("CURRENT") + FILE + utf("MANIFEST") + FILE)
        + utf("id"),
        IncrementalRemoteKeyedStateHandle(
            "backend",
            RANGE,
            4,
            77,
            FILE_HANDLE,
            (("000034.sst", FILE_HANDLE),),
            (("CURRENT", FILE_HANDLE), ("MANIFEST", FILE_HANDLE)),
            "id",
        ),
    ),
    (b"\x0c" + HEAD + FILE + utf("id"), KeyGroupsStateHandle(OFFSETS, FILE_HANDLE, "id")),
    (SEGMENTS, SEGMENTS_HANDLE),
    (
        b"\x0e"
        + i32(2, 2)
        + i64(11)
        + (i32(1) + CANONICAL)
        + (i32(2) + SEGMENTS + IN_MEMORY)
        + i64(8, 9)
        + utf("id"),
        ChangelogStateBackendHandle(
            (CANONICAL_HANDLE,), (SEGMENTS_HANDLE, IN_MEMORY_HANDLE), RANGE, 8, 9, 11, "id"
        ),
    ),
]

ONE_STATE = i32(1) + utf("s") + b"\2" + i32(1) + i64(60)
STATES = (OperatorStateMetaInfo("s", OperatorStateMode.BROADCAST, (60,)),)
OPERATOR: list[tuple[bytes, OperatorStreamStateHandle | None]] = [
    (b"\0", None),
    (b"\4" + ONE_STATE + FILE, OperatorStreamStateHandle(STATES, FILE_HANDLE)),
    (
        b"\x11" + ONE_STATE + utf("/task") + utf("/shared") + b"\1" + FILE,
        OperatorStreamStateHandle(STATES, FILE_HANDLE, FileMergingInfo("/task", "/shared", True)),
    ),
]


@pytest.mark.parametrize(("raw", "handle"), STREAMS)
def test_stream_handles(raw: bytes, handle: StreamStateHandle | None) -> None:
    data = DataInput(raw)
    assert read_stream_handle(data) == handle
    assert data.remaining == 0
    out = DataOutput()
    write_stream_handle(out, handle)
    assert out.to_bytes() == raw


@pytest.mark.parametrize(("raw", "handle"), KEYED)
def test_keyed_handles(raw: bytes, handle: KeyedStateHandle | None) -> None:
    data = DataInput(raw)
    assert read_keyed_handle(data) == handle
    assert data.remaining == 0
    out = DataOutput()
    write_keyed_handle(out, handle)
    assert out.to_bytes() == raw


@pytest.mark.parametrize(("raw", "handle"), OPERATOR)
def test_operator_handles(raw: bytes, handle: OperatorStreamStateHandle | None) -> None:
    data = DataInput(raw)
    assert read_operator_handle(data) == handle
    assert data.remaining == 0
    out = DataOutput()
    write_operator_handle(out, handle)
    assert out.to_bytes() == raw


@pytest.mark.parametrize("raw", [raw for raw, _ in KEYED])
def test_cutting_a_keyed_handle_anywhere_is_a_format_error(raw: bytes) -> None:
    for size in range(len(raw)):
        with pytest.raises(FormatError):
            read_keyed_handle(DataInput(raw[:size]))


@pytest.mark.parametrize("raw", [raw for raw, _ in OPERATOR])
def test_cutting_an_operator_handle_anywhere_is_a_format_error(raw: bytes) -> None:
    for size in range(len(raw)):
        with pytest.raises(FormatError):
            read_operator_handle(DataInput(raw[:size]))


@pytest.mark.parametrize("tag", [4, 5, 6, 8, 10, 15, 17, 18, 255])
def test_other_keyed_tags_are_refused(tag: int) -> None:
    with pytest.raises(FormatError, match=rf"keyed state handle has an unknown type.*got {tag}"):
        read_keyed_handle(DataInput(bytes((tag,)) + bytes(100)))


@pytest.mark.parametrize("tag", [3, 4, 5, 7, 9, 11, 14, 17, 255])
def test_other_stream_tags_are_refused(tag: int) -> None:
    with pytest.raises(FormatError, match=rf"stream handle has an unknown type.*got {tag}"):
        read_stream_handle(DataInput(bytes((tag,)) + bytes(100)))


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"\7" + i32(-1, 1) + i64(0) + FILE, "key-group range is out of bounds"),
        (b"\7" + i32(0, -1) + FILE, "key-group range is out of bounds"),
        (b"\7" + i32(32768, 1) + i64(0) + FILE, "key-group range is out of bounds"),
        (b"\7" + i32(0, 2**31 - 1) + FILE, "key-group range is out of bounds"),
        (b"\7" + i32(0, 1) + i64(-1) + FILE, "key-group offset is negative"),
        (b"\3" + i32(0, 1) + i64(-2) + FILE, "key-group offset is negative"),
        (b"\x0c" + i32(0, 1) + i64(-2) + FILE, "key-group offset is negative"),
        (
            b"\x0e" + i32(0, 1) + i64(0) + i32(1) + b"\3" + i32(0, 1) + i64(-1) + FILE,
            "key-group offset is negative",
        ),
        (b"\7" + HEAD + b"\0", "stream handle is missing"),
        (b"\7" + HEAD + b"\2" + i64(-1) + utf("f"), "size is negative"),
        (b"\7" + HEAD + b"\x0f" + i64(0, 1) + i32(2) + utf("f") + utf("i"), "scope is unknown"),
        (b"\x09" + i32(0, 1) + i64(0, 0) + i32(2**31 - 1), "changes"),
        (b"\x0d" + i32(0, 1) + i32(-5), "change sets"),
        (b"\x0e" + i32(0, 1) + i64(0) + i32(0) + i32(1) + CANONICAL, "not a changelog"),
        (b"\x0e" + i32(0, 1) + i64(0) + i32(0) + i32(1) + b"\0", "not a changelog"),
    ],
)
def test_damaged_keyed_handles(raw: bytes, problem: str) -> None:
    with pytest.raises(FormatError, match=problem):
        read_keyed_handle(DataInput(raw + bytes(64)))


def test_a_null_base_is_skipped_as_flink_does() -> None:
    raw = b"\x0e" + i32(2, 2) + i64(11) + i32(2) + b"\0" + CANONICAL + i32(0) + i64(8, 9)
    handle = read_keyed_handle(DataInput(raw + utf("id")))
    assert isinstance(handle, ChangelogStateBackendHandle)
    assert handle.materialized == (CANONICAL_HANDLE,)


def test_endless_nesting_is_a_format_error() -> None:
    level = b"\x0e" + i32(0, 1) + i64(0) + i32(1)
    with pytest.raises(FormatError, match="nested too deeply"):
        read_keyed_handle(DataInput(level * 5000))


def test_an_unknown_distribution_mode_is_refused() -> None:
    with pytest.raises(FormatError, match="distribution mode is unknown"):
        read_operator_handle(DataInput(b"\4" + i32(1) + utf("s") + b"\3" + i32(0) + FILE))


def test_offsets_have_to_fit_their_range() -> None:
    broken = KeyGroupsSavepointStateHandle(KeyGroupRangeOffsets(RANGE, (0,)), FILE_HANDLE)
    with pytest.raises(InvariantViolation, match="differ in length"):
        write_keyed_handle(DataOutput(), broken)
