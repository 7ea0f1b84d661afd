"""What the Java object at the end of ``_metadata`` says of a snapshot.

Source: ``CheckpointProperties``, ``SavepointType`` and ``CheckpointType`` of Flink 2.2.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from dstl_core.codec.data_io import DataInput
from dstl_core.codec.java_stream import JavaEnum, JavaObject, read_java_object


@dataclass(frozen=True, slots=True)
class CheckpointKind:
    """``name`` as Flink prints it (Savepoint, Checkpoint, ..); ``format`` of savepoints."""

    name: str | None = None
    format: str | None = None


def checkpoint_kind(properties: bytes | None) -> CheckpointKind:
    """The kind of a snapshot, as far as its properties tell it.

    Raises:
        FormatError: The properties are damaged.
    """
    if properties is None:
        return CheckpointKind()
    value = read_java_object(DataInput(properties))
    kind = value.fields.get("checkpointType") if isinstance(value, JavaObject) else None
    if not isinstance(kind, JavaObject):
        return CheckpointKind()
    name, form = kind.fields.get("name"), kind.fields.get("formatType")
    return CheckpointKind(
        name if isinstance(name, str) else None,
        form.constant if isinstance(form, JavaEnum) else None,
    )
