"""Merges the values of keys that become one, and the elements of lists that become one value.

Rows go to temporary files by key group. One file at a time is in memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.codec.columnar.keyed.byte_index import ByteIndex
from dstl_core.codec.columnar.keyed.decoder import VALUE, key_roots
from dstl_core.codec.columnar.keyed.encoder import EncodeProgram
from dstl_core.codec.columnar.keyed.key_group_columns import key_groups_of
from dstl_core.codec.keyed_records import RecordFormat
from dstl_core.display import size_text
from dstl_core.errors import ConfigError
from dstl_core.savepoint.expressions.sql_cast import OPTIONS
from dstl_core.state.columns.state_columns import KEY_COLUMN, role_names
from dstl_core.temporary_files import in_temporary_files, let_go

FILE_BYTES = 64 << 20
"""About this many bytes of rows are in one file."""
_NUMBER = "n"


class CollidingRows:
    """The rows of one state; rows of one key (and window, and user key) become one.

    Args:
        record_format: The new state.
        max_parallelism: Number of key groups.
        rules: A rule for each column of a row, or one for the value.
        size: About the size of all rows in bytes.
    """

    def __init__(
        self,
        record_format: RecordFormat,
        max_parallelism: int,
        rules: str | Sequence[str],
        size: int,
    ) -> None:
        self._format = record_format
        self._max_parallelism = max_parallelism
        self._rules = rules
        self._roots = key_roots(record_format, OPTIONS)
        self._names = role_names(record_format.meta)
        self._count = max(1, min(max_parallelism, size // FILE_BYTES))
        self._folder = tempfile.TemporaryDirectory(prefix="dstl-")
        self._files: dict[int, pa.RecordBatchFileWriter] = {}
        self.merged = 0
        """Rows that are no longer there."""

    def __enter__(self) -> CollidingRows:
        return self

    def __exit__(self, *error: object) -> None:
        for file in self._files.values():
            let_go(file)
        self._folder.cleanup()

    def add(self, batch: pa.RecordBatch) -> None:
        """Adds rows in flat form."""
        if self._count == 1:
            self._write(0, batch)
            return
        keys = batch.column(batch.schema.get_field_index(KEY_COLUMN))
        groups = key_groups_of(keys, self._format.key_serializer, self._max_parallelism, OPTIONS)
        parts = groups.astype(np.int64) * self._count // self._max_parallelism
        for part in np.unique(parts).tolist():
            self._write(part, batch.filter(pa.array(parts == part)))

    def _write(self, part: int, batch: pa.RecordBatch) -> None:
        with in_temporary_files(f": expected {size_text(batch.nbytes)} more"):
            if part not in self._files:
                path = str(Path(self._folder.name) / str(part))
                self._files[part] = pa.ipc.new_stream(path, batch.schema)
            self._files[part].write_batch(batch)

    def rows(self) -> Iterator[pa.Table]:
        """The rows, one for each key."""
        with in_temporary_files():
            for file in self._files.values():
                file.close()
        for part in sorted(self._files):
            with pa.ipc.open_stream(str(Path(self._folder.name) / str(part))) as reader:
                table = reader.read_all().combine_chunks()
            yield self._merged(table)

    def _merged(self, table: pa.Table) -> pa.Table:
        scope = {}
        roots = [each for each in self._roots if self._names[each[0]] in table.schema.names]
        for role, _ in roots:
            column = table.column(self._names[role])
            scope[role] = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        encoded = EncodeProgram(roots).encode(scope, table.num_rows)
        index = ByteIndex(encoded.ranges)
        self.merged += table.num_rows - len(index)
        firsts = pa.array(index.firsts)
        merged = {self._names[role]: column.take(firsts) for role, column in scope.items()}
        name = self._names[VALUE]
        values = table.column(name).combine_chunks()
        merged[name] = self._values(values, index)
        return pa.table(merged)

    def _values(self, values: pa.Array, index: ByteIndex) -> pa.Array:
        if isinstance(self._rules, str) and self._rules in ("first", "last"):
            return merged_column(values, index, self._rules)
        if not pa.types.is_struct(values.type):
            rule = self._rules if isinstance(self._rules, str) else self._rules[0]
            return merged_column(values, index, rule)
        return self._row(values, index)

    def _row(self, values: pa.StructArray, index: ByteIndex) -> pa.Array:
        fields = list(values.type)
        rules = merge_rules(self._rules, values.type)
        arrays = [merged_column(values.field(at), index, rule) for at, rule in enumerate(rules)]
        return pa.StructArray.from_arrays(arrays, fields=fields)


def merge_rules(rules: str | Sequence[str], row: pa.DataType) -> list[str]:
    """A rule for each column of a row; its row kind is that of the first row.

    Raises:
        ConfigError: There is another number of rules than of columns.
    """
    fields = list(row)
    has_kind = bool(fields) and fields[0].name == "$row_kind"
    wanted = len(fields) - has_kind
    of_columns = [rules] * wanted if isinstance(rules, str) else list(rules)
    if len(of_columns) != wanted:
        raise ConfigError(
            f"merge has {len(of_columns)} rules ({', '.join(of_columns)}), and the row has "
            f"{wanted} columns."
        )
    return ["first"] * has_kind + of_columns


def check_merge(rules: str | Sequence[str], values: pa.DataType, where: str) -> None:
    """Checks that each rule can merge its column, before anything is read.

    Raises:
        ConfigError: One cannot.
    """
    if isinstance(rules, str) and rules in ("first", "last"):
        return
    if pa.types.is_struct(values) and list(values):
        pairs = list(zip(merge_rules(rules, values), values, strict=True))
    else:
        pairs = [(rules if isinstance(rules, str) else rules[0], pa.field("value", values))]
    for rule, pair in pairs:
        if rule == "error":
            raise ConfigError(f"{where} is wrong: error stands alone, not for a column.")
        if rule in ("first", "last", "count"):
            continue
        number = pa.types.is_integer(pair.type) or pa.types.is_floating(pair.type)
        number = number or pa.types.is_decimal(pair.type)
        if rule == "sum" and not number:
            raise ConfigError(f"{where} is wrong: values of type {pair.type} have no sum.")
        if pa.types.is_nested(pair.type):
            raise ConfigError(f"{where} is wrong: values of type {pair.type} have no {rule}.")


def merged_column(column: pa.Array, index: ByteIndex, rule: str) -> pa.Array:
    """One value for each number of the index. Nulls do not count, except for first and last.

    Raises:
        pa.ArrowInvalid: A sum does not fit into the type.
    """
    numbers = index.numbers
    if rule == "first":
        return column.take(pa.array(index.firsts))
    if rule == "last":
        lasts = np.zeros(len(index), np.int64)
        lasts[numbers] = np.arange(len(numbers))
        return column.take(pa.array(lasts))
    target = column.type
    if rule == "count":
        return pa.array(np.bincount(numbers, minlength=len(index))).cast(target)
    if len(index) == len(numbers):
        return column
    if rule in ("min", "max") and (pa.types.is_string(target) or pa.types.is_binary(target)):
        return _extreme_text(column, numbers, len(index), rule)
    work = column
    if rule == "sum" and pa.types.is_integer(target):
        work = column.cast(pa.decimal128(19, 0))  # a sum that is too large is seen, not wrapped
    if rule == "sum" and pa.types.is_decimal(target):
        work = column.cast(pa.decimal128(38, target.scale))
    table = pa.table({_NUMBER: pa.array(numbers), "v": work})
    grouped = table.group_by(_NUMBER, use_threads=False).aggregate([("v", rule)])
    order = pc.sort_indices(grouped.column(_NUMBER))
    result = (
        grouped.column(f"v_{rule}")
        .combine_chunks()
        .take(order.combine_chunks() if isinstance(order, pa.ChunkedArray) else order)
    )
    return result.cast(target)


def _extreme_text(column: pa.Array, numbers: np.ndarray, count: int, rule: str) -> pa.Array:
    """The least or greatest text, byte by byte."""
    ascending = "ascending" if rule == "max" else "descending"
    ranks = np.asarray(pc.rank(column, ascending, null_placement="at_start", tiebreaker="first"))
    order = np.argsort(ranks, kind="stable")
    chosen = np.zeros(count, np.int64)
    chosen[numbers[order]] = order  # the last one of each number wins
    return column.take(pa.array(chosen))
