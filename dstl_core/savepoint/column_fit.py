"""Columns in the exact types that an encoder takes, and columns as raw elements."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.codec.columnar.type_layouts import DEFAULT_OPTIONS, ColumnOptions, layout_of
from dstl_core.codec.serializers import AnySerializer, Types, deserialize_exactly
from dstl_core.errors import ConfigError
from dstl_core.savepoint.arrow_values import column_type
from dstl_core.savepoint.element_columns import encode_elements


def fit(column: pa.Array, wanted: pa.DataType, what: str) -> pa.Array:
    """A column as ``wanted``: numbers widen or narrow if every value fits, fields of structs are
    matched by name, or by place where the names differ.

    Raises:
        ConfigError: It cannot be; names ``what``, never a value.
    """
    if column.type.equals(wanted):
        return column
    try:
        return _fit(column, wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, TypeError) as error:
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
        entries = pa.MapArray.from_arrays(
            column.offsets, _fit(column.keys, wanted.key_type), _fit(column.items, wanted.item_type)
        )
        masked = pa.Array.from_buffers(
            wanted,
            len(column),
            [_validity(column), entries.buffers()[1]],
            children=[_entries(entries, wanted)],
        )
        return masked
    if pa.types.is_list(wanted) and pa.types.is_list(column.type):
        values = _fit(column.values, wanted.value_type)
        return pa.Array.from_buffers(
            wanted,
            len(column),
            [_validity(column), column.buffers()[1]],
            offset=column.offset,
            children=[values],
        )
    return column.cast(wanted)


def _entries(entries: pa.MapArray, wanted: pa.DataType) -> pa.Array:
    return pa.StructArray.from_arrays(
        [entries.keys, entries.items], fields=[wanted.key_field, wanted.item_field]
    )


def _validity(column: pa.Array) -> pa.Buffer | None:
    return column.buffers()[0] if column.null_count else None


def _fit_struct(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    names = [each.name for each in wanted]
    if len(column.type) != len(names):
        raise TypeError("another number of fields")
    own = [each.name for each in column.type]
    by_name = set(own) == set(names)
    parts = [
        _fit(pc.struct_field(column, [own.index(name) if by_name else at]), wanted.field(at).type)
        for at, name in enumerate(names)
    ]
    mask = column.is_null() if column.null_count else None
    return pa.StructArray.from_arrays(parts, fields=list(wanted), mask=mask)


def _big_decimals(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Decimals as unscaled two's complement and scale, as Java's ``BigDecimal`` is."""
    scale = column.type.scale
    rows = [None if each is None else int(each.scaleb(scale)) for each in column.to_pylist()]
    return pa.array(
        [
            None
            if number is None
            else {
                "unscaled": number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True),
                "scale": scale,
            }
            for number in rows
        ],
        wanted,
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
    """A column as values in the form that state has them; None for nulls.

    Raises:
        ConfigError: A column of another type.
    """
    if serializer in _AS_THEY_ARE:
        return list(fit(column, column_type(serializer), what).to_pylist())
    elements = iter(elements_of_column(serializer, column.drop_null(), what))
    return [
        deserialize_exactly(serializer, next(elements)) if is_there else None
        for is_there in column.is_valid().to_pylist()
    ]


def elements_of_column(
    serializer: AnySerializer,
    column: pa.Array,
    what: str,
    options: ColumnOptions = DEFAULT_OPTIONS,
) -> list[bytes]:
    """A column as serialized elements, in order.

    Raises:
        ConfigError: A null, or a column of another type.
    """
    if not len(column):
        return []
    if column.null_count:
        raise ConfigError(f"{what} has a null element; drop or fill such rows.")
    wanted = column_type(serializer, options)
    fitted = fit(column, wanted, what)
    return [bytes(each) for each in encode_elements(layout_of(serializer, options), fitted)]
