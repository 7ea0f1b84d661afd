"""Canonical keyed state: the smallest savepoint that real Flink restores, byte for byte, and the
worked example of a real one.
"""

from __future__ import annotations

import pytest

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.keyed_canonical import (
    StoredRecord,
    read_section,
    write_canonical_stream,
    write_section,
)
from dstl_core.codec.metadata.metadata_format import read_metadata, write_metadata
from dstl_core.codec.serializers import BUILT_IN, Types, VoidNamespaceSerializer
from dstl_core.codec.snappy_frames import STREAM_IDENTIFIER, decompress_frames
from dstl_core.codec.state_meta import (
    BackendStateType,
    KeyedBackendHeader,
    StateMetaInfoSnapshot,
    read_keyed_header,
    write_keyed_header,
)
from dstl_core.errors import FormatError, InvariantViolation
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    KeyGroupRangeOffsets,
    KeyGroupsSavepointStateHandle,
)
from dstl_core.model.ids import OperatorID
from dstl_core.model.key_group import KeyGroupRange
from tests.unit.codec.java_bytes import i16, i32, i64, utf

BASE = "org.apache.flink.api.common.typeutils.base."
VOID_CLASS = "org.apache.flink.runtime.state.VoidNamespaceSerializer"

HEADER = b"".join(
    [
        i32(6) + b"\0",
        i32(2) + utf(BASE + "StringSerializer$StringSerializerSnapshot") + i32(3),
        i16(1),
        utf("val") + i32(0),
        i32(1) + utf("KEYED_STATE_TYPE") + utf("VALUE"),
        i32(2),
        utf("VALUE_SERIALIZER"),
        i32(2) + utf(BASE + "LongSerializer$LongSerializerSnapshot") + i32(3),
        utf("NAMESPACE_SERIALIZER"),
        i32(2) + utf(VOID_CLASS + "$VoidNamespaceSerializerSnapshot") + i32(3),
    ]
)
SECTION = bytes.fromhex("0000 00000004 d1026100 00000008 0000000000000064 ffff")
STREAM = HEADER + SECTION
OFFSETS = i64(*(369 if key_group == 81 else 0 for key_group in range(128)))
MINIMAL_SAVEPOINT = b"".join(
    [
        i32(0x4960672D, 3),
        i64(1),
        i32(0, 1),
        bytes.fromhex("0da08f51eaa85fc298e176a139b3649a"),
        i32(1, 128),
        b"\0",
        i32(1, 0, 0, 0),
        b"\7" + i32(0, 128),
        OFFSETS,
        b"\1" + utf("h0") + i32(393) + STREAM,
        b"\0",
        i32(0, 0),
    ]
)

VALUE_HEADER = KeyedBackendHeader(
    Types.STRING,
    (
        StateMetaInfoSnapshot(
            "val",
            BackendStateType.KEY_VALUE,
            (("KEYED_STATE_TYPE", "VALUE"),),
            (
                ("VALUE_SERIALIZER", Types.LONG),
                ("NAMESPACE_SERIALIZER", VoidNamespaceSerializer()),
            ),
        ),
    ),
)


def test_the_minimal_savepoint_has_1509_bytes() -> None:
    assert (len(HEADER), len(STREAM), len(MINIMAL_SAVEPOINT)) == (369, 393, 1509)


def test_the_minimal_savepoint_is_written_byte_for_byte() -> None:
    section = write_section([(0, [(b"\x51\x02a\0", i64(100))])])
    assert section == SECTION
    raw, offsets = write_canonical_stream(VALUE_HEADER, KeyGroupRange(0, 127), {81: section})
    assert raw == STREAM
    handle = KeyGroupsSavepointStateHandle(offsets, ByteStreamStateHandle("h0", raw))
    subtask = OperatorSubtaskState(0, managed_keyed_state=handle)
    operator = OperatorState(OperatorID.for_uid("counter"), 1, 128, (subtask,))
    assert write_metadata(CheckpointMetadata(3, 1, (operator,))) == MINIMAL_SAVEPOINT


def test_the_minimal_savepoint_is_read() -> None:
    [operator] = read_metadata(MINIMAL_SAVEPOINT).operators
    handle = operator.subtasks[0].managed_keyed_state
    assert isinstance(handle, KeyGroupsSavepointStateHandle)
    assert handle.stream == ByteStreamStateHandle("h0", STREAM)
    assert dict(handle.offsets.items())[81] == 369
    data = DataInput(STREAM)
    assert read_keyed_header(data, BUILT_IN) == VALUE_HEADER
    assert list(read_section(data, 1)) == [StoredRecord(0, b"\x51\x02a\0", i64(100), 371)]


# A part of a real savepoint (key "k6", key group 7): map, value, reducing state and a timer.
REAL_SECTION = bytes.fromhex(
    "0006"
    "0000000d 07 036b36 00 0000000000000000  0000000b 00 000001a1fd17dbf7 027a"
    "0000000d 87 036b36 00 0000000000000002  0000000b 00 000001a1fd17dbb1 027a"
    "0000"
    "00000005 87 036b36 00  00000008 0000000000000030"
    "0001"
    "00000005 87 036b36 00  00000008 00000000000000f4"
    "000a"
    "0000000d 87 800003bb2cc3d814 036b36 00  00000000"
    "ffff"
)


def test_a_real_section_both_ways() -> None:
    records = list(read_section(DataInput(REAL_SECTION), 11))
    assert [record.state_id for record in records] == [6, 6, 0, 1, 10]
    assert all(record.key[0] == 7 for record in records)
    assert records[-1].value == b""
    runs: list[tuple[int, list[tuple[bytes, bytes]]]] = []
    for record in records:
        if not runs or runs[-1][0] != record.state_id:
            runs.append((record.state_id, []))
        runs[-1][1].append((record.key, record.value))
    assert write_section(runs) == REAL_SECTION


def test_a_state_may_come_in_several_runs() -> None:
    one = bytes.fromhex("0000 00000002 8001 00000000")
    records = list(read_section(DataInput(one + one + b"\xff\xff"), 1))
    assert [record.state_id for record in records] == [0, 0]


def test_a_two_byte_prefix_keeps_its_lower_byte() -> None:
    section = write_section([(0, [(b"\x0f\xff\x01", b"v")])])
    assert section == bytes.fromhex("0000 00000003 8fff01 00000001 76 ffff")
    [record] = read_section(DataInput(section), 1)
    assert record.key == b"\x0f\xff\x01"


def test_runs_without_records_leave_no_trace() -> None:
    assert write_section([(0, []), (1, [])]) == b""
    assert write_section([(0, []), (1, [(b"\1", b"v")])]).startswith(b"\0\1")


@pytest.mark.parametrize("raw", [SECTION, REAL_SECTION], ids=["minimal", "real"])
def test_cutting_a_section_anywhere_is_a_format_error(raw: bytes) -> None:
    for size in range(len(raw)):
        with pytest.raises(FormatError):
            list(read_section(DataInput(raw[:size]), 11))


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ("000b", "state id is not in the header: expected < 11, got 11"),
        ("fffe", "state id is not in the header"),
        ("0000 00000000", "stored key is empty"),
        ("0000 ffffffff", "key length"),
        ("0000 7fffffff", "key length"),
        ("0000 00000001 81 ffffffff", "value length"),
        ("0000 00000001 81 7fffffff", "value length"),
    ],
)
def test_damaged_sections(raw: str, problem: str) -> None:
    with pytest.raises(FormatError, match=problem):
        list(read_section(DataInput(bytes.fromhex(raw)), 11))


def test_empty_key_groups_have_offset_0_and_sections_ascend() -> None:
    sections = {5: SECTION, 3: SECTION}
    raw, offsets = write_canonical_stream(VALUE_HEADER, KeyGroupRange(2, 5), sections)
    assert raw == HEADER + SECTION + SECTION
    assert offsets == KeyGroupRangeOffsets(KeyGroupRange(2, 5), (0, 369, 0, 369 + len(SECTION)))


def test_every_compressed_section_is_a_stream_of_its_own() -> None:
    header = KeyedBackendHeader(Types.STRING, VALUE_HEADER.states, compressed=True)
    raw, offsets = write_canonical_stream(header, KeyGroupRange(0, 1), {0: SECTION, 1: SECTION})
    assert raw[4] == 1
    for start, end in ((offsets.offsets[0], offsets.offsets[1]), (offsets.offsets[1], len(raw))):
        assert raw[start:].startswith(STREAM_IDENTIFIER)
        assert decompress_frames(raw, start, end) == SECTION


def test_sections_outside_the_range_are_a_bug() -> None:
    with pytest.raises(InvariantViolation, match="key group 9 is outside"):
        write_canonical_stream(VALUE_HEADER, KeyGroupRange(0, 1), {9: SECTION})


def header_bytes(header: KeyedBackendHeader) -> bytes:
    out = DataOutput()
    write_keyed_header(out, header)
    return out.to_bytes()


def test_the_header_is_written_back_byte_for_byte() -> None:
    assert header_bytes(VALUE_HEADER) == HEADER


def test_cutting_a_header_anywhere_is_a_format_error() -> None:
    for size in range(len(HEADER)):
        with pytest.raises(FormatError):
            read_keyed_header(DataInput(HEADER[:size]), BUILT_IN)
