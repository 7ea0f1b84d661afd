"""Writes objects that were read from a stream of Java's serialization into another stream.

Both versions of Kryo keep one stream for all values of a serializer in one Kryo value, so the bytes
of a value depend on those before it: a later one has no header, and refers back to classes and
strings of the earlier ones. A value that moves to another place is written anew.

Source: the "Object Serialization Stream Protocol" of the Java platform, version 2, and
``JavaSerializer`` of Kryo 2.24 and 5.6 and of Flink, which keep the stream in Kryo's graph context.
"""

from __future__ import annotations

from collections.abc import Sequence

from dstl_core.codec.data_io import MAX_UTF_BYTES, DataOutput, encode_modified_utf8
from dstl_core.codec.java_stream import (
    BASE_HANDLE,
    PRIMITIVES,
    STREAM_MAGIC,
    STREAM_VERSION,
    JavaArray,
    JavaClass,
    JavaEnum,
    JavaObject,
    JavaValue,
    Tag,
)

_SHORT_BLOCK = 0xFF


class JavaStreamWriter:
    """One stream. Each value goes on with the back references of those before it."""

    def __init__(self) -> None:
        self._out = DataOutput()
        self._handles: dict[tuple[bool, int], int] = {}
        self._kept: list[JavaValue] = []
        """What handles are of: an identity stands for one object as long as it lives."""
        self._count = 0

    def value(self, value: JavaValue) -> bytes:
        """The bytes of the next value; those of the first have the header."""
        self._out = DataOutput()
        if not self._kept:
            self._out.write_u16(STREAM_MAGIC)
            self._out.write_u16(STREAM_VERSION)
        self._kept.append(value)
        self._content(value)
        return self._out.to_bytes()

    def _content(self, value: JavaValue) -> None:
        out = self._out
        if value is None:
            out.write_u8(Tag.NULL)
        elif self._refers_to(value):
            return
        elif isinstance(value, str):
            self._string(value)
        elif isinstance(value, JavaClass):
            out.write_u8(Tag.CLASS)
            self._class(value)
            self._add(value)
        else:
            tag = {JavaObject: Tag.OBJECT, JavaArray: Tag.ARRAY, JavaEnum: Tag.ENUM}[type(value)]
            out.write_u8(tag)
            self._class(value.java_class)
            self._add(value)
            self._parts(value)

    def _parts(self, value: JavaObject | JavaArray | JavaEnum) -> None:
        """What follows the class of a value."""
        match value:
            case JavaEnum(constant=constant):
                self._content(constant)
            case JavaArray(items=items):
                self._out.write_i32(len(items))
                if isinstance(items, bytes):
                    self._out.write_bytes(items)
                    return
                for item in items:
                    self._field(value.name[1:2], item)
            case JavaObject():
                hierarchy = value.java_class.hierarchy()
                for java_class, items in zip(hierarchy, value.values, strict=True):
                    for (code, _), item in zip(java_class.fields, items, strict=False):
                        self._field(code, item)
                    if java_class.name in value.annotations:
                        self._annotation(value.annotations[java_class.name])

    def _field(self, code: str, value: JavaValue) -> None:
        form = PRIMITIVES.get(code)
        if form is None:
            self._content(value)
        else:
            self._out.write_bytes(form.pack(value))

    def _annotation(self, items: Sequence[JavaValue]) -> None:
        """Block data (as bytes) and objects, up to the end mark."""
        out = self._out
        for item in items:
            if not isinstance(item, bytes):
                self._content(item)
            elif len(item) <= _SHORT_BLOCK:
                out.write_u8(Tag.BLOCK_DATA)
                out.write_u8(len(item))
                out.write_bytes(item)
            else:
                out.write_u8(Tag.LONG_BLOCK_DATA)
                out.write_sized(item)
        out.write_u8(Tag.END_BLOCK_DATA)

    def _class(self, java_class: JavaClass | None) -> None:
        """A description of a class: new, referenced, or null."""
        out = self._out
        if java_class is None:
            out.write_u8(Tag.NULL)
            return
        if self._refers_to(java_class, is_description=True):
            return
        out.write_u8(Tag.CLASS_DESCRIPTION)
        out.write_utf(java_class.name)
        out.write_i64(java_class.uid)
        self._add(java_class, is_description=True)
        out.write_u8(java_class.flags)
        out.write_u16(len(java_class.fields))
        types = iter(java_class.types)
        for code, name in java_class.fields:
            out.write_u8(ord(code))
            out.write_utf(name)
            if code not in PRIMITIVES:
                self._content(next(types))
        self._annotation(java_class.annotation)
        self._class(java_class.parent)

    def _string(self, text: str) -> None:
        raw = encode_modified_utf8(text)
        if len(raw) <= MAX_UTF_BYTES:
            self._out.write_u8(Tag.STRING)
            self._out.write_u16(len(raw))
        else:
            self._out.write_u8(Tag.LONG_STRING)
            self._out.write_i64(len(raw))
        self._out.write_bytes(raw)
        self._add(text)

    def _refers_to(self, value: JavaValue, *, is_description: bool = False) -> bool:
        handle = self._handles.get((is_description, id(value)))
        if handle is None:
            return False
        self._out.write_u8(Tag.REFERENCE)
        self._out.write_i32(BASE_HANDLE + handle)
        return True

    def _add(self, value: JavaValue, *, is_description: bool = False) -> None:
        self._handles[is_description, id(value)] = self._count
        self._kept.append(value)
        self._count += 1
