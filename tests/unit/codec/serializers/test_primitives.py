"""Java hashes, key groups and text of the fixed-size types, as real Flink gave them."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest

from dstl_core.codec.serializers import (
    AnySerializer,
    Types,
    deserialize_exactly,
    serialize_to_bytes,
)
from dstl_core.errors import FormatError
from dstl_core.model.key_group import assign_to_key_group


def signed(code: int) -> int:
    code &= 0xFFFFFFFF
    return code - 2**32 if code >= 2**31 else code


@pytest.mark.parametrize(
    ("serializer", "key", "java_hash", "of_128", "of_32768"),
    [
        (Types.INT, 42, 42, 29, 28189),
        (Types.LONG, 42, 42, 29, 28189),
        (Types.INT, -1, -1, 80, 15184),
        (Types.LONG, -1, 0, 94, 31198),
        (Types.LONG, 12345678901234, 1942889672, 68, 5188),
        (Types.LONG, 5000000000, 705032705, None, None),
        (Types.LONG, -(2**63), -2147483648, 108, 10348),
        (Types.BOOLEAN, True, 1231, 77, 11725),
        (Types.BOOLEAN, False, 1237, 3, 32003),
        (Types.DOUBLE, 1.5, 1073217536, 65, 833),
        (Types.DOUBLE, -0.0, -2147483648, 108, 10348),
        (Types.DOUBLE, 0.0, 0, 94, 31198),
        (Types.DOUBLE, math.nan, 2146959360, None, None),
        (Types.FLOAT, 1.5, 0x3FC00000, None, None),
        (Types.FLOAT, -0.0, -2147483648, 108, 10348),
        (Types.FLOAT, math.nan, 0x7FC00000, None, None),
        (Types.SHORT, 7, 7, 113, 4337),
        (Types.BYTE, -3, -3, 44, 2220),
    ],
)
def test_java_hash_and_key_group(
    serializer: AnySerializer, key: Any, java_hash: int, of_128: int | None, of_32768: int | None
) -> None:
    assert signed(serializer.java_hash(key)) == java_hash
    if of_128 is not None:
        assert assign_to_key_group(serializer.java_hash(key), 128) == of_128
        assert assign_to_key_group(serializer.java_hash(key), 32768) == of_32768


def test_every_nan_is_the_same_key() -> None:
    other = struct.unpack(">d", bytes.fromhex("fff8000000000001"))[0]
    assert Types.DOUBLE.java_hash(other) == Types.DOUBLE.java_hash(math.nan)
    narrow = struct.unpack(">f", bytes.fromhex("ffc00001"))[0]
    assert Types.FLOAT.java_hash(narrow) == Types.FLOAT.java_hash(math.nan)


@pytest.mark.parametrize(
    ("bits", "text"),
    [
        ("3dcccccd", 0.10000000149011612),
        ("3f800000", 1.0),
        ("3f924925", 1.1428571939468384),
        ("7f7fffff", 3.4028234663852886e38),
        ("00000001", 1.401298464324817e-45),
        ("80000000", -0.0),
    ],
)
def test_a_float_is_printed_as_the_double_that_it_equals(bits: str, text: float) -> None:
    value = struct.unpack(">f", bytes.fromhex(bits))[0]
    assert repr(Types.FLOAT.to_text(value)) == repr(text)


@pytest.mark.parametrize("bits", ["7fc00000", "7f800001", "ffc12345", "7fffffff", "ff800001"])
def test_a_nan_keeps_its_bits(bits: str) -> None:
    raw = bytes.fromhex(bits)
    assert serialize_to_bytes(Types.FLOAT, deserialize_exactly(Types.FLOAT, raw)) == raw


@pytest.mark.parametrize("serializer", [Types.FLOAT, Types.DOUBLE], ids=str)
@pytest.mark.parametrize(
    ("value", "text"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")]
)
def test_json_has_no_nan_and_no_infinity(
    serializer: AnySerializer, value: float, text: str
) -> None:
    assert serializer.to_text(value) == text


@pytest.mark.parametrize(
    ("serializer", "value"),
    [
        (Types.BYTE, 128),
        (Types.BYTE, -129),
        (Types.SHORT, 32768),
        (Types.INT, 2**31),
        (Types.INT, 1.5),
        (Types.LONG, 2**63),
        (Types.LONG, "1"),
        (Types.LONG, None),
        (Types.FLOAT, 1e39),
        (Types.DOUBLE, "x"),
        (Types.STRING, 5),
        (Types.STRING, b"x"),
        (Types.LIST(Types.LONG), None),
        (Types.LIST(Types.LONG), [None]),
        (Types.LIST(Types.LONG), 7),
        (Types.MAP(Types.STRING, Types.LONG), [("a",)]),
        (Types.MAP(Types.STRING, Types.LONG), [5]),
        (Types.MAP(Types.STRING, Types.LONG), {"a": 1}),
        (Types.TUPLE(Types.LONG, Types.LONG), (1,)),
        (Types.TUPLE(Types.LONG, Types.LONG), (1, 2, 3)),
        (Types.TUPLE(Types.LONG, Types.LONG), 5),
    ],
)
def test_a_value_of_another_type_is_a_format_error_without_the_value(
    serializer: AnySerializer, value: Any
) -> None:
    with pytest.raises(FormatError, match="A value does not fit its type"):
        serialize_to_bytes(serializer, value)
