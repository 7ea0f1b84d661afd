"""Converts decoded values and serialized elements to Arrow columns, for non-keyed state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from dstl_core.codec.columnar.keyed.decoder import OPTION_ERRORS
from dstl_core.codec.columnar.types.type_layouts import DEFAULT_OPTIONS, ColumnOptions, layout_of
from dstl_core.codec.serializers import (
    AnySerializer,
    deserialize_exactly,
    serialize_to_bytes,
)
from dstl_core.errors import ColumnValueError, NotInColumnsError, SavepointError
from dstl_core.state.columns.element_columns import decode_elements


def column_type(serializer: AnySerializer, options: ColumnOptions = DEFAULT_OPTIONS) -> pa.DataType:
    """The Arrow type of a Flink type. A user's serializer can define it as ``arrow_type``.

    Raises:
        SavepointError: The type has no Arrow type.
    """
    try:
        return layout_of(serializer, options).arrow_type
    except NotInColumnsError as error:
        arrow_type = getattr(serializer, "arrow_type", None)
        if isinstance(arrow_type, pa.DataType):
            return arrow_type
        raise SavepointError(
            f"Values of type {error.type_name} cannot be a column: no columnar form is "
            f"known; give the serializer an arrow_type, or read with a function."
        ) from error


def column_of_elements(
    serializer: AnySerializer, elements: Sequence[bytes], options: ColumnOptions = DEFAULT_OPTIONS
) -> pa.Array:
    """Converts serialized values to a column.

    Raises:
        FormatError: The bytes are damaged.
        ColumnValueError: A column cannot hold a value with these options.
    """
    arrow_type = column_type(serializer, options)
    if not elements:
        return pa.array([], arrow_type)
    try:
        layout = layout_of(serializer, options)
    except NotInColumnsError:
        return pa.array([deserialize_exactly(serializer, raw) for raw in elements], arrow_type)
    column, failure = decode_elements(layout, elements)
    if failure is not None:
        deserialize_exactly(serializer, elements[failure.row])
        raise ColumnValueError(
            f"A value of type {serializer.type_name} (element {failure.row}) "
            f"{OPTION_ERRORS.get(failure.code, 'cannot be in a column')}."
        )
    return column


def column_of_values(
    serializer: AnySerializer, values: Sequence[Any], options: ColumnOptions = DEFAULT_OPTIONS
) -> pa.Array:
    """Converts decoded values to a column; None becomes null."""
    present = [serialize_to_bytes(serializer, each) for each in values if each is not None]
    column = column_of_elements(serializer, present, options)
    if len(present) == len(values):
        return column
    at, indices = 0, []
    for value in values:
        indices.append(None if value is None else at)
        at += value is not None
    return column.take(pa.array(indices, pa.int64()))
