"""Writes the keyed state of one migrated operator, by columns.

States whose bytes stay are copied as bytes. Memory is bounded: records go to a temporary file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.codec.keyed_records import RecordFormat
from dstl_core.codec.state_meta import KeyedBackendHeader
from dstl_core.errors import ColumnValueError, error_context
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.edit.operator_copy import key_group_ranges_of, streams_of
from dstl_core.savepoint.migrate.colliding_rows import CollidingRows
from dstl_core.savepoint.migrate.migration_plan import CONVERT, EMPTY, OperatorPlan, StatePlan
from dstl_core.savepoint.migrate.sql_cast import OPTIONS
from dstl_core.savepoint.migrate.value_conversion import Misfits, Values, kind_of
from dstl_core.savepoint.read.keyed_copy import copy_states
from dstl_core.savepoint.read.snapshot import OperatorSnapshot
from dstl_core.savepoint.write.folder import StateFiles, StoredKeyedHandle
from dstl_core.state.columns.keyed_encoder import KeyedStateEncoder
from dstl_core.state.columns.keyed_sections import KeyedSections
from dstl_core.state.columns.progress import Advance, Portion, no_progress
from dstl_core.state.columns.state_columns import (
    KEY_COLUMN,
    LIST_INDEX_COLUMN,
    LIST_VALUE_COLUMN,
    MAP_KEY_COLUMN,
    MAP_VALUE_COLUMN,
    VALUE_COLUMN,
)
from dstl_core.state.tables.keyed_state import state_key

MEMORY = 128 << 20
"""Bytes of new records in memory; more go to a temporary file, which costs no time to speak of."""


@dataclass
class StateCount:
    """What happened to one state.

    Attributes:
        before: Entries of the old state: values, lists, map entries or timers.
        after: Entries of the new state.
        merged: Rows that went into others.
        nulled: Values that became null by ``cast_or_null``.
    """

    before: int = 0
    after: int = 0
    merged: int = 0
    nulled: int = 0


@dataclass
class KeyedMigration:
    """The keyed state of one operator, on its way.

    Args:
        plan: The operator.
        target: Where the files go.
        max_parallelism: Number of key groups of the result.
        parallelism: Number of subtasks of the result.
        show_keys: Whether messages may show keys.
    """

    plan: OperatorPlan
    target: StateFiles
    max_parallelism: int
    parallelism: int
    show_keys: bool = False
    counts: dict[str, StateCount] = field(default_factory=dict)

    def written(self) -> list[StoredKeyedHandle | None]:
        """Writes the streams of all subtasks."""
        if not self._is_keyed:
            return [None] * self.parallelism
        size = sum(h.state_size for op in self.plan.sources for h in op.keyed_handles)
        portion = Portion(self.target.advance, size)
        with self._sections() as sections:
            self._fill(sections, portion.add)
            ranges = key_group_ranges_of(self.max_parallelism, self.parallelism)
            return streams_of(sections, ranges, self.target, portion)

    def differing(self, written: OperatorSnapshot, key_groups: Sequence[int]) -> list[int]:
        """Computes the records again from the source, and compares them with those of a snapshot.

        Args:
            written: The operator as it was written.
            key_groups: The key groups to compare.

        Returns:
            The key groups whose bytes differ.
        """
        if not self._is_keyed:
            return []
        ids = {state_key(each.new.meta): at for at, each in enumerate(self._states)}
        with self._sections() as again, self._sections() as stored:
            self._fill(again, no_progress)
            copy_states(stored, written, ids, self.max_parallelism)
            return [each for each in key_groups if again.section(each) != stored.section(each)]

    @property
    def _states(self) -> list[StatePlan]:
        return [each for each in self.plan.states if not each.is_operator_state]

    @property
    def _is_keyed(self) -> bool:
        return bool(self._states) and self.plan.key_type is not None

    def _sections(self) -> KeyedSections:
        assert self.plan.key_type is not None
        metas = tuple(each.new.meta for each in self._states)
        everything = KeyGroupRange(0, self.max_parallelism - 1)
        header = KeyedBackendHeader(self.plan.key_type, metas)
        return KeyedSections(header, everything, self.max_parallelism, memory=MEMORY)

    def _fill(self, sections: KeyedSections, advance: Advance) -> None:
        self._copied(sections, advance)
        for at, state in enumerate(self._states):
            if state.action == CONVERT:
                self._convert(sections, at, state)

    def _copied(self, sections: KeyedSections, advance: Advance) -> None:
        """States that stay as bytes."""
        own = self._states
        for operator in {id(each.operator): each.operator for each in own}.values():
            if operator is None:
                continue
            ids = {
                state_key(state.old.meta): at
                for at, state in enumerate(own)
                if state.operator is operator
                and state.old is not None
                and state.action not in (CONVERT, EMPTY)
            }
            if ids:
                copy_states(sections, operator, ids, self.max_parallelism, advance)

    # ------------------------------------------------------------------------------ conversion

    def _convert(self, sections: KeyedSections, at: int, state: StatePlan) -> None:
        key_type = self.plan.key_type
        assert key_type is not None and state.operator is not None and state.old is not None
        encoder = KeyedStateEncoder(
            key_type, [state.new.meta], self.max_parallelism, types=OPTIONS, first_id=at
        )
        count = self.counts.setdefault(state.new.name, StateCount())
        with error_context(operator=self.plan.label, state=state.new.name):
            for rows in self._rows(state, count):
                if state.misfits.refused:
                    continue  # the rest is only counted
                sections.add(encoder.encode(state.new.name, rows))
            self._refuse(state, count)

    def _rows(self, state: StatePlan, count: StateCount) -> Iterator[pa.Table | pa.RecordBatch]:
        operator, key_type = state.operator, self.plan.key_type
        assert operator is not None and key_type is not None and state.old is not None
        reader = operator.flat(state.old.name, types=OPTIONS)
        batches = (self._batch(each, state, operator, count) for each in reader.read())
        if state.merge is None:
            yield from batches
            return
        size = sum(each.state_size for each in operator.keyed_handles)
        record_format = RecordFormat(state.new.meta.as_key_value(), key_type)
        with CollidingRows(record_format, self.max_parallelism, state.merge, size) as rows:
            for batch in batches:
                rows.add(batch)
            self._refuse(state, count)
            try:
                yield from rows.rows()
            except pa.ArrowInvalid as error:
                raise ColumnValueError(
                    f"State {state.new.name!r} of operator {self.plan.label!r} cannot be merged: "
                    f"a {state.merge} does not fit into its type; choose a wider type."
                ) from error
            count.merged = rows.merged

    def _batch(
        self,
        batch: pa.RecordBatch,
        state: StatePlan,
        operator: OperatorSnapshot,
        count: StateCount,
    ) -> pa.RecordBatch:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        assert state.old is not None and operator.key_type is not None
        keys, old_key = columns[KEY_COLUMN], operator.key_type.serializer
        shown = keys if self.show_keys else None
        found = dict(columns)
        if self.plan.key is not None:
            self.plan.key.misfits = state.misfits
            found[KEY_COLUMN] = self.plan.key.apply(keys, {}, shown)
        count.before += _entries(columns, batch.num_rows)
        if state.value is not None:
            self._values(state, columns, found, Values(keys, kind_of(old_key)), shown)
        return pa.RecordBatch.from_arrays(list(found.values()), names=list(found))

    def _values(
        self,
        state: StatePlan,
        columns: dict[str, pa.Array],
        found: dict[str, pa.Array],
        key: Values,
        shown: pa.Array | None,
    ) -> None:
        assert state.value is not None
        name = next(each for each in _VALUES if each in columns)
        others = {"key": key}
        if MAP_KEY_COLUMN in columns and state.old is not None:
            old_map = state.old.meta.as_key_value().value_serializer
            others["map_key"] = Values(columns[MAP_KEY_COLUMN], kind_of(old_map.nested[0]))
        del found[name]
        value = state.value.apply(columns[name], others, shown)
        if state.map_key is not None:
            given = columns.get(MAP_KEY_COLUMN, columns[name])
            scope = dict(others, value=Values(columns[name], kind_of(state.value.old)))
            found[MAP_KEY_COLUMN] = state.map_key.apply(given, scope, shown)
        new = _VALUE_OF.get(state.new.kind, VALUE_COLUMN)
        if new != LIST_VALUE_COLUMN:
            found.pop(LIST_INDEX_COLUMN, None)
        if new != MAP_VALUE_COLUMN:
            found.pop(MAP_KEY_COLUMN, None)
        if new == VALUE_COLUMN and value.null_count:
            null = value.is_null()
            state.misfits.add(f"{state.value.where}: null", null, shown, null=False)
        found[new] = value

    def _refuse(self, state: StatePlan, count: StateCount) -> None:
        misfits: Misfits = state.misfits
        count.nulled = sum(misfits.nulled.values())
        if not misfits.refused:
            return
        place, number = next(iter(misfits.refused.items()))
        keys = f" (keys: {', '.join(misfits.keys)})" if misfits.keys else ""
        advice = "" if self.show_keys else "; --show-keys shows up to 5 of their keys"
        raise ColumnValueError(
            f"State {state.new.name!r} of operator {self.plan.label!r} does not fit: {number} "
            f"values of {place}{keys}; use cast_or_null or coalesce, or another type{advice}."
        )


_VALUES = (VALUE_COLUMN, MAP_VALUE_COLUMN, LIST_VALUE_COLUMN)
_VALUE_OF = {"list": LIST_VALUE_COLUMN, "map": MAP_VALUE_COLUMN}


def _entries(columns: dict[str, pa.Array], rows: int) -> int:
    """Entries as they are counted: a list is one."""
    if LIST_INDEX_COLUMN not in columns:
        return rows
    return int(np.count_nonzero(np.asarray(columns[LIST_INDEX_COLUMN]) == 0))


def count_entries(operator: OperatorSnapshot, name: str) -> int:
    """Reads how many entries a keyed state has."""
    reader = operator.flat(name, types=OPTIONS)
    wanted = LIST_INDEX_COLUMN if LIST_INDEX_COLUMN in reader.schema.names else KEY_COLUMN
    total = 0
    for batch in operator.flat(name, types=OPTIONS, columns=(wanted,)).read():
        column = batch.column(0)
        total += (
            int(pc.sum(pc.equal(column, 0)).as_py() or 0)
            if wanted == LIST_INDEX_COLUMN
            else len(column)
        )
    return total
