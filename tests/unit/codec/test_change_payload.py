"""Change records: data and metadata, by the tables of the format."""

from __future__ import annotations

import pytest

from dstl_core.codec.change_payload import (
    DataChange,
    MetadataChange,
    StateChangeOperation,
    data_change,
    metadata_change,
    read_change,
)
from dstl_core.codec.serializers import (
    BUILT_IN,
    TimerSerializer,
    Types,
    VoidNamespaceSerializer,
)
from dstl_core.codec.state_meta import KeyedStateType, StateMetaInfoSnapshot
from dstl_core.errors import FormatError, UnsupportedVersionError
from tests.unit.codec.java_bytes import i16, i32, i64, utf

BASE = "org.apache.flink.api.common.typeutils.base."
LONG = i32(2) + utf(BASE + "LongSerializer$LongSerializerSnapshot") + i32(3)
VOID = "org.apache.flink.runtime.state.VoidNamespaceSerializer$VoidNamespaceSerializerSnapshot"

VALUE_STATE = StateMetaInfoSnapshot.key_value("val", KeyedStateType.VALUE, Types.LONG)
VALUE_META = b"".join(
    [
        utf("val") + i32(0),
        i32(1) + utf("KEYED_STATE_TYPE") + utf("VALUE"),
        i32(2) + utf("VALUE_SERIALIZER") + LONG,
        utf("NAMESPACE_SERIALIZER") + i32(2) + utf(VOID) + i32(3),
    ]
)
QUEUE = StateMetaInfoSnapshot.priority_queue(
    "_timer_state/event_user-timers", TimerSerializer(Types.LONG, VoidNamespaceSerializer())
)


def test_the_codes_are_flinks() -> None:
    assert [
        known_operation.name
        for known_operation in sorted(StateChangeOperation, key=lambda operation: operation.value)
    ] == [
        *["CLEAR", "SET", "SET_INTERNAL", "ADD", "MERGE_NS", "ADD_ELEMENT"],
        *["ADD_OR_UPDATE_ELEMENT", "REMOVE_ELEMENT", "METADATA"],
    ]
    assert [each.value for each in StateChangeOperation] == list(range(9))


def test_a_metadata_record_byte_for_byte() -> None:
    expected = b"\x08" + i32(7) + VALUE_META + b"\0\0" + i16(3) + b"\0"
    assert metadata_change(3, VALUE_STATE) == expected
    assert read_change(expected, BUILT_IN) == MetadataChange(3, VALUE_STATE)
    for size in range(len(expected)):
        with pytest.raises(FormatError):
            read_change(expected[:size], BUILT_IN)


def test_a_queue_has_neither_ttl_nor_default() -> None:
    raw = metadata_change(1, QUEUE)
    assert raw.endswith(i16(1) + b"\3")
    assert read_change(raw, BUILT_IN) == MetadataChange(1, QUEUE)


def test_a_default_value_is_kept_apart() -> None:
    raw = b"\x08" + i32(7) + VALUE_META + b"\0\1" + i64(99) + i16(3) + b"\0"
    assert read_change(raw, BUILT_IN) == MetadataChange(3, VALUE_STATE, default_value=i64(99))


def test_a_ttl_configuration_is_passed_over() -> None:
    plain = b"sr" + utf("A") + i64(1) + b"\2\0\0xp"
    config = bytes.fromhex("aced0005") + plain
    raw = b"\x08" + i32(7) + VALUE_META + b"\1" + config + b"\0" + i16(3) + b"\0"
    assert read_change(raw, BUILT_IN) == MetadataChange(3, VALUE_STATE, has_ttl=True)
    for size in range(len(raw)):
        with pytest.raises(FormatError):
            read_change(raw[:size], BUILT_IN)


@pytest.mark.parametrize(
    ("operation", "state_id", "operands", "raw"),
    [
        (StateChangeOperation.SET, 3, i64(100), "01 0003 026100 0000000000000064"),
        (StateChangeOperation.CLEAR, 0, b"", "00 0000 026100"),
        (StateChangeOperation.ADD_ELEMENT, 256, b"\2x", "05 0100 026100 0278"),
    ],
)
def test_data_records(
    operation: StateChangeOperation, state_id: int, operands: bytes, raw: str
) -> None:
    scope = bytes.fromhex("026100")
    assert data_change(operation, state_id, scope, operands) == bytes.fromhex(raw)
    change = read_change(bytes.fromhex(raw), BUILT_IN)
    assert isinstance(change, DataChange)
    assert (change.operation, change.state_id) == (operation, state_id)
    assert change.body.read_bytes(change.body.remaining) == scope + operands


@pytest.mark.parametrize(
    ("raw", "error", "problem"),
    [
        (b"", FormatError, "operation"),
        (b"\x09", FormatError, "unknown operation: expected 0..8, got 9"),
        (b"\x01\0", FormatError, "state id"),
        (b"\x08" + i32(6), UnsupportedVersionError, "expected 7, got 6"),
        (
            b"\x08" + i32(7) + VALUE_META + b"\0\0" + i16(3) + b"\3",
            FormatError,
            "The two kinds of state 'val' in the changelog differ: expected 0, got 3",
        ),
        (
            b"\x08" + i32(7) + VALUE_META + b"\0\0" + i16(3) + b"\0\0",
            FormatError,
            "Bytes are left after a metadata change",
        ),
    ],
)
def test_damaged_records(raw: bytes, error: type[FormatError], problem: str) -> None:
    with pytest.raises(error, match=problem):
        read_change(raw, BUILT_IN)
