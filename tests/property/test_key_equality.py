"""Which keys are one key: those that Java's ``equals`` makes equal, by row and by column.

``Double.equals`` compares ``doubleToLongBits``, and ``Float.equals`` ``floatToIntBits``: every NaN
equals every other, whatever its payload, and 0.0 does not equal -0.0.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dstl_core.codec.columnar.keyed.encoder import EncodeProgram
from dstl_core.codec.columnar.keyed.key_group_columns import key_groups_of
from dstl_core.codec.columnar.types.type_layouts import layout_of
from dstl_core.codec.data_io import float32_from_bits
from dstl_core.codec.serializers import AnySerializer, Types, VoidNamespaceSerializer, serialize_key
from dstl_core.model.key_group import KeyGroupRange, assign_to_key_group
from dstl_core.state.backends.backend import KeyedStateBackend
from dstl_core.state.backends.state_backend import (
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    KeyedStateBackendParameters,
)
from dstl_core.state.columns.column_store import ColumnStore
from dstl_core.state.tables.descriptor import MapStateDescriptor, ValueStateDescriptor
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import Location
from dstl_core.testing import ManualClock

# Bits, and not values: quiet and signalling NaNs of both signs with any payload, zeros, the rest.
BITS_64 = st.one_of(
    st.integers(0, 2**64 - 1),
    st.integers(1, 2**52 - 1).map(lambda payload: 0x7FF << 52 | payload),
    st.integers(1, 2**52 - 1).map(lambda payload: 0xFFF << 52 | payload),
    st.sampled_from([0, 1 << 63, 0x7FF << 52, 0xFFF << 52]),
)
BITS_32 = st.one_of(
    st.integers(0, 2**32 - 1),
    st.integers(1, 2**23 - 1).map(lambda payload: 0xFF << 23 | payload),
    st.integers(1, 2**23 - 1).map(lambda payload: 0x1FF << 23 | payload),
    st.sampled_from([0, 1 << 31, 0xFF << 23, 0x1FF << 23]),
)


def java_bits(bits: int, width: int) -> bytes:
    """``doubleToLongBits`` and ``floatToIntBits`` of the value with these bits, big-endian."""
    fraction, exponent = (52, 0x7FF) if width == 8 else (23, 0xFF)
    is_nan = bits >> fraction & exponent == exponent and bits & (1 << fraction) - 1
    nan = 0x7FF8000000000000 if width == 8 else 0x7FC00000
    return (nan if is_nan else bits).to_bytes(width, "big")


def value_of(bits: int, width: int) -> float:
    if width == 4:
        return float32_from_bits(bits)
    number: float = struct.unpack(">d", bits.to_bytes(8, "big"))[0]
    return number


def column_of(bits: list[int], width: int) -> pa.Array:
    kinds = {4: (np.uint32, pa.float32()), 8: (np.uint64, pa.float64())}
    raw, kind = kinds[width]
    return pa.Array.from_buffers(kind, len(bits), [None, pa.py_buffer(np.array(bits, raw))])


def encoded(key_type: AnySerializer, column: pa.Array) -> list[bytes]:
    rows = EncodeProgram([("key", layout_of(key_type))]).encode({"key": column}, len(column))
    raw, base = memoryview(rows.data), rows.data.address
    return [
        bytes(raw[start - base : end - base])
        for start, end in zip(rows.starts.tolist(), rows.ends.tolist(), strict=True)
    ]


CASES = [
    pytest.param(Types.DOUBLE, 8, BITS_64, id="double"),
    pytest.param(Types.FLOAT, 4, BITS_32, id="float"),
]


@pytest.mark.parametrize(("key_type", "width", "drawn"), CASES)
def test_bytes_and_key_group_of_a_key_are_those_of_java(
    key_type: AnySerializer, width: int, drawn: st.SearchStrategy[int]
) -> None:
    @given(st.lists(drawn, min_size=1, max_size=8))
    def check(bits: list[int]) -> None:
        expected = [java_bits(each, width) for each in bits]
        values = [value_of(each, width) for each in bits]
        column = column_of(bits, width)
        assert [serialize_key(key_type, each) for each in values] == expected
        assert encoded(key_type, column) == expected
        assert encoded(key_type, pa.concat_arrays([column, column]).slice(1)) == [
            *expected[1:],
            *expected,
        ]
        hashes = [
            int.from_bytes(half_pair[:4], "big") ^ int.from_bytes(half_pair[4:], "big")
            for half_pair in expected
        ]
        groups = [assign_to_key_group(each, 128) for each in hashes]
        assert [assign_to_key_group(key_type.java_hash(each), 128) for each in values] == groups
        assert key_groups_of(column, key_type, 128).tolist() == groups

    check()


@given(st.lists(st.tuples(BITS_64, BITS_32), min_size=1, max_size=8))
def test_numbers_inside_of_keys_are_compared_alike(bits: list[tuple[int, int]]) -> None:
    key_type = Types.TUPLE(Types.DOUBLE, Types.TUPLE(Types.FLOAT, Types.STRING))
    expected = [
        java_bits(wide, 8) + java_bits(narrow, 4) + serialize_key(Types.STRING, "x")
        for wide, narrow in bits
    ]
    values = [(value_of(wide, 8), (value_of(narrow, 4), "x")) for wide, narrow in bits]
    assert [serialize_key(key_type, each) for each in values] == expected
    inner = pa.StructArray.from_arrays(
        [column_of([narrow for _, narrow in bits], 4), pa.array(["x"] * len(bits))], ["f0", "f1"]
    )
    outer = pa.StructArray.from_arrays(
        [column_of([wide for wide, _ in bits], 8), inner], ["f0", "f1"]
    )
    assert encoded(key_type, outer) == expected


@given(st.lists(BITS_64, min_size=1, max_size=12))
def test_the_store_of_columns_finds_a_key_by_any_of_its_nans(bits: list[int]) -> None:
    store = ColumnStore(Types.DOUBLE, (ValueStateDescriptor("n", Types.LONG),))
    keys, numbers = store.keys(column_of(bits, 8))
    distinct = list(dict.fromkeys(java_bits(each, 8) for each in bits))
    assert len(keys) == len(distinct)
    assert numbers.tolist() == [distinct.index(java_bits(each, 8)) for each in bits]


@pytest.fixture(params=["hashmap", "rocksdb"])
def backend_of(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Makes an empty backend for keys of a type."""
    kind = (
        HashMapStateBackend()
        if request.param == "hashmap"
        else EmbeddedRocksDBStateBackend(
            local_dir=str(tmp_path / "db"), cache_bytes=1 << 20, write_buffer_bytes=1 << 20
        )
    )
    folder = Location.parse(tmp_path)
    resolver = HandleResolver(open_file_io(folder), folder)
    made = []

    def make(key_type: AnySerializer) -> KeyedStateBackend:
        groups = KeyGroupRange(0, 127)
        made.append(
            kind.create_keyed_state_backend(
                KeyedStateBackendParameters(key_type, 128, groups, (), resolver, ManualClock())
            )
        )
        return made[-1]

    yield make
    for made_backend in made:
        made_backend.close()


@pytest.mark.parametrize(("key_type", "width", "drawn"), CASES)
def test_state_of_a_key_and_of_a_user_key_is_found_by_any_nan(
    backend_of: Any, key_type: AnySerializer, width: int, drawn: object
) -> None:
    fraction, top = (52, 0x7FF) if width == 8 else (23, 0xFF)
    nans = [top << fraction | payload for payload in (1, 5, 1 << fraction - 1)]
    zeros = [0, 1 << 8 * width - 1]
    backend = backend_of(key_type)
    counts = backend.get_value_state(ValueStateDescriptor("n", Types.LONG))
    by_user_key = backend.get_or_create_keyed_state(
        VoidNamespaceSerializer(), MapStateDescriptor("m", key_type, Types.LONG)
    )
    by_user_key.set_current_namespace(None)
    for bits in (*nans, *zeros):
        backend.set_current_key(value_of(bits, width))
        counts.update((counts.value() or 0) + 1)
        backend.set_current_key(value_of(0x3F800000, width))
        user_key = value_of(bits, width)
        by_user_key.put(user_key, (by_user_key.get(user_key) or 0) + 1)
    counts_by_bits = {}
    for bits in (*nans, *zeros):
        backend.set_current_key(value_of(bits, width))
        counts_by_bits[bits] = counts.value()
    assert counts_by_bits == {**dict.fromkeys(nans, 3), **dict.fromkeys(zeros, 1)}
    backend.set_current_key(value_of(0x3F800000, width))
    assert sorted(count for _, count in by_user_key.items()) == [1, 1, 3]
