"""Numbers of byte strings, against a dictionary of Python."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dstl_core.codec.columnar.kernels.hashing import HASHES, MULTIPLIER, hash_rows
from dstl_core.codec.columnar.keyed.byte_index import SEED, ByteIndex, Ranges, last_rows
from dstl_core.codec.columnar.types.addresses import address_of


class Strings:
    """Byte strings one after the other in memory."""

    def __init__(self, strings: list[bytes]) -> None:
        self._data = np.frombuffer(b"".join(strings) + b"end", np.uint8)
        ends = np.cumsum([len(each) for each in strings], dtype=np.int64)
        sizes = np.array([len(each) for each in strings], np.int64)
        base = address_of(self._data)
        self.ranges = Ranges(base + ends - sizes, base + ends)


def check(strings: list[bytes], others: list[bytes]) -> None:
    wanted: dict[bytes, int] = {}
    numbers = [wanted.setdefault(each, len(wanted)) for each in strings]
    own, other = Strings(strings), Strings(others)
    index = ByteIndex(own.ranges)
    assert index.numbers.tolist() == numbers
    assert index.firsts.tolist() == [strings.index(each) for each in wanted]
    assert len(index) == len(wanted)
    assert index.find(own.ranges).tolist() == numbers
    assert index.find(other.ranges).tolist() == [wanted.get(each, -1) for each in others]


@given(st.lists(st.binary(max_size=20)), st.lists(st.binary(max_size=20)))
def test_any_strings(strings: list[bytes], others: list[bytes]) -> None:
    check(strings, others)


@given(st.lists(st.sampled_from([b"", b"\0", b"\0\0", b"a" * 8, b"a" * 9]), max_size=200))
def test_few_strings_that_differ_little(strings: list[bytes]) -> None:
    check(strings, strings[::-1])


@pytest.mark.parametrize("rows", [0, 1, HASHES - 1, HASHES, HASHES + 1, 5000])
@pytest.mark.parametrize("distinct", [1, 3, 10_000])
def test_any_number_of_rows(rows: int, distinct: int) -> None:
    strings = [(at * 7919 % distinct).to_bytes(8, "big") for at in range(rows)]
    check(strings, [number.to_bytes(8, "big") for number in range(100)])


def test_strings_with_the_same_hash_are_told_apart() -> None:
    one, two = same_hash(SEED)
    strings = Strings([one, two])
    hashes = np.empty(2, np.int64)
    starts, ends = strings.ranges.starts, strings.ranges.ends
    hash_rows(address_of(starts), address_of(ends), 8, 2, SEED, address_of(hashes))
    assert one != two
    assert hashes[0] == hashes[1]
    check([one, two, one, b"else", two, two] * 40, [two, b"", one])
    check([one] * 3, [two])


@given(st.lists(st.tuples(st.binary(max_size=3), st.integers(-1, 2)), max_size=200))
def test_the_last_row_of_each_string_of_a_group(rows: list[tuple[bytes, int]]) -> None:
    check_last(rows)


def test_the_last_rows_of_many_strings() -> None:
    check_last([((at * 7919 % 3001).to_bytes(8, "big"), at % 5) for at in range(20_000)])
    one, two = same_hash(SEED)
    check_last([(one, 0), (two, 0), (one, 0), (two, 1)])


def check_last(rows: list[tuple[bytes, int]]) -> None:
    last = {row: at for at, row in enumerate(rows)}
    strings = Strings([string for string, _ in rows])
    rows_kept = last_rows(strings.ranges, np.array([group for _, group in rows], np.int64))
    assert rows_kept.tolist() == sorted(last.values())


def same_hash(seed: int) -> tuple[bytes, bytes]:
    """Two strings: the second word of one undoes the difference that its first word makes."""
    size = 16

    def int64(number: int) -> int:
        return (number + (1 << 63)) % (1 << 64) - (1 << 63)

    def after(word: int) -> int:
        mixed = int64((int64(seed ^ int64(size * MULTIPLIER)) ^ word) * MULTIPLIER)
        return mixed ^ mixed >> 29

    return struct.pack("=qq", 1, 0), struct.pack("=qq", 2, after(1) ^ after(2))
