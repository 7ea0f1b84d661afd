"""Stored keys, byte by byte, with the ambiguous ones of real Flink."""

from __future__ import annotations

from typing import Any

import pytest

from dstl_core.codec.composite_key import CompositeKeyCodec
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.serializers import (
    AnySerializer,
    Types,
    VoidNamespaceSerializer,
    serialize_to_bytes,
)
from dstl_core.codec.serializers.window_types import TimeWindow, TimeWindowSerializer
from dstl_core.errors import FormatError

VOID = VoidNamespaceSerializer()
TEXTS = (1, Types.STRING, Types.STRING)


@pytest.mark.parametrize(
    ("prefix_bytes", "key_type", "namespace_type", "parts", "user_key", "stored"),
    [
        (1, Types.STRING, VOID, (7, "k6", None), b"", "07 036b36 00"),
        (2, Types.STRING, VOID, (7, "k6", None), b"", "0007 036b36 00"),
        (2, Types.LONG, VOID, (300, 42, None), b"", "012c 000000000000002a 00"),
        (1, Types.STRING, VOID, (7, "k6", None), bytes(7) + b"\2", "07 036b36 00 0000000000000002"),
        (1, Types.STRING, TimeWindowSerializer(), (7, "k6", TimeWindow(0, 10)), b"",
         "07 036b36 0000000000000000 000000000000000a"),
        # Both of variable length: each is followed by its length.
        (*TEXTS, (5, "ab", "xyz"), bytes(3) + b"\7", "05 036162 03 0478797a 04 00000007"),
        (*TEXTS, (5, "x" * 299, ""), b"", "05 ac02" + "78" * 299 + "2d01 01 01"),
        # 255 bytes take one digit, 256 two, 65536 three.
        (*TEXTS, (5, "x" * 253, ""), b"", "05 fe01" + "78" * 253 + "ff 0101"),
        (*TEXTS, (5, "x" * 254, ""), b"", "05 ff01" + "78" * 254 + "0001 0101"),
        (*TEXTS, (5, "x" * 65533, ""), b"", "05 feff03" + "78" * 65533 + "000001 0101"),
    ],
)  # fmt: skip
def test_stored_keys(
    prefix_bytes: int,
    key_type: AnySerializer,
    namespace_type: AnySerializer,
    parts: tuple[int, Any, Any],
    user_key: bytes,
    stored: str,
) -> None:
    codec = CompositeKeyCodec(prefix_bytes, key_type, namespace_type)
    key_group, key, namespace = parts
    raw_key = serialize_to_bytes(key_type, key)
    raw_namespace = serialize_to_bytes(namespace_type, namespace)
    assert codec.encode(key_group, raw_key, raw_namespace, user_key) == bytes.fromhex(stored)
    assert codec.split(bytes.fromhex(stored)) == (key_group, raw_key, raw_namespace, user_key)
    assert codec.decode_scope(raw_key + raw_namespace) == (key, namespace)


@pytest.mark.parametrize(
    ("key_type", "namespace_type", "ambiguous"),
    [
        (Types.STRING, VOID, False),
        (Types.STRING, TimeWindowSerializer(), False),
        (Types.STRING, Types.STRING, True),
        (Types.LONG, Types.STRING, False),
        (Types.TUPLE(Types.LONG, Types.LONG), Types.STRING, False),
        (Types.TUPLE(Types.LONG, Types.STRING), Types.STRING, True),
        (Types.LIST(Types.LONG), Types.STRING, True),
    ],
)
def test_only_two_variable_parts_are_ambiguous(
    key_type: AnySerializer, namespace_type: AnySerializer, ambiguous: bool
) -> None:
    assert CompositeKeyCodec(1, key_type, namespace_type).is_ambiguous is ambiguous


AMBIGUOUS = CompositeKeyCodec(1, Types.STRING, Types.STRING)


@pytest.mark.parametrize("stored", ["05 036162 04 0478797a 04", "05 036162 03 0478797a 03"])
def test_a_length_that_does_not_fit_is_a_format_error(stored: str) -> None:
    with pytest.raises(FormatError, match=r"is wrong: expected 0[34], got 0[34]"):
        AMBIGUOUS.split(bytes.fromhex(stored))


def test_cutting_a_stored_key_anywhere_is_a_format_error() -> None:
    stored = bytes.fromhex("05 036162 03 0478797a 04")
    for size in range(len(stored)):
        with pytest.raises(FormatError):
            AMBIGUOUS.split(stored[:size])


def test_a_scope_has_nothing_behind_it() -> None:
    codec = CompositeKeyCodec(1, Types.STRING, VOID)
    with pytest.raises(FormatError, match="Bytes are left after a key and its namespace"):
        codec.decode_scope(bytes.fromhex("036b36 00 00"))


def test_the_scope_of_a_change_record_is_cut_off_its_front() -> None:
    data = DataInput(bytes.fromhex("036162 0478797a 0000002a"))
    assert AMBIGUOUS.read_scope(data) == (bytes.fromhex("036162"), bytes.fromhex("0478797a"))
    assert data.remaining == 4
