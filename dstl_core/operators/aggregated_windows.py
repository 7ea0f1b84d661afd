"""Windows of declared aggregates: one accumulator per key and window, merged by columns.

Source: ``WindowOperator`` of Flink 2.2.1 with an ``AggregateFunction``. The state is the same: the
accumulator is ``window-contents``, a row with a field for each state of each aggregate, and each
window has a timer at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.aggregates.aggregate_merge import Merge
from dstl_core.clock import Clock
from dstl_core.codec.columnar.types.type_layouts import layout_of
from dstl_core.codec.serializers import Types
from dstl_core.codec.serializers.structs import Row, RowSerializer
from dstl_core.codec.serializers.window_types import TimeWindowSerializer
from dstl_core.errors import ConfigError, InvariantViolation
from dstl_core.functions import WINDOW_CONTENTS, WINDOW_TIMERS, RichFunction
from dstl_core.operators.aggregate_function import AggregateMerge
from dstl_core.state.backends.backend import KeyedStateBackend
from dstl_core.state.backends.column_access import BytesDecoder, ValueColumns
from dstl_core.state.backends.timers import (
    MIN_WATERMARK,
    TIME_BYTES,
    InternalTimerService,
    timer_bytes,
)
from dstl_core.state.held.key_batch import Places
from dstl_core.state.tables.descriptor import AggregatingStateDescriptor
from dstl_core.state.windows.windowing import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WindowAssigner,
)

AlignedWindows = TumblingEventTimeWindows | SlidingEventTimeWindows
EventTimeWindows = AlignedWindows | EventTimeSessionWindows
START_COLUMN = "__dstl_window_start"
END_COLUMN = "__dstl_window_end"
LATEST_COLUMN = "__dstl_window_rows"
"""Columns of a reduced batch: where the window starts and ends, and the rows for which it is the
latest.
"""
LATE_COLUMN = "__dstl_window_late"
"""Column of a reduced batch if late rows are an output: a list of the rows of an expired window for
which it is the latest.
"""
WINDOW_START = "window_start"
WINDOW_END = "window_end"
WINDOWS = TimeWindowSerializer()
_WINDOW_TYPE = layout_of(WINDOWS).arrow_type
WINDOW_BYTES = 16
_TIMERS_AT_A_TIME = 1_000_000
_MAX_TIME = (1 << 63) - 1
_KINDS = (TumblingEventTimeWindows, SlidingEventTimeWindows, EventTimeSessionWindows)
Int64s = npt.NDArray[np.int64]
Bounds = Int64s
"""Where windows start and end, in milliseconds: ``[windows, 2]``."""
Fit = Callable[[pa.Array, pa.DataType, str], pa.Array]
"""Casts a column to a type; the text says what it is, for errors."""


def check_windows(uid: str, assigner: WindowAssigner) -> EventTimeWindows:
    """The windows, if aggregates can be declared over them.

    Raises:
        ConfigError: They are of another kind, or have gaps between them.
    """
    if not isinstance(assigner, _KINDS):
        raise ConfigError(
            f"The windows of operator {uid!r} are not for declared aggregates: expected "
            f"{' or '.join(each.__name__ for each in _KINDS)}, got {type(assigner).__name__}; "
            f"use a KeyedOperator with a WindowFunction."
        )
    if isinstance(assigner, EventTimeSessionWindows):
        return assigner
    if assigner.slide > assigner.size:
        raise ConfigError(
            f"The windows of operator {uid!r} leave gaps, and rows in them would be lost: expected "
            f"a slide of at most {assigner.size} ms, the size, got {assigner.slide} ms."
        )
    return assigner


def windowed_output(uid: str, output: pa.Schema, time_type: pa.DataType) -> pa.Schema:
    """The columns of an output, with the start and the end of the window after the key.

    Raises:
        ConfigError: The key or an aggregate has one of their names.
    """
    for bound in (WINDOW_START, WINDOW_END):
        if bound in output.names:
            raise ConfigError(
                f"The output of operator {uid!r} has two columns {bound!r}: one is the "
                f"{'start' if bound == WINDOW_START else 'end'} of the window; rename the other."
            )
    key, *others = output
    bounds = [pa.field(each, time_type) for each in (WINDOW_START, WINDOW_END)]
    return pa.schema([key, *bounds, *others])


class MergedAccumulators:
    """The ``AggregateFunction`` of the state. Columns change accumulators, never this object."""

    def __init__(self, fields: int) -> None:
        self._fields = fields

    def create_accumulator(self) -> Row:
        return Row(0, (None,) * self._fields)

    def add(self, value: Row, accumulator: Row) -> Row:
        """Replaces the accumulator by one that has been merged."""
        return value

    def get_result(self, accumulator: Row) -> Row:
        return accumulator

    def merge(self, a: Row, b: Row) -> Row:
        """Raises InvariantViolation: accumulators are merged by columns."""
        raise InvariantViolation("accumulators were merged one by one")


@dataclass(frozen=True)
class AggregatedWindows(RichFunction):
    """The aggregates of the rows of each key and window.

    Args:
        merge: The aggregates, with the output of a window but for its start and end.
        assigner: The windows.
        allowed_lateness: Milliseconds for which a window is kept after its end.
        output: Columns of the output: the key, the window's start and end, then the aggregates.
        fit: Casts a column to the type of its state, or of its output.
        side_output_late_data: Columns of late rows; None: they are no output.
    """

    merge: AggregateMerge
    assigner: EventTimeWindows
    allowed_lateness: int
    output: pa.Schema | None
    fit: Fit
    side_output_late_data: pa.Schema | None = None

    order_insensitive = True

    @property
    def merges(self) -> tuple[Merge, ...]:
        return self.merge.merges

    @property
    def accumulator(self) -> RowSerializer:
        """The type of an accumulator: a field for each state."""
        return Types.ROW(*(each.serializer for each in self.merge.states))

    def fields_of(self, states: Mapping[str, Any]) -> dict[str, Any]:
        """Values of states by the fields of an accumulator."""
        names = [each.name for each in self.merge.states]
        return {f"f{at}": states[name] for at, name in enumerate(names) if name in states}

    def expiry(self, bounds: Bounds) -> Int64s:
        """When windows expire. A sum beyond the largest time is the largest time."""
        last, lateness = _last(bounds), self.allowed_lateness
        expiry: Int64s = np.where(last > _MAX_TIME - lateness, _MAX_TIME, last + lateness)
        return expiry

    def contents(self) -> AggregatingStateDescriptor:
        """Descriptor of the state that holds the accumulators."""
        function = MergedAccumulators(len(self.merge.states))
        return AggregatingStateDescriptor(WINDOW_CONTENTS, function, self.accumulator)


class AggregatedWindowOperator:
    """Merges reduced batches into windows, and fires windows. One thread.

    A batch has one row for each key and window, and others for late rows that are an output. Rows
    of windows that have expired are late: they are counted, and dropped or given as an output. A
    window that gets rows after its end, but before it expires, fires again, once for each batch.

    Args:
        function: The windows and their aggregates.
        backend: The keyed state of the operator.
        clock: Gives processing time.
    """

    def __init__(
        self, function: AggregatedWindows, backend: KeyedStateBackend, clock: Clock
    ) -> None:
        self._function = function
        state: Any = backend.get_or_create_keyed_state(WINDOWS, function.contents())
        self._contents = ValueColumns(backend, state)
        self._keys = BytesDecoder(layout_of(backend.key_serializer), "The key of a timer")
        self.timers = InternalTimerService(backend, clock, WINDOW_TIMERS, WINDOWS)
        self.late_rows = 0
        """Number of rows that came after all of their windows had expired."""
        self.late: list[pa.RecordBatch] = []
        """These rows, if they are an output; the caller that takes them clears the list."""

    def add_columns(
        self, keys: pa.Array, rows: pa.RecordBatch, until_ms: int = MIN_WATERMARK
    ) -> pa.RecordBatch | None:
        """Merges a reduced batch into its windows.

        Args:
            keys: ``[n]`` keys.
            rows: ``[n]`` rows: where the window starts and ends, and the parts of the aggregates.
                The sessions of a key do not touch each other.
            until_ms: The watermark that comes right after the batch, if it is known. Windows that
                expire by then fire at once, and new ones are never stored.

        Returns:
            The output of the windows that fire.

        Raises:
            ConfigError: An aggregate does not fit its type.
        """
        bounds = [rows.column(name).to_numpy() for name in (START_COLUMN, END_COLUMN)]
        return self._add(keys, np.stack(bounds, axis=1), rows, until_ms)

    def _add(
        self, keys: pa.Array, bounds: Bounds, rows: pa.RecordBatch, until_ms: int
    ) -> pa.RecordBatch | None:
        expired = self._function.expiry(bounds) <= self.timers.current_watermark
        if expired.any():
            self._drop(rows, expired)
            kept = pa.array(~expired)
            keys, rows, bounds = keys.filter(kept), rows.filter(kept), bounds[~expired]
        if not len(keys):
            return None
        places = self._contents.places(keys, window_column(bounds))
        before = self._contents.get_at(places)
        accumulators = self._merged(keys, before, rows)
        ends = self._function.expiry(bounds) <= until_ms
        is_new = before.is_null().to_numpy(zero_copy_only=False)
        stays, opens = ~ends, is_new & ~ends
        self._store(places.where(stays.tolist()), accumulators.filter(pa.array(stays)))
        self._register(places.where(opens.tolist()), bounds[opens])
        # The timers of such windows fire right after, and find nothing.
        gone = ends & ~is_new
        if gone.any():
            self._contents.clear_at(places.where(gone.tolist()))
        return self._fire_now(keys, bounds, accumulators, ends)

    def _drop(self, rows: pa.RecordBatch, expired: npt.NDArray[np.bool_]) -> None:
        """Counts the rows of windows that have expired, and gives them if they are an output."""
        counts = np.asarray(rows.column(LATEST_COLUMN))[expired]
        number = int(counts.sum())
        self.late_rows += number
        schema = self._function.side_output_late_data
        if schema is None or not number:
            return
        late = pc.list_flatten(rows.column(LATE_COLUMN).filter(pa.array(expired)))
        if len(late) != number:
            raise InvariantViolation(f"{number} rows are late, and {len(late)} of them are there")
        columns = [
            self._function.fit(column, field.type, f"The late column {field.name!r}")
            for column, field in zip(late.flatten(), schema, strict=True)
        ]
        self.late.append(pa.RecordBatch.from_arrays(columns, schema=schema))

    def _fire_now(
        self, keys: pa.Array, bounds: Bounds, accumulators: pa.Array, ends: npt.NDArray[np.bool_]
    ) -> pa.RecordBatch | None:
        """The output of changed windows that have ended, or that expire right after the batch."""
        fires = ends | (_last(bounds) <= self.timers.current_watermark)
        if not fires.any():
            return None
        chosen = pa.array(fires)
        return self._output(keys.filter(chosen), bounds[fires], accumulators.filter(chosen))

    def _store(self, places: Places, accumulators: pa.Array) -> None:
        if len(places):
            self._contents.put_at(places, accumulators, distinct=True)

    def _register(self, windows: Places, bounds: Bounds) -> None:
        if len(windows):
            ended = _last(bounds) <= self.timers.current_watermark
            timers = self._timers_of(windows, bounds, ended)
            self.timers.event_time.register_new(*timers)

    def _timers_of(
        self, windows: Places, bounds: Bounds, ended: npt.NDArray[np.bool_]
    ) -> tuple[list[int], list[bytes]]:
        """The timers of windows: at the end of those that have not ended, and where all expire."""
        opened = windows.where((~ended).tolist()) if ended.any() else windows
        groups = list(opened.key_groups)
        timers = timer_bytes(_last(bounds[~ended]).tolist(), opened.scopes)
        if self._function.allowed_lateness:
            expiry = self._function.expiry(bounds)
            never = expiry == _MAX_TIME
            if never.any():
                windows, expiry = windows.where((~never).tolist()), expiry[~never]
            groups += windows.key_groups
            timers += timer_bytes(expiry.tolist(), windows.scopes)
        return groups, timers

    def advance_watermark(self, watermark_ms: int) -> list[pa.RecordBatch]:
        """Advances event time to at least this; returns the output of the windows that fire."""
        timers = self.timers
        timers.current_watermark = max(timers.current_watermark, watermark_ms)
        output: list[pa.RecordBatch] = []
        while True:
            due = timers.event_time.take_due_bytes(timers.current_watermark, _TIMERS_AT_A_TIME)
            if not due[0]:
                return output
            groups, elements = due
            scopes = [each[TIME_BYTES:] for each in elements]
            times = _longs([each[:TIME_BYTES] for each in elements])[:, 0] ^ np.int64(-(1 << 63))
            bounds = _longs([each[-WINDOW_BYTES:] for each in scopes])
            output += self._fired(Places(groups, scopes), bounds, times)

    def advance_processing_time(self) -> list[pa.RecordBatch]:
        """Returns nothing: the windows are in event time."""
        return []

    def _fired(self, places: Places, bounds: Bounds, times: Int64s) -> Iterator[pa.RecordBatch]:
        """Fires or removes the windows at these places, by the times of their timers."""
        fires, expires = times == _last(bounds), times == self._function.expiry(bounds)
        if fires.any():
            firing = places.where(fires.tolist())
            accumulators = self._contents.get_at(firing)
            is_valid = accumulators.is_valid()
            names = [each[:-WINDOW_BYTES] for each in compress(firing.scopes, is_valid.to_pylist())]
            bounds_there = bounds[fires][is_valid.to_numpy(zero_copy_only=False)]
            keys = self._keys.column(names)
            output = self._output(keys, bounds_there, accumulators.filter(is_valid))
            if output is not None:
                yield output
        if expires.any():
            self._contents.clear_at(places.where(expires.tolist()))

    def _merged(self, keys: pa.Array, held: pa.Array, rows: pa.RecordBatch) -> pa.Array:
        """The accumulators of windows after a reduced batch; ``held`` has null for new ones."""
        merged = self._function.merge.process_batch(keys, self._states(held), rows)
        return self._accumulators(merged.state)

    def _states(self, accumulators: pa.Array) -> pa.RecordBatch:
        """Accumulators as a column per state; null where there is none."""
        names = [each.name for each in self._function.merge.states]
        return pa.RecordBatch.from_arrays(accumulators.flatten(), names=names)

    def _accumulators(self, states: pa.RecordBatch | pa.Table) -> pa.Array:
        kind = self._contents.value_type
        columns = [
            self._function.fit(states.column(state.name), field.type, f"State {state.name!r}")
            for state, field in zip(self._function.merge.states, kind, strict=True)
        ]
        return pa.StructArray.from_arrays(columns, fields=list(kind))

    def _output(
        self, keys: pa.Array, windows: Bounds, accumulators: pa.Array
    ) -> pa.RecordBatch | None:
        """A row for each window: its key, its start and end, and its aggregates."""
        schema = self._function.output
        changes = self._function.merge.output_of_changes(keys, self._states(accumulators))
        if schema is None or changes is None:
            return None
        key, *values = changes.columns
        bounds = [
            _as_time(windows[:, at], schema.field(name).type)
            for at, name in enumerate((WINDOW_START, WINDOW_END))
        ]
        return pa.RecordBatch.from_arrays([key, *bounds, *values], names=schema.names)

    def close(self) -> None:
        """Does nothing: aggregates hold nothing open."""


def window_column(bounds: Bounds) -> pa.Array:
    columns = [pa.array(bounds[:, at]) for at in (0, 1)]
    return pa.StructArray.from_arrays(columns, fields=list(_WINDOW_TYPE))


def _last(bounds: Bounds) -> Int64s:
    """The last milliseconds of windows."""
    last_ms: Int64s = bounds[:, 1] - 1
    return last_ms


def _longs(raw: Sequence[bytes]) -> npt.NDArray[np.int64]:
    """Big-endian numbers, a row for each text of bytes."""
    longs = np.frombuffer(b"".join(raw), ">i8").astype(np.int64)
    return longs.reshape(len(raw), -1)


def _as_time(times_ms: Int64s, kind: pa.DataType) -> pa.Array:
    """Milliseconds, or timestamps."""
    times = pa.array(times_ms)
    if not pa.types.is_timestamp(kind):
        return times
    return times.cast(pa.timestamp("ms", kind.tz)).cast(kind)
