"""Computes key groups of columns: Java's ``hashCode()`` and Flink's murmur over Arrow buffers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dstl_core.codec.columnar.kernels.jit import kernel
from dstl_core.codec.columnar.kernels.memory import get32
from dstl_core.codec.columnar.keyed.byte_index import ByteIndex
from dstl_core.codec.columnar.keyed.encoder import EncodeProgram
from dstl_core.codec.columnar.types.type_layouts import DEFAULT_OPTIONS, ColumnOptions, layout_of
from dstl_core.codec.data_io import CANONICAL_NAN_32, CANONICAL_NAN_64
from dstl_core.codec.serializers import AnySerializer, TupleSerializer, deserialize_exactly
from dstl_core.codec.serializers.primitives import (
    BooleanSerializer,
    ByteSerializer,
    CharSerializer,
    DoubleSerializer,
    FloatSerializer,
    IntSerializer,
    LongSerializer,
    ShortSerializer,
)
from dstl_core.codec.serializers.strings import StringSerializer
from dstl_core.codec.serializers.table_types import RowDataSerializer
from dstl_core.errors import ConfigError

Int32Array = npt.NDArray[np.int32]


def key_groups_of(
    keys: pa.Array,
    key_type: AnySerializer,
    max_parallelism: int,
    options: ColumnOptions = DEFAULT_OPTIONS,
) -> Int32Array:
    """The key group of each key.

    Kernels hash strings, integers, booleans, floats, tuples of these, and SQL rows. The record-wise
    code hashes other types, once for each distinct key.

    Args:
        keys: A column without nulls, in the columnar form of the type with these options.
        key_type: The Flink type of the keys.
        max_parallelism: Number of key groups.
        options: Representation of types as columns.

    Raises:
        ConfigError: A key is null, or the Java hash of the type is not known.
    """
    if keys.null_count:
        first = keys.is_null().index(True).as_py()
        raise ConfigError(
            f"A key is null (row {first} of {len(keys)}); keyed state needs a key: drop or fill "
            f"such rows."
        )
    hashes = _hashes(keys, key_type, options)
    groups = np.empty(len(keys), np.int32)
    _murmur_groups(hashes, np.int32(max_parallelism), groups)
    return groups


def _hashes(keys: pa.Array, key_type: AnySerializer, options: ColumnOptions) -> Int32Array:
    """Java's ``hashCode()``; 0 for null."""
    match key_type:
        case StringSerializer():
            hashes = _text_hashes(keys)
        case LongSerializer():
            hashes = _long_hashes(_numbers(keys, pa.int64()))
        case IntSerializer() | ShortSerializer() | ByteSerializer() | CharSerializer():
            hashes = _numbers(keys, pa.int32())
        case BooleanSerializer():
            hashes = np.where(_numbers(keys, pa.uint8()) != 0, np.int32(1231), np.int32(1237))
        case FloatSerializer():
            floats = _numbers(keys, pa.float32())
            hashes = np.where(np.isnan(floats), np.int32(CANONICAL_NAN_32), floats.view(np.int32))
        case DoubleSerializer():
            doubles = _numbers(keys, pa.float64())
            bits = np.where(np.isnan(doubles), np.int64(CANONICAL_NAN_64), doubles.view(np.int64))
            hashes = _long_hashes(bits)
        case TupleSerializer() if key_type.fields:
            return _tuple_hashes(keys, key_type, options)
        case _:
            return _hashes_of_bytes(keys, key_type, options)
    if keys.null_count:
        hashes = np.where(np.asarray(keys.is_null()), np.int32(0), hashes)
    return np.ascontiguousarray(hashes, np.int32)


def _numbers(keys: pa.Array, kind: pa.DataType) -> npt.NDArray[Any]:
    values = keys.cast(kind)
    if values.null_count:
        values = values.fill_null(0)
    return np.ascontiguousarray(values.to_numpy(zero_copy_only=False))


def _long_hashes(values: npt.NDArray[Any]) -> Int32Array:
    hashes: Int32Array = (values ^ (values >> np.int64(32))).astype(np.int32)
    return hashes


def _tuple_hashes(keys: pa.Array, key_type: TupleSerializer, options: ColumnOptions) -> Int32Array:
    hashes: Int32Array | None = None
    for at, field in enumerate(key_type.fields):
        own = _hashes(keys.field(at), field, options)
        hashes = own if hashes is None else hashes * np.int32(31) + own
    assert hashes is not None  # a tuple without fields has its hash in Tuple0Serializer
    return hashes


def _text_hashes(keys: pa.Array) -> Int32Array:
    hashes: Int32Array = np.zeros(len(keys), np.int32)
    if pa.types.is_binary(keys.type):
        wide = keys.cast(pa.large_binary())
        bounds, raw = bounds_and_data(wide)
        _utf16_hashes(bounds, raw, hashes)
    else:
        text = keys.cast(pa.large_string())
        bounds, raw = bounds_and_data(text)
        _string_hashes(bounds, raw, hashes)
    return hashes


def bounds_and_data(array: pa.Array) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    _, offsets, data = array.buffers()
    if offsets is None or not len(array):
        return np.zeros(len(array) + 1, np.int64), np.empty(0, np.uint8)
    bounds = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    raw = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return bounds, raw


def _hashes_of_bytes(keys: pa.Array, key_type: AnySerializer, options: ColumnOptions) -> Int32Array:
    encoded = EncodeProgram([("key", layout_of(key_type, options))]).encode(
        {"key": keys}, len(keys)
    )
    hashes: Int32Array = np.empty(len(keys), np.int32)
    if isinstance(key_type, RowDataSerializer):
        _row_hashes(encoded.starts, encoded.ends, hashes)
        return hashes
    index = ByteIndex(encoded.ranges)
    raw = memoryview(encoded.data)
    base = encoded.data.address
    distinct = np.empty(len(index), np.uint32)
    for number, row in enumerate(index.firsts):
        start, end = int(encoded.starts[row]) - base, int(encoded.ends[row]) - base
        key = deserialize_exactly(key_type, bytes(raw[start:end]))
        distinct[number] = key_type.java_hash(key) & 0xFFFFFFFF
    hashes = distinct.view(np.int32)[index.numbers]
    return hashes


@kernel
def _row_hashes(starts: Any, ends: Any, out: Any) -> None:
    """The hash of ``BinaryRowData.hashCode``: Murmur3 over the 4-byte words after the size,
    seed 42.
    """
    for row in range(len(out)):
        at = starts[row] + 4
        size = ends[row] - at
        h = np.uint32(42)
        for word in range(size // 4):
            k = np.uint32(np.uint32(get32(at + 4 * word) & 0xFFFFFFFF) * np.uint32(0xCC9E2D51))
            k = np.uint32(k << np.uint32(15)) | np.uint32(k >> np.uint32(17))
            h = np.uint32(h ^ np.uint32(np.uint32(k) * np.uint32(0x1B873593)))
            h = np.uint32(h << np.uint32(13)) | np.uint32(h >> np.uint32(19))
            h = np.uint32(np.uint32(np.uint32(h) * np.uint32(5)) + np.uint32(0xE6546B64))
        h = np.uint32(h ^ np.uint32(size))
        h = np.uint32(np.uint32(h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B))
        h = np.uint32(np.uint32(h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35))
        out[row] = np.int32(np.uint32(h ^ (h >> np.uint32(16))))


@kernel
def _utf16_hashes(offsets: Any, data: Any, out: Any) -> None:
    """Applies ``31 * h + unit`` to big-endian UTF-16."""
    for row in range(len(out)):
        h = np.uint32(0)
        at = offsets[row]
        while at + 1 < offsets[row + 1]:
            unit = np.uint32(data[at]) << np.uint32(8) | np.uint32(data[at + 1])
            h = np.uint32(np.uint32(np.uint32(31) * h) + np.uint32(unit))
            at += 2
        out[row] = np.int32(h)


@kernel
def _string_hashes(offsets: Any, data: Any, out: Any) -> None:
    """Applies ``31 * h + unit`` to the UTF-16 units of UTF-8 text. Arrow guarantees valid UTF-8."""
    for row in range(len(out)):
        h = np.uint32(0)
        at = offsets[row]
        end = offsets[row + 1]
        while at < end:
            byte = np.uint32(data[at])
            if byte < 0x80:
                h = np.uint32(np.uint32(31) * h + byte)
                at += 1
            elif byte < 0xE0:
                unit = (byte & np.uint32(0x1F)) << np.uint32(6) | np.uint32(
                    data[at + 1]
                ) & np.uint32(0x3F)
                h = np.uint32(np.uint32(31) * h + np.uint32(unit))
                at += 2
            elif byte < 0xF0:
                unit = (
                    (byte & np.uint32(0x0F)) << np.uint32(12)
                    | (np.uint32(data[at + 1]) & np.uint32(0x3F)) << np.uint32(6)
                    | np.uint32(data[at + 2]) & np.uint32(0x3F)
                )
                h = np.uint32(np.uint32(31) * h + np.uint32(unit))
                at += 3
            else:
                point = (
                    (byte & np.uint32(0x07)) << np.uint32(18)
                    | (np.uint32(data[at + 1]) & np.uint32(0x3F)) << np.uint32(12)
                    | (np.uint32(data[at + 2]) & np.uint32(0x3F)) << np.uint32(6)
                    | np.uint32(data[at + 3]) & np.uint32(0x3F)
                ) - np.uint32(0x10000)
                high = np.uint32(0xD800) + (point >> np.uint32(10))
                low = np.uint32(0xDC00) + (point & np.uint32(0x3FF))
                h = np.uint32(np.uint32(31) * h + np.uint32(high))
                h = np.uint32(np.uint32(31) * h + np.uint32(low))
                at += 4
        out[row] = np.int32(h)


@kernel
def _murmur_groups(hashes: Any, max_parallelism: Any, out: Any) -> None:
    # Every product is cut to 32 bits at once, since numba widens uint32 * uint32 to 64 bits.
    for row in range(len(out)):
        h = np.uint32(np.uint32(hashes[row]) * np.uint32(0xCC9E2D51))
        h = np.uint32(h << np.uint32(15)) | np.uint32(h >> np.uint32(17))
        h = np.uint32(np.uint32(h) * np.uint32(0x1B873593))
        h = np.uint32(h << np.uint32(13)) | np.uint32(h >> np.uint32(19))
        h = np.uint32(np.uint32(np.uint32(h) * np.uint32(5)) + np.uint32(0xE6546B64))
        h = np.uint32(h ^ np.uint32(4))
        h = np.uint32(np.uint32(h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B))
        h = np.uint32(np.uint32(h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35))
        h = np.uint32(h ^ (h >> np.uint32(16)))
        signed = np.int32(h)
        if signed == np.int32(-2147483648):
            signed = np.int32(0)
        elif signed < 0:
            signed = np.int32(-signed)
        out[row] = signed % max_parallelism
