"""Spark's hash of a row, computed from Arrow columns.

Tasks compute it where all columns of a batch reach them anyway. Then the JVM hashes nothing, and
no column of hashes is shuffled. An engine without a JVM computes it for every batch.

Source: ``XXH64`` and ``XxHash64`` of Spark 4.3.0. A column changes the hash of the columns before
it. A null leaves it as it is. A decimal of at most 18 digits is hashed as a long, and a larger one
as the shortest bytes of ``BigInteger``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.codec.columnar.kernels.jit import kernel
from dstl_core.codec.columnar.kernels.memory import get32, get64, load8, put64
from dstl_core.codec.columnar.keyed.java_hashes import bounds_and_data
from dstl_core.codec.columnar.types.addresses import address_of
from dstl_core.codec.columnar.types.spark_names import spark_name

_DIGITS, _DIGITS_OF_LONG = 38, 18
SEED = 42
"""The seed of Spark's ``xxhash64``."""
_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_BITS, _HALF = np.uint64(64), np.uint64(0xFFFFFFFF)
_BYTES = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary)
Hashes = npt.NDArray[np.int64]
Marks = npt.NDArray[np.uint8]
"""One byte per row: whether it counts."""


@dataclass(frozen=True)
class RowHash:
    """Hashes rows as ``xxhash64`` of a header, and of all columns in a fixed order.

    Args:
        header: A text that is hashed before the columns.
        columns: The names of the columns, in the order in which they are hashed.
    """

    header: str
    columns: Sequence[str]

    @classmethod
    def of_schema(cls, schema: pa.Schema) -> RowHash:
        """The hash of rows with these columns, in Spark's types."""
        fields = sorted(schema, key=lambda field: field.name)
        names_and_types = [[field.name, spark_name(field.type)] for field in fields]
        return cls(json.dumps(names_and_types), tuple(field.name for field in fields))

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """The hash of each row, int64. Each column is hashed as the rule of fingerprints says."""
        first = np.full(1, SEED, np.int64)
        _fold_text(first, self.header.encode(), _mark_all(1))
        hashes = np.full(batch.num_rows, first[0], np.int64)
        for name in self.columns:
            _fold(hashes, batch.column(name))
        return pa.array(hashes)


def _fold(hashes: Hashes, column: pa.Array) -> None:
    """Changes hashes by a column: whether it is null, its value, and for zeros the sign."""
    kind = column.type
    if pa.types.is_map(kind):
        column = _entries(column)
        kind = column.type
    is_valid = _marks(column.is_valid())
    _fold_numbers(hashes, (1 - is_valid).astype(np.int64), 4, _mark_all(len(is_valid)))
    if pa.types.is_struct(kind):
        for part in column.flatten():
            _fold(hashes, part)
    elif pa.types.is_list(kind):
        _fold_lists(hashes, column, is_valid)
    elif pa.types.is_decimal(kind):
        _fold_decimals(hashes, column, is_valid)
    elif pa.types.is_floating(kind):
        _fold_floats(hashes, column, is_valid)
    elif any(test(kind) for test in _BYTES):
        _fold_strings(hashes, column.cast(pa.large_binary()), is_valid)
    elif pa.types.is_timestamp(kind) or pa.types.is_int64(kind):
        _fold_numbers(hashes, _numbers(column.view(pa.int64())), 8, is_valid)
    else:
        days = column.view(pa.int32()) if pa.types.is_date32(kind) else column
        _fold_numbers(hashes, _numbers(days.cast(pa.int32()).cast(pa.int64())), 4, is_valid)


def _fold_strings(hashes: Hashes, column: pa.Array, marks: Marks) -> None:
    bounds, raw = bounds_and_data(column)
    _fold_bytes(
        address_of(hashes), address_of(marks), len(marks), address_of(bounds), 8, address_of(raw)
    )


def _fold_lists(hashes: Hashes, column: pa.Array, is_valid: Marks) -> None:
    """Changes hashes by the sizes of lists, then by the first, second, .. element of each."""
    sizes = _numbers(pc.list_value_length(column).cast(pa.int64()))
    _fold_numbers(hashes, sizes, 4, is_valid)
    elements = pc.list_flatten(column)
    first = np.cumsum(sizes) - sizes
    for number in range(int(sizes.max(initial=0))):
        rows = np.flatnonzero(sizes > number)
        some = hashes[rows]
        _fold(some, elements.take(pa.array(first[rows] + number)))
        hashes[rows] = some


def _entries(maps: pa.Array) -> pa.Array:
    """Maps as lists of entries, sorted by their keys."""
    bounds = maps.offsets.to_numpy().astype(np.int64)
    sizes = np.where(maps.is_valid().to_numpy(zero_copy_only=False), np.diff(bounds), 0)
    owners = np.repeat(np.arange(len(sizes)), sizes)
    places = np.arange(len(owners)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + bounds[owners]
    entries = pa.StructArray.from_arrays([maps.keys, maps.items], ["key", "value"])
    entries = entries.take(pa.array(places))
    table = pa.table({"owner": owners, "key": entries.field(0)})
    order = pc.sort_indices(table, sort_keys=[("owner", "ascending"), ("key", "ascending")])
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, entries.take(order), mask=maps.is_null())


def _fold_decimals(hashes: Hashes, column: pa.Array, is_valid: Marks) -> None:
    kind = column.type
    wide = column.cast(pa.decimal128(_DIGITS, kind.scale))
    words = np.frombuffer(wide.buffers()[1], np.int64)
    words = words[2 * wide.offset : 2 * (wide.offset + len(wide))].reshape(-1, 2)
    if kind.precision <= _DIGITS_OF_LONG:
        _fold_numbers(hashes, np.ascontiguousarray(words[:, 0]), 8, is_valid)
        return
    raw = np.ascontiguousarray(words).view(np.uint8).reshape(-1, 16)[:, ::-1]
    sign = (raw[:, 0] >> 7) * np.uint8(0xFF)
    # A first byte that only repeats the sign is left out, as BigInteger.toByteArray does.
    is_sign = (raw[:, :-1] == sign[:, None]) & ((raw[:, 1:] ^ raw[:, :-1]) < 0x80)
    skipped = np.cumprod(is_sign, axis=1).sum(axis=1)
    sizes = np.where(is_valid, 16 - skipped, 0)
    chosen = np.arange(16) >= 16 - sizes[:, None]
    bounds = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    data = np.ascontiguousarray(raw)[chosen]
    strings = pa.Array.from_buffers(
        pa.large_binary(), len(sizes), [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )
    _fold_strings(hashes, strings, is_valid)


def _fold_floats(hashes: Hashes, column: pa.Array, is_valid: Marks) -> None:
    values = pc.fill_null(column, 1.0).to_numpy(zero_copy_only=False)
    plain = values + values.dtype.type(0)  # 0.0 for -0.0
    plain[np.isnan(plain)] = np.nan  # Java has one NaN
    size = values.dtype.itemsize
    bits = plain.view(np.int64) if size == 8 else plain.view(np.int32).astype(np.int64)
    _fold_numbers(hashes, bits, size, is_valid)
    is_zero = values == 0
    if is_zero.any():
        is_negative = np.signbit(values)
        _fold_text(hashes, b"0.0", (is_zero & ~is_negative).view(np.uint8))
        _fold_text(hashes, b"-0.0", (is_zero & is_negative).view(np.uint8))


def _fold_numbers(hashes: Hashes, numbers: Hashes, size: int, marks: Marks) -> None:
    """Changes the hashes of marked rows by the numbers of the rows, of 4 or 8 bytes."""
    _fold_words(address_of(hashes), address_of(marks), len(hashes), address_of(numbers), size)


def _fold_text(hashes: Hashes, text: bytes, marks: Marks) -> None:
    """Changes the hashes of marked rows by one text."""
    raw, bounds = np.frombuffer(text, np.uint8), np.array([0, len(text)], np.int64)
    _fold_bytes(
        address_of(hashes), address_of(marks), len(hashes), address_of(bounds), 0, address_of(raw)
    )


def _numbers(column: pa.Array) -> Hashes:
    numbers: Hashes = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(numbers)


def _marks(column: pa.Array) -> Marks:
    marks: Marks = column.to_numpy(zero_copy_only=False).view(np.uint8)
    return marks


def _mark_all(rows: int) -> Marks:
    return np.ones(rows, np.uint8)


@kernel
def _turned(value: Any, by: Any) -> Any:
    return (value << np.uint64(by)) | (value >> (_BITS - np.uint64(by)))


@kernel
def _mixed(h: Any) -> Any:
    h = (h ^ (h >> np.uint64(33))) * _P2
    h = (h ^ (h >> np.uint64(29))) * _P3
    return h ^ (h >> np.uint64(32))


@kernel
def _after_word(h: Any, word: Any) -> Any:
    """The next state after 8 bytes."""
    return _turned(h ^ (_turned(word * _P2, 31) * _P1), 27) * _P1 + _P4


@kernel
def _after_half(h: Any, word: Any) -> Any:
    """The next state after 4 bytes."""
    return _turned(h ^ (word * _P1), 23) * _P2 + _P3


@kernel
def _fold_words(hashes: int, marks: int, rows: int, words: int, size: int) -> None:
    """Changes the hashes of rows by numbers.

    Args:
        hashes: Address of the hashes, int64.
        marks: Address of a byte per row; rows with 0 are left out.
        rows: Number of rows.
        words: Address of the numbers, int64.
        size: The bytes of a number that count, 4 or 8.
    """
    for row in range(rows):
        if load8(marks + row) == 0:
            continue
        h = np.uint64(get64(hashes + 8 * row)) + _P5 + np.uint64(size)
        word = np.uint64(get64(words + 8 * row))
        h = _after_word(h, word) if size == 8 else _after_half(h, word & _HALF)
        put64(hashes + 8 * row, _mixed(h))


@kernel
def _fold_bytes(hashes: int, marks: int, rows: int, bounds: int, stride: int, address: int) -> None:
    """Changes the hashes of rows by strings.

    Args:
        hashes: Address of the hashes, int64.
        marks: Address of a byte per row; rows with 0 are left out.
        rows: Number of rows.
        bounds: Address of the start of each string, int64; the next one is its end.
        stride: Bytes from one start to the next; 0 if all rows have the same string.
        address: Address of the bytes of the strings.
    """
    for row in range(rows):
        if load8(marks + row) == 0:
            continue
        place = bounds + stride * row
        seed = np.uint64(get64(hashes + 8 * row))
        value_hash = _hash_of(address + get64(place), address + get64(place + 8), seed)
        put64(hashes + 8 * row, value_hash)


@kernel
def _hash_of(start: int, end: int, seed: Any) -> Any:
    """XXH64 of the bytes from ``start`` to ``end``."""
    at = start
    if end - at >= 32:
        a, b, c, d = seed + _P1 + _P2, seed + _P2, seed, seed - _P1
        while end - at >= 32:
            a = _turned(a + np.uint64(get64(at)) * _P2, 31) * _P1
            b = _turned(b + np.uint64(get64(at + 8)) * _P2, 31) * _P1
            c = _turned(c + np.uint64(get64(at + 16)) * _P2, 31) * _P1
            d = _turned(d + np.uint64(get64(at + 24)) * _P2, 31) * _P1
            at += 32
        h = _turned(a, 1) + _turned(b, 7) + _turned(c, 12) + _turned(d, 18)
        for lane in (a, b, c, d):
            h = (h ^ (_turned(lane * _P2, 31) * _P1)) * _P1 + _P4
    else:
        h = seed + _P5
    h += np.uint64(end - start)
    while end - at >= 8:
        h = _after_word(h, np.uint64(get64(at)))
        at += 8
    if end - at >= 4:
        h = _after_half(h, np.uint64(get32(at)) & _HALF)
        at += 4
    while at < end:
        h = _turned(h ^ (np.uint64(load8(at)) * _P5), 11) * _P1
        at += 1
    return _mixed(h)
