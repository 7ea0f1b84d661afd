"""Rows of this process from which state is built, without Spark and without Java."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from threading import local
from typing import Any

import numpy as np
import pyarrow as pa

from dstl_core.codec.columnar.keyed.byte_index import ByteIndex, last_rows
from dstl_core.codec.columnar.keyed.encoder import EncodeProgram
from dstl_core.codec.columnar.types.type_layouts import layout_of
from dstl_core.codec.declared_type import TypeLike, declared_type, flink_type
from dstl_core.codec.serializers import AnySerializer
from dstl_core.job.rows.joined_batches import together
from dstl_core.job.rows.keys import fitted_keys
from dstl_core.job.rows.placement import Placement, spooled
from dstl_core.job.rows.spool import Spool
from dstl_core.job.spec.input_checks import check_names, is_ordered
from dstl_core.local.local_engine import LocalEngine, copy_of
from dstl_core.local.placing import check_sorts, sorted_rows
from dstl_core.local.rows import ArrowRows, rows_read_once
from dstl_core.model.checkpoint import OperatorSubtaskState
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.access.thread_runner import in_threads
from dstl_core.savepoint.bootstrap.bootstrap_rows import NewOperator, check_column
from dstl_core.savepoint.bootstrap.column_runs import ColumnRuns, checks_duplicates, stored_state
from dstl_core.savepoint.bootstrap.keyed_functions import KeyedFunction
from dstl_core.savepoint.bootstrap.operator_bootstrap import MakeState
from dstl_core.state.columns.keyed_sections import KeyedSections, StateRuns

_AHEAD = 2
"""Batches for each thread that are encoded, or wait for it."""
_PARTS = 32
"""Rows are divided by key into so many parts, of which memory holds one."""


@dataclass(frozen=True)
class _LastOf:
    """The last row of each key in some order."""

    key_column: str
    key_type: AnySerializer
    order: tuple[str, ...]


@dataclass(frozen=True)
class LocalRows:
    """Rows of Arrow, as ``BootstrapRows``.

    Args:
        rows: The rows.
        engine: Reads them.
    """

    rows: ArrowRows
    engine: LocalEngine = field(default_factory=LocalEngine)
    last_of: _LastOf | None = None
    """Says which rows of a key are read; None: all."""
    what = "the input"

    @classmethod
    def of(cls, rows: Any) -> LocalRows:
        """Rows of any form that a ``LocalEngine`` takes. A stream is not kept.

        Raises:
            ConfigError: They have another form, or Flink has no type for a column.
        """
        what = "The input of a bootstrap without Spark"
        known = rows_read_once(rows, what)
        check_names(known.schema.names, what)
        return cls(known)

    @property
    def columns(self) -> Sequence[str]:
        """As ``BootstrapRows.columns``."""
        names: list[str] = self.rows.schema.names
        return names

    def on_engine(self, engine: Any) -> LocalRows:
        """As ``BootstrapRows.on_engine``."""
        return replace(self, engine=engine)

    def flink_type(self, column: str, declared: TypeLike | None = None) -> AnySerializer:
        """As ``BootstrapRows.flink_type``."""
        check_column(self, column)
        kind = self.rows.schema.field(column).type if declared is None else declared
        return flink_type(declared_type(kind, f"Column {column!r}"))

    def arrow_type(self, column: str) -> pa.DataType | None:
        """As ``BootstrapRows.arrow_type``."""
        kind: pa.DataType = self.rows.schema.field(column).type
        return kind

    def last_of_keys(
        self, key_column: str, key_type: AnySerializer, order_by: Sequence[str]
    ) -> LocalRows:
        """As ``BootstrapRows.last_of_keys``."""
        check_sorts(self.rows.schema, order_by)
        order = (*order_by, *self._others((*order_by, key_column)))
        return replace(self, last_of=_LastOf(key_column, key_type, order))

    def _others(self, named: Sequence[str]) -> list[str]:
        """The columns that break ties."""
        schema = self.rows.schema
        return [each.name for each in schema if each.name not in named and is_ordered(each.type)]

    def subtasks(self, wanted: int | None, max_parallelism: int) -> int:
        """As ``BootstrapRows.subtasks``."""
        return max(1, min(wanted or self.engine.thread_count, max_parallelism))

    # ------------------------------------------------------------------------------- by columns

    def write_columns(self, columns: ColumnRuns, new: NewOperator) -> list[OperatorSubtaskState]:
        """As ``BootstrapRows.write_columns``: threads encode batches, and then write subtasks. The
        encoded rows are in memory and, beyond its limit, in a temporary file.
        """
        engine, header = self.engine, columns.header
        every = KeyGroupRange(0, new.max_parallelism - 1)
        checks = checks_duplicates(header, new.files.form)
        with (
            KeyedSections(
                header,
                every,
                new.max_parallelism,
                memory=engine.rows_bytes,
                check_duplicates=checks,
                folder=engine.temp_folder,
            ) as sections,
            ThreadPoolExecutor(engine.thread_count, "dstl-bootstrap") as pool,
        ):
            is_empty = True
            encoded = self._encoded(columns, new.max_parallelism, pool)
            for runs in encoded:
                sections.add(runs)
                is_empty = is_empty and not runs.data.size

            def write(subtask: int) -> OperatorSubtaskState:
                # If no row has any state, one handle still describes the states.
                handle = stored_state(
                    files[subtask],
                    sections,
                    new.key_groups(subtask),
                    keep_header=is_empty and subtask == 0,
                )
                return OperatorSubtaskState(subtask, managed_keyed_state=handle)

            files = [new.files.of_thread() for _ in range(new.parallelism)]
            return list(in_threads(pool, write, range(new.parallelism), engine.thread_count))

    def _encoded(
        self, columns: ColumnRuns, max_parallelism: int, pool: ThreadPoolExecutor
    ) -> Iterator[StateRuns]:
        """The runs of all batches, in their order."""
        of_thread = local()

        def encode(batch: pa.RecordBatch) -> list[StateRuns]:
            if not hasattr(of_thread, "encoder"):
                of_thread.encoder = columns.encoder(max_parallelism)
            return [*columns.of(of_thread.encoder, batch)]

        rows = self.rows if self.last_of is None else _LastRows(self, self.last_of)
        batches = together(rows.select(columns.used_columns).batches())
        most = _AHEAD * self.engine.thread_count
        for runs in in_threads(pool, encode, batches, most):
            yield from runs

    def repeated_keys(
        self, key_column: str, key_type: AnySerializer, most: int
    ) -> list[Any] | None:
        """As ``BootstrapRows.repeated_keys``."""
        if not self.rows.is_read_again:
            return None
        keys = self.rows.select([key_column])
        repeated = (
            key
            for part in self.by_key(keys, key_column, key_type)
            for key in _repeated(_table(part)[key_column].combine_chunks(), key_column, key_type)
        )
        return [*islice(repeated, most)]

    def by_key(self, rows: ArrowRows, key_column: str, key_type: AnySerializer) -> Iterator[Spool]:
        """The rows in parts, with all rows of a key in one of them."""
        placement = Placement(key_column, key_type, _PARTS, _PARTS)
        yield from self._spooled(rows, placement).values()

    def _spooled(self, rows: ArrowRows, placement: Placement) -> dict[int, Spool]:
        memory, folder = self.engine.rows_bytes, self.engine.temp_folder
        return spooled(rows.batches(), None, placement, memory, folder)

    # ----------------------------------------------------------------------------- by functions

    def write_function(
        self, function: KeyedFunction, order_by: Sequence[str], new: NewOperator
    ) -> list[OperatorSubtaskState]:
        """As ``BootstrapRows.write_function``: one subtask after the other."""
        for column in order_by:
            check_column(self, column)
        check_sorts(self.rows.schema, order_by)
        order = [*order_by, *self._others(order_by)] if order_by else []
        placement = Placement(
            function.key_column, function.key_type, new.parallelism, new.max_parallelism
        )
        placed = self._spooled(self.rows, placement)
        if not placed:  # the function is asked for its states
            placed = {0: Spool(self.rows.schema, 0)}

        def write(subtask: int) -> OperatorSubtaskState:
            rows = sorted_rows(placed.pop(subtask), order)
            state = copy_of(function).state(new.key_groups(subtask), new.max_parallelism, rows)
            handle = new.files.add_keyed_state(state)
            return OperatorSubtaskState(subtask, managed_keyed_state=handle)

        return [write(subtask) for subtask in sorted(placed)]

    def write_elements(
        self, make: MakeState, columns: Sequence[str] | None, new: NewOperator
    ) -> list[OperatorSubtaskState]:
        """As ``BootstrapRows.write_elements``: each subtask gets batches in turn."""
        rows = self.rows if columns is None else self.rows.select(columns)
        memory, folder = self.engine.rows_bytes // new.parallelism, self.engine.temp_folder
        spools = [Spool(rows.schema, memory, folder) for _ in range(new.parallelism)]
        for spool, batch in zip(cycle(spools), rows.batches(), strict=False):
            spool.add(batch)
        return [
            OperatorSubtaskState(
                subtask,
                managed_operator_state=new.files.add_operator_state(copy_of(make)(spool.drain())),
            )
            for subtask, spool in enumerate(spools)
        ]


class _LastRows(ArrowRows):
    """The last row of each key; they are found whenever they are read.

    Args:
        every: The rows.
        last_of: Their keys and their order.
    """

    def __init__(self, every: LocalRows, last_of: _LastOf) -> None:
        super().__init__(every.rows.schema)
        self.is_read_again = every.rows.is_read_again
        self._every = every
        self._last_of = last_of

    def batches(self) -> Iterator[pa.RecordBatch]:
        column, key_type = self._last_of.key_column, self._last_of.key_type
        for part in self._every.by_key(self._every.rows, column, key_type):
            rows = sorted_rows(part, self._last_of.order)
            table = pa.Table.from_batches(rows, part.schema)
            encoded = _encoded_keys(table[column].combine_chunks(), column, key_type)
            places = last_rows(encoded.ranges, encoded.ranges.starts * 0)
            yield from table.take(pa.array(places)).to_batches()


def _table(rows: Spool) -> pa.Table:
    return pa.Table.from_batches(rows.drain(), rows.schema)


def _encoded_keys(keys: pa.Array, column: str, key_type: AnySerializer) -> Any:
    """Keys as bytes; what is returned owns them."""
    program = EncodeProgram([("key", layout_of(key_type))])
    return program.encode({"key": fitted_keys(keys, column, key_type)}, len(keys))


def _repeated(keys: pa.Array, column: str, key_type: AnySerializer) -> list[Any]:
    """The keys that come twice or more."""
    encoded = _encoded_keys(keys, column, key_type)
    index = ByteIndex(encoded.ranges)
    rows = index.firsts[np.bincount(index.numbers, minlength=len(index)) > 1]
    repeated: list[Any] = keys.take(pa.array(rows, pa.int64())).to_pylist()
    return repeated
