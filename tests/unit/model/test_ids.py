"""Hashes of uids as they stand in savepoints by real Flink."""

from __future__ import annotations

import pickle

import pytest

from dstl_core.errors import ConfigError
from dstl_core.model.ids import JobID, OperatorID, OperatorIdentifier, is_id_hex


@pytest.mark.parametrize(
    ("uid", "expected"),
    [
        ("src", "f362c87ffabe89c8a91fa7d0a523ba6c"),
        ("kp", "79905d1bb8afd98f33ca8b3501e11266"),
        ("win-session", "4aa42c36844dba6f47107d23eedd8beb"),
        ("opstate", "21991e99748be05b56fddb2033c0ff3b"),
        ("counter", "0da08f51eaa85fc298e176a139b3649a"),
        ("a-keyed", "b4752014cabfcda06294954685ce3a12"),
        ("sink", "2e588ce1c86a9d46e2e85186773ce4fd"),
        ("a rather long uid, more than 16 bytes", "1befc80e2ac1fbecbe3a8b9e8aaf2ddf"),
    ],
)
def test_operator_id_of_a_uid(uid: str, expected: str) -> None:
    assert OperatorID.for_uid(uid).hex == expected


def test_a_uid_is_hashed_as_utf8() -> None:
    # murmur3_x64_128 of the two bytes c3 a9, by the reference implementation step by step.
    assert OperatorID.for_uid("é") == OperatorID(murmur3_x64_128(b"\xc3\xa9"))
    long = "日本語の演算子" * 5
    assert OperatorID.for_uid(long) == OperatorID(murmur3_x64_128(long.encode()))


def test_names_that_look_alike_have_ids_of_their_own() -> None:
    names = [
        "1",
        " 1",
        "1 ",
        "a",
        "A",
        "a\0",
        "a?",
        "e\u0301",
        "\u00e9",
        "../x",
        "x",
        "a/b",
        "ß",
        "ss",
    ]
    assert len({OperatorID.for_uid(each) for each in names}) == len(names)
    assert len({JobID.for_name(each) for each in names}) == len(names)


def test_a_lone_surrogate_in_a_uid_is_a_question_mark_as_in_java() -> None:
    assert OperatorID.for_uid("a\udcff") == OperatorID.for_uid("a?")


def murmur3_x64_128(data: bytes) -> bytes:
    """The algorithm as the format's description writes it down, one step a line."""
    mask = 2**64 - 1
    c1, c2 = 0x87C37B91114253D5, 0x4CF5AD432745937F

    def rotl(value: int, bits: int) -> int:
        return (value << bits | value >> 64 - bits) & mask

    def mix1(k: int) -> int:
        return rotl(k * c1 & mask, 31) * c2 & mask

    def mix2(k: int) -> int:
        return rotl(k * c2 & mask, 33) * c1 & mask

    def fmix(k: int) -> int:
        k = (k ^ k >> 33) * 0xFF51AFD7ED558CCD & mask
        k = (k ^ k >> 33) * 0xC4CEB9FE1A85EC53 & mask
        return k ^ k >> 33

    h1 = h2 = 0
    whole = len(data) // 16 * 16
    for at in range(0, whole, 16):
        h1 ^= mix1(int.from_bytes(data[at : at + 8], "little"))
        h1 = (rotl(h1, 27) + h2) * 5 + 0x52DCE729 & mask
        h2 ^= mix2(int.from_bytes(data[at + 8 : at + 16], "little"))
        h2 = (rotl(h2, 31) + h1) * 5 + 0x38495AB5 & mask
    tail = data[whole:]
    h2 ^= mix2(int.from_bytes(tail[8:], "little"))
    h1 ^= mix1(int.from_bytes(tail[:8], "little"))
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = h1 + h2 & mask
    h2 = h2 + h1 & mask
    h1, h2 = fmix(h1), fmix(h2)
    h1 = h1 + h2 & mask
    h2 = h2 + h1 & mask
    return h1.to_bytes(8, "little") + h2.to_bytes(8, "little")


def test_hex_round_trip_and_order_of_bytes() -> None:
    text = "000102030405060708090a0b0c0d0e0f"
    assert OperatorID.from_hex(text).raw == bytes(range(16))
    assert str(OperatorID.from_hex(text.upper())) == text


@pytest.mark.parametrize("text", ["", "00", "g" * 32, "0" * 31, "0" * 33, "0" * 32 + "\n"])
def test_not_an_id(text: str) -> None:
    assert not is_id_hex(text)
    with pytest.raises(ConfigError, match="expected 32 hex digits"):
        OperatorID.from_hex(text)


@pytest.mark.parametrize("size", [0, 15, 17])
def test_an_id_has_sixteen_bytes(size: int) -> None:
    with pytest.raises(ConfigError, match=f"expected 16 bytes, got {size}"):
        JobID(bytes(size))


def test_a_job_id_is_not_an_operator_id() -> None:
    assert JobID(bytes(16)) != OperatorID(bytes(16))
    assert JobID.for_name("flights") == JobID.for_name("flights") != JobID.for_name("trains")


def test_ids_survive_pickle() -> None:
    for identifier in (
        JobID.for_name("a"),
        OperatorID.for_uid("a"),
        OperatorIdentifier.for_uid("a"),
    ):
        again = pickle.loads(pickle.dumps(identifier))
        assert again == identifier
        assert type(again) is type(identifier)
        assert hash(again) == hash(identifier)


def test_an_identifier_is_equal_by_id_alone() -> None:
    by_uid = OperatorIdentifier.for_uid("counter")
    by_hash = OperatorIdentifier.for_uid_hash("0DA08F51EAA85FC298E176A139B3649A")
    assert by_uid == by_hash
    assert len({by_uid, by_hash}) == 1
    assert (str(by_uid), str(by_hash)) == ("counter", "0da08f51eaa85fc298e176a139b3649a")
    assert by_uid != "counter"


def test_an_empty_uid_is_refused() -> None:
    with pytest.raises(ConfigError, match="must not be empty"):
        OperatorIdentifier.for_uid("")
