"""The kind of a snapshot, from the Java object at the end of ``_metadata``.

Source: ``CheckpointProperties``, ``SavepointType`` and ``CheckpointType`` of Flink 2.2.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from dstl_core.codec.data_io import DataInput
from dstl_core.codec.java_stream import JavaEnum, JavaObject, read_java_object


@dataclass(frozen=True, slots=True)
class CheckpointKind:
    """``name`` is Flink's text (Savepoint, Checkpoint, ..); ``format`` is the format of a
    savepoint.
    """

    name: str | None = None
    format: str | None = None


def checkpoint_kind(properties: bytes | None) -> CheckpointKind:
    """The kind of a snapshot, if its properties contain it.

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
