"""Writes the keyed state of one migrated operator, by columns.

States whose bytes stay are copied as bytes. Memory is bounded: records go to a temporary file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.codec.data_io import DataInput
from dstl_core.codec.keyed_canonical import read_section
from dstl_core.codec.keyed_records import RecordFormat
from dstl_core.codec.state_meta import KeyedBackendHeader
from dstl_core.errors import ColumnValueError, error_context
from dstl_core.model.handle import IncrementalRemoteKeyedStateHandle as RocksHandle
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.access.units import Unit
from dstl_core.savepoint.edit.kept_state import KeptState
from dstl_core.savepoint.edit.keyed_units import (
    Handles,
    NewStream,
    Sections,
    Shuffle,
    key_group_ranges_of,
    streamed_runs,
    write_sections,
    write_streams,
)
from dstl_core.savepoint.edit.recorded_units import Streamed
from dstl_core.savepoint.edit.rewriting import Output
from dstl_core.savepoint.expressions.sql_cast import OPTIONS
from dstl_core.savepoint.expressions.typed_values import Values, kind_of
from dstl_core.savepoint.expressions.value_conversion import Misfits
from dstl_core.savepoint.migrate.colliding_rows import CollidingRows
from dstl_core.savepoint.migrate.kept_tables import converted_apart, keeps_tables, kept_names
from dstl_core.savepoint.migrate.migration_plan import CONVERT, EMPTY, OperatorMigration, StatePlan
from dstl_core.savepoint.read.keyed_copy import CopyTarget, RunList, copied_runs, copy_states
from dstl_core.savepoint.read.snapshot import OperatorSnapshot
from dstl_core.savepoint.read.stored_records import is_large
from dstl_core.savepoint.write.folder import StoredKeyedHandle
from dstl_core.savepoint.write.table_parts import TablePart, joined_handle, part_of
from dstl_core.savepoint.write.work_record import NumberedPiece
from dstl_core.state.columns.keyed_encoder import KeyedStateEncoder
from dstl_core.state.columns.keyed_sections import KeyedSections, StateRuns
from dstl_core.state.columns.state_columns import (
    KEY_COLUMN,
    LIST_INDEX_COLUMN,
    LIST_VALUE_COLUMN,
    MAP_KEY_COLUMN,
    MAP_VALUE_COLUMN,
    VALUE_COLUMN,
)
from dstl_core.state.tables.keyed_state import state_key

Report = Mapping[str, tuple[dict[str, int], dict[str, Any]]]
"""What a unit has counted of each state that is converted, as JSON values: the attributes of its
``StateCount`` and its ``Misfits``.
"""


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
    """Writes the keyed state of one migrated operator.

    Args:
        plan: The operator.
        output: Where the files go.
        max_parallelism: Number of key groups of the result.
        parallelism: Number of subtasks of the result.
        show_keys: Whether messages may show keys.
    """

    plan: OperatorMigration
    output: Output
    max_parallelism: int
    parallelism: int
    show_keys: bool = False
    counts: dict[str, StateCount] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)
    """States whose files of RocksDB stay as they are, after ``written``."""
    _totals: dict[str, tuple[StateCount, Misfits]] = field(default_factory=dict)

    def written(self) -> Handles:
        """Writes the streams of all subtasks."""
        if not self._is_keyed:
            return [None] * self.parallelism
        ranges = key_group_ranges_of(self.max_parallelism, self.parallelism)
        stays = self.plan.key is None and all(
            operator.max_parallelism == self.max_parallelism for operator in self.plan.sources
        )
        if stays and self.output.kept is not None and keeps_tables(self.plan):
            return self._beside_tables(ranges, self.output.kept)
        return self._in_place(ranges) if stays else self._shuffled(ranges)

    def _beside_tables(self, ranges: Sequence[KeyGroupRange], kept: KeptState) -> Handles:
        """Converts states that change, and keeps files of RocksDB of the others."""
        apart = converted_apart(self.plan)
        fresh: Handles = [None] * len(ranges)
        target = self.output.target
        if any(state.action == CONVERT for state in apart.states):
            of_tables = replace(self.output, target=target.of_tables(), kept=None)
            work = replace(self, plan=apart, output=of_tables)
            fresh = work.written()
            self.counts = work.counts
        anew = {state.new.name for state in apart.states}
        self.kept = [state.new.name for state in self._states if state.new.name not in anew]
        target.names.begin()
        return [*self._joined(fresh, kept)]

    def _joined(self, fresh: Handles, kept: KeptState) -> Iterator[StoredKeyedHandle | None]:
        header = replace(self._header, compressed=False)
        for index, handle in enumerate(fresh):
            parts = []
            for place, operator in enumerate(self.plan.sources):
                snapshot, names = operator.snapshot, kept_names(self.plan, operator)
                for subtask in operator.state.subtasks:
                    old = subtask.managed_keyed_state
                    if subtask.index == index and isinstance(old, RocksHandle):
                        left = part_of(
                            old, names, snapshot.resolver, snapshot.registry, f"part-{place}"
                        )
                        parts.append(TablePart(left, kept.of_stream(operator)))
            if isinstance(handle, RocksHandle):
                parts.append(TablePart(handle, lambda stream: stream))
            resolver = self.plan.sources[0].snapshot.resolver
            add = self.output.target.add_stream
            yield joined_handle(parts, header, resolver, add) if parts else None

    def _in_place(self, ranges: Sequence[KeyGroupRange]) -> Handles:
        """Keys stay in their key groups, so units write them."""
        size = sum(operator.keyed_size for operator in self.plan.sources)
        header = self._header
        streams = [
            NewStream(
                header,
                key_groups,
                self.max_parallelism,
                size * len(key_groups) // self.max_parallelism,
            )
            for key_groups in ranges
        ]

        def task(unit: Unit) -> Sections | Streamed:
            if self._is_large(unit.key_groups) and self.output.target.form == "canonical":
                reports: list[Report] = []
                return Streamed(self._pieces(unit.key_groups, reports), lambda: reports[0])
            with self._sections(unit.key_groups) as sections:
                self._fill(sections, unit.key_groups, self._states)
                report = self._report()
                is_refused = any(misfits["refused"] for _, misfits in report.values())
                every = unit.key_groups
                parts = [b"" if is_refused else sections.section_pieces(at) for at in every]
            return Sections(parts, report)

        handles = write_streams(streams, task, self.output, self._take)
        self._finish()
        return handles

    def _is_large(self, key_groups: KeyGroupRange) -> bool:
        return any(is_large(operator, key_groups) for operator in self.plan.sources)

    def _pieces(self, key_groups: KeyGroupRange, reports: list[Report]) -> Iterator[NumberedPiece]:
        """The sections of key groups that are too large for memory; adds a report at the end."""
        with self._sections(key_groups) as sections:
            self._fill(sections, key_groups, self._states)
            reports.append(self._report())
            if any(misfits["refused"] for _, misfits in reports[0].values()):
                return
            for key_group in key_groups:
                section = sections.stream_section(key_group)
                for piece in [section] if isinstance(section, bytes) else section:
                    if piece:
                        yield key_group, piece

    def _shuffled(self, ranges: Sequence[KeyGroupRange]) -> Handles:
        """Keys get other key groups; rows of keys that become one are merged in this process."""
        sources = list(self.plan.sources)
        everything = KeyGroupRange(0, self.max_parallelism - 1)
        apart = [state for state in self._states if state.merge is None]

        def read(unit: Unit) -> tuple[list[StateRuns], Report] | Streamed:
            listed = RunList(self._header, everything)
            operator_id = sources[unit.handle].operator_id
            of_unit = [
                state
                for state in apart
                if state.operator is not None and state.operator.operator_id == operator_id
            ]
            if is_large(sources[unit.handle], unit.key_groups):
                return streamed_runs(self._runs(listed, unit.key_groups, of_unit), self._report)
            self._fill(listed, unit.key_groups, of_unit)
            return listed.runs, self._report()

        with self._sections(everything) as sections:
            portion = Shuffle(sources, read, self._take).into(sections, self.output)
            if self.output.trial is None:
                merged = [state for state in self._states if state.merge is not None]
                self._fill(sections, None, merged)
            self._take(self._report())
            self._finish()
            return write_sections(sections, ranges, self.output, portion)

    def _report(self) -> Report:
        """What a unit has counted; the next one counts anew."""
        counts, self.counts = self.counts, {}
        by_name = {state.new.name: state for state in self._states}
        return {
            name: (asdict(count), asdict(by_name[name].misfits.take()))
            for name, count in counts.items()
        }

    def _take(self, report: Report) -> None:
        for name, (count, misfits) in report.items():
            total, refused = self._totals.setdefault(name, (StateCount(), Misfits()))
            total.before += count["before"]
            total.merged += count["merged"]
            refused.give(Misfits(**misfits))

    def _finish(self) -> None:
        """Refuses values that do not fit, once they are all counted."""
        for state in self._states:
            if state.new.name in self._totals:
                self.counts[state.new.name], misfits = self._totals[state.new.name]
                with error_context(operator=self.plan.label, state=state.new.name):
                    self._refuse(state, misfits)

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
        everything = KeyGroupRange(0, self.max_parallelism - 1)
        with self._sections(everything) as again, self._sections(everything) as stored:
            self._fill(again, None, self._states)
            copy_states(stored, written, ids, self.max_parallelism)
            return [
                key_group
                for key_group in key_groups
                if again.raw_section(key_group) != stored.raw_section(key_group)
                and _in_order(again, key_group) != _in_order(stored, key_group)
            ]

    @property
    def _states(self) -> list[StatePlan]:
        return [each for each in self.plan.states if not each.is_operator_state]

    @property
    def _is_keyed(self) -> bool:
        return bool(self._states) and self.plan.key_type is not None

    @property
    def _header(self) -> KeyedBackendHeader:
        assert self.plan.key_type is not None
        header = KeyedBackendHeader(self.plan.key_type, tuple(s.new.meta for s in self._states))
        return self.output.header(header, self.plan.sources)

    def _sections(self, key_groups: KeyGroupRange) -> KeyedSections:
        return KeyedSections(self._header, key_groups, self.max_parallelism)

    def _fill(
        self, sink: CopyTarget, key_groups: KeyGroupRange | None, states: Sequence[StatePlan]
    ) -> None:
        """Adds the records that some key groups of the source give; None means all."""
        for runs in self._runs(sink, key_groups, states):
            sink.add(runs)

    def _runs(
        self, sink: CopyTarget, key_groups: KeyGroupRange | None, states: Sequence[StatePlan]
    ) -> Iterator[StateRuns]:
        places = {id(state): at for at, state in enumerate(self._states)}
        for operator in {id(each.operator): each.operator for each in states}.values():
            if operator is None:
                continue
            ids = {
                state_key(state.old.meta): places[id(state)]
                for state in states
                if state.operator is operator
                and state.old is not None
                and state.action not in (CONVERT, EMPTY)
            }
            if ids:
                yield from copied_runs(sink, operator, ids, self.max_parallelism, key_groups)
        for state in states:
            if state.action == CONVERT:
                yield from self._converted(places[id(state)], state, key_groups)

    # ------------------------------------------------------------------------------ conversion

    def _converted(
        self, at: int, state: StatePlan, key_groups: KeyGroupRange | None
    ) -> Iterator[StateRuns]:
        key_type = self.plan.key_type
        assert key_type is not None and state.operator is not None and state.old is not None
        encoder = KeyedStateEncoder(
            key_type, [state.new.meta], self.max_parallelism, types=OPTIONS, first_id=at
        )
        count = self.counts.setdefault(state.new.name, StateCount())
        with error_context(operator=self.plan.label, state=state.new.name):
            for rows in self._rows(state, count, key_groups):
                if state.misfits.refused:
                    continue  # the rest is only counted
                yield encoder.encode(state.new.name, rows)

    def _rows(
        self, state: StatePlan, count: StateCount, key_groups: KeyGroupRange | None
    ) -> Iterator[pa.Table | pa.RecordBatch]:
        operator, key_type = state.operator, self.plan.key_type
        assert operator is not None and key_type is not None and state.old is not None
        reader = operator.flat(state.old.name, types=OPTIONS)
        batches = (self._batch(each, state, operator, count) for each in reader.read(key_groups))
        if state.merge is None:
            yield from batches
            return
        size = sum(each.state_size for each in operator.keyed_handles)
        record_format = RecordFormat(state.new.meta.as_key_value(), key_type)
        with CollidingRows(record_format, self.max_parallelism, state.merge, size) as rows:
            for batch in batches:
                rows.add(batch)
            if state.misfits.refused:
                return
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
        migrated = dict(columns)
        if self.plan.key is not None:
            self.plan.key.misfits = state.misfits
            migrated[KEY_COLUMN] = self.plan.key.apply(keys, {}, shown)
        count.before += _entries(columns, batch.num_rows)
        if state.value is not None:
            self._values(state, columns, migrated, Values(keys, kind_of(old_key)), shown)
        return pa.RecordBatch.from_arrays(list(migrated.values()), names=list(migrated))

    def _values(
        self,
        state: StatePlan,
        columns: dict[str, pa.Array],
        migrated: dict[str, pa.Array],
        key: Values,
        shown: pa.Array | None,
    ) -> None:
        assert state.value is not None and state.old is not None
        name = next(each for each in _VALUES if each in columns)
        others = {"key": key}
        if MAP_KEY_COLUMN in columns:
            old_map = state.old.meta.as_key_value().value_serializer
            others["map_key"] = Values(columns[MAP_KEY_COLUMN], kind_of(old_map.nested[0]))
        del migrated[name]
        value = state.value.apply(columns[name], others, shown)
        if state.map_key is not None:
            map_keys = columns.get(MAP_KEY_COLUMN, columns[name])
            scope = dict(others, value=Values(columns[name], kind_of(state.value.old)))
            migrated[MAP_KEY_COLUMN] = state.map_key.apply(map_keys, scope, shown)
        # A list whose elements only their type divides is one value in its column.
        is_same = state.new.kind == state.old.kind
        new = name if is_same else _VALUE_OF.get(state.new.kind, VALUE_COLUMN)
        if new != LIST_VALUE_COLUMN:
            migrated.pop(LIST_INDEX_COLUMN, None)
        if new != MAP_VALUE_COLUMN:
            migrated.pop(MAP_KEY_COLUMN, None)
        if new == VALUE_COLUMN and value.null_count:
            null = value.is_null()
            state.misfits.add(f"{state.value.where}: null", null, shown, null=False)
        migrated[new] = value

    def _refuse(self, state: StatePlan, misfits: Misfits) -> None:
        self.counts[state.new.name].nulled = sum(misfits.nulled.values())
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


def _in_order(sections: KeyedSections, key_group: int) -> list[tuple[int, bytes, bytes]]:
    """The records of a key group in the order of their keys. Sections may have another one, and
    divide the records of a state otherwise: RocksDB sorts, and records come from many batches.
    """
    raw = sections.raw_section(key_group)
    if not raw:
        return []
    records = read_section(DataInput(raw), len(sections.header.states))
    return sorted((record.state_id, record.key, record.value) for record in records)
