from __future__ import annotations

import pytest

from dstl_core.codec.data_io import (
    DataInput,
    DataOutput,
    decode_modified_utf8,
    encode_modified_utf8,
    from_utf16_units,
    utf16_units,
)
from dstl_core.errors import FormatError, InvariantViolation, TruncatedDataError

# Bytes as java.io.DataOutputStream writes them (JLS ranges; modified UTF-8 of DataInput).
NUMBERS = [
    ("i8", -1, "ff"),
    ("i8", 127, "7f"),
    ("u8", 255, "ff"),
    ("i16", -2, "fffe"),
    ("u16", 65535, "ffff"),
    ("i32", -2147483648, "80000000"),
    ("i32", 1, "00000001"),
    ("i64", -1, "ffffffffffffffff"),
    ("i64", 2**63 - 1, "7fffffffffffffff"),
    ("f32", 1.5, "3fc00000"),
    ("f64", -0.0, "8000000000000000"),
    ("f64", 1.5, "3ff8000000000000"),
    ("bool", True, "01"),
    ("bool", False, "00"),
]


@pytest.mark.parametrize(("kind", "value", "raw"), NUMBERS)
def test_numbers_are_big_endian(kind: str, value: float, raw: str) -> None:
    out = DataOutput()
    getattr(out, f"write_{kind}")(value)
    assert out.to_bytes().hex() == raw
    data = DataInput(bytes.fromhex(raw))
    assert repr(getattr(data, f"read_{kind}")()) == repr(value)
    assert data.remaining == 0


def test_every_byte_but_0_is_true() -> None:
    assert DataInput(b"\x02").read_bool() is True
    assert DataInput(b"\xff").read_bool() is True


TEXTS = [
    ("", "0000"),
    ("ab", "00026162"),
    ("\0", "0002c080"),
    ("a\0b", "0004 61c08062"),
    ("\x7f", "00017f"),
    ("\x80", "0002c280"),
    ("é", "0002c3a9"),
    ("\u07ff", "0002dfbf"),
    ("\u0800", "0003e0a080"),
    ("日", "0003e697a5"),
    ("\uffff", "0003efbfbf"),
    ("😀", "0006eda0bdedb880"),
    ("\ud83d", "0003eda0bd"),
    ("\ude00\ud83d", "0006edb880eda0bd"),
]


@pytest.mark.parametrize(("text", "raw"), TEXTS)
def test_modified_utf8(text: str, raw: str) -> None:
    out = DataOutput()
    out.write_utf(text)
    assert out.to_bytes() == bytes.fromhex(raw)
    assert DataInput(bytes.fromhex(raw)).read_utf() == text


def test_the_longest_text_and_one_more() -> None:
    out = DataOutput()
    out.write_utf("é" * 32767 + "x")
    assert DataInput(out.to_bytes()).read_utf() == "é" * 32767 + "x"
    with pytest.raises(FormatError, match=r"too long.*expected <= 65535 bytes.*got 65536"):
        DataOutput().write_utf("é" * 32768)


@pytest.mark.parametrize("raw", ["80", "c3", "c341", "e0a0", "e0a041", "f09f9880", "ff", "61e6"])
def test_bytes_that_are_not_modified_utf8(raw: str) -> None:
    with pytest.raises(FormatError, match="not modified UTF-8") as caught:
        decode_modified_utf8(bytes.fromhex(raw), offset=100, field="name")
    assert caught.value.context["field"] == "name"
    assert caught.value.context["offset"] == 100 + (1 if raw.startswith("61") else 0)


def test_utf16_units_round_trip() -> None:
    assert list(utf16_units("a😀\udc00")) == [0x61, 0xD83D, 0xDE00, 0xDC00]
    assert from_utf16_units([0x61, 0xD83D, 0xDE00, 0xDC00]) == "a😀\udc00"
    assert encode_modified_utf8("😀") == encode_modified_utf8("\ud83d") + b"\xed\xb8\x80"


def test_a_short_read_says_where_and_what() -> None:
    data = DataInput(b"abcdef", 2, 5)
    data.read_u8()
    with pytest.raises(TruncatedDataError) as caught:
        data.read_i32("size")
    assert caught.value.context == {
        "offset": 3,
        "field": "size",
        "expected": "4 more bytes",
        "got": 2,
    }


def test_an_input_does_not_look_behind_its_end() -> None:
    data = DataInput(b"abcdef", 2, 4)
    assert data.read_bytes(2) == b"cd"
    with pytest.raises(TruncatedDataError):
        data.read_u8()


@pytest.mark.parametrize("read", ["read_bytes", "sub_input"])
def test_negative_lengths_are_format_errors(read: str) -> None:
    with pytest.raises(FormatError, match="length is negative"):
        getattr(DataInput(b"abc"), read)(-1)


@pytest.mark.parametrize(
    ("raw", "item_bytes", "limit", "most"),
    [
        ("ffffffff 0000", 1, None, 2),
        ("00000003 0000", 1, None, 2),
        ("00000001 00000000000000", 8, None, 0),
        ("7fffffff 00", 1, None, 1),
        ("00000003 000000", 1, 2, 2),
    ],
)
def test_a_count_has_to_fit_into_what_remains(
    raw: str, item_bytes: int, limit: int | None, most: int
) -> None:
    with pytest.raises(FormatError, match=f"expected 0..{most}"):
        DataInput(bytes.fromhex(raw)).read_count("things", item_bytes, limit=limit)


def test_many_longs_at_once() -> None:
    data = DataInput(bytes.fromhex("0000000000000001 ffffffffffffffff 00"))
    assert data.read_i64s(2) == (1, -1)
    assert data.read_i64s(0) == ()
    with pytest.raises(TruncatedDataError):
        data.read_i64s(1)


def test_a_sub_input_keeps_the_positions_of_the_whole() -> None:
    data = DataInput(b"abcdef")
    data.read_u8()
    part = data.sub_input(3)
    assert (part.position, part.remaining, data.position) == (1, 3, 4)
    with pytest.raises(FormatError, match=r"Bytes are left after a part.*at byte 1"):
        part.expect_end("a part")


def test_an_input_only_goes_back() -> None:
    data = DataInput(b"abcdef")
    data.read_bytes(3)
    data.seek(1)
    assert data.read_u8() == ord("b")
    with pytest.raises(InvariantViolation):
        data.seek(5)
    with pytest.raises(InvariantViolation):
        data.seek(-1)
