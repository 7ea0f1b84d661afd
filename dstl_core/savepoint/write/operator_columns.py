"""Reads and writes list, union and broadcast state as Arrow columns.

    rows = read_operator_state(snap["uid"], "offsets", "op-list")     # pa.Table
    encoder = OperatorStateEncoder(compressed=False)                  # one subtask
    encoder.add(meta, OperatorStateMode.UNION, table)
    handle = encoder.write(folder)                                    # SavepointFolder

Columns: ``subtask`` (int32; reading only) and ``list_value``; for broadcast state ``map_key`` and
``map_value``. A whole stream is held in memory, since the metadata has its offsets.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dstl_core.codec.columnar.types.layouts import Layout, Repeated, Struct
from dstl_core.codec.columnar.types.type_layouts import (
    DEFAULT_OPTIONS,
    ColumnOptions,
    bounded_layout,
    layout_of,
)
from dstl_core.codec.data_io import DataOutput
from dstl_core.codec.operator_state import OperatorStateReader
from dstl_core.codec.snappy_frames import STREAM_IDENTIFIER, compress_frames
from dstl_core.codec.state_meta import (
    KEY_SERIALIZER,
    StateMetaInfoSnapshot,
    write_state_meta,
)
from dstl_core.errors import ColumnValueError, NotInColumnsError, SavepointError
from dstl_core.model.handle import (
    OperatorStateMetaInfo,
    OperatorStateMode,
    OperatorStreamStateHandle,
)
from dstl_core.savepoint.read.operator_catalog import OPERATOR_KINDS
from dstl_core.savepoint.read.snapshot import OperatorSnapshot
from dstl_core.savepoint.write.folder import SavepointFolder
from dstl_core.state.columns.element_columns import decode_elements, encode_elements
from dstl_core.state.columns.state_columns import (
    LIST_VALUE_COLUMN,
    MAP_KEY_COLUMN,
    MAP_VALUE_COLUMN,
)

SUBTASK_COLUMN = "subtask"
_VERSION = 6


def read_operator_state(
    operator: OperatorSnapshot, name: str, kind: str, types: ColumnOptions = DEFAULT_OPTIONS
) -> pa.Table:
    """Reads one operator state: ``op-list`` and ``op-union`` of all subtasks, ``op-broadcast``
    once.

    Raises:
        NoSuchStateError: There is no such state.
        SavepointError: The type has no columnar form.
        FormatError: The state is damaged.
    """
    info = operator.state_info(name, kind)
    tables = []
    for subtask, handle, reader in operator.operator_state_readers():
        for state in handle.states:
            if state.name == name and OPERATOR_KINDS[state.mode] == kind:
                rows = operator_columns(reader, state, types)
                if kind == OPERATOR_KINDS[OperatorStateMode.BROADCAST]:
                    return rows
                numbers = pa.array(np.full(rows.num_rows, subtask, np.int32))
                tables.append(rows.add_column(0, SUBTASK_COLUMN, numbers))
    if not tables:
        raise SavepointError(f"Operator state {info.name!r} has no stream.")
    return pa.concat_tables(tables)


def operator_columns(
    reader: OperatorStateReader, info: OperatorStateMetaInfo, types: ColumnOptions
) -> pa.Table:
    """The rows of one state of one subtask."""
    meta = reader.header.state(info)
    layout = _layout(meta, info.mode, types)
    column, failure = decode_elements(layout, reader.element_bytes(info))
    if failure is not None:
        _explain(reader, info, failure.row)
    if info.mode is not OperatorStateMode.BROADCAST:
        return pa.table({LIST_VALUE_COLUMN: column})
    entries = column.flatten()
    return pa.table({MAP_KEY_COLUMN: entries.field(0), MAP_VALUE_COLUMN: entries.field(1)})


def _explain(reader: OperatorStateReader, info: OperatorStateMetaInfo, row: int) -> None:
    """Raises the record-wise code's error, or an error that a column cannot hold the value."""
    if info.mode is OperatorStateMode.BROADCAST:
        reader.pairs(info)
    else:
        reader.elements(info)
    raise ColumnValueError(
        f"Operator state {info.name!r} has a value (element {row}) that its column cannot hold; "
        f"read it with strings=utf16, maps=entries, timestamps=exact or row_kinds=column."
    )


def _layout(meta: StateMetaInfoSnapshot, mode: OperatorStateMode, types: ColumnOptions) -> Layout:
    """The content at one offset: an element, or all entries of a broadcast state."""
    if mode is not OperatorStateMode.BROADCAST:
        return bounded_layout(meta.value_serializer, types)
    try:
        key = layout_of(meta.serializer(KEY_SERIALIZER), types)
        value = layout_of(meta.value_serializer, types)
    except NotInColumnsError as error:
        raise SavepointError(
            f"Broadcast state {meta.name!r} cannot be read as columns: values of type "
            f"{error.type_name} have no columnar form."
        ) from error
    return Repeated(Struct([("key", key), ("value", value)]), 1)


class OperatorStateEncoder:
    """Encodes the operator state of one subtask from columns.

    Args:
        types: Representation of types as columns.
        compressed: Whether elements are compressed (Snappy).
    """

    def __init__(self, types: ColumnOptions = DEFAULT_OPTIONS, *, compressed: bool = False) -> None:
        self._types = types
        self._compressed = compressed
        self._states: list[tuple[StateMetaInfoSnapshot, OperatorStateMode, list[memoryview]]] = []

    def add(self, meta: StateMetaInfoSnapshot, mode: OperatorStateMode, rows: pa.Table) -> None:
        """Adds a state.

        Raises:
            ColumnValueError: A column is missing, or holds a value that its type does not allow.
            SavepointError: The type has no columnar form.
        """
        layout = _layout(meta, mode, self._types)
        broadcast = mode is OperatorStateMode.BROADCAST
        names = (MAP_KEY_COLUMN, MAP_VALUE_COLUMN) if broadcast else (LIST_VALUE_COLUMN,)
        for name in names:
            if name not in rows.schema.names:
                known = ", ".join(rows.schema.names) or "none"
                raise ColumnValueError(f"Column {name!r} is missing; there are: {known}.")
        columns = [rows[name].combine_chunks() for name in names]
        column = _entries(columns, layout) if broadcast else columns[0]
        self._states.append((meta, mode, encode_elements(layout, column)))

    def write(self, folder: SavepointFolder) -> OperatorStreamStateHandle:
        """Stores the stream in a savepoint."""
        broadcast = [each for each in self._states if each[1] is OperatorStateMode.BROADCAST]
        lists = [each for each in self._states if each[1] is not OperatorStateMode.BROADCAST]
        out = DataOutput()
        out.write_i32(_VERSION)
        out.write_bool(self._compressed)
        for group in (lists, broadcast):
            out.write_i16(len(group))
            for meta, _, _ in group:
                write_state_meta(out, meta)
        if self._compressed:
            out.write_bytes(STREAM_IDENTIFIER)
        infos = []
        for meta, mode, elements in lists + broadcast:
            infos.append(OperatorStateMetaInfo(meta.name, mode, self._write(out, elements)))
        return OperatorStreamStateHandle(tuple(infos), folder.add_stream(out.to_bytes()))

    def _write(self, out: DataOutput, elements: Sequence[memoryview]) -> tuple[int, ...]:
        offsets = []
        for element in elements:
            offsets.append(out.position)
            if self._compressed:
                out.write_bytes(compress_frames(bytes(element))[len(STREAM_IDENTIFIER) :])
            else:
                out.write_bytes(bytes(element))
        return tuple(offsets)


def _entries(columns: Sequence[pa.Array], layout: Layout) -> pa.Array:
    """One list with all entries."""
    item = layout.arrow_type.value_type
    arrays = [column.cast(item.field(at).type) for at, column in enumerate(columns)]
    entries = pa.StructArray.from_arrays(arrays, fields=list(item))
    offsets = pa.array([0, len(entries)], pa.int32())
    return pa.ListArray.from_arrays(offsets, entries, type=layout.arrow_type)
