"""Everything in a snapshot as tables: a schema, splits, and record batches of each split.

Kinds: ``keyed`` (a row per key), ``keyed-flat`` (a row per value, element or entry of one state),
``windows`` (a row per key and window), ``timers``, ``list``, ``union``, ``broadcast``, and
``metadata`` (a row per operator).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from dstl_core.codec.columnar.type_layouts import DEFAULT_OPTIONS, ColumnOptions
from dstl_core.codec.serializers import MapSerializer, VoidNamespaceSerializer
from dstl_core.codec.serializers.windows import TimeWindowSerializer
from dstl_core.codec.state_meta import BackendStateType
from dstl_core.errors import ConfigError, NoSuchStateError, SavepointError
from dstl_core.model.handle import OperatorStateMode
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.arrow_values import column_of_elements, column_of_values, column_type
from dstl_core.savepoint.entries import EVENT_TIMER, OP_BROADCAST, OP_LIST, OP_UNION, PROC_TIMER
from dstl_core.savepoint.entry_reader import EntryReader
from dstl_core.savepoint.keyed_reader import (
    KEYED,
    READ_MEMORY,
    KeyedStateReader,
    ReadOptions,
)
from dstl_core.savepoint.snapshot import OperatorSnapshot, Snapshot, StateInfo
from dstl_core.savepoint.state_columns import KEY_COLUMN
from dstl_core.savepoint.windows import MERGING_SETS, WindowEntry, windows_of
from dstl_core.state.function_state import EVENT_TIMERS, PROCESSING_TIMERS, USER_TIMERS

KEYED_FLAT, WINDOWS, TIMERS, METADATA = "keyed-flat", "windows", "timers", "metadata"
LIST, UNION, BROADCAST = "list", "union", "broadcast"
KINDS = (KEYED, KEYED_FLAT, WINDOWS, TIMERS, LIST, UNION, BROADCAST, METADATA)
_OPERATOR_KINDS = {OP_LIST: LIST, OP_UNION: UNION, OP_BROADCAST: BROADCAST}
SPLIT_BYTES = 32 << 20
_ROWS = 10_000

Split = tuple[int, int]
"""First and last key group, or first and last subtask."""


@dataclass(frozen=True)
class TableOptions:
    """What to read, and how.

    Args:
        columns: Names of the columns; all by default.
        keys: Only these keys (``keyed`` and ``keyed-flat``).
        timers: Whether ``keyed`` has the user's timers as columns, and rows for keys that have
            nothing but timers.
        types: How types become columns.
        memory: Bytes that a task may take before it spills.
    """

    columns: tuple[str, ...] | None = None
    keys: tuple[Any, ...] | None = None
    timers: bool = True
    types: ColumnOptions = DEFAULT_OPTIONS
    memory: int = READ_MEMORY


DEFAULT_TABLE = TableOptions()


class SnapshotTable(ABC):
    """One table of a snapshot."""

    schema: pa.Schema
    size: int
    """Bytes of state behind it."""

    @abstractmethod
    def splits(self, split_bytes: int, minimum: int) -> list[Split]:
        """The parts that may be read one by one: by size, at least ``minimum`` if possible."""

    @abstractmethod
    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """The rows of one part."""


def open_table(
    operator: OperatorSnapshot, kind: str | None, state: str | None, options: TableOptions
) -> SnapshotTable:
    """The table of an operator.

    Args:
        operator: Where to read.
        kind: One of ``KINDS`` but ``metadata``; found by the state's name if None.
        state: The name of a state, where the kind needs one.
        options: How to read.

    Raises:
        NoSuchStateError: There is no such state of that kind; lists those that there are.
        ConfigError: No such kind, or no such column.
        SavepointError: The operator has no keyed state, or a type cannot be a column.
    """
    if kind is None:
        kind = _kind_of(operator, state)
    match kind:
        case "keyed":
            return _Keyed(operator, options)
        case "keyed-flat":
            return _KeyedReader(operator, _named(operator, state, kind), options)
        case "windows":
            return _Windows(operator, options)
        case "timers":
            return _Timers(operator, options)
        case "list" | "union" | "broadcast":
            return _OperatorState(operator, kind, _named(operator, state, kind), options)
        case _:
            raise ConfigError(f"There is no kind {kind!r}; there are: {', '.join(KINDS)}.")


def _kind_of(operator: OperatorSnapshot, state: str | None) -> str:
    if state in (None, KEYED):
        return KEYED
    info = operator.state_info(str(state))
    return _OPERATOR_KINDS.get(info.kind, KEYED_FLAT)


def _named(operator: OperatorSnapshot, state: str | None, kind: str) -> str:
    """The state that is meant: if there is one of the kind, it need not be named."""
    if state is not None:
        return state
    own = operator.operator_states if kind in _OPERATOR_KINDS.values() else operator.states
    names = [info.name for info in own if _OPERATOR_KINDS.get(info.kind, KEYED_FLAT) == kind]
    if len(names) == 1:
        return names[0]
    raise NoSuchStateError(
        f"Which {kind} state of operator {operator.label!r} is not said; there are: "
        f"{', '.join(map(repr, names)) or 'none'}."
    )


def _key_group_splits(
    operator: OperatorSnapshot, size: int, split_bytes: int, minimum: int
) -> list[Split]:
    wanted = max(minimum, -(-size // split_bytes), 1)
    splits = operator.key_group_splits(min(wanted, operator.max_parallelism))
    return [(each.start_key_group, each.end_key_group) for each in splits]


# ----------------------------------------------------------------------------------- keyed


class _KeyedReader(SnapshotTable):
    """What ``KeyedStateReader`` reads."""

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


class _Keyed(_KeyedReader):
    """One row per key; the user's timers are two columns."""

    def __init__(self, operator: OperatorSnapshot, options: TableOptions) -> None:
        infos = operator.states
        queues = _timer_columns(infos) if options.timers else {}
        names = {public: stored for stored, public in queues.items()}
        if options.columns is not None:
            wanted = tuple(names.get(name, name) for name in options.columns)
            _check_columns(operator, options)
        elif queues:
            void = [
                info.name
                for info in infos
                if info.meta.backend_state_type is not BackendStateType.PRIORITY_QUEUE
                and isinstance(info.meta.namespace_serializer, VoidNamespaceSerializer)
            ]
            wanted = (KEY_COLUMN, *void, *queues)
        else:
            wanted = None
        super().__init__(operator, KEYED, replace(options, columns=wanted))
        self.schema = pa.schema(
            [each.with_name(queues.get(each.name, each.name)) for each in self.schema]
        )

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        for batch in super().read(split):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)


def _check_columns(operator: OperatorSnapshot, options: TableOptions) -> None:
    """Names the public columns, where the reader would name those of the timers as stored."""
    known = _Keyed(operator, replace(options, columns=None)).schema.names
    missing = [name for name in options.columns or () if name not in known]
    if missing:
        raise ConfigError(f"There is no column {missing[0]!r}; there are: {', '.join(known)}.")


def _timer_columns(infos: Sequence[StateInfo]) -> dict[str, str]:
    """The queues of the user's timers, with the names of their columns."""
    taken = {info.name for info in infos}
    found = {}
    for stored, public in (
        (EVENT_TIMERS + USER_TIMERS, "event_time_timers"),
        (PROCESSING_TIMERS + USER_TIMERS, "processing_time_timers"),
    ):
        for info in infos:
            nested = info.meta.value_serializer.nested
            if info.name == stored and isinstance(nested[-1], VoidNamespaceSerializer):
                found[stored] = stored if public in taken else public
    return found


# --------------------------------------------------------------------------------- row-wise


class _RowWise(SnapshotTable):
    """Tables that are made row by row."""

    def __init__(self, schema: pa.Schema, size: int, options: TableOptions) -> None:
        self._every = schema
        self._types = options.types
        wanted = schema.names if options.columns is None else list(options.columns)
        missing = [name for name in wanted if name not in schema.names]
        if missing:
            raise ConfigError(
                f"There is no column {missing[0]!r}; there are: {', '.join(schema.names)}."
            )
        self.schema = pa.schema([schema.field(name) for name in wanted])
        self.size = size

    def _batch(self, columns: dict[str, pa.Array]) -> pa.RecordBatch:
        arrays = [columns[field.name] for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


class _Timers(_RowWise):
    """A row per timer of every service, those in raw keyed state too."""

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
        for part in _chunks(reader.timer_entries()):
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
            yield self._batch(columns)


_DOMAINS = {EVENT_TIMER: "event", PROC_TIMER: "processing"}


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


class _Windows(_RowWise):
    """A row per key and window: its states, those of its key, and its timers."""

    def __init__(self, operator: OperatorSnapshot, options: TableOptions) -> None:
        self._operator = operator
        self._key = _key_serializer(operator)
        self._own: dict[str, StateInfo] = {}
        self._global: dict[str, StateInfo] = {}
        for info in operator.states:
            if info.meta.backend_state_type is BackendStateType.PRIORITY_QUEUE:
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
        for part in _chunks(windows_of(reader.keyed_and_timers())):
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
                    (each.global_states if of_key else each.states).get(name) for each in part
                ]
                columns[name] = column_of_values(_type(info), values, self._types)
        return self._batch(columns)

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
    found = operator.key_type
    if found is None:
        raise SavepointError(
            f"Operator {operator.label!r} has no keyed state.",
            location=str(operator.snapshot.folder),
        )
    return found.serializer


def _chunks(entries: Iterator[Any]) -> Iterator[list[Any]]:
    part: list[Any] = []
    for each in entries:
        part.append(each)
        if len(part) == _ROWS:
            yield part
            part = []
    if part:
        yield part


# -------------------------------------------------------------------------- operator state


class _OperatorState(_RowWise):
    """List state: a row per element of every subtask. Union and broadcast state: one copy."""

    def __init__(
        self, operator: OperatorSnapshot, kind: str, name: str, options: TableOptions
    ) -> None:
        self._operator, self._kind, self._name = operator, kind, name
        stored = {public: kept for kept, public in _OPERATOR_KINDS.items()}[kind]
        info = _operator_state_info(operator, name, stored)
        meta = info.meta
        if kind == BROADCAST:
            self._type: Any = MapSerializer(
                meta.serializer("KEY_SERIALIZER"), meta.value_serializer
            )
            columns = [
                ("map_key", column_type(self._type.key, options.types)),
                ("map_value", column_type(self._type.value, options.types)),
            ]
        else:
            self._type = meta.value_serializer
            columns = [("subtask", pa.int32())] if kind == LIST else []
            columns += [
                ("list_index", pa.int32()),
                ("list_value", column_type(self._type, options.types)),
            ]
        super().__init__(pa.schema(columns), operator.state.state_size, options)

    def splits(self, split_bytes: int, minimum: int) -> list[Split]:
        """List state: a part per subtask. The others are one copy."""
        if self._kind != LIST:
            return [(0, 0)]
        return [(index, index) for index in range(max(1, self._operator.parallelism))]

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        if self._kind == LIST:
            yield from self._list(split[0])
        else:
            for entry in EntryReader(self._operator, self._name).operator_state_entries():
                if _OPERATOR_KINDS[entry.kind] == self._kind:
                    yield from self._one_copy(list(entry.value))

    def _list(self, subtask: int) -> Iterator[pa.RecordBatch]:
        for index, handle, reader in self._operator.operator_state_readers():
            for info in handle.states:
                is_it = info.name == self._name and info.mode is OperatorStateMode.SPLIT_DISTRIBUTE
                if index != subtask or not is_it:
                    continue
                raw = reader.element_bytes(info)
                for first in range(0, len(raw), _ROWS):
                    part = raw[first : first + _ROWS]
                    yield self._batch(
                        {
                            "subtask": pa.array([subtask] * len(part), pa.int32()),
                            "list_index": pa.array(range(first, first + len(part)), pa.int32()),
                            "list_value": column_of_elements(self._type, part, self._types),
                        }
                    )

    def _one_copy(self, elements: list[Any]) -> Iterator[pa.RecordBatch]:
        for first in range(0, len(elements), _ROWS):
            part = elements[first : first + _ROWS]
            if self._kind == BROADCAST:
                keys, values = [key for key, _ in part], [value for _, value in part]
                yield self._batch(
                    {
                        "map_key": column_of_values(self._type.key, keys, self._types),
                        "map_value": column_of_values(self._type.value, values, self._types),
                    }
                )
            else:
                yield self._batch(
                    {
                        "list_index": pa.array(range(first, first + len(part)), pa.int32()),
                        "list_value": column_of_values(self._type, part, self._types),
                    }
                )


def _operator_state_info(operator: OperatorSnapshot, name: str, kind: str) -> StateInfo:
    states = operator.operator_states
    for info in states:
        if (info.name, info.kind) == (name, kind):
            return info
    known = ", ".join(f"{info.name!r} ({_OPERATOR_KINDS[info.kind]})" for info in states) or "none"
    raise NoSuchStateError(
        f"Operator {operator.label!r} has no {_OPERATOR_KINDS[kind]} state {name!r}; it has: "
        f"{known}.",
        location=str(operator.snapshot.folder),
    )


# -------------------------------------------------------------------------------- metadata


@dataclass
class MetadataTable(SnapshotTable):
    """A row per operator, with the columns of Flink's ``savepoint_metadata``."""

    snapshot: Snapshot
    size: int = 0
    schema: pa.Schema = field(
        default_factory=lambda: pa.schema(
            [
                ("checkpoint-id", pa.int64()),
                ("operator-name", pa.string()),
                ("operator-uid", pa.string()),
                ("operator-uid-hash", pa.string()),
                ("operator-parallelism", pa.int32()),
                ("operator-max-parallelism", pa.int32()),
                ("operator-subtask-state-count", pa.int32()),
                ("operator-coordinator-state-size-in-bytes", pa.int64()),
                ("operator-total-size-in-bytes", pa.int64()),
            ]
        )
    )

    def splits(self, split_bytes: int, minimum: int) -> list[Split]:
        return [(0, 0)]

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        rows = []
        for operator in self.snapshot.operators:
            state = operator.state
            coordinator = state.coordinator_state.state_size if state.coordinator_state else 0
            row = (
                self.snapshot.metadata.checkpoint_id,
                operator.name or None,
                operator.uid or None,
                operator.operator_id.hex,
                operator.parallelism,
                operator.max_parallelism,
                len(state.subtasks),
                coordinator,
                state.state_size,
            )
            rows.append(dict(zip(self.schema.names, row, strict=True)))
        yield pa.RecordBatch.from_pylist(rows, schema=self.schema)
