"""Builds state from columns, without a function and without a shuffle of rows.

In the first stage, each task encodes its rows into runs of records per state and key group, in one
file. In the second stage, a task per subtask merges the runs of its key groups and finds keys that
occur twice. Only an index passes between the stages, no rows. A task that runs twice leaves an
unreferenced file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from dstl_core.codec.columnar.keyed.key_group_columns import key_groups_of
from dstl_core.codec.columnar.types.type_layouts import DEFAULT_OPTIONS, ColumnOptions
from dstl_core.codec.serializers import (
    AnySerializer,
    ListSerializer,
    MapSerializer,
    TupleSerializer,
)
from dstl_core.codec.serializers.structs import RowSerializer
from dstl_core.codec.state_meta import (
    KeyedBackendHeader,
    KeyedStateType,
    StateMetaInfoSnapshot,
)
from dstl_core.errors import ColumnValueError, ConfigError, DuplicateKeyError, StorageError
from dstl_core.job.task.reports import REPORT_SCHEMA, SubtaskReport
from dstl_core.model.checkpoint import KEY_DECIMALS, DeclaredDecimals, OperatorState
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.model.key_group import compute_key_group_range_for_operator_index
from dstl_core.savepoint.write.folder import KeyedForm, StateFiles, StoredKeyedHandle
from dstl_core.spark.engine.parallelism import subtasks_of
from dstl_core.spark.engine.parquet_rows import ParquetRows, ReadParquet
from dstl_core.spark.engine.schema import quoted, spark_schema_of
from dstl_core.spark.engine.session import described
from dstl_core.spark.engine.table_frames import frame_of_splits, map_in_arrow, split_numbers
from dstl_core.spark.engine.workers import Settled, report_of, together, uncounted_bytes
from dstl_core.state.columns.column_fit import fit
from dstl_core.state.columns.keyed_encoder import KeyedStateEncoder
from dstl_core.state.columns.keyed_sections import KeyedSections, StateRuns
from dstl_core.state.columns.state_columns import (
    KEY_COLUMN,
    KEY_GROUP_COLUMN,
    LIST_VALUE_COLUMN,
    VALUE_COLUMN,
    is_kind,
    is_queue,
)
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location

FLUSH_BYTES = 64 << 20
"""Encoded bytes that a task holds before it writes them to its file."""
MAX_KEYS_SHOWN = 5
RUNS_SUFFIX = ".runs"
_INDEX_SCHEMA = pa.schema(
    [
        ("file", pa.string()),
        ("state", pa.int32()),
        ("key_group", pa.int32()),
        ("offset", pa.int64()),
        ("length", pa.int64()),
    ]
)


@dataclass(frozen=True)
class StateColumns:
    """The columns of one state in the rows.

    ``columns`` maps names of the flat form, or of the joined form if ``joined``, to columns.
    """

    meta: StateMetaInfoSnapshot
    columns: Mapping[str, str]
    joined: bool
    ttl_now_ms: int | None = None
    """The time of the last access that values without a time get."""
    window_ends: str | None = None
    """For timers of windows: the column of windows whose last millisecond is the timer."""


@dataclass(frozen=True)
class KeyGroupColumn:
    """The column that holds the key group of each key, out of ``total``."""

    name: str
    total: int


@dataclass(frozen=True)
class ColumnBootstrap:
    """Builds a state from each DataFrame column; each row is a key, or a key and window."""

    rows: DataFrame
    key_column: str
    key_type: AnySerializer
    states: tuple[StateColumns, ...]
    parallelism: int | None
    show_keys: bool = False
    types: ColumnOptions = DEFAULT_OPTIONS
    files: ParquetRows | None = None
    """The same rows as files, if tasks read them without Spark."""
    key_groups: KeyGroupColumn | None = None

    def write_operator(
        self,
        identifier: OperatorIdentifier,
        files: StateFiles,
        max_parallelism: int,
        parallelism: int | None = None,
    ) -> OperatorState:
        """Writes the state files; returns their entry in ``_metadata``.

        Raises:
            DuplicateKeyError: Two rows have the same key.
            ConfigError: A key is null, a column does not fit its type, or key groups are given of
                another number of key groups.
        """
        if self.key_groups is not None and self.key_groups.total != max_parallelism:
            raise ConfigError(
                f"Key groups of column {self.key_groups.name!r} cannot be written: they are of "
                f"max parallelism {self.key_groups.total}, and the savepoint has "
                f"{max_parallelism}; write it with the max parallelism of the template."
            )
        parallelism = subtasks_of(self, max_parallelism, parallelism)
        metas = tuple(each.meta for each in self.states)
        encode = _EncodeRuns(self, str(files.folder), max_parallelism).without_rows()
        spark = self.rows.sparkSession
        index: list[Any] = []
        try:
            what = f"dstl: operator {identifier}: encode its rows (1 of 2)"
            rows = self._used()
            with described(spark, what), uncounted_bytes(rows):
                index = self._encoded(rows, encode).collect()
            with described(spark, f"dstl: operator {identifier}: write its state (2 of 2)"):
                header = KeyedBackendHeader(self.key_type, metas)
                merge = _MergeRuns(
                    str(files.folder),
                    header,
                    parallelism,
                    max_parallelism,
                    _index_of(index),
                    files.form,
                )
                reports = frame_of_splits(
                    spark, parallelism, merge, spark_schema_of(REPORT_SCHEMA)
                ).collect()
        except DuplicateKeyError as error:
            if not self.show_keys:
                raise
            raise DuplicateKeyError(f"{error.message} Keys: {self._duplicates()}.") from error
        finally:
            for name in {row.file for row in index}:
                with suppress(StorageError):  # gc finds files that stay
                    files.file_io.delete(files.folder.child(name))
        reports_of_subtasks = [report_of(row) for row in reports]
        files.learn(file for report in reports_of_subtasks for file in report.written)
        states = sorted((each.subtask_state for each in reports_of_subtasks), key=lambda s: s.index)
        return OperatorState(
            identifier.operator_id,
            parallelism,
            max_parallelism,
            tuple(states),
            uid=identifier.uid or "",
            decimals=self._decimals(),
        )

    def _decimals(self) -> dict[str, DeclaredDecimals]:
        """What the columns of decimals declare, by the state that they become."""
        schema = self.rows.schema
        decimals: dict[str, DeclaredDecimals] = {}
        of_key = _declared(schema[self.key_column].dataType, self.key_type)
        if of_key is not None:
            decimals[KEY_DECIMALS] = of_key
        for state in self.states:
            values = [VALUE_COLUMN, LIST_VALUE_COLUMN, state.meta.name]
            column = next((state.columns[each] for each in values if each in state.columns), None)
            kind = None if column is None else schema[column].dataType
            declared = None if kind is None else _declared(kind, state.meta.value_serializer)
            if declared is not None:
                decimals[state.meta.name] = declared
        return decimals

    def _encoded(self, rows: DataFrame, encode: _EncodeRuns) -> DataFrame:
        """Runs the first stage; returns the index of the files that its tasks write."""
        result = spark_schema_of(_INDEX_SCHEMA)
        if self.files is None:
            return map_in_arrow(rows, Settled(encode), result)
        spark, names = rows.sparkSession, rows.columns
        splits = self.files.splits(spark, names)
        schema = pa.schema([self.files.schema.field(name) for name in names])
        return frame_of_splits(spark, len(splits), ReadParquet(splits, schema, encode), result)

    def _used(self) -> DataFrame:
        """The rows with the columns that become state."""
        used = [self.key_column, *(c for s in self.states for c in s.columns.values())]
        used += [] if self.key_groups is None else [self.key_groups.name]
        return self.rows.select(*map(quoted, dict.fromkeys(used)))

    def _duplicates(self) -> str:
        counted = self.rows.groupBy(quoted(self.key_column)).count().where("count > 1")
        with described(self.rows.sparkSession, "dstl: look for duplicate keys"):
            keys = [row[0] for row in counted.limit(MAX_KEYS_SHOWN).collect()]
        return ", ".join(sorted(map(repr, keys)))


def _declared(kind: T.DataType, stored: AnySerializer) -> DeclaredDecimals | None:
    """What a type of rows declares of decimals, by the fields of the stored type."""
    if isinstance(kind, T.DecimalType):
        return kind.precision, kind.scale
    if isinstance(kind, T.ArrayType) and isinstance(stored, ListSerializer):
        return _declared(kind.elementType, stored.element)
    if isinstance(kind, T.MapType) and isinstance(stored, MapSerializer):
        parts = {
            "key": _declared(kind.keyType, stored.key),
            "value": _declared(kind.valueType, stored.value),
        }
        return {name: each for name, each in parts.items() if each is not None} or None
    if not isinstance(kind, T.StructType) or len(kind) != len(stored.nested):
        return None
    is_row = isinstance(stored, RowSerializer | TupleSerializer)
    fields = {
        f"f{at}" if is_row else part.name: _declared(part.dataType, inner)
        for at, (part, inner) in enumerate(zip(kind, stored.nested, strict=True))
    }
    return {name: each for name, each in fields.items() if each is not None} or None


def _index_of(rows: Sequence[Any]) -> dict[str, Any]:
    """The index of all task files, column-wise, sorted by key group."""
    order = sorted(range(len(rows)), key=lambda at: rows[at].key_group)
    return {
        "file": [rows[at].file for at in order],
        **{
            name: np.array([rows[at][name] for at in order], np.int64)
            for name in ("state", "key_group", "offset", "length")
        },
    }


@dataclass(frozen=True)
class _EncodeRuns:
    """Runs in tasks: encodes rows into runs in a file of the task."""

    bootstrap: ColumnBootstrap
    folder: str
    max_parallelism: int

    def without_rows(self) -> _EncodeRuns:
        """A copy without DataFrames, which cannot be sent to tasks."""
        bootstrap = self.bootstrap
        plain = ColumnBootstrap(
            None,  # type: ignore[arg-type]  # tasks get the rows as batches
            bootstrap.key_column,
            bootstrap.key_type,
            bootstrap.states,
            bootstrap.parallelism,
            bootstrap.show_keys,
            bootstrap.types,
            key_groups=bootstrap.key_groups,
        )
        return _EncodeRuns(plain, self.folder, self.max_parallelism)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        bootstrap = self.bootstrap
        metas = [each.meta for each in bootstrap.states]
        encoder = KeyedStateEncoder(
            bootstrap.key_type, metas, self.max_parallelism, types=bootstrap.types
        )
        held: list[StateRuns] = []
        size = 0
        for batch in together(batches):
            for runs in self._encode(encoder, batch):
                held.append(runs)
                size += runs.data.size
            if size >= FLUSH_BYTES:
                yield from self._flush(held)
                held, size = [], 0
        if held:
            yield from self._flush(held)

    def _encode(self, encoder: KeyedStateEncoder, batch: pa.RecordBatch) -> Iterator[StateRuns]:
        bootstrap = self.bootstrap
        keys = batch.column(bootstrap.key_column)
        if keys.null_count:
            first = keys.is_null().index(True).as_py()
            raise ConfigError(
                f"A key is null (row {first} of a batch of {len(keys)}); keyed state needs a key: "
                f"drop or fill such rows."
            )
        key_type = encoder.schema(bootstrap.states[0].meta.name).field(KEY_COLUMN).type
        places = {KEY_COLUMN: fit(keys, key_type, "The key")}
        if bootstrap.key_groups is not None:
            places[KEY_GROUP_COLUMN] = self._key_groups(
                batch.column(bootstrap.key_groups.name), places[KEY_COLUMN]
            )
        for state in bootstrap.states:
            if state.columns:  # else it is an empty queue
                try:
                    yield from self._encode_state(encoder, batch, places, state)
                except ColumnValueError as error:
                    raise ColumnValueError(
                        f"State {state.meta.name!r} cannot be written: {error.message}"
                    ) from error

    def _encode_state(
        self,
        encoder: KeyedStateEncoder,
        batch: pa.RecordBatch,
        places: Mapping[str, pa.Array],
        state: StateColumns,
    ) -> list[StateRuns]:
        name = state.meta.name
        schema = encoder.keyed_schema if state.joined else encoder.schema(name)
        columns = dict(places)
        for column, source in state.columns.items():
            wanted = schema.field(column).type
            columns[column] = self._column(batch.column(source), wanted, state, column)
        if state.joined:
            return list(encoder.encode_keyed(pa.table(columns)))
        return [encoder.encode(name, pa.table(columns))]

    def _key_groups(self, group_column: pa.Array, keys: pa.Array) -> pa.Array:
        """The key groups that rows give, checked where the hash of a key is known."""
        bootstrap = self.bootstrap
        assert bootstrap.key_groups is not None
        what = f"Column {bootstrap.key_groups.name!r} of key groups"
        groups = fit(group_column, pa.int32(), what)
        total = self.max_parallelism
        if groups.null_count or (
            len(groups) and not 0 <= pc.min(groups).as_py() <= pc.max(groups).as_py() < total
        ):
            raise ConfigError(f"{what} is wrong: expected 0..{total - 1} in every row.")
        try:
            known = key_groups_of(keys, bootstrap.key_type, total, bootstrap.types)
        except ConfigError:
            return groups  # the type has no known hash
        if not np.array_equal(known, groups.to_numpy()):
            raise ConfigError(
                f"{what} is wrong: a key belongs into another key group than its row says; leave "
                f"out key_groups, since the hash of {bootstrap.key_type.type_name} is known."
            )
        return groups

    def _column(
        self, column: pa.Array, wanted: pa.DataType, state: StateColumns, name: str
    ) -> pa.Array:
        what = f"Column for state {state.meta.name!r}"
        if state.window_ends is not None and pa.types.is_int64(wanted):
            ends = column.field(1).to_numpy(zero_copy_only=False)
            return pa.array(ends - 1, pa.int64())
        if state.ttl_now_ms is not None and name not in ("state_window", "state_namespace"):
            return _with_time(column, wanted, state.ttl_now_ms, what)
        return fit(column, wanted, what)

    def _flush(self, held: Sequence[StateRuns]) -> Iterator[pa.RecordBatch]:
        """Writes the runs by key group and state, so that a subtask reads them in one piece."""
        pieces = _in_order(held)
        if not pieces:
            return
        name = f"{uuid4()}{RUNS_SUFFIX}"
        folder = Location.parse(self.folder)
        # No fsync: a power loss also ends the job that would read the file.
        file_io = open_file_io(folder, fsync=False)
        file_io.write_new(folder.child(name), [part for _, _, part in pieces])
        # Adjacent runs are one piece: a key group may have several runs of a state.
        places = np.array([(group, state) for group, state, _ in pieces], np.int64)
        firsts = np.flatnonzero(np.any(np.diff(places, axis=0, prepend=-1) != 0, axis=1))
        lengths = np.add.reduceat([len(part) for _, _, part in pieces], firsts)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([name] * len(firsts), pa.string()),
                pa.array(places[firsts, 1], pa.int32()),
                pa.array(places[firsts, 0], pa.int32()),
                pa.array(np.cumsum(lengths) - lengths, pa.int64()),
                pa.array(lengths, pa.int64()),
            ],
            schema=_INDEX_SCHEMA,
        )


def _in_order(held: Sequence[StateRuns]) -> list[tuple[int, int, memoryview]]:
    """``(key group, state id, bytes)`` of all runs."""
    data = [memoryview(runs.data) for runs in held]
    places_of_runs = []
    for at, runs in enumerate(held):
        filled = np.flatnonzero(np.diff(runs.bounds))
        groups = filled + runs.key_groups.start_key_group
        places = (groups, filled * 0 + runs.state_id, filled * 0 + at)
        places_of_runs.append(np.stack([*places, runs.bounds[filled], runs.bounds[filled + 1]]))
    runs_at = np.concatenate(places_of_runs, axis=1)
    order = np.lexsort((runs_at[1], runs_at[0]))
    return [
        (group, state, data[at][start:end])
        for group, state, at, start, end in runs_at[:, order].T.tolist()
    ]


def _with_time(column: pa.Array, wanted: pa.DataType, now_ms: int, what: str) -> pa.Array:
    """Values of a state with a time to live. Values without a time get ``ttl_now_ms``."""
    if column.type.equals(wanted) or _has_time(column.type):
        return fit(column, wanted, what)
    if pa.types.is_map(wanted):
        inner = _with_time(column.items, wanted.item_type, now_ms, what)
        entries = pa.StructArray.from_arrays(
            [fit(column.keys, wanted.key_type, what), inner],
            fields=[wanted.key_field, wanted.item_field],
        )
        buffers = [column.buffers()[0] if column.null_count else None, column.buffers()[1]]
        return pa.Array.from_buffers(
            wanted, len(column), buffers, offset=column.offset, children=[entries]
        )
    if pa.types.is_list(wanted):
        inner = _with_time(column.values, wanted.value_type, now_ms, what)
        buffers = [column.buffers()[0] if column.null_count else None, column.buffers()[1]]
        return pa.Array.from_buffers(
            wanted, len(column), buffers, offset=column.offset, children=[inner]
        )
    fields = list(wanted)
    values = [
        pa.array(np.full(len(column), now_ms), pa.int64())
        if pa.types.is_int64(field.type) and field.name == "ts"
        else fit(column, field.type, what)
        for field in fields
    ]
    mask = column.is_null() if column.null_count else None
    return pa.StructArray.from_arrays(values, fields=fields, mask=mask)


def _has_time(arrow_type: pa.DataType) -> bool:
    if pa.types.is_list(arrow_type):
        return _has_time(arrow_type.value_type)
    if pa.types.is_map(arrow_type):
        return _has_time(arrow_type.item_type)
    return pa.types.is_struct(arrow_type) and {each.name for each in arrow_type} == {"v", "ts"}


@dataclass(frozen=True)
class _MergeRuns:
    """Runs in tasks: merges the runs of a subtask's key groups into its keyed state."""

    folder: str
    header: KeyedBackendHeader
    parallelism: int
    max_parallelism: int
    index: Mapping[str, Any]
    form: KeyedForm

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = StateFiles(self.folder, form=self.form)
        for subtask in split_numbers(batches):
            try:
                handle = self._merged(files, subtask, check_duplicates=self._looks_for_duplicates)
            except DuplicateKeyError:
                # The sections know how many rows of a key group there are too many.
                handle = self._merged(files, subtask, check_duplicates=True)
            yield SubtaskReport.of_keyed(subtask, handle, files.written.values()).to_batch()

    @property
    def _looks_for_duplicates(self) -> bool:
        """Whether keys that come twice are looked for, or joined, before they are written. Files of
        RocksDB are sorted, and keys that come twice then follow each other.
        """
        joins = (
            is_queue(meta) or is_kind(meta, KeyedStateType.LIST) for meta in self.header.states
        )
        return self.form == "canonical" or any(joins)

    def _merged(
        self, files: StateFiles, subtask: int, *, check_duplicates: bool
    ) -> StoredKeyedHandle | None:
        """Stores the keyed state of a subtask."""
        key_groups = compute_key_group_range_for_operator_index(
            self.max_parallelism, self.parallelism, subtask
        )
        # If no row has any state, one handle still describes the states.
        is_only = subtask == 0 and not len(self.index["key_group"])
        with KeyedSections(
            self.header, key_groups, self.max_parallelism, check_duplicates=check_duplicates
        ) as sections:
            for piece in self._pieces(files, key_groups.start_key_group, key_groups.end_key_group):
                sections.add_run(*piece)
            return files.add_keyed_stream(sections.stream(key_groups), keep_header=is_only)

    def _pieces(
        self, files: StateFiles, start: int, end: int
    ) -> Iterator[tuple[int, int, memoryview]]:
        """``(state id, key group, bytes)`` of a range of key groups: one read per file."""
        groups = self.index["key_group"]
        first, last = np.searchsorted(groups, [start, end + 1])
        by_file: dict[str, list[int]] = {}
        for at in range(int(first), int(last)):
            by_file.setdefault(self.index["file"][at], []).append(at)
        offsets, lengths, states = (self.index[name] for name in ("offset", "length", "state"))
        for name, places in by_file.items():
            low = min(int(offsets[at]) for at in places)
            high = max(int(offsets[at] + lengths[at]) for at in places)
            data = memoryview(files.file_io.read_bytes(files.folder.child(name), low, high))
            for at in places:
                begin = int(offsets[at]) - low
                piece = data[begin : begin + int(lengths[at])]
                yield int(states[at]), int(groups[at]), piece
