"""``StringValue`` by the format's description, and the hash of strings as keys."""

from __future__ import annotations

import pytest

from dstl_core.codec.data_io import DataInput
from dstl_core.codec.serializers import Types, deserialize_exactly, serialize_to_bytes
from dstl_core.codec.serializers.strings import read_string_value
from dstl_core.errors import FormatError
from dstl_core.model.key_group import assign_to_key_group, murmur_hash


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        (None, "00"),
        ("", "01"),
        ("hello", "06 68656c6c6f"),
        ("héllo", "06 68 e901 6c6c6f"),
        ("\0", "02 00"),
        ("\x7f\x80", "03 7f 8001"),
        ("\u3fff\u4000\uffff", "04 ff7f 808001 ffff03"),
        ("😀", "03 bdb003 80bc03"),
        ("\ud83d", "02 bdb003"),
        ("x" * 126, "7f" + "78" * 126),
        ("x" * 127, "8001" + "78" * 127),
        ("x" * 200, "c901" + "78" * 200),
    ],
)
def test_string_values(text: str | None, raw: str) -> None:
    assert serialize_to_bytes(Types.STRING, text) == bytes.fromhex(raw)
    assert deserialize_exactly(Types.STRING, bytes.fromhex(raw)) == text


@pytest.mark.parametrize(
    ("key", "java_hash", "murmur", "of_128", "of_32768"),
    [
        ("a", 97, 1455541201, 81, 19409),
        ("hello", 99162322, 1715862179, 35, 31395),
        ("abc", 96354, 74834163, 115, None),
        ("k", 107, None, 21, None),
        ("", 0, 593689054, 94, 31198),
        ("héllo😀", 291564465, 2034669091, 35, 5667),
        # Colliding strings of Java's folklore; a lone surrogate counts as its unit.
        ("Aa", 2112, None, None, None),
        ("BB", 2112, None, None, None),
        ("\ud83d", 55357, None, None, None),
        (None, 0, None, 94, None),
    ],
)
def test_java_hash_and_key_group(
    key: str | None, java_hash: int, murmur: int | None, of_128: int | None, of_32768: int | None
) -> None:
    hashed = Types.STRING.java_hash(key)
    assert hashed == java_hash
    if murmur is not None:
        assert murmur_hash(hashed) == murmur
    if of_128 is not None:
        assert assign_to_key_group(hashed, 128) == of_128
    if of_32768 is not None:
        assert assign_to_key_group(hashed, 32768) == of_32768


def test_a_long_hash_wraps_at_32_bits() -> None:
    # "polygenelubricants".hashCode() is Integer.MIN_VALUE.
    assert Types.STRING.java_hash("polygenelubricants") == 2**31


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ("ffffffffff", "does not end"),
        ("ffffffff7f", "longer than the data"),
        ("03 61", "longer than the data"),
        ("02 808004", "not a UTF-16 unit"),
        ("02 ffffff", "longer than the data|does not end"),
        ("03 8080 80", "does not end|longer than the data"),
        ("03 ff 80", "ends too early"),
    ],
)
def test_damaged_strings(raw: str, problem: str) -> None:
    with pytest.raises(FormatError, match=problem):
        read_string_value(DataInput(bytes.fromhex(raw)))


def test_a_string_is_left_behind_exactly() -> None:
    data = DataInput(bytes.fromhex("06 68 e901 6c6c6f 2c"))
    assert read_string_value(data) == "héllo"
    assert data.remaining == 1
