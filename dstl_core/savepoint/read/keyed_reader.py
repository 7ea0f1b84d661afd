"""Keyed state as Arrow columns: one row per key over all states, or one state in flat form.

    reader = Snapshot.load(path)["uid"].keyed(columns=(..), keys=(..))   # or .flat("name")
    reader.schema                                     # known before anything is read
    for batch in reader.read():                       # or read(key_groups), a split
        ...                                           # pa.RecordBatch, bounded in rows and bytes

``state_columns`` defines the names of columns, ``ColumnOptions`` their types. Canonical state is
decoded while it is read, a few megabytes at a time. Other forms are first converted to canonical
form, a range of key groups at a time. A value whose type has no columnar form is its bytes; the
field's metadata ``flink.class`` names its class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.codec.columnar.keyed.byte_index import ByteIndex, Ranges
from dstl_core.codec.columnar.keyed.decoder import (
    KEY,
    NAMESPACE,
    TIMESTAMP,
    USER_KEY,
    VALUE,
    StateDecoder,
)
from dstl_core.codec.columnar.keyed.key_join import KeyJoin
from dstl_core.codec.columnar.keyed.sections import CHUNK_BYTES, SectionChunk, SectionChunks
from dstl_core.codec.columnar.keyed.spans import ROWS_PER_BATCH, SectionScanner, SpanBatch
from dstl_core.codec.columnar.keyed.spill import parted_sections
from dstl_core.codec.columnar.types.addresses import address_of
from dstl_core.codec.columnar.types.type_layouts import DEFAULT_OPTIONS, ColumnOptions, layout_of
from dstl_core.codec.keyed_records import RecordFormat
from dstl_core.codec.serializers import (
    AnySerializer,
    VoidNamespaceSerializer,
    key_groups_of,
    serialize_key,
)
from dstl_core.errors import (
    ConfigError,
    NotInColumnsError,
    SavepointError,
    error_context,
)
from dstl_core.model.handle import KeyedStateHandle
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.columns.declared_decimals import as_declared, declared_types
from dstl_core.savepoint.columns.job_columns import TextOf, as_texts, job_text
from dstl_core.savepoint.columns.shown_columns import ShownColumns, shown_columns
from dstl_core.savepoint.read.operator_catalog import OperatorCatalog, StateInfo
from dstl_core.savepoint.read.stored_records import (
    handle_parts,
    open_part,
    open_part_records,
    state_id,
)
from dstl_core.savepoint.read.timer_queues import with_timer_services, with_timers_of
from dstl_core.state.columns.state_columns import (
    KEY_COLUMN,
    KEY_GROUP_COLUMN,
    LIST_INDEX_COLUMN,
    LIST_VALUE_COLUMN,
    VALUE_COLUMN,
    WINDOW_COLUMN,
    WINDOW_TYPES,
    namespace_type,
    role_names,
)
from dstl_core.state.restore.stored_key_groups import StoredKeyGroups, StoredRecords
from dstl_core.state.tables.keyed_state import check_same_types

KEYED = "keyed"
WINDOWS = "windows"
READ_MEMORY = 512 << 20
"""Default memory of a read in bytes, without the batches that it returns."""
_LEAST_BYTES = 4096
"""Least bytes of records that are joined at a time, however small the memory limit is."""
_JOIN_FACTOR = 4
"""Memory of a join, as a multiple of the bytes of its records."""
_SNAPPY_FACTOR = 8


@dataclass(frozen=True)
class ReadOptions:
    """Options of reading keyed state.

    Args:
        columns: Names of the columns to read; by default all.
        keys: Keys to read, as values of the key type; by default all.
        types: Conversion of types to columns.
        memory: Bytes for one row per key, above which records go to temporary files.
    """

    columns: tuple[str, ...] | None = None
    keys: tuple[Any, ...] | None = None
    types: ColumnOptions = DEFAULT_OPTIONS
    memory: int = READ_MEMORY


DEFAULT_READ = ReadOptions()


class KeyedStateReader:
    """Reads the keyed state of one operator as record batches.

    Args:
        operator: The operator to read.
        state: ``keyed`` for one row per key over all states, ``windows`` for one row per key and
            window, or the name of one state.
        options: Columns, keys, types and memory.

    Raises:
        NoSuchStateError: There is no such state. The message lists the states.
        ConfigError: There is no such column. The message lists the columns.
        SavepointError: The operator has no keyed state, or a type cannot be a column.
    """

    def __init__(
        self, operator: OperatorCatalog, state: str = KEYED, options: ReadOptions = DEFAULT_READ
    ) -> None:
        operator = with_timer_services(operator)
        key_type = operator.key_type
        if key_type is None:
            raise SavepointError(
                f"Operator {operator.label!r} has no keyed state.",
                location=str(operator.snapshot.folder),
            )
        self._operator = operator
        self._options = options
        self._key_type = key_type.serializer
        self._keys = KeyFilter(self._key_type, options.keys, operator.max_parallelism)
        try:
            self._form: _Form
            if state == KEYED:
                self._form = _Keyed(operator, self._key_type, options)
            elif state == WINDOWS and not operator.has_state(WINDOWS):
                self._form = _Windows(operator, self._key_type, options)
            else:
                self._form = _Flat(operator, operator.state_info(state), self._key_type, options)
        except NotInColumnsError as error:
            raise SavepointError(
                f"State {state!r} cannot be read as columns: values of type "
                f"{error.type_name} have no columnar form.",
                location=str(operator.snapshot.folder),
            ) from error
        self._wanted = _select(self._form.columns, options.columns)
        self._texts = {name: text for name, text in self._form.texts.items() if text is not None}
        self._decimals = declared_types(operator.decimals, state, self._form.columns, options.types)
        self.schema = pa.schema(
            [
                (
                    name,
                    pa.string()
                    if name in self._texts
                    else self._decimals.get(name, self._form.columns[name]),
                )
                for name in self._wanted
            ]
        )

    def read(self, key_groups: KeyGroupRange | None = None) -> Iterator[pa.RecordBatch]:
        """Yields the rows of some key groups, or of all, in batches of bounded size.

        Raises:
            FormatError: The state is damaged.
            ColumnValueError: A column cannot hold a value; the message names the option.
        """
        snapshot = self._operator.snapshot
        wanted = key_groups or KeyGroupRange(0, self._operator.max_parallelism - 1)
        operator = with_timers_of(self._operator, wanted)
        for handle, of_handle in _parts(operator, wanted):
            if not self._keys.may_be_in(of_handle):
                continue
            with error_context(location=str(snapshot.folder), operator=operator.label):
                stored = self._open(operator, handle, of_handle, wanted)
                if stored is None:
                    continue
                with stored.context():
                    yield from self._batches(stored)

    def _open(
        self,
        operator: OperatorCatalog,
        handle: KeyedStateHandle,
        key_groups: KeyGroupRange,
        wanted: KeyGroupRange,
    ) -> StoredRecords | None:
        within = None if self._keys.is_limited else wanted
        if self._form.is_joined or self._keys.is_limited:
            stored = open_part(operator, handle, key_groups, within)
            return None if stored is None else self._keys.prune(stored)
        return open_part_records(operator, handle, key_groups, within)

    def _batches(self, stored: StoredRecords) -> Iterator[pa.RecordBatch]:
        for columns in self._form.rows(stored, frozenset(self._wanted), self._keys):
            arrays = [self._column(name, columns[name]) for name in self._wanted]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _column(self, name: str, column: pa.Array) -> pa.Array:
        if name in self._form.shown:
            return self._form.shown[name].column(column)
        if name in self._decimals:
            return as_declared(column, self._decimals[name], name)
        return as_texts(column, self._texts[name]) if name in self._texts else column


def _parts(
    operator: OperatorCatalog, wanted: KeyGroupRange
) -> Iterator[tuple[KeyedStateHandle, KeyGroupRange]]:
    """Parts of the state; each has all records of its keys."""
    if not operator.timer_queues:
        return handle_parts(operator, wanted)
    from dstl_core.savepoint.read.keyed_copy import (
        whole_parts,
    )  # loads kernels that only writing needs

    return whole_parts(operator, wanted)


class KeyFilter:
    """Selects the records of the requested keys, and the key groups of these keys."""

    def __init__(
        self, key_type: AnySerializer, keys: Sequence[Any] | None, max_parallelism: int
    ) -> None:
        self._index: ByteIndex | None = None
        self._groups: set[int] = set()
        if keys is None:
            return
        raw = [serialize_key(key_type, key) for key in keys]
        self._data = np.frombuffer(b"".join(raw) or b"\0", np.uint8)
        ends = np.cumsum([len(each) for each in raw]).astype(np.int64) + address_of(self._data)
        starts = ends - np.array([len(each) for each in raw], np.int64)
        self._index = ByteIndex(Ranges(starts, ends))
        self._groups = {
            group for key in keys for group in key_groups_of(key_type, key, max_parallelism)
        }

    @property
    def is_limited(self) -> bool:
        return self._index is not None

    def may_be_in(self, key_groups: KeyGroupRange) -> bool:
        return self._index is None or any(map(key_groups.contains, self._groups))

    def prune(self, stored: StoredKeyGroups) -> StoredKeyGroups:
        if self._index is None:
            return stored
        return stored.with_sections([each for each in stored.sections if each[0] in self._groups])

    def apply(self, decoder: StateDecoder, batch: SpanBatch) -> SpanBatch:
        """Keeps the records of the requested keys."""
        if self._index is None:
            return batch
        return batch.take(self._index.find(decoder.key_ranges(batch)) >= 0)


class _Form(Protocol):
    """The form of the rows: their ``columns`` by name, and the conversion of sections to rows.

    ``texts`` has the columns whose bytes become texts, ``shown`` those whose bytes become values of
    the types in ``columns``. A form that ``is_joined`` needs all records of a key at once.
    """

    columns: dict[str, pa.DataType]
    texts: dict[str, TextOf | None]
    shown: dict[str, ShownColumns]
    is_joined: bool

    def rows(
        self, stored: StoredRecords, wanted: frozenset[str], keys: KeyFilter
    ) -> Iterator[dict[str, pa.Array]]: ...


# -------------------------------------------------------------------------------------- flat


class _Flat:
    """One state: a row per value, list element, map entry or timer."""

    is_joined = False

    def __init__(
        self,
        operator: OperatorCatalog,
        info: StateInfo,
        key_type: AnySerializer,
        options: ReadOptions,
    ) -> None:
        types = options.types
        self._info = info
        self._types = types
        record_format = RecordFormat(info.meta.as_key_value(), key_type)
        decoder = StateDecoder(record_format, 1, types)
        # Elements are converted before each has a row, so that no column is left to convert.
        self.shown: dict[str, ShownColumns] = {}
        self._shown = shown_columns(record_format, _forms(operator), types)
        text = None if self._shown is not None else job_text(record_format, types)
        self.texts = {role_names(info.meta)[VALUE]: text}
        stored = decoder.columns
        if self._shown is not None:
            stored = {**stored, VALUE: self._shown.type_of(stored[VALUE])}
            if USER_KEY in stored:
                stored[USER_KEY] = self._shown.key_type(stored[USER_KEY])
        value = stored.get(VALUE)
        self._is_list = info.kind == "list" and value is not None and pa.types.is_list(value)
        self._roles = role_names(info.meta)
        self.columns: dict[str, pa.DataType] = {}
        for role, arrow_type in sorted(
            stored.items(), key=lambda role_and_type: _ORDER[role_and_type[0]]
        ):
            if role == VALUE and self._is_list:
                self.columns[LIST_INDEX_COLUMN] = pa.int32()
                self.columns[LIST_VALUE_COLUMN] = arrow_type.value_type
            else:
                self.columns[self._roles[role]] = arrow_type
        if KEY_GROUP_COLUMN in (options.columns or ()):
            self.columns[KEY_GROUP_COLUMN] = pa.int32()

    def rows(
        self, stored: StoredRecords, wanted: frozenset[str], keys: KeyFilter
    ) -> Iterator[dict[str, pa.Array]]:
        state = _state_id(stored, self._info)
        if state is None:
            return
        header = stored.header
        record_format = RecordFormat(self._info.meta.as_key_value(), header.key_serializer)
        decoder = StateDecoder(record_format, stored.prefix_bytes, self._types)
        roles = {role for role, name in self._roles.items() if name in wanted}
        if self._is_list:
            roles.add(VALUE)
        for batch in stored.records([at == state for at in range(len(header.states))]):
            selected = keys.apply(decoder, batch)
            if not len(selected):
                continue
            columns = decoder.decode(selected, roles or {KEY})
            if self._shown is not None:
                if VALUE in columns:
                    columns[VALUE] = self._shown.column(columns[VALUE])
                if USER_KEY in columns:
                    columns[USER_KEY] = self._shown.keys(columns[USER_KEY])
            named = {
                self._roles[role]: column for role, column in columns.items() if role in self._roles
            }
            if KEY_GROUP_COLUMN in wanted:
                named[KEY_GROUP_COLUMN] = pa.array(selected.key_groups, pa.int32())
            if self._is_list:
                yield from _exploded(named)
            else:
                yield named


def _exploded(columns: dict[str, pa.Array]) -> Iterator[dict[str, pa.Array]]:
    """Yields a row per element, a bounded number at a time."""
    lists = columns.pop(VALUE_COLUMN)
    elements = lists.flatten()
    parents = pc.list_parent_indices(lists)
    starts = np.repeat(np.asarray(lists.offsets)[:-1], np.diff(np.asarray(lists.offsets)))
    index = np.arange(len(elements), dtype=np.int32) - starts.astype(np.int32)
    for first in range(0, len(elements), ROWS_PER_BATCH):
        part = slice(first, first + ROWS_PER_BATCH)
        rows = parents[part]
        yield {name: column.take(rows) for name, column in columns.items()} | {
            LIST_INDEX_COLUMN: pa.array(index[part]),
            LIST_VALUE_COLUMN: elements[part],
        }


_ORDER = {role: at for at, role in enumerate((KEY, NAMESPACE, TIMESTAMP, USER_KEY, VALUE))}


# ------------------------------------------------------------------------------------- keyed


@dataclass
class _Keyed:
    """One row per key over all states with a void namespace, and timers if a column names them."""

    operator: OperatorCatalog
    key_type: AnySerializer
    options: ReadOptions
    columns: dict[str, pa.DataType] = field(init=False)

    def __post_init__(self) -> None:
        types = self.options.types
        self.texts: dict[str, TextOf | None] = {}
        self.shown: dict[str, ShownColumns] = {}
        self.columns = {KEY_COLUMN: layout_of(self.key_type, types).arrow_type}
        self._infos: dict[str, StateInfo] = {}
        self.is_joined = False
        self._namespace = self._joined_namespace()
        if self._namespace is not None:
            window = layout_of(self._namespace, types).arrow_type
            if not pa.types.is_null(window):
                self.columns[WINDOW_COLUMN] = window
        for info in self.operator.states:
            if self._is_column(info) and not self._is_taken(info.name):
                meta = info.meta.as_key_value()
                record_format = RecordFormat(meta, self.key_type)
                decoder = StateDecoder(record_format, 1, types)
                shown = shown_columns(record_format, _forms(self.operator), types)
                self.columns[info.name] = decoder.joined_type
                if shown is not None:
                    self.shown[info.name] = shown
                    self.columns[info.name] = shown.type_of(decoder.joined_type)
                else:
                    self.texts[info.name] = job_text(record_format, types)
                self.is_joined = bool(self._infos) or decoder.is_grouped
                self._infos[info.name] = info
        if KEY_GROUP_COLUMN in (self.options.columns or ()):
            self.columns[KEY_GROUP_COLUMN] = pa.int32()

    def _joined_namespace(self) -> AnySerializer | None:
        """The type of the namespaces of rows; None for void namespaces."""
        return None

    def _is_column(self, info: StateInfo) -> bool:
        has_namespace = namespace_type(info.meta) == (self._namespace or VoidNamespaceSerializer())
        return has_namespace and (
            not info.meta.is_queue or info.name in (self.options.columns or ())
        )

    def _is_taken(self, name: str) -> bool:
        """Whether a state has the name of a key column. A name in ``columns`` means the key
        column.
        """
        if name not in self.columns:
            return False
        if self.options.columns is None:
            raise SavepointError(
                f"State {name!r} of operator {self.operator.label!r} has the name of a column of "
                f"keys; read it alone (state), or the others by their names (columns)."
            )
        return True

    def rows(
        self, stored: StoredRecords, wanted: frozenset[str], keys: KeyFilter
    ) -> Iterator[dict[str, pa.Array]]:
        header = stored.header
        decoders: dict[int, StateDecoder] = {}
        names: dict[int, str] = {}
        for name, info in self._infos.items():
            state = _state_id(stored, info)
            if state is not None:
                record_format = RecordFormat(info.meta.as_key_value(), header.key_serializer)
                decoders[state] = StateDecoder(
                    record_format, stored.prefix_bytes, self.options.types
                )
                names[state] = name
        if len(decoders) == 1 and not next(iter(decoders.values())).is_grouped:
            yield from self._single(stored, decoders, names, wanted, keys)
            return
        join = KeyJoin(header.key_serializer, decoders, self.options.types, self._namespace)
        chosen = {state for state, name in names.items() if name in wanted}
        for batch in self._whole_key_groups(stored.as_sections(), decoders):
            kept = _filtered(batch, decoders, keys)
            with_keys = not wanted.isdisjoint((KEY_COLUMN, WINDOW_COLUMN))
            for joined in join.rows(kept, chosen, keys=with_keys):
                columns = {names[state]: column for state, column in joined.columns.items()}
                if KEY_GROUP_COLUMN in wanted:
                    columns[KEY_GROUP_COLUMN] = pa.array(joined.key_groups, pa.int32())
                for role, column in joined.keys.items():
                    columns[KEY_COLUMN if role == KEY else WINDOW_COLUMN] = column
                for name in wanted - columns.keys():
                    columns[name] = pa.nulls(joined.count, self.columns[name])
                yield columns

    def _single(
        self,
        stored: StoredRecords,
        decoders: Mapping[int, StateDecoder],
        names: Mapping[int, str],
        wanted: frozenset[str],
        keys: KeyFilter,
    ) -> Iterator[dict[str, pa.Array]]:
        """Reads a single state with one record per key: its records are the rows, with no join."""
        [(state, decoder)] = decoders.items()
        roles = {KEY: KEY_COLUMN, NAMESPACE: WINDOW_COLUMN, VALUE: names[state]}
        read = {role for role, name in roles.items() if name in wanted} or {KEY}
        for batch in stored.records([each == state for each in range(len(stored.header.states))]):
            selected = keys.apply(decoder, batch)
            if not len(selected):
                continue
            decoded = decoder.decode(selected, read)
            columns = {roles[role]: column for role, column in decoded.items()}
            if KEY_GROUP_COLUMN in wanted:
                columns[KEY_GROUP_COLUMN] = pa.array(selected.key_groups, pa.int32())
            for name in wanted - columns.keys():
                columns[name] = pa.nulls(len(selected), self.columns[name])
            yield columns

    def _whole_key_groups(
        self, stored: StoredKeyGroups, decoders: dict[int, StateDecoder]
    ) -> Iterator[SpanBatch]:
        """Yields all records of some key groups at a time, or of some keys of a large key group."""
        mask = [state in decoders for state in range(len(stored.header.states))]
        scanner = SectionScanner(stored.prefix_bytes, mask)
        most = self.options.memory // _JOIN_FACTOR
        if stored.header.compressed:
            most //= _SNAPPY_FACTOR
        most = max(most, _LEAST_BYTES)
        small = [section for section in stored.sections if section[2] - section[1] <= most]
        yield from _by_source(
            scanner.batches(stored.with_sections(small).chunks(CHUNK_BYTES, most))
        )
        for section in stored.sections:
            size = section[2] - section[1]
            if size <= most:
                continue
            records = scanner.batches(stored.with_sections([section]).chunks())
            for chunk in parted_sections(
                records, decoders, section[0], stored.prefix_bytes, -(-2 * size // most)
            ):
                again = SectionScanner(stored.prefix_bytes, mask)
                yield from _by_source(again.batches(_alone(chunk)))


class _Windows(_Keyed):
    """One row per key and window over all states of windows.

    For merging windows (sessions), the window is the one under which the state is stored;
    ``merging-window-set`` maps windows to it.
    """

    def _joined_namespace(self) -> AnySerializer:
        namespace_types: list[AnySerializer] = []
        for info in self.operator.states:
            kind = namespace_type(info.meta)
            if (
                not info.meta.is_queue
                and isinstance(kind, WINDOW_TYPES)
                and kind not in namespace_types
            ):
                namespace_types.append(kind)
        if len(namespace_types) != 1:
            names = ", ".join(kind.type_name for kind in namespace_types) or "none"
            raise SavepointError(
                f"Operator {self.operator.label!r} has no windows of one type (found: {names}); "
                f"read its states one by one.",
                location=str(self.operator.snapshot.folder),
            )
        return namespace_types[0]


def _alone(chunk: SectionChunk) -> SectionChunks:
    yield chunk


def _by_source(batches: Iterator[SpanBatch]) -> Iterator[SpanBatch]:
    """Groups consecutive batches over the same buffer."""
    for _, group in groupby(batches, key=lambda batch: id(batch.source)):
        parts = list(group)
        yield SpanBatch(np.concatenate([part.spans for part in parts]), parts[0].source)


def _filtered(batch: SpanBatch, decoders: dict[int, StateDecoder], keys: KeyFilter) -> SpanBatch:
    parts = [
        keys.apply(decoder, batch.take(batch.states == state)).spans
        for state, decoder in decoders.items()
    ]
    return SpanBatch(np.concatenate(parts), batch.source) if parts else batch


# ------------------------------------------------------------------------------------ shared


def _forms(operator: OperatorCatalog) -> object:
    """What a person says of the states of an operator."""
    return operator.forms if operator.snapshot.state_types else None


def _state_id(stored: StoredRecords, info: StateInfo) -> int | None:
    """The id of a state in one handle, or None if the handle does not have it."""
    number = state_id(stored, info.meta)
    if number is not None:
        check_same_types(info.meta, stored.header.states[number])
    return number


def _select(every: dict[str, pa.DataType], columns: Sequence[str] | None) -> list[str]:
    if columns is None:
        return list(every)
    missing = [name for name in columns if name not in every]
    if missing:
        raise ConfigError(f"There is no column {missing[0]!r}; there are: {', '.join(every)}.")
    return list(columns)
