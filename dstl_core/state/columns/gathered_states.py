"""Values of states that wait until all of them are put into a store at once.

Each put makes a level of the store, and a later look-up passes all levels. A log that was put in
the small batches in which it is read took a time that grew with the square of its size.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.codec.columnar.keyed.byte_index import Ranges
from dstl_core.codec.columnar.keyed.spans import Source
from dstl_core.codec.columnar.types.input import one_array
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.codec.serializers import AnySerializer
from dstl_core.state.columns.column_store import MAX_LEVELS, ColumnStore
from dstl_core.state.columns.key_numbers import KeyNumbers

MOST_WAITING_BYTES = 1 << 30
"""Keys and values that wait: an Arrow column of texts has less than 2 GiB. A log has one state
after the other, so each part that is put looks up all keys again, and costs time and memory.
"""
_LEAST_ROWS = 1 << 17
"""So many values of a state wait before older ones of their keys are dropped."""

Owners = npt.NDArray[np.int32]


class GatheredStates:
    """Takes values in the order of their changes. The last value of a key is kept.

    Args:
        store: The store that gets the values.
        key_type: The type of the keys.
    """

    def __init__(self, store: ColumnStore, key_type: AnySerializer) -> None:
        self._store = store
        self._key_type = key_type
        self._begin()

    def _begin(self) -> None:
        self._keys = KeyNumbers(self._key_type)
        self._states = {field.name: _Values() for field in self._store.schema}

    def add(self, state: str, keys: Ranges, source: Source, values: pa.Array) -> None:
        """Adds values of a state.

        Args:
            state: The name of the state.
            keys: The bytes of the key of each value.
            source: Has these bytes.
            values: The values, in the order of their changes; null for one that is cleared.

        Raises:
            FormatError: A key is damaged.
        """
        waiting = self._keys.bytes + sum(each.bytes for each in self._states.values())
        if waiting > MOST_WAITING_BYTES:
            self.put()
        self._states[state].add(self._keys.numbers(keys, source), values)

    def put(self) -> None:
        """Puts all values into the store."""
        if not self._keys.count:
            return
        keys, numbers = self._store.keys(pa.concat_arrays(self._keys.keys))
        states = self._states
        self._begin()
        columns = []
        before: pa.Table | None = None
        for field in self._store.schema:
            latest, values = states.pop(field.name).latest(len(numbers))
            if before is None and self._store.levels and (latest < 0).any():
                before = self._store.lookup(keys)
            columns.append(_newest(field, latest, values, before))
        self._store.put(keys, pa.Table.from_arrays(columns, schema=self._store.schema))
        if len(self._store.levels) > MAX_LEVELS:
            self._store.tidy()


class _Values:
    """Values of one state, with the numbers of their keys."""

    def __init__(self) -> None:
        self._owners: list[Owners] = []
        self._parts: list[pa.Array] = []
        self._rows = self._kept = 0
        self.bytes = 0

    def add(self, owners: Int64s, values: pa.Array) -> None:
        self._keep(owners, values)
        if self._rows > 2 * self._kept + _LEAST_ROWS:
            latest, every = self.latest(1 + max(int(some.max()) for some in self._owners))
            newest = np.flatnonzero(latest >= 0)
            self._owners, self._parts = [], []
            self._rows = self.bytes = 0
            if every is not None:
                self._keep(newest, every.take(pa.array(latest[newest])))
            self._kept = self._rows

    def _keep(self, owners: Int64s, values: pa.Array) -> None:
        numbers = owners.astype(np.int32)
        self._owners.append(numbers)
        self._parts.append(values)
        self._rows += len(numbers)
        self.bytes += numbers.nbytes + values.nbytes

    def latest(self, count: int) -> tuple[Int64s, pa.Array | None]:
        """The place of the last value of each of ``count`` keys, -1 without one, and the values."""
        latest = np.full(count, -1, np.int64)
        if not self._parts:
            return latest, None
        owners = np.concatenate(self._owners)
        latest[owners] = np.arange(len(owners))  # the last one of a key is kept
        return latest, pa.concat_arrays(self._parts)


def _newest(
    field: pa.Field[Any], latest: Int64s, values: pa.Array | None, before: pa.Table | None
) -> pa.Array:
    """The value of each key: its latest one, else the value of before."""
    old = None if before is None else one_array(before.column(field.name))
    if values is None:
        return pa.nulls(len(latest), field.type) if old is None else old
    touched = latest >= 0
    if old is None or touched.all():
        return values.take(pa.array(latest, mask=~touched))
    new = values.take(pa.array(np.where(touched, latest, 0)))
    return pc.if_else(pa.array(touched), new, old)
