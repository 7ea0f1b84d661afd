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


def _utf(text: str) -> bytes:
    return len(text).to_bytes(2, "big") + text.encode("ascii")


def _class(name: str, serial: int, flags: int, fields: bytes, parent: bytes) -> bytes:
    return b"\x72" + _utf(name) + serial.to_bytes(8, "big") + bytes([flags]) + fields + parent


def _object_field(name: str, class_name: str) -> bytes:
    return b"L" + _utf(name) + b"\x74" + _utf(f"L{class_name.replace('.', '/')};")


def _savepoint_properties() -> bytes:
    checkpoints, core = "org.apache.flink.runtime.checkpoint", "org.apache.flink.core.execution"
    reasons = ("Cancelled", "Failed", "Finished", "Subsumed", "Suspended")
    flags = [*(f"discard{reason}" for reason in reasons), "forced", "unclaimed"]
    properties = b"".join(b"Z" + _utf(flag) for flag in flags)
    properties += _object_field("checkpointType", f"{checkpoints}.SnapshotType")
    kind = _object_field("formatType", f"{core}.SavepointFormatType")
    kind += b"L" + _utf("name") + b"\x74" + _utf("Ljava/lang/String;")
    action = f"{checkpoints}.SavepointType$PostCheckpointAction"
    kind += _object_field("postCheckpointAction", action)
    enum = b"\x78" + _class("java.lang.Enum", 0, 0x12, bytes(2), b"\x78\x70")
    again = b"\x78\x71\x00\x7e\x00\x09"  # the class Enum, by its number in the stream
    return b"".join(
        [
            b"\xac\xed\x00\x05\x73",
            _class(
                f"{checkpoints}.CheckpointProperties", 2, 2, b"\x00\x08" + properties, b"\x78\x70"
            ),
            bytes(flag == "forced" for flag in flags),
            b"\x73",
            _class(
                f"{checkpoints}.SavepointType", _SAVEPOINT_TYPE, 2, b"\x00\x03" + kind, b"\x78\x70"
            ),
            b"\x7e" + _class(core + ".SavepointFormatType", 0, 0x12, bytes(2), enum),
            b"\x74" + _utf("CANONICAL") + b"\x74" + _utf("Savepoint"),
            b"\x7e" + _class(action, 0, 0x12, bytes(2), again) + b"\x74" + _utf("NONE"),
        ]
    )


_SAVEPOINT_TYPE = 0xA087D308A45814B8
"""Java computes this version of the class; it is the same in Flink 1.20 to 2.3."""
SAVEPOINT_PROPERTIES = _savepoint_properties()
"""What Flink writes at the end of a savepoint in canonical form."""
