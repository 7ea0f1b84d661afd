"""Base classes and options of a snapshot's tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dstl_core.codec.columnar.types.type_layouts import DEFAULT_OPTIONS, ColumnOptions
from dstl_core.errors import ConfigError
from dstl_core.savepoint.read.entries import OP_BROADCAST, OP_LIST, OP_UNION
from dstl_core.savepoint.read.keyed_reader import KEYED, READ_MEMORY

KEYED_FLAT, WINDOWS, TIMERS, METADATA = "keyed-flat", "windows", "timers", "metadata"
OFFSETS = "offsets"
LIST, UNION, BROADCAST = "list", "union", "broadcast"
KINDS = (KEYED, KEYED_FLAT, WINDOWS, TIMERS, LIST, UNION, BROADCAST, METADATA, OFFSETS)
OPERATOR_KINDS = {OP_LIST: LIST, OP_UNION: UNION, OP_BROADCAST: BROADCAST}
SPLIT_BYTES = 128 << 20
"""Bytes that a task reads, as for Spark's own files; smaller tasks cost more than they save."""
ROWS_PER_BATCH = 10_000

Split = tuple[int, int]
"""First and last key group, or first and last subtask."""


@dataclass(frozen=True)
class TableOptions:
    """Options of reading a table.

    Args:
        columns: Names of the columns; by default all.
        keys: Only these keys (``keyed`` and ``keyed-flat``).
        timers: Whether ``keyed`` has the user's timers as columns, and rows for keys that have only
            timers.
        types: Representation of types as columns.
        memory: Bytes that a task may use before it spills to disk.
    """

    columns: tuple[str, ...] | None = None
    keys: tuple[Any, ...] | None = None
    timers: bool = True
    types: ColumnOptions = DEFAULT_OPTIONS
    memory: int = READ_MEMORY

    def __post_init__(self) -> None:
        names = self.columns or ()
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ConfigError(f"Column {twice[0]!r} is named twice; name each once.")


DEFAULT_TABLE = TableOptions()


class SnapshotTable(ABC):
    """One table of a snapshot."""

    schema: pa.Schema
    size: int
    """Size of the state in bytes."""

    @abstractmethod
    def splits(self, split_bytes: int, minimum: int) -> list[Split]:
        """Splits that can be read separately: by size, at least ``minimum`` if possible."""

    @abstractmethod
    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """The rows of one split."""


class RowWiseTable(SnapshotTable):
    """A table that is built row by row."""

    def __init__(self, schema: pa.Schema, size: int, options: TableOptions) -> None:
        self._every = schema
        self._types = options.types
        wanted = schema.names if options.columns is None else list(options.columns)
        missing = [name for name in wanted if name not in schema.names]
        if missing:
            raise ConfigError(
                f"There is no column {missing[0]!r}; there are: {', '.join(schema.names)}."
            )
        self.schema = pa.schema([schema.field(name) for name in wanted])
        self.size = size

    def batch_of(self, columns: dict[str, pa.Array]) -> pa.RecordBatch:
        arrays = [columns[field.name] for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def chunks_of(entries: Iterator[Any]) -> Iterator[list[Any]]:
    part: list[Any] = []
    for entry in entries:
        part.append(entry)
        if len(part) == ROWS_PER_BATCH:
            yield part
            part = []
    if part:
        yield part
