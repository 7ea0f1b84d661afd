"""Writes the Java object that ends the ``_metadata`` of a savepoint.

Metadata of version 4 and later has it, and older metadata does not.

Source: ``CheckpointProperties``, ``SavepointType`` and ``SavepointFormatType`` of Flink 1.20.5 and
2.2.1; the bytes are those of their savepoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from dstl_core.codec.data_io import DataOutput
from dstl_core.codec.java_stream import (
    BASE_HANDLE,
    IS_ENUM,
    SERIALIZABLE,
    STREAM_MAGIC,
    STREAM_VERSION,
    Tag,
)

_CHECKPOINT = "org.apache.flink.runtime.checkpoint"
_FORMAT = "org.apache.flink.core.execution.SavepointFormatType"
_ACTION = f"{_CHECKPOINT}.SavepointType$PostCheckpointAction"
_PROPERTIES_VERSION, _TYPE_VERSION = 2, 0xA087D308A45814B8
"""The ``serialVersionUID`` of ``CheckpointProperties`` and of ``SavepointType``."""
_DISCARD_WHEN = ("Cancelled", "Failed", "Finished", "Subsumed", "Suspended")
_FLAGS = (*(f"discard{reason}" for reason in _DISCARD_WHEN), "forced", "unclaimed")
_ENUM_CLASS = BASE_HANDLE + 9
"""The reference to ``java.lang.Enum``: the tenth object of the stream."""


@cache
def savepoint_properties(form: str = "CANONICAL") -> bytes:
    """The properties of a savepoint that a person has triggered. ``form`` is a constant of
    ``SavepointFormatType``.
    """
    out = DataOutput()
    out.write_u16(STREAM_MAGIC)
    out.write_u16(STREAM_VERSION)
    out.write_u8(Tag.OBJECT)
    fields = [("checkpointType", f"{_CHECKPOINT}.SnapshotType")]
    name = f"{_CHECKPOINT}.CheckpointProperties"
    _describe(out, name, _PROPERTIES_VERSION, fields, _FLAGS)
    for flag in _FLAGS:
        out.write_bool(flag == "forced")
    out.write_u8(Tag.OBJECT)
    fields = [
        ("formatType", _FORMAT),
        ("name", "java.lang.String"),
        ("postCheckpointAction", _ACTION),
    ]
    _describe(out, f"{_CHECKPOINT}.SavepointType", _TYPE_VERSION, fields)
    out.write_u8(Tag.ENUM)
    _describe_class(out, _FORMAT, 0, SERIALIZABLE | IS_ENUM)
    _describe_class(out, "java.lang.Enum", 0, SERIALIZABLE | IS_ENUM)
    out.write_u8(Tag.NULL)
    _text(out, form)
    _text(out, "Savepoint")
    out.write_u8(Tag.ENUM)
    _describe_class(out, _ACTION, 0, SERIALIZABLE | IS_ENUM)
    out.write_u8(Tag.REFERENCE)
    out.write_i32(_ENUM_CLASS)
    _text(out, "NONE")
    return out.to_bytes()


def _describe(
    out: DataOutput,
    name: str,
    version: int,
    objects: Sequence[tuple[str, str]],
    flags: Sequence[str] = (),
) -> None:
    """Describes a class without a parent, by its boolean fields and its fields of other classes."""
    _describe_class(out, name, version, SERIALIZABLE, objects, flags)
    out.write_u8(Tag.NULL)


def _describe_class(
    out: DataOutput,
    name: str,
    version: int,
    kind: int,
    objects: Sequence[tuple[str, str]] = (),
    flags: Sequence[str] = (),
) -> None:
    """Describes a class; the description of its parent follows."""
    out.write_u8(Tag.CLASS_DESCRIPTION)
    out.write_utf(name)
    out.write_bytes(version.to_bytes(8, "big"))
    out.write_u8(kind)
    out.write_u16(len(flags) + len(objects))
    for flag in flags:
        out.write_bytes(b"Z")
        out.write_utf(flag)
    for field, class_name in objects:
        out.write_bytes(b"L")
        out.write_utf(field)
        _text(out, f"L{class_name.replace('.', '/')};")
    out.write_u8(Tag.END_BLOCK_DATA)


def _text(out: DataOutput, text: str) -> None:
    out.write_u8(Tag.STRING)
    out.write_utf(text)
