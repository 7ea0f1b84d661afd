"""The content of a snapshot as plain values, which ``dstl inspect`` prints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dstl_core.codec.kryo.kryo_serializer import ReadableKryoSerializer
from dstl_core.codec.metadata.checkpoint_kind import checkpoint_kind
from dstl_core.codec.serializers import AnySerializer, UnknownSerializer
from dstl_core.codec.serializers.opaque import KryoSerializer, ValueClassSerializer
from dstl_core.errors import DAMAGED, PathNotAllowedError
from dstl_core.model.handle import StreamStateHandle
from dstl_core.savepoint.read.operator_catalog import StateInfo
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot


def snapshot_summary(snapshot: Snapshot) -> dict[str, Any]:
    """Describes a snapshot from its metadata and headers, without reading values."""
    metadata = snapshot.metadata
    sidecar = snapshot.file.sidecar
    kind = checkpoint_kind(metadata.properties)
    return {
        "path": str(snapshot.folder),
        "kind": kind.name,
        "format": kind.format,
        "version": metadata.version,
        "checkpoint_id": metadata.checkpoint_id,
        "metadata_bytes": snapshot.file.size,
        "bytes": sum(operator.state.state_size for operator in snapshot.operators),
        "files": _files(snapshot),
        "master_states": [
            {"name": state.name, "version": state.version, "bytes": len(state.data)}
            for state in metadata.master_states
        ],
        "written_by_dstl": None if sidecar is None else dict(sidecar.notes),
        "operators": [operator_summary(operator) for operator in snapshot.operators],
    }


def streams_of(operator: OperatorSnapshot) -> Iterator[StreamStateHandle]:
    """Every stream with state of an operator's subtasks."""
    for subtask in operator.state.subtasks:
        yield from subtask.streams()


def _files(snapshot: Snapshot) -> list[dict[str, Any]]:
    """The files that the snapshot references, each once; a refused handle shows its own text."""
    sizes: dict[str, int] = {}
    for operator in snapshot.operators:
        for stream in streams_of(operator):
            try:
                place = snapshot.resolver.resolve(stream)
            except PathNotAllowedError:
                path = getattr(stream, "path", getattr(stream, "relative_path", "?"))
                sizes.setdefault(str(path), stream.state_size)
                continue
            if place.location is not None:
                sizes[str(place.location)] = max(sizes.get(str(place.location), 0), place.end)
    return [{"path": path, "bytes": sizes[path]} for path in sorted(sizes)]


def operator_summary(operator: OperatorSnapshot) -> dict[str, Any]:
    """Describes one operator. ``problem`` is the reason why its state cannot be read, if any."""
    problem = operator.problem()
    states = [] if problem else operator.states
    operator_states = [] if problem else operator.operator_states
    key_type, note = _key_type(operator)
    subtasks = operator.state.subtasks
    coordinator = operator.state.coordinator_state
    raw = [each.raw_operator_state for each in subtasks if each.raw_operator_state is not None]
    raw_keyed = [each.raw_keyed_state for each in subtasks if each.raw_keyed_state is not None]
    channels = [
        channel
        for subtask in subtasks
        for channel in subtask.input_channel_state + subtask.result_subpartition_state
    ]
    return {
        "uid": operator.uid or None,
        "hash": operator.operator_id.hex,
        "name": operator.name or None,
        "parallelism": operator.parallelism,
        "max_parallelism": operator.max_parallelism,
        "finished": operator.state.fully_finished,
        "subtasks_with_state": len(subtasks),
        "subtasks_finished": sum(subtask.finished for subtask in subtasks),
        "bytes": operator.state.state_size,
        "keyed_state": operator.form(),
        "key_type": key_type,
        "key_type_note": note,
        "problem": problem,
        "not_readable": [
            {"state": info.name, "kind": info.kind, "classes": classes}
            for info in states + operator_states
            if (classes := opaque_classes(info))
        ],
        "states": [_state_summary(info) for info in states],
        "operator_states": [
            {"name": info.name, "kind": info.kind, "type": info.type} for info in operator_states
        ],
        "coordinator_bytes": 0 if coordinator is None else coordinator.state_size,
        "channel_bytes": sum(channel.state_size for channel in channels),
        "raw_keyed_bytes": sum(each.state_size for each in raw_keyed),
        "raw_operator_bytes": sum(each.state_size for each in raw),
    }


def _state_summary(info: StateInfo) -> dict[str, Any]:
    summary = {"name": info.name, "kind": info.kind, "type": info.type}
    if not info.meta.is_queue:
        summary["namespace"] = info.meta.namespace_serializer.type_name
    return summary


def _key_type(operator: OperatorSnapshot) -> tuple[str | None, str | None]:
    if not operator.keyed_handles:
        return None, None
    try:
        key_type = operator.key_type
    except DAMAGED as error:
        return None, str(error)
    return (None, None) if key_type is None else (key_type.serializer.type_name, key_type.note)


def opaque_classes(info: StateInfo) -> list[str]:
    """The Java classes that are needed to read all values of a state."""
    classes: set[str] = set()
    waiting: list[AnySerializer] = [serializer for _, serializer in info.meta.serializers]
    while waiting:
        serializer = waiting.pop()
        if isinstance(serializer, ReadableKryoSerializer) and serializer.is_readable:
            continue
        if isinstance(serializer, KryoSerializer | ValueClassSerializer | UnknownSerializer):
            classes.add(serializer.opaque_class)
        waiting.extend(serializer.nested)
    return sorted(classes)
