"""Encodes the columns of rows as runs of records, by state and key group.

Every engine writes keyed state from columns by ``ColumnRuns``, and stores it by ``stored_state``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.codec.columnar.keyed.key_group_columns import key_groups_of
from dstl_core.codec.columnar.types.type_layouts import DEFAULT_OPTIONS, ColumnOptions
from dstl_core.codec.serializers import AnySerializer
from dstl_core.codec.state_meta import (
    KeyedBackendHeader,
    KeyedStateType,
    StateMetaInfoSnapshot,
)
from dstl_core.errors import ColumnValueError, ConfigError, DuplicateKeyError
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.write.folder import KeyedForm, StateFiles, StoredKeyedHandle
from dstl_core.state.columns.column_fit import fit
from dstl_core.state.columns.keyed_encoder import KeyedStateEncoder
from dstl_core.state.columns.keyed_sections import KeyedSections, StateRuns
from dstl_core.state.columns.state_columns import (
    KEY_COLUMN,
    KEY_GROUP_COLUMN,
    is_kind,
)

_WINDOW = pa.struct([("start", pa.int64()), ("end", pa.int64())])


@dataclass(frozen=True)
class StateColumns:
    """The columns of one state in the rows.

    ``columns`` maps names of the flat form, or of the joined form if ``joined``, to columns.
    """

    meta: StateMetaInfoSnapshot
    columns: Mapping[str, str]
    joined: bool
    ttl_now_ms: int | None = None
    """The time of the last access that values without a time get."""
    window_ends: str | None = None
    """For timers of windows: the column of windows whose last millisecond is the timer."""


@dataclass(frozen=True)
class KeyGroupColumn:
    """The column that holds the key group of each key, out of ``total``."""

    name: str
    total: int


@dataclass(frozen=True)
class ColumnRuns:
    """The states of an operator and the columns that become them: tasks get this, without rows.

    Args:
        key_column: The column of keys.
        key_type: Their type.
        states: The states.
        types: Representation of types as columns.
        key_groups: The column of key groups, for keys whose Java hash is not known.
    """

    key_column: str
    key_type: AnySerializer
    states: tuple[StateColumns, ...]
    types: ColumnOptions = DEFAULT_OPTIONS
    key_groups: KeyGroupColumn | None = None

    @property
    def used_columns(self) -> list[str]:
        """The columns that become state."""
        used = [self.key_column, *(c for s in self.states for c in s.columns.values())]
        used += [] if self.key_groups is None else [self.key_groups.name]
        return [*dict.fromkeys(used)]

    @property
    def header(self) -> KeyedBackendHeader:
        """The states as a stream has them."""
        return KeyedBackendHeader(self.key_type, tuple(each.meta for each in self.states))

    def encoder(self, max_parallelism: int) -> KeyedStateEncoder:
        """Encodes batches of the rows. It is for one thread."""
        metas = [each.meta for each in self.states]
        return KeyedStateEncoder(self.key_type, metas, max_parallelism, types=self.types)

    def of(self, encoder: KeyedStateEncoder, batch: pa.RecordBatch) -> Iterator[StateRuns]:
        """The runs of a batch.

        Raises:
            ConfigError: A key is null, a column does not fit its type, or a key group is wrong.
        """
        keys = batch.column(self.key_column)
        if keys.null_count:
            first = keys.is_null().index(True).as_py()
            raise ConfigError(
                f"A key is null (row {first} of a batch of {len(keys)}); keyed state needs a key: "
                f"drop or fill such rows."
            )
        key_type = encoder.schema(self.states[0].meta.name).field(KEY_COLUMN).type
        places = {KEY_COLUMN: fit(keys, key_type, "The key")}
        if self.key_groups is not None:
            places[KEY_GROUP_COLUMN] = self._key_groups(
                batch.column(self.key_groups.name), places[KEY_COLUMN], encoder.max_parallelism
            )
        for state in self.states:
            if state.columns:  # else it is an empty queue
                try:
                    yield from self._encode_state(encoder, batch, places, state)
                except ColumnValueError as error:
                    raise ColumnValueError(
                        f"State {state.meta.name!r} cannot be written: {error.message}"
                    ) from error

    def _encode_state(
        self,
        encoder: KeyedStateEncoder,
        batch: pa.RecordBatch,
        places: Mapping[str, pa.Array],
        state: StateColumns,
    ) -> list[StateRuns]:
        name = state.meta.name
        schema = encoder.keyed_schema if state.joined else encoder.schema(name)
        columns = dict(places)
        for column, source in state.columns.items():
            wanted = schema.field(column).type
            columns[column] = self._column(batch.column(source), wanted, state, column)
        if state.joined:
            return list(encoder.encode_keyed(pa.table(columns)))
        return [encoder.encode(name, pa.table(columns))]

    def _key_groups(self, group_column: pa.Array, keys: pa.Array, total: int) -> pa.Array:
        """The key groups that rows give, checked where the hash of a key is known."""
        assert self.key_groups is not None
        what = f"Column {self.key_groups.name!r} of key groups"
        groups = fit(group_column, pa.int32(), what)
        if groups.null_count or (
            len(groups) and not 0 <= pc.min(groups).as_py() <= pc.max(groups).as_py() < total
        ):
            raise ConfigError(f"{what} is wrong: expected 0..{total - 1} in every row.")
        try:
            known = key_groups_of(keys, self.key_type, total, self.types)
        except ConfigError:
            return groups  # the type has no known hash
        if not np.array_equal(known, groups.to_numpy()):
            raise ConfigError(
                f"{what} is wrong: a key belongs into another key group than its row says; leave "
                f"out key_groups, since the hash of {self.key_type.type_name} is known."
            )
        return groups

    def _column(
        self, column: pa.Array, wanted: pa.DataType, state: StateColumns, name: str
    ) -> pa.Array:
        what = f"Column for state {state.meta.name!r}"
        if state.meta.is_queue and _has_moments(column.type):
            raise ConfigError(
                f"{what} cannot be written: expected milliseconds as whole numbers, got "
                f"{column.type}; convert it."
            )
        if state.window_ends is not None and pa.types.is_int64(wanted):
            ends = pc.struct_field(fit(column, _WINDOW, what), "end")
            return pc.subtract(ends, 1)
        if state.ttl_now_ms is not None and name not in ("state_window", "state_namespace"):
            return _with_time(column, wanted, state.ttl_now_ms, what)
        return fit(column, wanted, what)


def checks_duplicates(header: KeyedBackendHeader, form: KeyedForm) -> bool:
    """Whether keys that come twice are looked for, or joined, before they are written. Files of
    RocksDB are sorted, and keys that come twice then follow each other.
    """
    joins = (meta.is_queue or is_kind(meta, KeyedStateType.LIST) for meta in header.states)
    return form == "canonical" or any(joins)


def stored_state(
    files: StateFiles,
    sections: KeyedSections,
    key_groups: KeyGroupRange,
    *,
    keep_header: bool = False,
) -> StoredKeyedHandle | None:
    """Stores the keyed state of a subtask; None without any.

    Args:
        files: Where it is stored.
        sections: The runs of at least its key groups, checked as ``checks_duplicates`` says.
        key_groups: Its key groups.
        keep_header: Whether to store its states if none has a record.

    Raises:
        DuplicateKeyError: Two rows set the same state of a key.
    """
    try:
        return files.add_keyed_stream(sections.stream(key_groups), keep_header=keep_header)
    except DuplicateKeyError:
        # The sections know how many rows of a key group there are too many.
        sections.check_duplicates = True
        return files.add_keyed_stream(sections.stream(key_groups), keep_header=keep_header)


def _with_time(column: pa.Array, wanted: pa.DataType, now_ms: int, what: str) -> pa.Array:
    """Values of a state with a time to live. Values without a time get ``ttl_now_ms``."""
    is_other = any(
        is_kind_of(wanted) and not is_kind_of(column.type)
        for is_kind_of in (pa.types.is_map, pa.types.is_list)
    )
    if column.type.equals(wanted) or _has_time(column.type) or is_other:
        return fit(column, wanted, what)
    if pa.types.is_map(wanted):
        inner = _with_time(column.items, wanted.item_type, now_ms, what)
        entries = pa.StructArray.from_arrays(
            [fit(column.keys, wanted.key_type, what), inner],
            fields=[wanted.key_field, wanted.item_field],
        )
        buffers = [column.buffers()[0] if column.null_count else None, column.buffers()[1]]
        return pa.Array.from_buffers(
            wanted, len(column), buffers, offset=column.offset, children=[entries]
        )
    if pa.types.is_list(wanted):
        inner = _with_time(column.values, wanted.value_type, now_ms, what)
        buffers = [column.buffers()[0] if column.null_count else None, column.buffers()[1]]
        return pa.Array.from_buffers(
            wanted, len(column), buffers, offset=column.offset, children=[inner]
        )
    fields = list(wanted)
    values = [
        pa.array(np.full(len(column), now_ms), pa.int64())
        if pa.types.is_int64(field.type) and field.name == "ts"
        else fit(column, field.type, what)
        for field in fields
    ]
    mask = column.is_null() if column.null_count else None
    return pa.StructArray.from_arrays(values, fields=fields, mask=mask)


def _has_moments(kind: pa.DataType) -> bool:
    """Whether a type has moments, which have another unit than timers: it would be taken for
    milliseconds.
    """
    parts = (kind.field(at).type for at in range(kind.num_fields))
    return bool(pa.types.is_temporal(kind)) or any(map(_has_moments, parts))


def _has_time(arrow_type: pa.DataType) -> bool:
    if pa.types.is_list(arrow_type):
        return _has_time(arrow_type.value_type)
    if pa.types.is_map(arrow_type):
        return _has_time(arrow_type.item_type)
    return pa.types.is_struct(arrow_type) and {each.name for each in arrow_type} == {"v", "ts"}
