"""Reduces the rows of a subtask to a row per key and window, for declared aggregates of windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.aggregates.bounded_lists import lists_joined
from dstl_core.aggregates.rows_of_keys import RowsOfKeys
from dstl_core.errors import ConfigError
from dstl_core.job.rows.row_buffer import one_batch
from dstl_core.job.spec.operators import AggregateOperator
from dstl_core.job.task.event_time import millis_of
from dstl_core.job.task.reduced_pieces import ReducedPieces
from dstl_core.job.task.reduced_rows import joined_parts, parts_of
from dstl_core.operators.aggregated_windows import (
    END_COLUMN,
    LATE_COLUMN,
    LATEST_COLUMN,
    START_COLUMN,
    AggregatedWindows,
    AlignedWindows,
    Int64s,
)
from dstl_core.operators.session_sets import SessionSet, touching
from dstl_core.state.held.key_batch import KeyBatch, KeyPlaces
from dstl_core.state.windows.windowing import EventTimeSessionWindows

_WITH_EQUAL_BYTES = (
    pa.types.is_integer,
    pa.types.is_string,
    pa.types.is_date,
    pa.types.is_timestamp,
)
MOST_ROWS = 4_000_000
"""Rows times windows that are reduced at a time."""


class WindowedRows:
    """Rows of an operator with windows, reduced to a row per key and window.

    Args:
        operator: The operator.
        key_places: Numbers the keys.
        watermark: Event time before the rows, in milliseconds.
    """

    def __init__(self, operator: AggregateOperator, key_places: KeyPlaces, watermark: int) -> None:
        assert isinstance(operator.function, AggregatedWindows)
        self._operator = operator
        self._function = operator.function
        self._key_places = key_places
        self._watermark = watermark
        self._reduced = ReducedPieces(self._joined, lambda piece: piece.nbytes)

    def add(self, keys: pa.Array, rows: pa.RecordBatch) -> None:
        """Adds rows, with the key of each.

        Raises:
            ConfigError: A row has no time, or one outside what its windows hold.
        """
        times = self._times(rows)
        assigner = self._function.assigner
        if isinstance(assigner, EventTimeSessionWindows):
            self._reduced.add(self._sessions(keys, rows, times, assigner.gap))
        else:
            for start, end in _pieces(rows.num_rows, assigner):
                size = end - start
                self._reduced.add(
                    self._aligned(
                        keys.slice(start, size), rows.slice(start, size), times[start:end], assigner
                    )
                )

    def take(self) -> pa.RecordBatch | None:
        """Removes the reduced rows, a row per key and window; None without rows."""
        return self._reduced.take()

    def _times(self, rows: pa.RecordBatch) -> Int64s:
        """The time of each row in milliseconds."""
        times = millis_of(rows.column(self._operator.event_time))
        if times.null_count:
            raise ConfigError(
                "A row has no timestamp, which windows in event time need; allow no null in "
                "event_time, the column with the timestamp."
            )
        assigner = self._function.assigner
        millis: Int64s = times.to_numpy()
        if ((millis < assigner.first_time) | (millis > assigner.last_time)).any():
            raise assigner.time_error()
        return millis

    def _numbered_keys(self, keys: pa.Array) -> tuple[Int64s, pa.Array]:
        """The number of the key of each row, and the distinct keys.

        Keys are equal if their bytes are: those of floats and structs are compared so.
        """
        if any(test(keys.type) for test in _WITH_EQUAL_BYTES):
            coded = keys.dictionary_encode()
            return coded.indices.to_numpy().astype(np.int64), coded.dictionary
        batch = KeyBatch(self._key_places, self._operator.key_type, keys)
        return batch.numbers, batch.distinct

    def _aligned(
        self, keys: pa.Array, rows: pa.RecordBatch, times: Int64s, assigner: AlignedWindows
    ) -> pa.RecordBatch:
        """Rows of windows of a fixed size: a row belongs to several if they overlap."""
        of_rows, distinct_keys = self._numbered_keys(keys)
        last = times - np.mod(times - assigner.offset, assigner.slide)
        # As many windows as the slide fits into the size, and one more for some rows.
        least, rest = divmod(assigner.size, assigner.slide)
        counts = least + (times - last < rest)
        places = np.repeat(np.arange(len(times)), counts)
        number = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
        starts = last[places] - assigner.slide * number
        owners = of_rows[places]
        groups, firsts = _numbered(owners, starts)
        bounds = np.stack([starts[firsts], starts[firsts] + assigner.size], axis=1)
        expanded = rows if len(places) == rows.num_rows else rows.take(pa.array(places))
        distinct = distinct_keys.take(pa.array(owners[firsts]))
        return self._batch(distinct, expanded, bounds, groups, pa.array(number == 0))

    def _sessions(
        self, keys: pa.Array, rows: pa.RecordBatch, times: Int64s, gap: int
    ) -> pa.RecordBatch:
        """Rows of sessions: rows of a key that are at most a gap apart."""
        of_rows, distinct_keys = self._numbered_keys(keys)
        windows = np.stack([times, times + gap], axis=1)
        sessions = touching(SessionSet(of_rows, windows, windows))
        every = pa.array(np.ones(len(times), np.bool_))
        distinct = distinct_keys.take(pa.array(sessions.owners))
        return self._batch(distinct, rows, sessions.windows, sessions.group, every)

    def _batch(
        self,
        keys: pa.Array,
        rows: pa.RecordBatch,
        bounds: Int64s,
        groups: Int64s,
        is_latest: pa.Array,
    ) -> pa.RecordBatch:
        """A row per key and window.

        Args:
            keys: ``[groups]`` keys.
            rows: The rows, once for each of their windows.
            bounds: ``[groups, 2]`` where the windows start and end.
            groups: ``[rows]`` the number of the key and window of each row.
            is_latest: ``[rows]`` whether this is the latest window of a row.
        """
        latest = RowsOfKeys(groups, len(keys)).where(is_latest)
        columns = _head(self._operator.key_by, keys, bounds) | {LATEST_COLUMN: latest.counts()}
        schema = self._function.side_output_late_data
        if schema is not None:
            expired = self._function.expiry(bounds) <= self._watermark
            is_late = pc.and_(is_latest, pa.array(expired[groups]))
            values = rows.select(schema.names).filter(is_late).to_struct_array()
            late = RowsOfKeys(groups, len(keys)).where(is_late)
            [columns[LATE_COLUMN]] = late.lists(values)
        columns |= parts_of(self._operator, rows, groups, len(keys))
        return pa.RecordBatch.from_pydict(columns)

    def _joined(self, pieces: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Pieces as one, with each key and window once."""
        rows = one_batch([*pieces])
        owners, distinct_keys = self._numbered_keys(rows.column(self._operator.key_by))
        bounds = np.stack([rows.column(name).to_numpy() for name in (START_COLUMN, END_COLUMN)], 1)
        if isinstance(self._function.assigner, EventTimeSessionWindows):
            sessions = touching(SessionSet(owners, bounds, bounds))
            groups, owners, bounds = sessions.group, sessions.owners, sessions.windows
        else:
            groups, firsts = _numbered(owners, bounds[:, 0])
            owners, bounds = owners[firsts], bounds[firsts]
        columns = _head(self._operator.key_by, distinct_keys.take(pa.array(owners)), bounds)
        latest = RowsOfKeys(groups, len(owners), rows.column(LATEST_COLUMN))
        columns[LATEST_COLUMN] = latest.sums()
        if LATE_COLUMN in rows.schema.names:
            late = lists_joined([rows.column(LATE_COLUMN)], groups, len(owners))
            [columns[LATE_COLUMN]] = late
        columns |= joined_parts(self._operator, rows, groups, len(owners))
        return pa.RecordBatch.from_pydict(columns)


def _head(key_by: str, keys: pa.Array, bounds: Int64s) -> dict[str, pa.Array]:
    return {
        key_by: keys,
        START_COLUMN: pa.array(bounds[:, 0]),
        END_COLUMN: pa.array(bounds[:, 1]),
    }


def _numbered(owners: Int64s, starts: Int64s) -> tuple[Int64s, Int64s]:
    """The number of each pair of key and start, and the position of the first of each."""
    coded = pa.array(starts).dictionary_encode()
    pairs = owners * len(coded.dictionary) + coded.indices.to_numpy()
    numbers = pa.array(pairs).dictionary_encode().indices.to_numpy().astype(np.int64)
    firsts = np.empty(int(numbers.max(initial=-1)) + 1, np.int64)
    firsts[numbers[::-1]] = np.arange(len(numbers))[::-1]
    return numbers, firsts


def _pieces(rows: int, assigner: AlignedWindows) -> Iterator[tuple[int, int]]:
    """Where pieces of rows start and end, so that the windows of each are few."""
    step = max(1, MOST_ROWS // (assigner.size // assigner.slide + 1))
    for start in range(0, rows, step):
        yield start, min(start + step, rows)
