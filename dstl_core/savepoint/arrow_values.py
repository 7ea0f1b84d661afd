"""Decoded values and raw elements as Arrow columns, for state that does not come in key groups.

Elements are framed as records of a value state, so that the one columnar decoder reads them, with
every type and option that it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from dstl_core.codec.columnar.decoder import VALUE, StateDecoder
from dstl_core.codec.columnar.sections import Section, SectionChunk, SectionChunks
from dstl_core.codec.columnar.spans import SectionScanner
from dstl_core.codec.columnar.type_layouts import (
    DEFAULT_OPTIONS,
    ColumnOptions,
    NoLayoutError,
    layout_of,
)
from dstl_core.codec.keyed_canonical import write_section
from dstl_core.codec.keyed_records import RecordFormat
from dstl_core.codec.serializers import (
    AnySerializer,
    Types,
    deserialize_exactly,
    serialize_to_bytes,
)
from dstl_core.codec.state_meta import KeyedStateType, StateMetaInfoSnapshot
from dstl_core.errors import SavepointError

_KEY = b"\0" * 5  # one byte of key group, an int key


def column_type(serializer: AnySerializer, options: ColumnOptions = DEFAULT_OPTIONS) -> pa.DataType:
    """The Arrow type of a Flink type. A type of your own may say it as ``arrow_type``.

    Raises:
        SavepointError: It has none.
    """
    try:
        return layout_of(serializer, options).arrow_type
    except NoLayoutError as error:
        own = getattr(serializer, "arrow_type", None)
        if isinstance(own, pa.DataType):
            return own
        raise SavepointError(
            f"Values of type {error.serializer.type_name} cannot be a column: no columnar form is "
            f"known; give the serializer an arrow_type, or read with a function."
        ) from error


def column_of_elements(
    serializer: AnySerializer, elements: Sequence[bytes], options: ColumnOptions = DEFAULT_OPTIONS
) -> pa.Array:
    """Serialized values as a column.

    Raises:
        FormatError: Damaged bytes.
        ColumnValueError: A value that a column cannot hold as the options have it.
    """
    arrow_type = column_type(serializer, options)
    if not elements:
        return pa.array([], arrow_type)
    try:
        layout_of(serializer, options)
    except NoLayoutError:
        return pa.array([deserialize_exactly(serializer, raw) for raw in elements], arrow_type)
    meta = StateMetaInfoSnapshot.key_value("elements", KeyedStateType.VALUE, serializer)
    decoder = StateDecoder(RecordFormat(meta, Types.INT), 1, options)
    section = write_section([(0, ((_KEY + b"\0", raw) for raw in elements))])
    scanner = SectionScanner(1, [True])
    parts = [
        decoder.decode(batch, {VALUE}, check_all=True)[VALUE]
        for batch in scanner.batches(_chunk(section))
    ]
    return pa.chunked_array(parts, arrow_type).combine_chunks()


def _chunk(section: bytes) -> SectionChunks:
    yield SectionChunk(section, [Section(0, 0, len(section), 0)])


def column_of_values(
    serializer: AnySerializer, values: Sequence[Any], options: ColumnOptions = DEFAULT_OPTIONS
) -> pa.Array:
    """Decoded values as a column; None is null."""
    present = [serialize_to_bytes(serializer, each) for each in values if each is not None]
    column = column_of_elements(serializer, present, options)
    if len(present) == len(values):
        return column
    at, indices = 0, []
    for value in values:
        indices.append(None if value is None else at)
        at += value is not None
    return column.take(pa.array(indices, pa.int64()))
