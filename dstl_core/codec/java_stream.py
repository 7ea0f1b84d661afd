"""Finds the end of an object in Java's serialization format, without making any object.

    stream   := u16 0xACED, u16 5, content
    content  := null 70 | reference 71 i32 | class description 72.. | object 73.. | string 74 utf |
                array 75.. | class 76.. | long string 7C i64.. | enum 7E..
    object   := class description, then for each class of the hierarchy, topmost first, its
                primitive and object fields and, if it has a writeObject method, block data

Source: the "Object Serialization Stream Protocol" of the Java platform, version 2. Covers all but
proxy classes, exceptions in the stream and externalizable objects without block data.
"""

from __future__ import annotations

from dataclasses import dataclass

from dstl_core.codec.data_io import DataInput
from dstl_core.errors import FormatError

STREAM_MAGIC = 0xACED
STREAM_VERSION = 5


class _Tag:
    """First byte of a content."""

    NULL = 0x70
    REFERENCE = 0x71
    CLASS_DESCRIPTION = 0x72
    OBJECT = 0x73
    STRING = 0x74
    ARRAY = 0x75
    CLASS = 0x76
    BLOCK_DATA = 0x77
    END_BLOCK_DATA = 0x78
    LONG_BLOCK_DATA = 0x7A
    LONG_STRING = 0x7C
    ENUM = 0x7E


_BASE_HANDLE = 0x7E0000

_WRITE_METHOD, _SERIALIZABLE, _EXTERNALIZABLE, _HAS_BLOCK_DATA = 1, 2, 4, 8
_PRIMITIVE_BYTES = {"B": 1, "C": 2, "D": 8, "F": 4, "I": 4, "J": 8, "S": 2, "Z": 1}
_MAX_DEPTH = 100


@dataclass(frozen=True, slots=True)
class _ClassDescription:
    name: str
    flags: int
    fields: tuple[str, ...]
    """Type code of each field."""
    parent: _ClassDescription | None

    def hierarchy(self) -> list[_ClassDescription]:
        """Topmost class first."""
        classes = [self]
        while (parent := classes[-1].parent) is not None:
            classes.append(parent)
        return classes[::-1]


def skip_java_object(data: DataInput) -> str:
    """Reads one stream with one object and leaves the input behind it.

    Returns:
        The name of the object's class.

    Raises:
        FormatError: The bytes are no such stream.
    """
    at = data.position
    magic, version = data.read_u16("Java stream magic"), data.read_u16("Java stream version")
    if (magic, version) != (STREAM_MAGIC, STREAM_VERSION):
        raise FormatError(
            "Not a Java object stream",
            offset=at,
            expected="aced0005",
            got=f"{magic:04x}{version:04x}",
        )
    at = data.position
    found = _Walker(data).content(0)
    if found is None:
        raise FormatError("A Java stream does not start with an object", offset=at)
    return found.name


class _Walker:
    """Walks one stream. ``_handles`` are what back references count, classes only with content."""

    def __init__(self, data: DataInput) -> None:
        self._data = data
        self._handles: list[_ClassDescription | None] = []

    def content(self, depth: int) -> _ClassDescription | None:
        """Skips one content; gives the class of an object or an enum constant."""
        data, at = self._data, self._data.position
        if depth > _MAX_DEPTH:
            raise FormatError("A Java stream is nested too deeply", offset=at)
        tag = data.read_u8("Java content")
        match tag:
            case _Tag.NULL:
                return None
            case _Tag.REFERENCE:
                self._reference()
            case _Tag.CLASS_DESCRIPTION:
                self._new_class(depth)
            case _Tag.OBJECT | _Tag.ARRAY | _Tag.CLASS | _Tag.ENUM:
                return self._of_class(tag, depth)
            case _Tag.STRING:
                self._handles.append(None)
                data.read_utf("Java string")
            case _Tag.LONG_STRING:
                self._handles.append(None)
                data.read_bytes(data.read_i64("Java string length"), "Java string")
            case _:
                raise FormatError(
                    "A Java stream holds something unknown",
                    offset=at,
                    expected="70..7e",
                    got=f"{tag:02x}",
                )
        return None

    def _of_class(self, tag: int, depth: int) -> _ClassDescription:
        at = self._data.position
        description = self._class(depth + 1)
        if description is None:
            raise FormatError("A Java object has no class", offset=at)
        self._handles.append(None)
        if tag == _Tag.OBJECT:
            for each in description.hierarchy():
                self._class_data(each, depth)
        elif tag == _Tag.ARRAY:
            self._array(description.name[1:2], depth)
        elif tag == _Tag.ENUM:
            self.content(depth + 1)
        return description

    def _class(self, depth: int) -> _ClassDescription | None:
        """A class description where one must stand: new, referenced, or null."""
        data, at = self._data, self._data.position
        if depth > _MAX_DEPTH:
            raise FormatError("A Java stream is nested too deeply", offset=at)
        tag = data.read_u8("Java class description")
        match tag:
            case _Tag.NULL:
                return None
            case _Tag.REFERENCE:
                return self._reference()
            case _Tag.CLASS_DESCRIPTION:
                return self._new_class(depth)
        raise FormatError(
            "A Java stream lacks a class description",
            offset=at,
            expected="70..72",
            got=f"{tag:02x}",
        )

    def _reference(self) -> _ClassDescription | None:
        at = self._data.position
        handle = self._data.read_i32("Java reference") - _BASE_HANDLE
        if not 0 <= handle < len(self._handles):
            raise FormatError(
                "A Java reference points nowhere",
                offset=at,
                expected=f"0..{len(self._handles) - 1}",
                got=handle,
            )
        return self._handles[handle]

    def _new_class(self, depth: int) -> _ClassDescription:
        data = self._data
        name = data.read_utf("Java class name")
        data.read_i64("serialVersionUID")
        handle = len(self._handles)
        self._handles.append(None)
        flags = data.read_u8("Java class flags")
        fields = []
        for _ in range(data.read_u16("Java field count")):
            at = data.position
            code = chr(data.read_u8("Java field type"))
            data.read_utf("Java field name")
            if code in "L[":
                self.content(depth + 1)  # the type of the field, as a string
            elif code not in _PRIMITIVE_BYTES:
                raise FormatError("A Java field has an unknown type", offset=at, got=repr(code))
            fields.append(code)
        self._annotation(depth)
        parent = self._class(depth + 1)
        self._handles[handle] = description = _ClassDescription(name, flags, tuple(fields), parent)
        return description

    def _class_data(self, description: _ClassDescription, depth: int) -> None:
        flags = description.flags
        if flags & _SERIALIZABLE:
            for code in description.fields:
                self._value(code, depth)
            if flags & _WRITE_METHOD:
                self._annotation(depth)
        elif flags & _EXTERNALIZABLE and flags & _HAS_BLOCK_DATA:
            self._annotation(depth)
        else:
            raise FormatError(
                f"A Java object of class {description.name} cannot be skipped",
                offset=self._data.position,
                expected="a serializable class",
                got=f"flags {flags:02x}",
            )

    def _array(self, code: str, depth: int) -> None:
        size = self._data.read_count("Java array size", 1)
        if code in _PRIMITIVE_BYTES:
            self._data.read_bytes(size * _PRIMITIVE_BYTES[code], "Java array")
            return
        for _ in range(size):
            self.content(depth + 1)

    def _value(self, code: str, depth: int) -> None:
        if code in _PRIMITIVE_BYTES:
            self._data.read_bytes(_PRIMITIVE_BYTES[code], "Java field")
        else:
            self.content(depth + 1)

    def _annotation(self, depth: int) -> None:
        """Block data and objects up to the end mark."""
        data = self._data
        while True:
            start = data.position
            tag = data.read_u8("Java block")
            if tag == _Tag.END_BLOCK_DATA:
                return
            if tag == _Tag.BLOCK_DATA:
                data.read_bytes(data.read_u8("Java block size"), "Java block")
            elif tag == _Tag.LONG_BLOCK_DATA:
                data.read_bytes(data.read_length("Java block size"), "Java block")
            else:
                data.seek(start)
                self.content(depth + 1)
