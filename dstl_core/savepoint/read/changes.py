"""The change records of a checkpoint's changelog, as ``dstl changelog`` prints them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from dstl_core.changelog.reader import StateChangelogHandleReader
from dstl_core.codec.change_payload import (
    DataChange,
    MetadataChange,
    StateChangeOperation,
    read_change,
)
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.serializers import (
    AnySerializer,
    JsonValue,
    ListSerializer,
    MapSerializer,
    deserialize_bounded,
    value_text,
)
from dstl_core.codec.state_meta import KeyedStateType, StateMetaInfoSnapshot
from dstl_core.errors import FormatError, RestoreError, UnreadableValueError, error_context
from dstl_core.model.handle import (
    ChangelogStateBackendHandle,
    ChangelogStateHandleStream,
    StreamStateHandle,
)
from dstl_core.savepoint.read.snapshot import OperatorSnapshot
from dstl_core.state.restore.compaction import change_sets


def has_changelog(operator: OperatorSnapshot) -> bool:
    """Whether the operator's keyed state has a log on top of its full state."""
    return any(
        isinstance(handle, ChangelogStateBackendHandle) and handle.non_materialized
        for handle in operator.keyed_handles
    )


ChangeSetID = tuple[object, int]
"""The segment that contains a change set, and its offset in the segment."""


def change_sets_of(operator: OperatorSnapshot) -> frozenset[ChangeSetID]:
    """The change sets in files that an operator's changelog references."""
    return frozenset(
        change_set
        for handle in operator.keyed_handles
        if isinstance(handle, ChangelogStateBackendHandle)
        for log in handle.non_materialized
        if isinstance(log, ChangelogStateHandleStream)
        for change_set in map(_id_of, log.handles_and_offsets)
    )


def _id_of(placed: tuple[StreamStateHandle, int]) -> ChangeSetID:
    return getattr(placed[0], "path", placed[0]), placed[1]


def change_lines(
    operator: OperatorSnapshot, only: str | None, known: frozenset[ChangeSetID] = frozenset()
) -> Iterator[dict[str, JsonValue]]:
    """Yields every change of an operator, in replay order.

    ``sqn`` counts the change sets of a subtask from 0, since the writer's numbers are not in the
    file.

    Args:
        operator: The operator with the changelog.
        only: Only the changes of this state.
        known: Change sets to leave out, e.g. those of an earlier checkpoint.
    """
    snapshot = operator.snapshot
    reader = StateChangelogHandleReader(lru_cache(maxsize=1)(snapshot.resolver.read_segment))
    key_type = operator.key_type
    for subtask in operator.state.subtasks:
        handle = subtask.managed_keyed_state
        if not isinstance(handle, ChangelogStateBackendHandle):
            continue
        states: dict[int, StateMetaInfoSnapshot] = {}
        number = -1
        for log in handle.non_materialized:
            for change_set in change_sets(log):
                number += 1
                is_known = isinstance(change_set, ChangelogStateHandleStream) and (
                    _id_of(change_set.handles_and_offsets[0]) in known
                )
                for change in reader.get_changes(change_set):
                    with error_context(location=str(snapshot.folder), operator=operator.label):
                        parsed = read_change(change.change, snapshot.registry)
                        meta = _state_of(parsed, states)
                        # A known set may still contain metadata of states that later changes use.
                        if not is_known and only in (None, meta.name):
                            line = {
                                "checkpoint": handle.checkpoint_id,
                                "op": operator.label,
                                "subtask": subtask.index,
                                "sqn": number,
                                "kg": change.key_group,
                                "state": meta.name,
                            }
                            key = None if key_type is None else key_type.serializer
                            yield line | _parts(parsed, meta, key)


def _state_of(
    parsed: MetadataChange | DataChange, states: dict[int, StateMetaInfoSnapshot]
) -> StateMetaInfoSnapshot:
    if isinstance(parsed, MetadataChange):
        states[parsed.state_id] = parsed.state
    elif parsed.state_id not in states:
        raise FormatError(
            "A change belongs to a state that its log has not described",
            field="state id",
            expected=f"one of {sorted(states)}",
            got=parsed.state_id,
        )
    return states[parsed.state_id]


def _parts(
    parsed: MetadataChange | DataChange, meta: StateMetaInfoSnapshot, key: AnySerializer | None
) -> dict[str, JsonValue]:
    """The fields ``operation``, ``key``, ``ns`` and ``value`` of a change."""
    parts: dict[str, JsonValue] = {"operation": "METADATA", "key": None, "ns": None}
    if isinstance(parsed, MetadataChange):
        return parts | {"value": meta.value_serializer.type_name}
    parts["operation"] = parsed.operation.name
    body = parsed.body
    if meta.is_queue:
        return parts | {"value": _queue_value(parsed.operation, body, meta.value_serializer)}
    if key is None:
        raise RestoreError("The type of the key is unknown; give it (key_types, --key-type).")
    namespace = meta.namespace_serializer
    parts["key"] = value_text(key, key.deserialize(body))
    parts["ns"] = value_text(namespace, namespace.deserialize(body))
    return parts | {"value": _value(parsed.operation, body, meta)}


def _queue_value(
    operation: StateChangeOperation, body: DataInput, element: AnySerializer
) -> JsonValue:
    if operation is StateChangeOperation.ADD_ELEMENT:
        count = body.read_count("queue elements", 1)
        return [element.to_text(element.deserialize(body)) for _ in range(count)]
    return element.to_text(element.deserialize(body))


def _value(
    operation: StateChangeOperation, body: DataInput, meta: StateMetaInfoSnapshot
) -> JsonValue:
    value = meta.value_serializer
    rest = body.peek(body.position)
    match operation:
        case StateChangeOperation.CLEAR:
            return None
        case StateChangeOperation.MERGE_NS:
            return _merged(body, meta.namespace_serializer)
        case StateChangeOperation.ADD_ELEMENT if (
            meta.keyed_state_type is KeyedStateType.LIST and isinstance(value, ListSerializer)
        ):
            return _bounded(value.element, rest)
        case StateChangeOperation.REMOVE_ELEMENT if isinstance(value, MapSerializer):
            return _bounded(value.key, rest)
        case StateChangeOperation.ADD_OR_UPDATE_ELEMENT if isinstance(value, MapSerializer):
            try:
                user_key = value.key.to_text(value.key.deserialize(body))
            except UnreadableValueError:
                return {"$class": value.key.opaque_class, "$hex": rest.hex()}
            return [user_key, _bounded(value.value, body.peek(body.position))]
        case _:
            return _bounded(value, rest)


def _bounded(serializer: AnySerializer, raw: bytes) -> JsonValue:
    value: Any = deserialize_bounded(serializer, raw)
    return value_text(serializer, value)


def _merged(body: DataInput, namespace: AnySerializer) -> JsonValue:
    """The namespaces that were merged into the namespace of the change."""
    namespace.deserialize(body)
    count = body.read_count("merged namespaces", 1)
    return [namespace.to_text(namespace.deserialize(body)) for _ in range(count)]
