"""Keyed state as Arrow columns: one row per key over all states, or one state in flat form.

Column names are those of Flink's state catalog: ``state_key``, then a column per state; flat:
``state_key``, ``state_value`` | ``list_index``, ``list_value`` | ``map_key``, ``map_value``, and
``state_namespace`` where the namespace is not void.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from dstl_core.codec.columnar.arrow_types import arrow_type_of, to_arrow_value
from dstl_core.codec.serializers import (
    AnySerializer,
    ListSerializer,
    MapSerializer,
    VoidNamespaceSerializer,
)
from dstl_core.codec.serializers.primitives import IntSerializer
from dstl_core.codec.state_meta import BackendStateType, StateMetaInfoSnapshot
from dstl_core.errors import ConfigError, NoSuchStateError, SavepointError
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.snapshot import OperatorSnapshot, StateInfo
from dstl_core.state.keyed_state import KeyedState
from dstl_core.state.table import StateTable

KEY_COLUMN = "state_key"
KEYED = "keyed"
ROWS_PER_BATCH = 10_000

Column = tuple[str, AnySerializer]


class KeyedStateReader:
    """Reads the keyed state of one operator as record batches.

    Args:
        operator: Where to read.
        state: ``keyed`` for one row per key over all states, else the name of one state.
        columns: The columns to read; all by default.

    Raises:
        NoSuchStateError: There is no such state; lists those that there are.
        ConfigError: There is no such column; lists those that there are.
        SavepointError: The operator has no keyed state, or a type cannot be a column.
    """

    def __init__(
        self,
        operator: OperatorSnapshot,
        state: str = KEYED,
        columns: Sequence[str] | None = None,
    ) -> None:
        self._operator = operator
        self._key_type = _key_type(operator)
        self._states = _readable_states(operator) if state == KEYED else None
        self._flat = None if state == KEYED else operator.state_info(state)
        every = self._keyed_columns() if self._flat is None else self._flat_columns(self._flat)
        self._columns = _select(every, columns)
        self.schema = pa.schema([(name, _required_type(each)) for name, each in self._columns])

    def _keyed_columns(self) -> list[Column]:
        states = self._states or []
        return [
            (KEY_COLUMN, self._key_type),
            *((info.name, info.meta.value_serializer) for info in states),
        ]

    def _flat_columns(self, info: StateInfo) -> list[Column]:
        meta = info.meta
        if meta.backend_state_type is not BackendStateType.KEY_VALUE:
            raise NoSuchStateError(f"{info.name!r} holds timers, which are no key-value state.")
        columns: list[Column] = [(KEY_COLUMN, self._key_type)]
        if meta.namespace_serializer != VoidNamespaceSerializer():
            columns.append(("state_namespace", meta.namespace_serializer))
        match meta.value_serializer:
            case ListSerializer() as serializer if info.kind == "list":
                return [
                    *columns,
                    ("list_index", IntSerializer()),
                    ("list_value", serializer.element),
                ]
            case MapSerializer() as serializer if info.kind == "map":
                return [*columns, ("map_key", serializer.key), ("map_value", serializer.value)]
            case serializer:
                return [*columns, ("state_value", serializer)]

    def read(self, key_groups: KeyGroupRange) -> Iterator[pa.RecordBatch]:
        """The rows of some key groups; each key group lies in memory as a whole."""
        for handle in self._operator.keyed_handles:
            own = handle.key_group_range.get_intersection(key_groups)
            if not len(own):
                continue
            state = self._operator.restore([handle], own)
            rows: list[dict[str, Any]] = []
            for key_group in own:
                rows.extend(self._rows(state, key_group))
                while len(rows) >= ROWS_PER_BATCH:
                    yield self._batch(rows[:ROWS_PER_BATCH])
                    rows = rows[ROWS_PER_BATCH:]
            if rows:
                yield self._batch(rows)

    def _rows(self, state: KeyedState, key_group: int) -> Iterator[dict[str, Any]]:
        if self._flat is None:
            yield from self._rows_by_key(state, key_group)
            return
        for table in state.tables.values():
            if _is(table, self._flat.meta):
                for key, namespace, value in table.entries(key_group):
                    yield from self._flat_rows(self._flat, key, namespace, value)

    def _rows_by_key(self, state: KeyedState, key_group: int) -> Iterator[dict[str, Any]]:
        wanted = {info.name for info in self._states or []}
        rows: dict[bytes, dict[str, Any]] = {}
        for table in state.tables.values():
            name = table.meta.name
            if (
                name not in wanted
                or table.meta.backend_state_type is not BackendStateType.KEY_VALUE
            ):
                continue
            for scope, stored in table.groups.get(key_group, {}).items():
                key, _, value = table.decode(scope, stored)
                rows.setdefault(scope, {KEY_COLUMN: key})[name] = value
        yield from rows.values()

    def _flat_rows(
        self, info: StateInfo, key: Any, namespace: Any, value: Any
    ) -> Iterator[dict[str, Any]]:
        common = {KEY_COLUMN: key, "state_namespace": namespace}
        match info.kind:
            case "list":
                for index, item in enumerate(value):
                    yield {**common, "list_index": index, "list_value": item}
            case "map":
                for map_key, item in value:
                    yield {**common, "map_key": map_key, "map_value": item}
            case _:
                yield {**common, "state_value": value}

    def _batch(self, rows: list[dict[str, Any]]) -> pa.RecordBatch:
        arrays = [
            pa.array(
                [to_arrow_value(serializer, row.get(name)) for row in rows],
                self.schema.field(name).type,
            )
            for name, serializer in self._columns
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _key_type(operator: OperatorSnapshot) -> AnySerializer:
    for handle in operator.keyed_handles:
        first = handle.key_group_range.start_key_group
        state = operator.restore([handle], KeyGroupRange(first, first))
        if state.key_serializer is not None:
            return state.key_serializer
    raise SavepointError(
        f"Operator {operator.label!r} has no keyed state.", location=str(operator.snapshot.folder)
    )


def _readable_states(operator: OperatorSnapshot) -> list[StateInfo]:
    """The states that can be columns of a row per key: no timers, no windows, known types."""
    return [
        info
        for info in operator.states
        if info.meta.backend_state_type is BackendStateType.KEY_VALUE
        and info.meta.namespace_serializer == VoidNamespaceSerializer()
        and arrow_type_of(info.meta.value_serializer) is not None
    ]


def _select(every: list[Column], columns: Sequence[str] | None) -> list[Column]:
    if columns is None:
        return every
    known = dict(every)
    missing = [name for name in columns if name not in known]
    if missing:
        raise ConfigError(
            f"There is no column {missing[0]!r}; there are: {', '.join(name for name, _ in every)}."
        )
    return [(name, known[name]) for name in columns]


def _required_type(serializer: AnySerializer) -> pa.DataType:
    arrow_type = arrow_type_of(serializer)
    if arrow_type is None:
        raise SavepointError(f"The type {serializer.type_name} cannot be a column.")
    return arrow_type


def _is(table: StateTable[Any], meta: StateMetaInfoSnapshot) -> bool:
    return table.meta.name == meta.name and table.meta.backend_state_type is meta.backend_state_type
