"""The content of a snapshot as tables: a schema, splits, and record batches of each split.

Kinds: ``keyed`` (a row per key), ``keyed-flat`` (a row per value, element or entry of one state),
``windows`` (a row per key and window), ``timers``, ``list``, ``union``, ``broadcast``, and
``metadata`` (a row per operator) and ``offsets`` (a row per split of a source).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from dstl_core.codec.serializers import TimerSerializer, VoidNamespaceSerializer
from dstl_core.codec.serializers.window_types import TimeWindowSerializer
from dstl_core.errors import ConfigError, NoSuchStateError, SavepointError
from dstl_core.model.handle import ChangelogStateBackendHandle
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.read.entries import EVENT_TIMER, PROC_TIMER
from dstl_core.savepoint.read.entry_reader import EntryReader
from dstl_core.savepoint.read.keyed_reader import (
    KEYED,
    KeyedStateReader,
    ReadOptions,
)
from dstl_core.savepoint.read.operator_catalog import StateInfo
from dstl_core.savepoint.read.operator_tables import OperatorStateTable
from dstl_core.savepoint.read.snapshot import OperatorSnapshot
from dstl_core.savepoint.read.table_base import (
    KEYED_FLAT,
    KINDS,
    OPERATOR_KINDS,
    RowWiseTable,
    SnapshotTable,
    Split,
    TableOptions,
    chunks_of,
)
from dstl_core.savepoint.read.timer_queues import with_timer_services
from dstl_core.savepoint.read.window_entries import MERGING_SETS, WindowEntry, windows_of
from dstl_core.state.backends.timers import EVENT_TIMERS, PROCESSING_TIMERS, USER_TIMERS
from dstl_core.state.columns.arrow_values import column_of_values, column_type
from dstl_core.state.columns.state_columns import KEY_COLUMN, KEY_GROUP_COLUMN


def open_table(
    operator: OperatorSnapshot, kind: str | None, state: str | None, options: TableOptions
) -> SnapshotTable:
    """Opens a table of an operator.

    Args:
        operator: The operator to read.
        kind: One of ``KINDS`` except ``metadata`` and ``offsets``, which are of all operators;
            None derives it from the state's name.
        state: The name of a state, if the kind needs one.
        options: Columns, keys, types and memory.

    Raises:
        NoSuchStateError: There is no such state of that kind. The message lists the states.
        ConfigError: There is no such kind or column.
        SavepointError: The operator has no keyed state, or a type cannot be a column.
    """
    if kind is None:
        kind = _kind_of(operator, state)
    match kind:
        case "keyed":
            return _KeyedRows(operator, options)
        case "keyed-flat":
            return _KeyedReader(operator, _named(operator, state, kind), options)
        case "windows":
            return _WindowRows(operator, options)
        case "timers":
            return _Timers(operator, options)
        case "list" | "union" | "broadcast":
            return OperatorStateTable(operator, kind, _named(operator, state, kind), options)
        case _:
            raise ConfigError(f"There is no kind {kind!r}; there are: {', '.join(KINDS)}.")


def _kind_of(operator: OperatorSnapshot, state: str | None) -> str:
    if state in (None, KEYED):
        return KEYED
    info = with_timer_services(operator).state_info(str(state))
    return OPERATOR_KINDS.get(info.kind, KEYED_FLAT)


def _named(operator: OperatorSnapshot, state: str | None, kind: str) -> str:
    """The requested state. The name may be omitted if the operator has one state of the kind."""
    if state is not None:
        return state
    infos = operator.operator_states if kind in OPERATOR_KINDS.values() else operator.states
    names = [info.name for info in infos if OPERATOR_KINDS.get(info.kind, KEYED_FLAT) == kind]
    if len(names) == 1:
        return names[0]
    raise NoSuchStateError(
        f"The {kind} state of operator {operator.label!r} is not named; there are: "
        f"{', '.join(map(repr, names)) or 'none'}."
    )


def _key_group_splits(
    operator: OperatorSnapshot, size: int, split_bytes: int, minimum: int
) -> list[Split]:
    logs = sum(
        handle.non_materialized_size
        for handle in operator.keyed_handles
        if isinstance(handle, ChangelogStateBackendHandle)
    )
    # Whole rounds, so that no core is idle. Each split unpacks the whole log of its handles.
    rounds = max(1, -(-(size - logs) // (split_bytes * minimum)))
    wanted = rounds * minimum
    splits = operator.key_group_splits(min(wanted, operator.max_parallelism))
    return [(each.start_key_group, each.end_key_group) for each in splits]


# ----------------------------------------------------------------------------------- keyed


class _KeyedReader(SnapshotTable):
    """A table of a ``KeyedStateReader``."""

    def __init__(self, operator: OperatorSnapshot, state: str, options: TableOptions) -> None:
        self._operator = operator
        read = ReadOptions(options.columns, options.keys, options.types, options.memory)
        self._reader = KeyedStateReader(operator, state, read)
        self.schema = self._reader.schema
        self.size = sum(handle.state_size for handle in operator.keyed_handles)

    def splits(self, split_bytes: int, minimum: int) -> list[Split]:
        return _key_group_splits(self._operator, self.size, split_bytes, minimum)

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        return self._reader.read(KeyGroupRange(*split))


class _KeyedRows(_KeyedReader):
    """One row per key; the user's timers are two columns."""

    def __init__(self, operator: OperatorSnapshot, options: TableOptions) -> None:
        infos = with_timer_services(operator).states
        queues = _timer_columns(infos) if options.timers else {}
        names = {public: stored for stored, public in queues.items()}
        if options.columns is not None:
            wanted = tuple(names.get(name, name) for name in options.columns)
            known = (KEY_COLUMN, *_void_states(infos), *queues.values(), KEY_GROUP_COLUMN)
            missing = [name for name in options.columns if name not in known]
            if missing:
                raise ConfigError(
                    f"There is no column {missing[0]!r}; there are: {', '.join(known)}."
                )
        elif queues:
            wanted = (KEY_COLUMN, *_void_states(infos), *queues)
        else:
            wanted = None
        super().__init__(operator, KEYED, replace(options, columns=wanted))
        self.schema = pa.schema(
            [each.with_name(queues.get(each.name, each.name)) for each in self.schema]
        )

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        for batch in super().read(split):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)


def _void_states(infos: Sequence[StateInfo]) -> list[str]:
    """The states that are columns of one row per key."""
    return [
        info.name
        for info in infos
        if not info.meta.is_queue
        and isinstance(info.meta.namespace_serializer, VoidNamespaceSerializer)
    ]


def _timer_columns(infos: Sequence[StateInfo]) -> dict[str, str]:
    """The queues of the user's timers, with the names of their columns."""
    taken = {info.name for info in infos}
    names = {}
    for stored, public in (
        (EVENT_TIMERS + USER_TIMERS, "event_time_timers"),
        (PROCESSING_TIMERS + USER_TIMERS, "processing_time_timers"),
    ):
        for info in infos:
            if info.name != stored or not info.meta.is_queue:
                continue
            timer = info.meta.value_serializer
            if not isinstance(timer, TimerSerializer):
                continue
            if isinstance(timer.namespace, VoidNamespaceSerializer):
                names[stored] = stored if public in taken else public
    return names


# --------------------------------------------------------------------------------- row-wise


class _Timers(RowWiseTable):
    """A row per timer of every service, including timers in raw keyed state."""

    def __init__(self, operator: OperatorSnapshot, options: TableOptions) -> None:
        self._operator = operator
        self._key = _key_serializer(operator)
        schema = pa.schema(
            [
                ("service", pa.string()),
                ("time_domain", pa.string()),
                (KEY_COLUMN, column_type(self._key, options.types)),
                ("state_namespace", pa.string()),
                ("timestamp", pa.int64()),
            ]
        )
        size = sum(handle.state_size for handle in operator.keyed_handles)
        super().__init__(schema, size, options)

    def splits(self, split_bytes: int, minimum: int) -> list[Split]:
        return _key_group_splits(self._operator, self.size, split_bytes, minimum)

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        reader = EntryReader(self._operator, None, KeyGroupRange(*split))
        for part in chunks_of(reader.timer_entries()):
            columns = {
                "service": pa.array([each.service for each in part], pa.string()),
                "time_domain": pa.array([_DOMAINS[each.kind] for each in part], pa.string()),
                KEY_COLUMN: column_of_values(self._key, [each.key for each in part], self._types),
                "state_namespace": pa.array(
                    [_text(each.namespace_type.to_text(each.namespace)) for each in part],
                    pa.string(),
                ),
                "timestamp": pa.array([each.timestamp for each in part], pa.int64()),
            }
            yield self.batch_of(columns)


_DOMAINS = {EVENT_TIMER: "event", PROC_TIMER: "processing"}


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


class _WindowRows(RowWiseTable):
    """A row per key and window: its states, those of its key, and its timers."""

    def __init__(self, operator: OperatorSnapshot, options: TableOptions) -> None:
        self._operator = operator
        self._key = _key_serializer(operator)
        self._own: dict[str, StateInfo] = {}
        self._global: dict[str, StateInfo] = {}
        for info in operator.states:
            if info.meta.is_queue:
                continue
            if not isinstance(info.meta.namespace_serializer, VoidNamespaceSerializer):
                self._own[info.name] = info
            elif info.name not in MERGING_SETS:
                self._global[info.name] = info
        if not self._own:
            raise NoSuchStateError(
                f"Operator {operator.label!r} keeps no windows; it has: "
                f"{', '.join(repr(each.name) for each in operator.states) or 'none'}."
            )
        first = next(iter(self._own.values())).meta.namespace_serializer
        self._is_time = isinstance(first, TimeWindowSerializer)
        self._window = first
        window = pa.struct([("start", pa.int64()), ("end", pa.int64())])
        if not self._is_time:
            window = column_type(first, options.types)
        if pa.types.is_null(window):
            window = pa.string()  # the global window, by its name
        timers = pa.list_(pa.int64())
        states = [(name, column_type(_type(info), options.types)) for name, info in self._infos()]
        schema = pa.schema(
            [
                (KEY_COLUMN, column_type(self._key, options.types)),
                ("state_window", window),
                *states,
                ("event_time_timers", timers),
                ("processing_time_timers", timers),
            ]
        )
        size = sum(handle.state_size for handle in operator.keyed_handles)
        super().__init__(schema, size, options)

    def _infos(self) -> list[tuple[str, StateInfo]]:
        return [*self._own.items(), *self._global.items()]

    def splits(self, split_bytes: int, minimum: int) -> list[Split]:
        return _key_group_splits(self._operator, self.size, split_bytes, minimum)

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        reader = EntryReader(self._operator, None, KeyGroupRange(*split))
        for part in chunks_of(windows_of(reader.keyed_and_timers())):
            yield self._rows(part)

    def _rows(self, part: list[WindowEntry]) -> pa.RecordBatch:
        wanted = set(self.schema.names)
        timers = pa.list_(pa.int64())
        columns: dict[str, pa.Array] = {
            "event_time_timers": pa.array([each.event_time_timers for each in part], timers),
            "processing_time_timers": pa.array(
                [each.processing_time_timers for each in part], timers
            ),
        }
        if KEY_COLUMN in wanted:
            columns[KEY_COLUMN] = column_of_values(
                self._key, [each.key for each in part], self._types
            )
        if "state_window" in wanted:
            columns["state_window"] = self._windows([each.window for each in part])
        for name, info in self._infos():
            if name in wanted:
                of_key = name in self._global
                values = [
                    (window.global_states if of_key else window.states).get(name) for window in part
                ]
                columns[name] = column_of_values(_type(info), values, self._types)
        return self.batch_of(columns)

    def _windows(self, windows: list[Any]) -> pa.Array:
        arrow_type = self._every.field("state_window").type
        if self._is_time:
            return pa.array([{"start": w.start, "end": w.end} for w in windows], arrow_type)
        if pa.types.is_string(arrow_type):
            return pa.array(list(map(str, windows)), arrow_type)
        return column_of_values(self._window, windows, self._types)


def _type(info: StateInfo) -> Any:
    return info.meta.as_key_value().value_serializer


def _key_serializer(operator: OperatorSnapshot) -> Any:
    key_type = operator.key_type
    if key_type is None:
        raise SavepointError(
            f"Operator {operator.label!r} has no keyed state.",
            location=str(operator.snapshot.folder),
        )
    return key_type.serializer
