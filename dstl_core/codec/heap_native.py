"""The heap backend's own form of keyed state: periodic checkpoints and native savepoints.

    stream    := header, one key group after the other, empty ones too
    key group := i32 key group, then for each state: [a Snappy-framed stream of its own]
                 u16 state id, i32 n, n entries
    entry     := key-value state: namespace, key, value;  queue: element

Namespace comes before key here, and lists and maps have counts. Entries are returned in the
canonical
form. Source: ``HeapSnapshotStrategy`` and ``HeapRestoreOperation`` of Flink 2.2.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dstl_core.codec.data_io import DataInput
from dstl_core.codec.serializers import AnySerializer, ListSerializer, MapSerializer
from dstl_core.codec.snappy_frames import decompress_frames, frames_end
from dstl_core.codec.state_meta import (
    KeyedBackendHeader,
    KeyedStateType,
    StateMetaInfoSnapshot,
)
from dstl_core.errors import FormatError, UnreadableValueError

LIST_DELIMITER = b","


@dataclass(frozen=True, slots=True)
class HeapEntry:
    """One entry.

    ``scope`` holds the bytes of key and namespace, or of the element of a queue. ``value`` is the
    canonical value of a value or list state. ``pairs`` are the user keys and canonical values of a
    map state.
    """

    state_id: int
    scope: bytes
    value: bytes = b""
    pairs: tuple[tuple[bytes, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class UnreadableRest:
    """Reports state that cannot be reached because a value has no readable end.

    The rest of this state in this key group is lost. Without compression per state, all later
    states of the key group are lost as well.
    """

    state_ids: tuple[int, ...]
    error: UnreadableValueError


def read_key_group(
    data: DataInput, header: KeyedBackendHeader, key_group: int
) -> Iterator[HeapEntry | UnreadableRest]:
    """Yields the entries of one key group. ``data`` holds exactly that key group.

    Empty lists and maps yield no entry.
    """
    at = data.position
    stored_group = data.read_i32("key group")
    if stored_group != key_group:
        raise FormatError(
            "A key group stands at the wrong place", offset=at, expected=key_group, got=stored_group
        )
    missing = set(range(len(header.states)))
    while missing:
        section = _decompressed(data) if header.compressed else data
        state_id = _read_state_id(section, missing)
        missing.remove(state_id)
        meta = header.states[state_id]
        try:
            for _ in range(section.read_count("entries", 1)):
                entry = _read_entry(section, header.key_serializer, state_id, meta)
                if entry is not None:
                    yield entry
        except UnreadableValueError as error:
            if not header.compressed:
                yield UnreadableRest((state_id, *sorted(missing)), error)
                return
            yield UnreadableRest((state_id,), error)
            continue
        if header.compressed:
            section.expect_end(f"state {meta.name!r} in key group {key_group}")
    data.expect_end(f"key group {key_group}")


def _decompressed(data: DataInput) -> DataInput:
    raw = data.peek(data.position)
    end = frames_end(raw, 0, len(raw))
    data.read_bytes(end, "compressed state")
    return DataInput(decompress_frames(raw, 0, end))


def _read_state_id(data: DataInput, missing: set[int]) -> int:
    at = data.position
    state_id = data.read_u16("state id")
    if state_id not in missing:
        raise FormatError(
            "A state occurs twice in a key group or is not in the header",
            offset=at,
            field="state id",
            expected=f"one of {sorted(missing)}",
            got=state_id,
        )
    return state_id


def _read_entry(
    data: DataInput, key_serializer: AnySerializer, state_id: int, meta: StateMetaInfoSnapshot
) -> HeapEntry | None:
    value_serializer = meta.value_serializer
    if meta.is_queue:
        return HeapEntry(state_id, data.read_value(value_serializer))
    namespace = data.read_value(meta.namespace_serializer)
    scope = data.read_value(key_serializer) + namespace
    kind = meta.keyed_state_type
    if kind is KeyedStateType.LIST and isinstance(value_serializer, ListSerializer):
        count = data.read_count("list size", max(1, value_serializer.element.length))
        elements = [data.read_value(value_serializer.element) for _ in range(count)]
        return HeapEntry(state_id, scope, LIST_DELIMITER.join(elements)) if elements else None
    if kind is KeyedStateType.MAP and isinstance(value_serializer, MapSerializer):
        pairs = tuple(_read_pair(data, value_serializer) for _ in range(data.read_count("map", 1)))
        return HeapEntry(state_id, scope, pairs=pairs) if pairs else None
    return HeapEntry(state_id, scope, data.read_value(value_serializer))


def _read_pair(data: DataInput, serializer: MapSerializer) -> tuple[bytes, bytes]:
    user_key = data.read_value(serializer.key)
    if data.read_bool("map value is null"):
        return user_key, b"\1"
    return user_key, b"\0" + data.read_value(serializer.value)
