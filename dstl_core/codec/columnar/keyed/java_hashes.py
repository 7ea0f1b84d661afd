"""Java's ``hashCode()`` of columns.

A type gives the hash of all its values at once. Composite types combine the hashes of their parts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.codec.columnar.kernels.jit import kernel
from dstl_core.codec.columnar.kernels.memory import get32, load8, load32
from dstl_core.codec.columnar.keyed.byte_index import ByteIndex
from dstl_core.codec.columnar.keyed.encoder import EncodedRows, EncodeProgram
from dstl_core.codec.columnar.types.type_layouts import ColumnOptions, layout_of
from dstl_core.codec.data_io import CANONICAL_NAN_32, CANONICAL_NAN_64
from dstl_core.codec.serializers import (
    AnySerializer,
    ListSerializer,
    MapSerializer,
    TupleSerializer,
    dates,
    deserialize_exactly,
    numbers,
    primitives,
    strings,
    structs,
    table_types,
    value_classes,
)
from dstl_core.codec.serializers.arrays import (
    BytePrimitiveArraySerializer,
    GenericArraySerializer,
)
from dstl_core.codec.serializers.collections import ArrayListSerializer

Int32Array = npt.NDArray[np.int32]
_Hash = Callable[[pa.Array, Any, ColumnOptions], Any]


def java_hashes(values: pa.Array, kind: AnySerializer, options: ColumnOptions) -> Int32Array:
    """The hash of each value; 0 for null.

    A type that is not Flink's is hashed in Python, once for each distinct value.

    Args:
        values: A column in the columnar form of the type with these options.
        kind: The Flink type of the values.
        options: Representation of types as columns.

    Raises:
        ConfigError: The Java hash of the type is not known.
    """
    return _of_present(values, kind, options, _HASHES.get(type(kind), _in_python))


def _of_present(
    values: pa.Array, kind: AnySerializer, options: ColumnOptions, function: _Hash
) -> Int32Array:
    """The hash of each value by a function that takes no null; 0 for null."""
    if not values.null_count:
        return np.ascontiguousarray(function(values, kind, options), np.int32)
    hashes: Int32Array = np.zeros(len(values), np.int32)
    is_valid = values.is_valid().to_numpy(zero_copy_only=False)
    hashes[is_valid] = function(values.drop_null(), kind, options)
    return hashes


def _deep_hashes(values: pa.Array, kind: AnySerializer, options: ColumnOptions) -> Int32Array:
    """The hash of each field of a row: that of ``RowUtils.deepHashCodeInternal``."""
    return _of_present(values, kind, options, _DEEP_HASHES.get(type(kind), _as_only_element))


def _as_only_element(values: pa.Array, kind: AnySerializer, options: ColumnOptions) -> Any:
    return np.int32(31) + java_hashes(values, kind, options)


# ---------------------------------------------------------------------------------- numbers


def _integers(values: pa.Array, *_: Any) -> Any:
    return values.cast(pa.int32()).to_numpy()


def _longs(values: pa.Array, *_: Any) -> Any:
    return _folded(values.cast(pa.int64()).to_numpy())


def _folded(longs: npt.NDArray[Any]) -> Any:
    """``Long.hashCode``."""
    return (longs ^ (longs >> np.int64(32))).astype(np.int32)


def _booleans(values: pa.Array, *_: Any) -> Any:
    return np.where(values.to_numpy(zero_copy_only=False), np.int32(1231), np.int32(1237))


def _floats(values: pa.Array, *_: Any) -> Any:
    floats = values.to_numpy()
    return np.where(np.isnan(floats), np.int32(CANONICAL_NAN_32), floats.view(np.int32))


def _doubles(values: pa.Array, *_: Any) -> Any:
    doubles = values.to_numpy()
    bits = np.where(np.isnan(doubles), np.int64(CANONICAL_NAN_64), doubles.view(np.int64))
    return _folded(bits)


def _of_digits(*of: Any, has_scale: bool) -> Int32Array:
    encoded = _encoded(*of)
    hashes: Int32Array = np.empty(len(encoded), np.int32)
    _hash_digits(encoded.starts, has_scale, hashes)
    return hashes


def _plus(function: _Hash, constant: int) -> _Hash:
    return lambda *of: function(*of) + np.int32(constant)


# ------------------------------------------------------------------------- dates and times


def _encoded(values: pa.Array, kind: AnySerializer, options: ColumnOptions) -> EncodedRows:
    return EncodeProgram([("value", layout_of(kind, options))]).encode(
        {"value": values}, len(values)
    )


_DATE = [("year", ">i4"), ("month", "i1"), ("day", "i1")]
_TIME = [("hour", "i1"), ("minute", "i1"), ("second", "i1"), ("nano", ">i4")]


def _fields(*form: tuple[str, str]) -> Callable[..., dict[str, Any]]:
    """Reads the parts of values of a fixed size from their bytes, as longs by name."""
    stored = np.dtype(list(form))

    def read(values: pa.Array, kind: AnySerializer, options: ColumnOptions) -> dict[str, Any]:
        parts = np.frombuffer(_encoded(values, kind, options).data, stored, len(values))
        return {name: parts[name].astype(np.int64) for name, _ in form}

    return read


_millis = _fields(("millis", ">i8"))
_sql_timestamp = _fields(("millis", ">i8"), ("nanos", ">i4"))
_instant = _fields(("seconds", ">i8"), ("nanos", ">i4"))
_date, _time, _date_time = _fields(*_DATE), _fields(*_TIME), _fields(*_DATE, *_TIME)


def _of_date(year: Any, month: Any, day: Any, **_: Any) -> Any:
    return ((year & -0x800) ^ ((year << 11) + (month << 6) + day)).astype(np.int32)


def _of_time(hour: Any, minute: Any, second: Any, nano: Any, **_: Any) -> Any:
    return _folded(((hour * 60 + minute) * 60 + second) * 1_000_000_000 + nano)


def _instants(*of: Any) -> Any:
    parts = _instant(*of)
    return _folded(parts["seconds"]) + (51 * parts["nanos"]).astype(np.int32)


def _date_times(*of: Any) -> Any:
    parts = _date_time(*of)
    return _of_date(**parts) ^ _of_time(**parts)


# ------------------------------------------------------------------------------------ texts


def _texts(values: pa.Array, *_: Any) -> Int32Array:
    hashes: Int32Array = np.zeros(len(values), np.int32)
    if pa.types.is_binary(values.type):
        bounds, raw = bounds_and_data(values.cast(pa.large_binary()))
        _utf16_hashes(bounds, raw, hashes)
    else:
        bounds, raw = bounds_and_data(values.cast(pa.large_string()))
        _string_hashes(bounds, raw, hashes)
    return hashes


def bounds_and_data(array: pa.Array) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    _, offsets, data = array.buffers()
    if offsets is None or not len(array):
        return np.zeros(len(array) + 1, np.int64), np.empty(0, np.uint8)
    bounds = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    raw = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return bounds, raw


# ------------------------------------------------------------------------------- composites


def _tuples(values: pa.Array, kind: TupleSerializer, options: ColumnOptions) -> Any:
    first, *others = (
        java_hashes(values.field(at), field, options) for at, field in enumerate(kind.fields)
    )
    for of_field in others:
        first = first * np.int32(31) + of_field
    return first


def _rows(values: pa.Array, kind: structs.RowSerializer, options: ColumnOptions) -> Any:
    head = values.type.num_fields - len(kind.fields)  # 1 with a column of the row kind
    hashes = np.ones(len(values), np.int32)
    for at, field in enumerate(kind.fields, head):
        of_field = _deep_hashes(values.field(at), field, options)
        hashes = hashes * np.int32(31) + of_field
    if head:
        kinds = pc.index_in(values.field(0), pa.array(structs.ROW_KINDS, values.field(0).type))
        hashes += np.int32(31) * kinds.cast(pa.int32()).to_numpy(zero_copy_only=False)
    return hashes


def _lists(values: pa.Array, kind: ListSerializer, options: ColumnOptions) -> Int32Array:
    return _of_elements(values, java_hashes(values.values, kind.element, options))


def _deep_items(values: pa.Array, kind: AnySerializer, options: ColumnOptions) -> Int32Array:
    [item] = kind.nested
    return _of_elements(values, _deep_hashes(values.values, item, options))


def _deep_bytes(values: pa.Array, *_: Any) -> Any:
    """In a row the bytes of an array count, each with its sign."""
    wide = values.cast(pa.large_binary())
    _, bounds, data = wide.buffers()
    offsets = np.frombuffer(bounds, np.int64)[wide.offset : wide.offset + len(wide) + 1]
    of_bytes = np.frombuffer(data or b"", np.int8).astype(np.int32)
    hashes: Int32Array = np.empty(len(wide), np.int32)
    _hash_lists(np.ascontiguousarray(offsets), of_bytes, hashes)
    return np.int32(31) + hashes


def _of_elements(lists: pa.Array, of_elements: Int32Array) -> Int32Array:
    hashes: Int32Array = np.empty(len(lists), np.int32)
    _hash_lists(lists.offsets.to_numpy().astype(np.int64), of_elements, hashes)
    return hashes


def _deep_maps(values: pa.Array, kind: MapSerializer, options: ColumnOptions) -> Any:
    entries = values.values
    keys, items = (
        _deep_hashes(entries.field(at), part, options)
        for at, part in enumerate((kind.key, kind.value))
    )
    sums = np.zeros(len(keys) + 1, np.int64)
    np.cumsum(keys ^ items, out=sums[1:])
    bounds = values.offsets.to_numpy()
    return (1 + sums[bounds[1:]] - sums[bounds[:-1]]).astype(np.int32)


def _sql_rows(values: pa.Array, kind: AnySerializer, options: ColumnOptions) -> Int32Array:
    encoded = _encoded(values, kind, options)
    hashes: Int32Array = np.empty(len(values), np.int32)
    _hash_sql_rows(encoded.starts, encoded.ends, hashes)
    return hashes


# ------------------------------------------------------------------------------ other types


def _in_python(values: pa.Array, kind: AnySerializer, options: ColumnOptions) -> Any:
    encoded = _encoded(values, kind, options)
    index = ByteIndex(encoded.ranges)
    raw, base = memoryview(encoded.data), encoded.data.address
    distinct = np.empty(len(index), np.uint32)
    for number, row in enumerate(index.firsts):
        start, end = int(encoded.starts[row]) - base, int(encoded.ends[row]) - base
        value = deserialize_exactly(kind, bytes(raw[start:end]))
        distinct[number] = kind.java_hash(value) & 0xFFFFFFFF
    return distinct.view(np.int32)[index.numbers]


_HASHES: dict[type[AnySerializer], _Hash] = {
    primitives.BooleanSerializer: _booleans,
    primitives.ByteSerializer: _integers,
    primitives.ShortSerializer: _integers,
    primitives.CharSerializer: _integers,
    primitives.IntSerializer: _integers,
    primitives.LongSerializer: _longs,
    primitives.FloatSerializer: _floats,
    primitives.DoubleSerializer: _doubles,
    value_classes.BooleanValueSerializer: _integers,
    value_classes.ByteValueSerializer: _integers,
    value_classes.ShortValueSerializer: _integers,
    value_classes.CharValueSerializer: _integers,
    value_classes.IntValueSerializer: _integers,
    value_classes.LongValueSerializer: _plus(_longs, 43),
    value_classes.FloatValueSerializer: _floats,
    value_classes.DoubleValueSerializer: _plus(_doubles, 31),
    value_classes.StringValueSerializer: _texts,
    strings.StringSerializer: _texts,
    numbers.BigIntSerializer: partial(_of_digits, has_scale=False),
    numbers.BigDecSerializer: partial(_of_digits, has_scale=True),
    dates.DateSerializer: lambda *of: _folded(_millis(*of)["millis"]),
    dates.SqlDateSerializer: lambda *of: _folded(_millis(*of)["millis"]),
    dates.SqlTimeSerializer: lambda *of: _folded(_millis(*of)["millis"]),
    dates.SqlTimestampSerializer: lambda *of: _folded(_sql_timestamp(*of)["millis"]),
    dates.InstantSerializer: _instants,
    dates.LocalDateSerializer: lambda *of: _of_date(**_date(*of)),
    dates.LocalTimeSerializer: lambda *of: _of_time(**_time(*of)),
    dates.LocalDateTimeSerializer: _date_times,
    TupleSerializer: _tuples,
    structs.Tuple0Serializer: lambda values, *_: np.zeros(len(values), np.int32),
    structs.RowSerializer: _rows,
    structs.NullableSerializer: lambda values, kind, options: java_hashes(
        values, kind.inner, options
    ),
    ListSerializer: _lists,
    ArrayListSerializer: _lists,
    table_types.RowDataSerializer: _sql_rows,
    table_types.BinaryRowDataSerializer: _sql_rows,
}
"""By exact class: a class that derives from one of these may have another hash."""
_DEEP_HASHES: dict[type[AnySerializer], _Hash] = {
    BytePrimitiveArraySerializer: _deep_bytes,
    GenericArraySerializer: _deep_items,
    ListSerializer: _deep_items,
    ArrayListSerializer: _deep_items,
    MapSerializer: _deep_maps,
}


# ---------------------------------------------------------------------------------- kernels


@kernel
def _hash_lists(offsets: Any, of_elements: Any, out: Any) -> None:
    """``List.hashCode`` from the hashes of all elements."""
    for row in range(len(out)):
        h = 1
        for at in range(offsets[row], offsets[row + 1]):
            h = (31 * h + of_elements[at]) & 0xFFFFFFFF
        out[row] = np.int32(h)


@kernel
def _hash_digits(starts: Any, has_scale: bool, out: Any) -> None:
    """``BigInteger.hashCode`` or ``BigDecimal.hashCode``, from the bytes of
    ``serializers.numbers``.

    Both apply ``31 * h + word`` to the 32-bit words of the magnitude, then the sign.
    """
    for row in range(len(out)):
        at = starts[row]
        size = load32(at) - 4
        at += 4
        h = 0
        is_negative = False
        if size < 0:  # a code for 0, 1 or 10
            h = 0 if size == -3 else 1 if size == -2 else 10
            size = 0
        else:
            is_negative = load8(at) >= 0x80
            last = size - 1  # the bytes behind it are 0, in the magnitude as well
            while load8(at + last) == 0 and last > 0:
                last -= 1
            word = 0
            for byte in range(size):
                digits = load8(at + byte)
                if is_negative and byte < last:
                    digits = 0xFF - digits
                elif is_negative and byte == last:
                    digits = 0x100 - digits
                word = word << 8 | digits
                if (size - byte) % 4 == 1:
                    h = (31 * h + word) & 0xFFFFFFFF
                    word = 0
        if is_negative:
            h = -h
        if has_scale:
            h = 31 * h + load32(at + size)
        out[row] = np.int32(h & 0xFFFFFFFF)


@kernel
def _hash_sql_rows(starts: Any, ends: Any, out: Any) -> None:
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
