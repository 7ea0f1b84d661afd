"""Casts columns to the exact types of an encoder, and serializes columns of elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.codec.columnar.types.input import NO_FIT
from dstl_core.codec.columnar.types.type_layouts import layout_of
from dstl_core.codec.serializers import AnySerializer, Types, deserialize_exactly
from dstl_core.errors import ConfigError
from dstl_core.state.columns.arrow_values import column_type
from dstl_core.state.columns.element_columns import encode_elements

_DECIMAL_BYTES = 16


def fit(column: pa.Array, wanted: pa.DataType, what: str) -> pa.Array:
    """Casts a column to ``wanted``.

    Numbers widen or narrow if every value fits. Fields of structs match by name, or by position if
    the names differ.

    Raises:
        ConfigError: The cast is not possible. The message has ``what``, never a value.
    """
    if column.type.equals(wanted):
        return column
    try:
        return _fit(column, wanted)
    except (*NO_FIT, TypeError) as error:
        reason = "a value does not fit" if isinstance(error, pa.ArrowInvalid) else "no such cast"
        raise ConfigError(
            f"{what} cannot be written: expected a column of type {wanted}, got {column.type} "
            f"({reason}); cast it, or give its Flink type."
        ) from None


def _fit(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    if pa.types.is_struct(wanted) and pa.types.is_decimal(column.type):
        return _big_decimals(column, wanted)
    if pa.types.is_struct(wanted) and pa.types.is_struct(column.type):
        return _fit_struct(column, wanted)
    if pa.types.is_map(wanted) and pa.types.is_map(column.type):
        entries = pa.StructArray.from_arrays(
            [_fit(column.keys, wanted.key_type), _fit(column.items, wanted.item_type)],
            fields=[wanted.key_field, wanted.item_field],
        )
        return _of_children(column, wanted, entries)
    if pa.types.is_list(wanted) and pa.types.is_list(column.type):
        return _of_children(column, wanted, _fit(column.values, wanted.value_type))
    return column.cast(wanted)


def _of_children(column: pa.Array, wanted: pa.DataType, children: pa.Array) -> pa.Array:
    """A list or map with other children. Its offsets may start above 0; the children are
    complete.
    """
    validity = column.buffers()[0] if column.null_count else None
    return pa.Array.from_buffers(
        wanted,
        len(column),
        [validity, column.buffers()[1]],
        offset=column.offset,
        children=[children],
    )


def _fit_struct(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    names = [each.name for each in wanted]
    if len(column.type) != len(names):
        raise TypeError("different numbers of fields")
    stored_names = [each.name for each in column.type]
    by_name = set(stored_names) == set(names)
    parts = [
        _fit(
            pc.struct_field(column, [stored_names.index(name) if by_name else at]),
            wanted.field(at).type,
        )
        for at, name in enumerate(names)
    ]
    mask = column.is_null() if column.null_count else None
    return pa.StructArray.from_arrays(parts, fields=list(wanted), mask=mask)


def _big_decimals(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Decimals as unscaled two's complement and scale, like Java's ``BigDecimal``."""
    scale = pa.array(np.full(len(column), column.type.scale), wanted.field("scale").type)
    unscaled = _shortest_integers(column).cast(wanted.field("unscaled").type)
    mask = column.is_null() if column.null_count else None
    return pa.StructArray.from_arrays([unscaled, scale], fields=list(wanted), mask=mask)


def _shortest_integers(column: pa.Array) -> pa.Array:
    """The unscaled values of decimals in the form of ``BigInteger.toByteArray``.

    That is the shortest big-endian two's complement. Other bytes of the same number would be
    another key.
    """
    exact = column.cast(pa.decimal128(38, column.type.scale))
    buffer = exact.buffers()[1]
    if not len(exact) or buffer is None:
        return pa.array([b""] * len(exact), pa.binary())
    halves = np.frombuffer(buffer, np.int64).reshape(-1, 2)[exact.offset :][: len(exact)]
    # Decimals of up to 18 digits are in the low half, and the other half repeats their sign.
    is_short = bool((halves[:, 1] == halves[:, 0] >> 63).all())
    width = _DECIMAL_BYTES // 2 if is_short else _DECIMAL_BYTES
    digits = halves.view(np.uint8)[:, width - 1 :: -1]
    if is_short:
        magnitudes = halves[:, 0] ^ halves[:, 0] >> 63
        starts = np.full(len(exact), width - 1)
        for bits in range(7, 8 * width - 1, 8):
            starts -= magnitudes >= 1 << bits
    else:
        # A leading byte is redundant if it and the following sign bit are all zeros or all ones.
        spare = digits[:, :-1] == np.where(digits[:, 1:] & 0x80, 0xFF, 0x00)
        starts = spare.cumprod(axis=1).sum(axis=1)
    # Only redundant sign bytes are removed; 0 and -1 keep one byte.
    kept = np.arange(width) >= starts[:, None]
    offsets = np.concatenate([[0], np.cumsum(width - starts)]).astype(np.int32)
    data = np.ascontiguousarray(digits[kept])
    return pa.Array.from_buffers(
        pa.binary(), len(exact), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


_AS_THEY_ARE = (
    Types.BOOLEAN,
    Types.BYTE,
    Types.SHORT,
    Types.INT,
    Types.LONG,
    Types.FLOAT,
    Types.DOUBLE,
    Types.STRING,
)


def values_of_column(serializer: AnySerializer, column: pa.Array, what: str) -> list[Any]:
    """Converts a column to values in the form of state; nulls become None.

    Raises:
        ConfigError: The column has another type.
    """
    if serializer in _AS_THEY_ARE:
        return list(fit(column, column_type(serializer), what).to_pylist())
    elements = iter(elements_of_column(serializer, column.drop_null(), what))
    return [
        deserialize_exactly(serializer, next(elements)) if is_there else None
        for is_there in column.is_valid().to_pylist()
    ]


def elements_of_column(serializer: AnySerializer, column: pa.Array, what: str) -> list[bytes]:
    """Serializes each element of a column, in order.

    Raises:
        ConfigError: An element is null, or the column has another type.
    """
    if not len(column):
        return []
    if column.null_count:
        raise ConfigError(f"{what} has a null element; drop or fill such rows.")
    fitted = fit(column, column_type(serializer), what)
    return [bytes(each) for each in encode_elements(layout_of(serializer), fitted)]
