"""The keyed state of one key-group range, as tables."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from dstl_core.codec.data_io import DataOutput
from dstl_core.codec.keyed_canonical import write_section
from dstl_core.codec.serializers import AnySerializer
from dstl_core.codec.state_meta import (
    BackendStateType,
    KeyedBackendHeader,
    StateMetaInfoSnapshot,
    write_keyed_header,
)
from dstl_core.errors import RestoreError
from dstl_core.model.handle import (
    KeyGroupRangeOffsets,
)
from dstl_core.model.key_group import KeyGroupRange, key_group_prefix_bytes
from dstl_core.state.tables.raw_sections import RawSections
from dstl_core.state.tables.state_table import StateTable
from dstl_core.state.tables.store import HEAP, EntryStore
from dstl_core.state.tables.table_factory import create_table
from dstl_core.state.tables.ttl import TtlPolicy

StateKey = tuple[str, bool]
"""A state's name, and whether it is a queue: a queue and a state may have the same name."""


def state_key(meta: StateMetaInfoSnapshot) -> StateKey:
    return meta.name, meta.is_queue


class LostEntries(NamedTuple):
    """An entry that could not be restored. A scope of None: any number of entries."""

    meta: StateMetaInfoSnapshot
    key_group: int
    scope: bytes | None
    reason: str


class KeyedState:
    """The tables of one key-group range.

    ``key_serializer`` is None until state is restored or created. ``store`` has the entries.
    """

    def __init__(
        self, key_groups: KeyGroupRange, max_parallelism: int, store: EntryStore = HEAP
    ) -> None:
        self.store = store
        self.key_groups = key_groups
        self.max_parallelism = max_parallelism
        self.prefix_bytes = key_group_prefix_bytes(max_parallelism)
        self.key_serializer: AnySerializer | None = None
        self.tables: dict[StateKey, StateTable[Any]] = {}
        self.expired: dict[StateKey, TtlPolicy] = {}

    def table(self, meta: StateMetaInfoSnapshot, key_serializer: AnySerializer) -> StateTable[Any]:
        """The table of a state; creates it if it is new.

        Raises:
            RestoreError: The type of the state or of the key differs from the earlier one.
        """
        if self.key_serializer is None:
            self.key_serializer = key_serializer
        elif self.key_serializer != key_serializer:
            raise RestoreError(
                f"The key has another type: expected {self.key_serializer.type_name}, got "
                f"{key_serializer.type_name} in the stored state."
            )
        table = self.tables.get(state_key(meta))
        if table is None:
            table = create_table(meta, key_serializer, self.prefix_bytes, self.store)
            self.tables[state_key(meta)] = table
        elif types_of(table.meta) == types_of(meta):
            if knowledge_of(meta) > knowledge_of(table.meta):
                table.meta = meta  # this description has more subclasses
        else:
            raise RestoreError(
                f"State {meta.name!r} has another type: expected {describe_state(table.meta)} "
                f"(from the restored state), got {describe_state(meta)}."
            )
        return table

    def rows(self, key_group: int) -> Iterator[tuple[StateTable[Any], tuple[Any, Any, Any]]]:
        """Every entry of a key group, decoded, with its table."""
        for table in self.tables.values():
            for entry in table.entries(key_group):
                yield table, entry

    @property
    def lost(self) -> list[LostEntries]:
        """The entries that could not be restored, because only Java classes can read them."""
        return [
            LostEntries(table.meta, key_group, scope, reason)
            for table in self.tables.values()
            for (key_group, scope), reason in table.lost.items()
        ]

    def check_complete(self) -> None:
        """Checks that no entry is lost.

        Raises:
            RestoreError: An entry is lost; the message names the first state and the reason.
        """
        for state in self.lost:
            raise RestoreError(
                f"State {state.meta.name!r} cannot be restored as a whole (key group "
                f"{state.key_group}): {state.reason}."
            )

    def capture(self, expired: Mapping[StateKey, TtlPolicy] | None = None) -> KeyedState:
        """Captures a point-in-time view that can be read while processing continues.

        Args:
            expired: States whose expired entries ``write_canonical`` leaves out.
        """
        twin = copy.copy(self)
        view = self.store.view()
        twin.tables = {key: table.frozen(view) for key, table in self.tables.items()}
        twin.expired = dict(expired or {})
        return twin

    def write_canonical(self) -> tuple[bytes, KeyGroupRangeOffsets]:
        """Writes all state as one canonical stream; returns it and the offsets for its handle."""
        parts: list[bytes] = []
        offsets = self.write_canonical_to(parts.append)
        return b"".join(parts), offsets

    def write_canonical_to(self, sink: Callable[[bytes], object]) -> KeyGroupRangeOffsets:
        """As ``write_canonical``, one key group at a time; writes nothing if there is no state."""
        if self.key_serializer is None:
            return KeyGroupRangeOffsets(self.key_groups, (0,) * len(self.key_groups))
        header = DataOutput()
        write_keyed_header(header, self.header)
        sink(header.to_bytes())
        position, offsets = header.position, []
        for _, section in self.sections():
            offsets.append(position if section else 0)
            if section:
                sink(section)
                position += len(section)
        return KeyGroupRangeOffsets(self.key_groups, tuple(offsets))

    def raw_sections(self) -> RawSections | None:
        """All state; None if there is no state."""
        if self.key_serializer is None:
            return None
        return RawSections(self.header, self.key_groups, self.prefix_bytes, self.sections())

    @property
    def header(self) -> KeyedBackendHeader:
        """The key type and the states. There must be a state."""
        assert self.key_serializer is not None  # set by the first state
        metas = tuple(table.meta for table in self.tables.values())
        return KeyedBackendHeader(self.key_serializer, metas)

    def sections(self) -> Iterator[tuple[int, bytes]]:
        """Yields each key group with its section."""
        tables = list(self.tables.values())
        for key_group in self.key_groups:
            yield (
                key_group,
                write_section(
                    (at, self._records(table, key_group)) for at, table in enumerate(tables)
                ),
            )

    def _records(self, table: StateTable[Any], key_group: int) -> Iterable[tuple[bytes, bytes]]:
        ttl = self.expired.get(state_key(table.meta))
        return table.records(key_group) if ttl is None else table.live_records(key_group, ttl)


def knowledge_of(meta: StateMetaInfoSnapshot) -> int:
    """The number of types in a description, including those of POJO subclasses."""
    waiting = [serializer for _, serializer in meta.serializers]
    count = 0
    while waiting:
        count += 1
        waiting.extend(waiting.pop().nested)
    return count


def types_of(meta: StateMetaInfoSnapshot) -> tuple[object, ...]:
    """The kind and types of a state; equal in all descriptions of the same state."""
    return meta.backend_state_type, dict(meta.options), dict(meta.serializers)


def describe_state(meta: StateMetaInfoSnapshot) -> str:
    """Kind and type of a state, for messages."""
    kind = (
        meta.keyed_state_type.value
        if meta.backend_state_type is BackendStateType.KEY_VALUE
        else meta.backend_state_type.name
    )
    return f"{kind} of {meta.value_serializer.type_name}"


def check_same_types(known: StateMetaInfoSnapshot, registered: StateMetaInfoSnapshot) -> None:
    """Raises RestoreError if a state has two types in the handles of one operator."""
    if types_of(known) != types_of(registered):
        raise RestoreError(
            f"State {registered.name!r} has different types in the handles of one operator: "
            f"{describe_state(known)} and {describe_state(registered)}."
        )
