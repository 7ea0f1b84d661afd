from __future__ import annotations

from typing import Any

import pytest

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.serializers import (
    BUILT_IN,
    AnySerializer,
    SnapshotContext,
    TupleSerializer,
    Types,
    deserialize_exactly,
    serialize_to_bytes,
    write_snapshot,
)
from dstl_core.errors import (
    ConfigError,
    FormatError,
    UnknownSerializerError,
    UnsupportedVersionError,
)
from dstl_core.model.key_group import assign_to_key_group
from tests.unit.codec.java_bytes import i32, utf

STRINGS = Types.LIST(Types.STRING)
COUNTS = Types.MAP(Types.STRING, Types.INT)
PAIR = Types.TUPLE(Types.STRING, Types.INT)


@pytest.mark.parametrize(
    ("serializer", "value", "raw"),
    [
        (STRINGS, [], "00000000"),
        (STRINGS, ["a", None, ""], "00000003 0261 00 01"),
        (COUNTS, [("a", 1), ("b", None)], "00000002 0261 00 00000001 0262 01"),
        (PAIR, ("a", 7), "0261 00000007"),
        (Types.LIST(Types.LIST(Types.BYTE)), [[], [1]], "00000002 00000000 00000001 01"),
    ],
)
def test_values(serializer: AnySerializer, value: Any, raw: str) -> None:
    assert serialize_to_bytes(serializer, value) == bytes.fromhex(raw)
    assert deserialize_exactly(serializer, bytes.fromhex(raw)) == value


@pytest.mark.parametrize(
    ("serializer", "key", "java_hash", "of_128", "of_32768"),
    [
        (PAIR, ("a", 1), 3008, 29, 29853),
        (Types.TUPLE(Types.STRING, Types.LONG), (None, 1), 1, 86, 16342),
        (Types.TUPLE(Types.LONG), (5000000000,), 705032705, None, None),
        (STRINGS, [], 1, None, None),
        (STRINGS, ["a", "b"], (31 + 97) * 31 + 98, None, None),
    ],
)
def test_java_hash_and_key_group(
    serializer: AnySerializer, key: Any, java_hash: int, of_128: int | None, of_32768: int | None
) -> None:
    hashed = serializer.java_hash(key)
    assert hashed & 0xFFFFFFFF == java_hash
    if of_128 is not None:
        assert assign_to_key_group(hashed, 128) == of_128
        assert assign_to_key_group(hashed, 32768) == of_32768


def test_a_map_cannot_be_a_key() -> None:
    with pytest.raises(ConfigError, match="Map<String, Integer> cannot be a key"):
        COUNTS.java_hash([("a", 1)])


@pytest.mark.parametrize(
    ("serializer", "length"),
    [
        (Types.TUPLE(Types.LONG, Types.INT), 12),
        (Types.TUPLE(Types.LONG, Types.STRING), -1),
        (Types.LIST(Types.LONG), -1),
        (COUNTS, -1),
    ],
)
def test_length(serializer: AnySerializer, length: int) -> None:
    assert serializer.length == length


def test_map_entries_are_printed_in_the_order_of_their_keys_text() -> None:
    by_number = Types.MAP(Types.LONG, Types.LONG)
    assert by_number.to_text([(9, 1), (10, None), (-1, 2)]) == [[-1, 2], [10, None], [9, 1]]


@pytest.mark.parametrize("raw", ["ffffffff", "7fffffff", "00000002 0261"])
@pytest.mark.parametrize("serializer", [STRINGS, COUNTS], ids=str)
def test_sizes_that_do_not_fit(serializer: AnySerializer, raw: str) -> None:
    with pytest.raises(FormatError):
        deserialize_exactly(serializer, bytes.fromhex(raw))


def test_a_list_of_longs_is_checked_against_eight_bytes_each() -> None:
    with pytest.raises(FormatError, match=r"list size.*at byte 0|expected 0\.\.1"):
        deserialize_exactly(Types.LIST(Types.LONG), i32(2) + bytes(15))


def snapshot(serializer: AnySerializer) -> bytes:
    out = DataOutput()
    write_snapshot(out, serializer)
    return out.to_bytes()


def read(raw: bytes) -> AnySerializer:
    return SnapshotContext(BUILT_IN).read_snapshot(DataInput(raw))


LONG_SNAPSHOT = snapshot(Types.LONG)
LIST_CLASS = utf("org.apache.flink.api.common.typeutils.base.ListSerializerSnapshot")
TUPLE_CLASS = utf("org.apache.flink.api.java.typeutils.runtime.TupleSerializerSnapshot")


def nested(*parts: bytes) -> bytes:
    return i32(1333245, 1, len(parts)) + b"".join(parts)


def test_the_envelope_of_a_composite_snapshot() -> None:
    expected = LIST_CLASS + i32(3) + i32(911108, 1) + nested(LONG_SNAPSHOT)
    assert snapshot(Types.LIST(Types.LONG)) == expected
    assert read(expected) == Types.LIST(Types.LONG)


@pytest.mark.parametrize(
    ("raw", "error", "problem"),
    [
        (utf("com.example.Snap") + i32(1), UnknownSerializerError, "com.example.Snap"),
        (LIST_CLASS + i32(2), UnsupportedVersionError, "expected 3, got 2"),
        (LIST_CLASS + i32(3, 911107), FormatError, "composite magic"),
        (LIST_CLASS + i32(3, 911108, 2), FormatError, "composite version"),
        (LIST_CLASS + i32(3, 911108, 1, 1), FormatError, "nested snapshots magic"),
        (LIST_CLASS + i32(3, 911108, 1, 1333245, 2), FormatError, "nested snapshots version"),
        (
            LIST_CLASS + i32(3, 911108, 1) + nested(LONG_SNAPSHOT, LONG_SNAPSHOT),
            FormatError,
            "wrong number of parts: expected 1, got 2",
        ),
        (LIST_CLASS + i32(3, 911108, 1, 1333245, 1, 2**31 - 1), FormatError, "does not fit"),
        (
            TUPLE_CLASS
            + i32(3, 911108, 2)
            + utf("org.apache.flink.api.java.tuple.Tuple3")
            + nested(LONG_SNAPSHOT),
            FormatError,
            "does not fit its number of fields",
        ),
        (
            TUPLE_CLASS
            + i32(3, 911108, 2)
            + utf("org.apache.flink.api.java.tuple.Tuple0")
            + nested(),
            FormatError,
            "does not fit its number of fields",
        ),
    ],
)
def test_damaged_snapshots(raw: bytes, error: type[FormatError], problem: str) -> None:
    with pytest.raises(error, match=problem):
        read(raw)


def test_endless_nesting_is_a_format_error() -> None:
    level = LIST_CLASS + i32(3, 911108, 1, 1333245, 1, 1)
    with pytest.raises(FormatError, match="nested too deeply"):
        read(level * 1000)


def test_an_unknown_class_is_named_in_the_context() -> None:
    with pytest.raises(UnknownSerializerError) as caught:
        read(LIST_CLASS + i32(3, 911108, 1) + nested(utf("a.B") + i32(1)))
    assert caught.value.context["snapshot_class"] == "a.B"


def test_a_tuple_has_at_least_one_field() -> None:
    with pytest.raises(ConfigError, match="at least one field"):
        TupleSerializer(())
    assert serialize_to_bytes(Types.TUPLE(), ()) == b"*"
