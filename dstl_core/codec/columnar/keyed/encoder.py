"""Encodes columns to bytes: compiled programs that write the keys and values of records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dstl_core.codec.columnar.kernels import instructions as i
from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.kernels.encode import encoder_of
from dstl_core.codec.columnar.keyed.byte_index import Ranges
from dstl_core.codec.columnar.keyed.decoder import (
    KEY,
    NAMESPACE,
    VALUE,
    emit_root,
    key_roots,
    value_layout,
)
from dstl_core.codec.columnar.types.addresses import address_of
from dstl_core.codec.columnar.types.input import InputColumns
from dstl_core.codec.columnar.types.layouts import Layout, NoColumn
from dstl_core.codec.columnar.types.output_columns import Allocator, ArrowAllocator
from dstl_core.codec.columnar.types.program import Code, Int64s
from dstl_core.codec.columnar.types.type_layouts import DEFAULT_OPTIONS, ColumnOptions
from dstl_core.codec.keyed_records import RecordFormat
from dstl_core.errors import ColumnValueError, InvariantViolation

_LEAST_BYTES = 4096
_ROW_BYTES = 16
MOST_BYTES = 1 << 40

_REFUSALS = {
    i.NULL_VALUE: "a null, which its type does not allow",
    i.EMPTY_LIST: "an empty list, which Flink does not store as list state",
    i.LONE_SURROGATE: "text that is not valid UTF-16",
    i.NOT_EXACT: "a time that its type cannot represent exactly",
    i.TOO_LARGE: "a number or list that is too large for its type",
    i.BAD_VALUE: "a value that its type does not allow",
    i.BAD_ROW_KIND: "an unknown row kind",
    i.UNREADABLE: "an object of an unknown class",
}


@dataclass(frozen=True)
class EncodedRows:
    """The bytes of some rows, one row after the other in ``data``.

    The addresses are ``[rows]`` each, and are valid as long as this object lives.
    """

    data: pa.Buffer
    starts: Int64s
    ends: Int64s

    @property
    def ranges(self) -> Ranges:
        return Ranges(self.starts, self.ends)

    def __len__(self) -> int:
        return len(self.ends)


class EncodeProgram:
    """One program that writes the values of its columns one after the other, row by row.

    Args:
        roots: The columns by name, in the order of the bytes.
        with_lengths: Roots that are followed by their number of bytes.
    """

    def __init__(
        self,
        roots: Sequence[tuple[str, Layout]],
        with_lengths: Set[str] = frozenset(),
        allocator: Allocator | None = None,
    ) -> None:
        self.layouts = dict(roots)
        self._allocator = allocator or ArrowAllocator()
        self._status = np.zeros(i.STATUS_WORDS, np.int64)
        self._density = 0.0
        code = Code(encoding=True)
        for _, layout in roots:
            layout.register(code)
        for name, layout in roots:
            emit_root(code, layout, name in with_lengths)
        code.emit(i.END)
        self._columns = code.columns
        self._program = code.finish()
        self._encode = encoder_of(self._program.operations)

    def encode(self, columns: Mapping[str, pa.Array], rows: int) -> EncodedRows:
        """The bytes of every row.

        Raises:
            ColumnValueError: A column is missing, or holds a value that its type does not allow.
        """
        arrays = [_column(columns, name, layout, rows) for name, layout in self.layouts.items()]
        inputs = InputColumns(self.layouts, arrays, self._columns)
        bound = self._program.bind(inputs.table)
        room = int(max(1.3 * inputs.bytes + _ROW_BYTES * rows, self._density * rows)) + _LEAST_BYTES
        data = self._allocator.allocate(room)
        ends: Int64s = np.empty(rows, np.int64)
        row = 0
        while True:
            at = int(ends[row - 1]) if row else data.address
            row = self._encode(
                address_of(bound),
                row,
                rows,
                at,
                data.address + room,
                address_of(ends),
                address_of(self._status),
            )
            if row == rows:
                break
            if self._status[0] != i.NEED_SPACE:
                self._refuse(row)
            used = (int(ends[row - 1]) if row else data.address) - data.address
            room = max(2 * room, used + int(self._status[3]))
            before = data.address
            data = self._allocator.grow(data, room)
            ends[:row] += data.address - before
        starts = np.empty(rows, np.int64)
        if rows:
            starts[0] = data.address
            starts[1:] = ends[:-1]
            self._density = max(self._density, 1.05 * (int(ends[-1]) - data.address) / rows)
        return EncodedRows(data, starts, ends)

    def _refuse(self, row: int) -> None:
        problem = _REFUSALS.get(int(self._status[0]))
        if problem is None:
            raise InvariantViolation(f"a kernel reported {int(self._status[0])} while writing")
        names = ", ".join(name for name, each in self.layouts.items() if not _is_void(each))
        raise ColumnValueError(f"Row {row} of {names} cannot be written: it holds {problem}.")


def _is_void(layout: Layout) -> bool:
    return isinstance(layout, NoColumn)


def _column(columns: Mapping[str, pa.Array], name: str, layout: Layout, rows: int) -> pa.Array:
    if _is_void(layout):
        return None
    column = columns.get(name)
    if column is None:
        raise ColumnValueError(f"Column {name!r} is missing; there are: {', '.join(columns)}.")
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if len(column) != rows:
        raise ColumnValueError(f"Column {name!r} has {len(column)} rows, expected {rows}.")
    return column


@dataclass(frozen=True)
class EncodedRecords:
    """Records without key groups.

    ``spans`` is ``[records, SPAN_WORDS]``, see ``kernels.scan``; the tags are not set. ``keys`` and
    ``values`` keep the bytes alive.
    """

    spans: Int64s
    keys: EncodedRows
    values: EncodedRows | None

    def __len__(self) -> int:
        return len(self.spans)


class StateEncoder:
    """Encodes columns into the records of one state: the inverse of ``StateDecoder``.

    The columns are those of ``StateDecoder``.

    Raises:
        NotInColumnsError: A type has no columnar form.
    """

    def __init__(
        self,
        record_format: RecordFormat,
        options: ColumnOptions = DEFAULT_OPTIONS,
        allocator: Allocator | None = None,
    ) -> None:
        ambiguous = {KEY, NAMESPACE} if record_format.is_ambiguous else frozenset[str]()
        self._keys = EncodeProgram(key_roots(record_format, options), ambiguous, allocator)
        value = value_layout(record_format, options)
        self._values = (
            None if value is None else EncodeProgram([(VALUE, value)], allocator=allocator)
        )

    @property
    def columns(self) -> dict[str, pa.DataType]:
        layouts = {**self._keys.layouts, **(self._values.layouts if self._values else {})}
        return {name: each.arrow_type for name, each in layouts.items() if not _is_void(each)}

    def encode(self, columns: Mapping[str, pa.Array], rows: int) -> EncodedRecords:
        """Encodes each row as a record.

        Raises:
            ColumnValueError: As for ``EncodeProgram.encode``.
        """
        keys = self._keys.encode(columns, rows)
        values = None if self._values is None else self._values.encode(columns, rows)
        spans: Any = np.zeros((rows, scan.SPAN_WORDS), np.int64)
        spans[:, scan.KEY_START], spans[:, scan.KEY_END] = keys.starts, keys.ends
        if values is not None:
            spans[:, scan.VALUE_START], spans[:, scan.VALUE_END] = values.starts, values.ends
        return EncodedRecords(spans, keys, values)
