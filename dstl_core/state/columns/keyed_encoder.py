"""Encodes columns as keyed state. All bulk writers of keyed state use this module.

    encoder = KeyedStateEncoder(Types.STRING, [meta, ..], max_parallelism=128)
    runs: StateRuns = encoder.encode("counts", batch)             # flat form of one state
    runs: list[StateRuns] = encoder.encode_keyed(batch)           # one row per key, all states

    sections = KeyedSections(encoder.header, key_groups, max_parallelism, memory=512 << 20)
    sections.add(runs)                                            # any number of times, any order
    sections.add_run(state_id, key_group, data)                   # bytes from another place
    handle = folder.add_keyed_stream(sections.stream(key_groups)) # SavepointFolder

Columns are those of ``KeyedStateReader`` (see ``state_columns``), with the same ``ColumnOptions``.
A column ``key_group`` gives the key groups of keys whose Java hash is not known. A ``StateRuns``
holds the records of one batch, divided by key group: ``data`` and, for the key groups of the
encoder, ``bounds``. Its bytes may be stored, sent, and assembled elsewhere, since a key group may
hold any number of runs of one state. Nothing is sorted.

Null and empty: a null or empty value, list or map creates no entry. A null key is an error. A key
that occurs twice in one state is an error (``DuplicateKeyError``), found when a section is
assembled. For list state, the elements are joined in the order of the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.codec.columnar.keyed.byte_index import ByteIndex
from dstl_core.codec.columnar.keyed.decoder import (
    KEY,
    NAMESPACE,
    TIMESTAMP,
    USER_KEY,
    VALUE,
    key_roots,
)
from dstl_core.codec.columnar.keyed.encoder import EncodeProgram, StateEncoder
from dstl_core.codec.columnar.keyed.key_group_columns import key_groups_of, refuse_null_keys
from dstl_core.codec.columnar.keyed.runs import Runs, runs_of
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.codec.columnar.types.type_layouts import DEFAULT_OPTIONS, ColumnOptions
from dstl_core.codec.keyed_records import RecordFormat
from dstl_core.codec.serializers import AnySerializer
from dstl_core.codec.state_meta import KeyedBackendHeader, KeyedStateType, StateMetaInfoSnapshot
from dstl_core.errors import ColumnValueError, ConfigError
from dstl_core.model.key_group import KeyGroupRange, check_max_parallelism, key_group_prefix_bytes
from dstl_core.state.columns.keyed_sections import StateRuns
from dstl_core.state.columns.state_columns import (
    KEY_COLUMN,
    KEY_GROUP_COLUMN,
    LIST_INDEX_COLUMN,
    LIST_VALUE_COLUMN,
    is_kind,
    role_names,
)

Rows = Any  # a pa.RecordBatch or pa.Table
Columns = Mapping[str, pa.Array]


class KeyedStateEncoder:
    """Encodes batches of rows into records of canonical form.

    Args:
        key_type: The type of the keys.
        states: The states of the operator; their index is their id.
        max_parallelism: Number of key groups of the operator.
        key_groups: The key groups that rows may have; by default all.
        types: Representation of types as columns.
        compressed: Whether sections will be compressed (Snappy).
        first_id: The id of the first state, if other states stand before it in the stream.

    Raises:
        NotInColumnsError: A type has no columnar form.
    """

    def __init__(
        self,
        key_type: AnySerializer,
        states: Sequence[StateMetaInfoSnapshot],
        max_parallelism: int,
        *,
        key_groups: KeyGroupRange | None = None,
        types: ColumnOptions = DEFAULT_OPTIONS,
        compressed: bool = False,
        first_id: int = 0,
    ) -> None:
        self._first_id = first_id
        check_max_parallelism(max_parallelism)
        self.header = KeyedBackendHeader(key_type, tuple(states), compressed)
        self.max_parallelism = max_parallelism
        self.key_groups = key_groups or KeyGroupRange(0, max_parallelism - 1)
        self._types = types
        self._states = [
            _State(RecordFormat(meta.as_key_value(), key_type), types) for meta in states
        ]

    def schema(self, state: str) -> pa.Schema:
        """The columns of one state in flat form."""
        return pa.schema(self._states[self.state_id(state)].flat_columns)

    @property
    def keyed_schema(self) -> pa.Schema:
        """The columns of one row per key. States with a namespace are left out."""
        columns = {KEY_COLUMN: self._states[0].key_arrow_type} if self._states else {}
        columns |= {each.name: each.joined_type for each in self._states if each.is_joinable}
        return pa.schema(columns)

    def state_id(self, state: str) -> int:
        """The id of a state.

        Raises:
            ConfigError: There is no such state. The message lists the states.
        """
        for at, known_state in enumerate(self._states):
            if known_state.name == state:
                return at
        known = ", ".join(repr(each.name) for each in self._states) or "none"
        raise ConfigError(f"There is no state {state!r} to write; there are: {known}.")

    def encode(self, state: str, rows: Rows) -> StateRuns:
        """Encodes rows of one state in flat form.

        Elements of a list are in the order of ``list_index``, or of the rows without that column.

        Raises:
            ColumnValueError: A column is missing, or holds a value that its type does not allow.
            ConfigError: A key is null, has another key group, or its Java hash is not known.
        """
        state_id = self.state_id(state)
        encoded_state = self._states[state_id]
        return self._runs(state_id, encoded_state.from_flat(_columns(rows)))

    def encode_keyed(self, rows: Rows) -> list[StateRuns]:
        """Encodes rows in the form of one row per key. States without a column get no records.

        Raises:
            ColumnValueError: As for ``encode``.
            ConfigError: As for ``encode``, or a column is not a state.
        """
        columns = _columns(rows)
        runs = []
        keys = {KEY: columns.pop(KEY_COLUMN)}
        if KEY_GROUP_COLUMN in columns:
            keys[KEY_GROUP_COLUMN] = columns.pop(KEY_GROUP_COLUMN)
        of_all: Int64s | None = None
        for name, column in columns.items():
            state_id = self.state_id(name)
            parts = self._states[state_id].from_joined(keys, column)
            has_all_keys = parts[KEY] is keys[KEY]
            if has_all_keys and of_all is None:
                of_all = self._groups(parts)
            runs.append(self._runs(state_id, parts, of_all if has_all_keys else None))
        return runs

    def _runs(self, state_id: int, columns: Columns, known: Int64s | None = None) -> StateRuns:
        """The runs of a state; ``known`` are the key groups of its rows."""
        state = self._states[state_id]
        keys = columns[KEY]
        groups = self._groups(columns) if known is None else known
        first, last = self.key_groups.start_key_group, self.key_groups.end_key_group
        if len(groups) and (groups.min() < first or groups.max() > last):
            stranger = int(groups[(groups < first) | (groups > last)][0])
            raise ConfigError(
                f"The writer of key groups {self.key_groups} got a key of key group {stranger}."
            )
        records = state.encoder.encode(columns, len(keys))
        state_id += self._first_id
        runs: Runs = runs_of(
            records.spans,
            state_id,
            groups - first,
            groups,
            len(self.key_groups),
            key_group_prefix_bytes(self.max_parallelism),
        )
        return StateRuns(state_id, self.key_groups, runs.data, runs.bounds)

    def _groups(self, columns: Columns) -> Int64s:
        keys, numbers = columns[KEY], columns.get(KEY_GROUP_COLUMN)
        if numbers is None:
            return key_groups_of(
                keys, self.header.key_serializer, self.max_parallelism, self._types
            ).astype(np.int64)
        refuse_null_keys(keys)
        groups: Int64s = np.asarray(numbers.cast(pa.int64()))
        return groups


def _columns(rows: Rows) -> dict[str, pa.Array]:
    columns = {}
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        columns[name] = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if KEY_COLUMN not in columns:
        known = ", ".join(columns) or "none"
        raise ColumnValueError(f"Column {KEY_COLUMN!r} is missing; there are: {known}.")
    return columns


class _State:
    """One state to write: converts its columns in either form to those of ``StateEncoder``."""

    def __init__(self, record_format: RecordFormat, types: ColumnOptions) -> None:
        self._format = record_format
        self._types = types
        meta = record_format.meta
        self.name = meta.name
        self.encoder = StateEncoder(record_format, types)
        self._names = role_names(meta)
        self._is_list = is_kind(meta, KeyedStateType.LIST) and pa.types.is_list(
            self.encoder.columns[VALUE]
        )
        self._is_map = is_kind(meta, KeyedStateType.MAP)
        self._is_queue = meta.is_queue

    @property
    def key_arrow_type(self) -> pa.DataType:
        return self.encoder.columns[KEY]

    @property
    def is_joinable(self) -> bool:
        """Whether the state can be a column of one row per key."""
        return NAMESPACE not in self.encoder.columns

    @property
    def flat_columns(self) -> dict[str, pa.DataType]:
        flat: dict[str, pa.DataType] = {}
        for role, arrow_type in self.encoder.columns.items():
            if role == VALUE and self._is_list:
                flat[LIST_INDEX_COLUMN] = pa.int32()
                flat[LIST_VALUE_COLUMN] = arrow_type.value_type
            else:
                flat[self._names[role]] = arrow_type
        return flat

    @property
    def joined_type(self) -> pa.DataType:
        columns = self.encoder.columns
        if self._is_queue:
            return pa.list_(pa.int64())
        if self._is_map:
            if self._types.maps == "map":
                return pa.map_(columns[USER_KEY], columns[VALUE])
            return pa.list_(pa.struct([("key", columns[USER_KEY]), ("value", columns[VALUE])]))
        return columns.get(VALUE, pa.null())

    # -------------------------------------------------------------------------------- flat form

    def from_flat(self, columns: Columns) -> Columns:
        """Columns by role, with a row for each record."""
        if self._is_list and LIST_VALUE_COLUMN in columns:
            return self._collected(columns)
        by_role = {}
        for role in self.encoder.columns:
            name = self._names[role]
            if name not in columns:
                known = ", ".join(columns)
                raise ColumnValueError(f"Column {name!r} is missing; there are: {known}.")
            by_role[role] = columns[name]
        if KEY_GROUP_COLUMN in columns:
            by_role[KEY_GROUP_COLUMN] = columns[KEY_GROUP_COLUMN]
        return by_role if self._is_map or self._is_queue else self._present(by_role)

    def _present(self, columns: dict[str, pa.Array]) -> Columns:
        """Drops rows whose value is absent."""
        value = columns.get(VALUE)
        if value is None:
            return columns
        is_present = value.is_valid()
        if self._is_list:
            is_present = pc.and_(
                is_present, pc.greater(pc.fill_null(pc.list_value_length(value), 0), 0)
            )
        if pc.all(is_present).as_py() in (True, None):
            return columns
        return {role: column.filter(is_present) for role, column in columns.items()}

    def _collected(self, columns: Columns) -> Columns:
        """Groups the elements of lists by key and namespace."""
        elements = columns[LIST_VALUE_COLUMN]
        scope = {role: columns[self._names[role]] for role in self.encoder.columns if role != VALUE}
        refuse_null_keys(scope[KEY])
        program = EncodeProgram(key_roots(self._format, self._types))
        encoded = program.encode(scope, len(elements))  # the index refers to its bytes
        index = ByteIndex(encoded.ranges)
        numbers = index.numbers
        if LIST_INDEX_COLUMN in columns:
            places = np.asarray(columns[LIST_INDEX_COLUMN].cast(pa.int64()))
            order = np.lexsort((places, numbers))
        else:
            order = np.argsort(numbers, kind="stable")
        offsets = np.zeros(len(index) + 1, np.int32)
        np.cumsum(np.bincount(numbers, minlength=len(index)), out=offsets[1:])
        lists = pa.ListArray.from_arrays(pa.array(offsets), elements.take(pa.array(order)))
        if KEY_GROUP_COLUMN in columns:
            scope[KEY_GROUP_COLUMN] = columns[KEY_GROUP_COLUMN]
        firsts = pa.array(index.firsts)
        return {role: column.take(firsts) for role, column in scope.items()} | {VALUE: lists}

    # ------------------------------------------------------------------------- one row per key

    def from_joined(self, keys: dict[str, pa.Array], column: pa.Array) -> Columns:
        """Columns by role, from one row per key."""
        if not self.is_joinable:
            raise ConfigError(
                f"State {self.name!r} has a namespace; write it in flat form, not as one row per "
                f"key."
            )
        refuse_null_keys(keys[KEY])
        if self._is_queue or self._is_map:
            return self._exploded(keys, column)
        return self._present({**keys, VALUE: column})

    def _exploded(self, keys: dict[str, pa.Array], column: pa.Array) -> Columns:
        if column.null_count:  # a null may have elements that nobody sees
            is_there = column.is_valid()
            column = column.filter(is_there)
            keys = {name: each.filter(is_there) for name, each in keys.items()}
        as_lists = pa.list_(pa.int64()) if self._is_queue else column.type
        lists = column.cast(as_lists)
        if pa.types.is_map(lists.type):
            entry = pa.struct([lists.type.key_field, lists.type.item_field])
            lists = lists.cast(pa.list_(entry))
        parents = pc.list_parent_indices(lists)
        rows = {name: each.take(parents) for name, each in keys.items()}
        entries = lists.flatten()
        if self._is_queue:
            return {**rows, TIMESTAMP: entries}
        return {**rows, USER_KEY: entries.field(0), VALUE: entries.field(1)}
