"""Random keyed state in forms other than the canonical one: the heap backend's own, and changelogs.

They are written by the record-wise serializers, and by nothing that reads them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from dstl_core.codec.change_payload import StateChangeOperation as Operation
from dstl_core.codec.change_payload import data_change, metadata_change
from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.keyed_canonical import read_section
from dstl_core.codec.keyed_records import RecordFormat
from dstl_core.codec.serializers import BUILT_IN, AnySerializer, serialize_key, serialize_to_bytes
from dstl_core.codec.snappy_frames import compress_frames
from dstl_core.codec.state_meta import (
    KeyedBackendHeader,
    KeyedStateType,
    StateMetaInfoSnapshot,
    write_keyed_header,
)
from dstl_core.model.change import META_KEY_GROUP
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    ChangelogStateBackendHandle,
    InMemoryChangelogStateHandle,
    KeyedStateHandle,
    KeyGroupRangeOffsets,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
)
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.restore.into_sections import KeyGroupsOpener
from dstl_core.state.restore.into_tables import restore_keyed_state
from dstl_core.state.restore.open_tables import OpenTables
from dstl_core.state.restore.stored_key_groups import StoredKeyGroups
from dstl_core.state.tables.keyed_state import KeyedState
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import Location
from tests.columnar_cases import KEY_TYPES, metas, rows_of, values_of

FOLDER = Location("memory", "/nowhere")
RESOLVER = HandleResolver(open_file_io(FOLDER), FOLDER)
RANGE = KeyGroupRange(5, 7)
Pairs = list[tuple[bytes, bytes]]
Row = tuple[Any, Any, Any, Any]


@dataclass(frozen=True)
class StoredForm:
    """A handle, and what its key groups belong to."""

    handle: KeyedStateHandle
    key_type: AnySerializer
    max_parallelism: int

    def restored(self) -> KeyedState:
        """What the record-wise code makes of it."""
        return restore_keyed_state(
            [self.handle],
            RANGE,
            self.max_parallelism,
            RESOLVER,
            BUILT_IN,
            key_serializer=self.key_type,
        )

    def opened(self) -> StoredKeyGroups | None:
        """What the columnar code makes of it."""
        opener = KeyGroupsOpener(
            self.max_parallelism, OpenTables(RESOLVER, BUILT_IN), self.key_type
        )
        return opener.open_sections(self.handle, RANGE)


Records = dict[str, list[tuple[bytes, bytes]]]


def records_of_tables(state: KeyedState) -> Records:
    """The records of restored tables by state, in order of their bytes."""
    by_state: Records = {}
    for table in state.tables.values():
        rows = [row for key_group in RANGE for row in table.records(key_group)]
        by_state[_label(table.meta)] = sorted(rows)
    return {name: rows for name, rows in by_state.items() if rows}


def records_of_sections(stored: StoredKeyGroups) -> Records:
    """The records of opened sections by state, in order of their bytes."""
    by_state: Records = {}
    states = stored.header.states
    for _, start, end in stored.sections:
        for record in read_section(DataInput(bytes(stored.read(start, end))), len(states)):
            rows = by_state.setdefault(_label(states[record.state_id]), [])
            rows.append((record.key, record.value))
    return {name: sorted(rows) for name, rows in by_state.items()}


def _label(meta: StateMetaInfoSnapshot) -> str:
    return f"{meta.backend_state_type.name} {meta.name}"


# ------------------------------------------------------------------------- the heap's own form


@st.composite
def heap_forms(draw: Any) -> StoredForm:
    """States of three key groups as ``HeapSnapshotStrategy`` writes them."""
    key_type = draw(KEY_TYPES)
    compressed = draw(st.booleans())
    states = tuple(draw(metas(key_type, f"s{at}")) for at in range(draw(st.integers(1, 3))))
    out = DataOutput()
    write_keyed_header(out, KeyedBackendHeader(key_type, states, compressed))
    offsets = []
    for key_group in RANGE:
        offsets.append(out.position)
        out.write_i32(key_group)
        for state_id, meta in enumerate(states):
            rows = draw(rows_of(RecordFormat(meta, key_type)))
            body = state_id.to_bytes(2, "big") + _heap_entries(meta, key_type, rows)
            out.write_bytes(compress_frames(body) if compressed else body)
    stream = ByteStreamStateHandle("heap", out.to_bytes())
    handle = KeyGroupsStateHandle(KeyGroupRangeOffsets(RANGE, tuple(offsets)), stream, "id")
    return StoredForm(handle, key_type, draw(st.sampled_from([128, 4096])))


def _heap_entries(meta: StateMetaInfoSnapshot, key_type: AnySerializer, rows: list[Row]) -> bytes:
    entries: dict[bytes, bytes] = {}
    maps: dict[bytes, dict[bytes, bytes]] = {}
    record_format = RecordFormat(meta, key_type)
    serializer = meta.value_serializer
    for key, namespace, user_key, value in rows:
        if record_format.is_queue:
            entries[serialize_key(serializer, value)] = b""
            continue
        scope = serialize_to_bytes(meta.namespace_serializer, namespace)
        scope += serialize_key(key_type, key)
        if record_format.kind is KeyedStateType.MAP:
            raw_key = serialize_key(serializer.key, user_key)
            maps.setdefault(scope, {})[raw_key] = _pair(serializer, user_key, value)
        else:
            entries[scope] = serialize_to_bytes(serializer, value)
    for scope, pairs in maps.items():
        entries[scope] = len(pairs).to_bytes(4, "big") + b"".join(pairs.values())
    body = b"".join(scope + value for scope, value in entries.items())
    return len(entries).to_bytes(4, "big") + body


def _pair(serializer: Any, user_key: Any, value: Any) -> bytes:
    raw = serialize_key(serializer.key, user_key)
    if value is None:
        return raw + b"\1"
    return raw + b"\0" + serialize_to_bytes(serializer.value, value)


# -------------------------------------------------------------------------------- changelogs


@st.composite
def changelog_forms(draw: Any) -> StoredForm:
    """Changes of three key groups on top of nothing, or of a base of either form."""
    base = draw(heap_forms())
    key_type = base.key_type
    known = list(base.restored().tables.values())
    states = [table.meta for table in known]
    materialized: tuple[KeyedStateHandle, ...] = ()
    match draw(st.sampled_from(["nothing", "heap", "canonical"])):
        case "heap":
            materialized = (base.handle,)
        case "canonical":
            raw, offsets = base.restored().write_canonical()
            stream = ByteStreamStateHandle("canonical", raw)
            materialized = (KeyGroupsSavepointStateHandle(offsets, stream),)
    states.append(draw(metas(key_type, "new")))
    scopes = [_base_scopes(meta, base) for meta in states]
    changes: list[tuple[int, bytes]] = []
    described: set[int] = set()
    for _ in range(draw(st.integers(0, 12))):
        state_id = draw(st.integers(0, len(states) - 1))
        if state_id not in described:
            described.add(state_id)
            changes.append((META_KEY_GROUP, metadata_change(state_id, states[state_id])))
        key_group, change = draw(_changes(states[state_id], key_type, state_id, scopes[state_id]))
        changes.append((key_group, change))
    log = InMemoryChangelogStateHandle(tuple(changes), RANGE, 0, 1, "log")
    handle = ChangelogStateBackendHandle(materialized, (log,), RANGE, 1, 1, 0, "handle")
    return replace(base, handle=handle)


def _base_scopes(meta: StateMetaInfoSnapshot, base: StoredForm) -> list[tuple[int, bytes]]:
    """Where the base has something, so that changes meet it."""
    table = base.restored().tables.get((meta.name, RecordFormat(meta, base.key_type).is_queue))
    if table is None:
        return []
    return [(group, scope) for group in RANGE for scope in table.groups.get(group, {})]


@st.composite
def _changes(
    draw: Any,
    meta: StateMetaInfoSnapshot,
    key_type: AnySerializer,
    state_id: int,
    scopes: list[tuple[int, bytes]],
) -> tuple[int, bytes]:
    record_format = RecordFormat(meta, key_type)
    serializer = meta.value_serializer
    if scopes and draw(st.booleans()):
        key_group, scope = draw(st.sampled_from(scopes))
    else:
        key_group, scope = draw(st.sampled_from(list(RANGE))), b""
        if not record_format.is_queue:
            scope = serialize_key(key_type, draw(values_of(key_type)))
            namespace = meta.namespace_serializer
            scope += serialize_to_bytes(namespace, draw(values_of(namespace)))
        scopes.append((key_group, scope))
    if record_format.is_queue:
        element = scope or serialize_key(serializer, draw(values_of(serializer)))
        scopes[-1] = (key_group, element) if not scope else scopes[-1]
        if draw(st.booleans()):
            return key_group, data_change(Operation.REMOVE_ELEMENT, state_id, b"", element)
        one = (1).to_bytes(4, "big") + element
        return key_group, data_change(Operation.ADD_ELEMENT, state_id, b"", one)
    operation, operands = draw(_operands(record_format))
    return key_group, data_change(operation, state_id, scope, operands)


@st.composite
def _operands(draw: Any, record_format: RecordFormat) -> tuple[Operation, bytes]:
    serializer: Any = record_format.meta.value_serializer
    if draw(st.integers(0, 3)) == 0:
        return Operation.CLEAR, b""
    match record_format.kind:
        case KeyedStateType.LIST:
            operation = draw(
                st.sampled_from(
                    [Operation.SET, Operation.SET_INTERNAL, Operation.ADD, Operation.ADD_ELEMENT]
                )
            )
            if operation is Operation.ADD_ELEMENT:
                serializer = serializer.element
        case KeyedStateType.MAP:
            user_key = draw(values_of(serializer.key))
            match draw(st.sampled_from(["update", "remove", "add"])):
                case "update":
                    raw = serialize_key(serializer.key, user_key)
                    raw += serialize_to_bytes(serializer.value, draw(values_of(serializer.value)))
                    return Operation.ADD_OR_UPDATE_ELEMENT, raw
                case "remove":
                    return Operation.REMOVE_ELEMENT, serialize_key(serializer.key, user_key)
            operation = Operation.ADD
        case _:
            operation = draw(st.sampled_from([Operation.SET, Operation.SET_INTERNAL]))
    return operation, serialize_to_bytes(serializer, draw(values_of(serializer)))
