"""The keyed state of one key-group range, as tables; to and from handles.

Restoring takes canonical key groups and changelogs on top of them. What a handle holds outside the
wanted key groups is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from dstl_core.changelog.reader import StateChangelogHandleReader
from dstl_core.codec.change_payload import MetadataChange, read_change
from dstl_core.codec.keyed_canonical import read_section, write_canonical_stream, write_section
from dstl_core.codec.serializers import BUILT_IN, AnySerializer, SerializerRegistry
from dstl_core.codec.state_meta import (
    BackendStateType,
    KeyedBackendHeader,
    StateMetaInfoSnapshot,
)
from dstl_core.errors import FormatError, RestoreError
from dstl_core.model.handle import (
    ChangelogStateBackendHandle,
    ChangelogStateHandle,
    KeyedStateHandle,
    KeyGroupRangeOffsets,
    KeyGroupsSavepointStateHandle,
)
from dstl_core.model.key_group import KeyGroupRange, key_group_prefix_bytes
from dstl_core.state.canonical_reader import open_canonical
from dstl_core.state.table import StateTable, create_table
from dstl_core.storage.handle_resolver import HandleResolver

StateKey = tuple[str, bool]
"""A state's name, and whether it is a queue: both may use the same name."""


def state_key(meta: StateMetaInfoSnapshot) -> StateKey:
    return meta.name, meta.backend_state_type is BackendStateType.PRIORITY_QUEUE


class KeyedState:
    """Tables of one key-group range.

    ``key_serializer`` is None until state is restored or created.
    """

    def __init__(self, key_groups: KeyGroupRange, max_parallelism: int) -> None:
        self.key_groups = key_groups
        self.max_parallelism = max_parallelism
        self.prefix_bytes = key_group_prefix_bytes(max_parallelism)
        self.key_serializer: AnySerializer | None = None
        self.tables: dict[StateKey, StateTable[Any]] = {}

    def table(self, meta: StateMetaInfoSnapshot, key_serializer: AnySerializer) -> StateTable[Any]:
        """The table of a state; made if it is new.

        Raises:
            RestoreError: The state or the key has another type than before; shows both.
        """
        if self.key_serializer is None:
            self.key_serializer = key_serializer
        elif self.key_serializer != key_serializer:
            raise RestoreError(
                f"The key has another type: expected {self.key_serializer.type_name} (from the "
                f"restored state), got {key_serializer.type_name}."
            )
        found = self.tables.get(state_key(meta))
        if found is None:
            found = create_table(meta, key_serializer, self.prefix_bytes)
            self.tables[state_key(meta)] = found
        elif _types_of(found.meta) != _types_of(meta):
            raise RestoreError(
                f"State {meta.name!r} has another type: expected {_describe(found.meta)} (from "
                f"the restored state), got {_describe(meta)}."
            )
        return found

    def rows(self, key_group: int) -> Iterator[tuple[StateTable[Any], tuple[Any, Any, Any]]]:
        """Every entry of a key group, decoded, with its table."""
        for table in self.tables.values():
            for entry in table.entries(key_group):
                yield table, entry

    def write_canonical(self) -> tuple[bytes, KeyGroupRangeOffsets]:
        """All state as one canonical stream, with the offsets for its handle."""
        if self.key_serializer is None:
            return b"", KeyGroupRangeOffsets(self.key_groups, (0,) * len(self.key_groups))
        tables = list(self.tables.values())
        header = KeyedBackendHeader(self.key_serializer, tuple(table.meta for table in tables))
        sections = {}
        for key_group in self.key_groups:
            runs = ((index, table.records(key_group)) for index, table in enumerate(tables))
            section = write_section(runs)
            if section:
                sections[key_group] = section
        return write_canonical_stream(header, self.key_groups, sections)


def restore_keyed_state(
    handles: Iterable[KeyedStateHandle],
    key_groups: KeyGroupRange,
    max_parallelism: int,
    resolver: HandleResolver,
    registry: SerializerRegistry = BUILT_IN,
) -> KeyedState:
    """The state of ``key_groups`` from all handles that hold part of it.

    Raises:
        RestoreError: A handle is of a kind that cannot be restored.
        FormatError: Damaged bytes.
    """
    state = KeyedState(key_groups, max_parallelism)
    reader = StateChangelogHandleReader(resolver.read_segment)
    for handle in handles:
        if not len(handle.key_group_range.get_intersection(key_groups)):
            continue
        if isinstance(handle, ChangelogStateBackendHandle):
            for base in handle.materialized:
                _load_base(state, base, resolver, registry)
            for log in handle.non_materialized:
                part = log.get_intersection(key_groups)
                if part is not None:
                    apply_changelog(state, part, reader, registry)
        else:
            _load_base(state, handle, resolver, registry)
    return state


def _load_base(
    state: KeyedState,
    handle: KeyedStateHandle,
    resolver: HandleResolver,
    registry: SerializerRegistry,
) -> None:
    if not isinstance(handle, KeyGroupsSavepointStateHandle):
        raise RestoreError(
            f"Keyed state of this kind cannot be read: expected canonical key groups, got "
            f"{type(handle).__name__}; take a canonical savepoint of the job."
        )
    _load_canonical(state, handle, resolver, registry)


def _load_canonical(
    state: KeyedState,
    handle: KeyGroupsSavepointStateHandle,
    resolver: HandleResolver,
    registry: SerializerRegistry,
) -> None:
    header, sections = open_canonical(handle, state.key_groups, resolver, registry)
    tables = [state.table(meta, header.key_serializer) for meta in header.states]
    for key_group, section in sections:
        prefix = key_group.to_bytes(state.prefix_bytes, "big")
        for record in read_section(section, len(tables)):
            # Under another key group the record would silently be nobody's.
            if not record.key.startswith(prefix):
                raise FormatError(
                    "A record stands in the section of another key group",
                    offset=record.offset,
                    expected=f"key group {key_group}",
                    got=f"prefix {record.key[: state.prefix_bytes].hex()}",
                )
            tables[record.state_id].load(record.key, record.value)


def apply_changelog(
    state: KeyedState,
    handle: ChangelogStateHandle,
    reader: StateChangelogHandleReader,
    registry: SerializerRegistry,
) -> None:
    """Replays a log onto the state. State ids count within one handle only."""
    tables: dict[int, StateTable[Any]] = {}
    for change in reader.get_changes(handle):
        parsed = read_change(change.change, registry)
        if isinstance(parsed, MetadataChange):
            tables[parsed.state_id] = state.table(
                parsed.state, _key_serializer_for_log(state, parsed)
            )
            continue
        table = tables.get(parsed.state_id)
        if table is None:
            raise FormatError(
                "A change belongs to a state that its log has not described",
                field="state id",
                expected=f"one of {sorted(tables)}",
                got=parsed.state_id,
            )
        table.apply(parsed.operation, change.key_group, parsed.body)


def _key_serializer_for_log(state: KeyedState, change: MetadataChange) -> AnySerializer:
    # A log does not say the type of the key. It comes from the base, or, for a log without one,
    # from whoever set it before the replay.
    if state.key_serializer is None:
        raise RestoreError(
            f"The type of the key is unknown: the changelog of state {change.state.name!r} has no "
            f"materialized base; give the key type."
        )
    return state.key_serializer


def _types_of(meta: StateMetaInfoSnapshot) -> tuple[object, ...]:
    return meta.backend_state_type, dict(meta.options), dict(meta.serializers)


def _describe(meta: StateMetaInfoSnapshot) -> str:
    kind = (
        meta.keyed_state_type.value
        if meta.backend_state_type is BackendStateType.KEY_VALUE
        else meta.backend_state_type.name
    )
    return f"{kind} of {meta.value_serializer.type_name}"
