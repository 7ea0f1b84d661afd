"""Session windows of declared aggregates: accumulators of sessions that touch merge by columns.

Source: ``WindowOperator`` and ``MergingWindowSet`` of Flink 2.2.1. The state is that of
``AggregatedWindowOperator``, and ``merging-window-set`` has the sessions of each key.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from dstl_core.aggregates.folds import folded
from dstl_core.clock import Clock
from dstl_core.codec.serializers import TupleSerializer
from dstl_core.functions import MERGING_WINDOW_SET
from dstl_core.operators.aggregated_windows import (
    WINDOW_BYTES,
    WINDOWS,
    AggregatedWindowOperator,
    AggregatedWindows,
    Bounds,
    Int64s,
    window_column,
)
from dstl_core.operators.session_sets import Bools, SessionSet, touching
from dstl_core.state.backends.backend import KeyedStateBackend
from dstl_core.state.backends.column_access import WholeLists
from dstl_core.state.held.key_batch import KeyBatch, Places, places_of_keys
from dstl_core.state.tables.descriptor import ListStateDescriptor
from dstl_core.state.tables.state_table import VOID_NAMESPACE

_PAIR = TupleSerializer((WINDOWS, WINDOWS))


class AggregatedSessionOperator(AggregatedWindowOperator):
    """As ``AggregatedWindowOperator`` for sessions, which grow and merge.

    The sessions of a batch form before rows are judged: a row is late if its session has expired,
    with all rows of the batch and of the state that belong to it.
    """

    def __init__(
        self, function: AggregatedWindows, backend: KeyedStateBackend, clock: Clock
    ) -> None:
        super().__init__(function, backend, clock)
        state = backend.get_list_state(ListStateDescriptor(MERGING_WINDOW_SET, _PAIR))
        self._sets = WholeLists(backend, state)
        self._key_serializer = backend.key_serializer
        self._key_places = places_of_keys(
            backend.key_serializer, backend.key_group_range, backend.number_of_key_groups
        )

    def _add(
        self, keys: pa.Array, bounds: Bounds, rows: pa.RecordBatch, until_ms: int
    ) -> pa.RecordBatch | None:
        batch = KeyBatch(self._key_places, self._key_serializer, keys)
        held = SessionSet.of(self._sets.get_at(batch.places))
        members = held.joined(SessionSet(batch.numbers, bounds, bounds))
        overlaps = touching(members)
        old, new = overlaps.group[: len(held)], overlaps.group[len(held) :]
        has_old, has_new = (np.bincount(each, minlength=len(overlaps)) > 0 for each in (old, new))
        expired = ~has_old & (
            self._function.expiry(overlaps.windows) <= self.timers.current_watermark
        )
        if expired.any():
            self._drop(rows, expired[new])
        grows = has_new & ~expired
        if not grows.any():
            return None
        number = np.cumsum(grows) - 1
        before, into = held.where(grows[old]), number[old[grows[old]]]
        grown = SessionSet(
            overlaps.owners[grows], overlaps.windows[grows], overlaps.windows[grows].copy()
        )
        some, firsts = np.unique(into, return_index=True)
        grown.kept[some] = before.kept[firsts]

        added = pa.array(grows[new])
        keys, rows = keys.filter(added), rows.filter(added)
        accumulators = pa.concat_arrays(
            [
                self._contents.get_at(self._places(batch, before.owners, before.kept)),
                self._merged(keys, pa.nulls(len(keys), self._contents.value_type), rows),
            ]
        )
        group = np.concatenate([into, number[new[grows[new]]]])
        accumulators = self._folded(accumulators, group)

        # No row that comes later touches a session of this batch alone, so it may fire at once.
        ends = ~has_old[grows] & (self._function.expiry(grown.windows) <= until_ms)
        stays = (before.windows == grown.windows[into]).all(axis=1)
        is_new = ~ends
        is_new[into[stays]] = False
        self._remove(batch, before.where((before.kept != grown.kept[into]).any(axis=1)))
        self._forget(batch, before.where(~stays))
        stored, opened = grown.where(~ends), grown.where(is_new)
        rest = held.where(~grows[old]).joined(stored)
        self._write_sets(batch.places, rest, opened.owners)
        places = self._places(batch, stored.owners, stored.kept)
        self._store(places, accumulators.filter(pa.array(~ends)))
        self._register(self._places(batch, opened.owners, opened.windows), opened.windows)
        distinct = batch.distinct.take(pa.array(grown.owners))
        return self._fire_now(distinct, grown.windows, accumulators, ends)

    def _places(self, batch: KeyBatch, owners: Int64s, windows: Bounds) -> Places:
        """The places of windows of some keys of a batch."""
        keys = batch.distinct.take(pa.array(owners))
        return self._contents.places(keys, window_column(windows))

    def _folded(self, accumulators: pa.Array, group: Int64s) -> pa.Array:
        """One accumulator for each group, in the order of their numbers."""

        def combined(one: pa.RecordBatch, other: pa.RecordBatch) -> pa.RecordBatch:
            merged = self._function.merge.combined(one, other)
            return self._states(self._accumulators(merged))

        return self._accumulators(folded(combined, self._states(accumulators), group))

    def _remove(self, batch: KeyBatch, sessions: SessionSet) -> None:
        """Removes the contents of sessions, which are merged into those of others."""
        if len(sessions):
            self._contents.clear_at(self._places(batch, sessions.owners, sessions.kept))

    def _forget(self, batch: KeyBatch, sessions: SessionSet) -> None:
        """Removes the timers of sessions, which have grown or merged."""
        if len(sessions):
            windows = self._places(batch, sessions.owners, sessions.windows)
            none_ended = np.zeros(len(sessions), np.bool_)
            timers = self._timers_of(windows, sessions.windows, none_ended)
            self.timers.event_time.delete_many(*timers)

    def _write_sets(self, places: Places, sessions: SessionSet, changed: Int64s) -> None:
        """Writes the sessions of the keys with these numbers."""
        if not len(changed):
            return
        chosen = np.zeros(len(places), np.bool_)
        chosen[changed] = True
        lists = sessions.lists(len(places), self._sets.list_type)
        self._sets.put_at(places.where(chosen.tolist()), lists.filter(pa.array(chosen)))

    def _fired(self, places: Places, bounds: Bounds, times: Int64s) -> Iterator[pa.RecordBatch]:
        names = [each[:-WINDOW_BYTES] for each in places.scopes]
        owners, firsts = _numbered(names)
        keys = Places(
            [places.key_groups[at] for at in firsts], [names[at] + VOID_NAMESPACE for at in firsts]
        )
        held = SessionSet.of(self._sets.get_at(keys))
        positions = held.find(owners, bounds)
        is_held: Bools = positions >= 0  # other timers are those of sessions that have merged
        if not is_held.any():
            return
        positions, bounds, times = positions[is_held], bounds[is_held], times[is_held]
        column = self._keys.column([names[at] for at in np.flatnonzero(is_held)])
        contents = self._contents.places(column, window_column(held.kept[positions]))
        yield from super()._fired(contents, bounds, times)
        expired = positions[times == self._function.expiry(bounds)]
        left = np.ones(len(held), np.bool_)
        left[expired] = False
        self._write_sets(keys, held.where(left), held.owners[expired])


def _numbered(names: list[bytes]) -> tuple[Int64s, Int64s]:
    """The number of each name, from 0, and the first position of each number."""
    numbers = pa.array(names, pa.binary()).dictionary_encode().indices.to_numpy()
    _, firsts = np.unique(numbers, return_index=True)
    return numbers.astype(np.int64), firsts
