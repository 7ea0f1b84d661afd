"""Reads objects of Java's serialization format as plain values. No Java class is ever loaded.

    stream   := u16 0xACED, u16 5, content
    content  := null 70 | reference 71 i32 | class description 72.. | object 73.. | string 74 utf |
                array 75.. | class 76.. | long string 7C i64.. | enum 7E..
    object   := class description, then for each class of the hierarchy, topmost first, its
                primitive and object fields and, if it has a writeObject method, block data

A stream marks its own end, and files contain no other mark: serializer snapshots of SQL types write
such streams one after another, without lengths. Depth, handles and array sizes are limited.

Source: the "Object Serialization Stream Protocol" of the Java platform, version 2. Not supported:
proxy classes, exceptions in the stream, and externalizable objects without block data.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dstl_core.codec.data_io import DataInput
from dstl_core.errors import FormatError

STREAM_MAGIC = 0xACED
STREAM_VERSION = 5

MAX_DEPTH = 100
MAX_PARENTS = 16
"""Largest number of superclasses of a class. Reading an object walks all of them, so a small stream
with a deep hierarchy would take a long time.
"""
MAX_HANDLES = 1_000_000


class Tag:
    """The first byte of a content element."""

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


BASE_HANDLE = 0x7E0000

_WRITE_METHOD, SERIALIZABLE, _EXTERNALIZABLE, _HAS_BLOCK_DATA = 1, 2, 4, 8
IS_ENUM = 0x10
PRIMITIVES = {
    "B": struct.Struct(">b"),
    "C": struct.Struct(">H"),
    "D": struct.Struct(">d"),
    "F": struct.Struct(">f"),
    "I": struct.Struct(">i"),
    "J": struct.Struct(">q"),
    "S": struct.Struct(">h"),
    "Z": struct.Struct(">?"),
}

JavaValue = Any
"""None, bool, int, float, str, ``JavaObject``, ``JavaArray``, ``JavaEnum`` or ``JavaClass``."""


@dataclass(frozen=True, slots=True, eq=False)
class JavaClass:
    """A class as the stream describes it. ``fields`` are pairs of type code and name."""

    name: str
    flags: int
    fields: tuple[tuple[str, str], ...]
    parent: JavaClass | None
    parents: int = 0
    """Number of superclasses of this class."""
    uid: int = 0
    types: tuple[JavaValue, ...] = ()
    """The types of the fields that are no numbers, as the stream has them."""
    annotation: tuple[JavaValue, ...] = ()

    def hierarchy(self) -> list[JavaClass]:
        """The class and its superclasses, topmost first."""
        classes = [self]
        while (parent := classes[-1].parent) is not None:
            classes.append(parent)
        return classes[::-1]


@dataclass(slots=True, eq=False)
class JavaObject:
    """An object.

    ``values`` are those of the fields of each class, topmost class first. ``annotations`` are the
    bytes and values that each class's own ``writeObject`` wrote, by class.
    """

    java_class: JavaClass
    values: list[list[JavaValue]] = field(default_factory=list)
    annotations: dict[str, list[JavaValue]] = field(default_factory=dict)

    @property
    def fields(self) -> dict[str, JavaValue]:
        """Values by name; a field of a subclass hides the same field of a parent."""
        return {
            name: value
            for java_class, values in zip(self.java_class.hierarchy(), self.values, strict=True)
            for (_, name), value in zip(java_class.fields, values, strict=False)
        }

    @property
    def name(self) -> str:
        return self.java_class.name


@dataclass(slots=True, eq=False)
class JavaArray:
    """An array. The ``items`` of a byte array are ``bytes``."""

    java_class: JavaClass
    items: list[JavaValue] | bytes = b""

    @property
    def name(self) -> str:
        return self.java_class.name


@dataclass(slots=True, eq=False)
class JavaEnum:
    """A constant of an enum."""

    java_class: JavaClass
    constant: str = ""

    @property
    def name(self) -> str:
        return self.java_class.name


def read_java_object(data: DataInput) -> JavaValue:
    """Reads one stream with one value. The input then stands behind the stream.

    Raises:
        FormatError: The bytes are not such a stream, or exceed a limit.
    """
    _check_header(data)
    return _StreamParser(data).content(0)


def _check_header(data: DataInput) -> None:
    at = data.position
    magic, version = data.read_u16("Java stream magic"), data.read_u16("Java stream version")
    if (magic, version) != (STREAM_MAGIC, STREAM_VERSION):
        raise FormatError(
            "Not a Java object stream",
            offset=at,
            expected="aced0005",
            got=f"{magic:04x}{version:04x}",
        )


def read_java_object_bytes(data: DataInput) -> tuple[JavaValue, bytes]:
    """Reads one value like ``read_java_object``, and also returns the bytes of its stream."""
    start = data.position
    value = read_java_object(data)
    size = data.position - start
    data.seek(start)
    return value, data.read_bytes(size)


class JavaStream:
    """A stream whose values lie apart, with other bytes between them. The first one has the header;
    each later one goes on with the back references of those before it.
    """

    def __init__(self) -> None:
        self._parser: _StreamParser | None = None

    def read(self, data: DataInput) -> JavaValue:
        """Reads the next value.

        Raises:
            FormatError: The bytes are no such value, or exceed a limit.
        """
        if self._parser is None:
            _check_header(data)
            self._parser = _StreamParser(data)
        return self._parser.next_in(data)


def skip_java_object(data: DataInput) -> str:
    """Reads one stream with one object and returns the name of its class.

    Raises:
        FormatError: The bytes are not such a stream, or it holds no object.
    """
    at = data.position
    value = read_java_object(data)
    if not isinstance(value, JavaObject | JavaArray | JavaEnum | JavaClass):
        raise FormatError("A Java stream does not start with an object", offset=at)
    return value.name


def java_list(value: JavaValue) -> list[JavaValue]:
    """The elements of one of Java's list classes.

    Raises:
        FormatError: The value is not a list, or its class is not supported.
    """
    seen = 0
    while isinstance(value, JavaObject) and seen < MAX_DEPTH:
        seen += 1
        match value.name:
            case "java.util.ArrayList" | "java.util.LinkedList" | "java.util.CollSer":
                # The first block holds the capacity, the size, or the size and a tag.
                return [each for each in _annotated(value) if not isinstance(each, bytes)]
            case "java.util.Arrays$ArrayList":
                value = value.fields.get("a")
            case "java.util.Collections$SingletonList":
                return [value.fields.get("element")]
            case "java.util.Collections$EmptyList":
                return []
            case name if name.startswith("java.util.Collections$Unmodifiable"):
                value = value.fields.get("list", value.fields.get("c"))
            case _:
                break
    if isinstance(value, JavaArray) and not isinstance(value.items, bytes):
        return value.items
    got = getattr(value, "name", type(value).__name__)
    raise FormatError("The object of a Java stream is not a list", expected="a list", got=got)


def _annotated(value: JavaObject) -> Iterator[JavaValue]:
    for items in value.annotations.values():
        yield from items


class _StreamParser:
    """Reads one stream. ``_handles`` are the values that back references point to."""

    def __init__(self, data: DataInput) -> None:
        self._data = data
        self._handles: list[JavaValue] = []

    def next_in(self, data: DataInput) -> JavaValue:
        """Reads one content that goes on elsewhere."""
        self._data = data
        return self.content(0)

    def content(self, depth: int) -> JavaValue:
        data, at = self._data, self._data.position
        if depth > MAX_DEPTH:
            raise FormatError(
                "A Java stream is nested too deeply", offset=at, expected=f"<= {MAX_DEPTH} levels"
            )
        tag = data.read_u8("Java content")
        match tag:
            case Tag.NULL:
                return None
            case Tag.REFERENCE:
                return self._reference()
            case Tag.CLASS_DESCRIPTION:
                return self._new_class(depth)
            case Tag.OBJECT | Tag.ARRAY | Tag.CLASS | Tag.ENUM:
                return self._of_class(tag, depth)
            case Tag.STRING:
                text = data.read_utf("Java string")
                self._handles[self._new_handle()] = text
                return text
            case Tag.LONG_STRING:
                start = data.position + 8
                raw = data.read_bytes(data.read_i64("Java string length"), "Java string")
                text = data.decode_utf(raw, start, "Java string")
                self._handles[self._new_handle()] = text
                return text
        raise FormatError(
            "A Java stream has an unknown content tag",
            offset=at,
            expected="70..7e",
            got=f"{tag:02x}",
        )

    def _new_handle(self) -> int:
        if len(self._handles) >= MAX_HANDLES:
            raise FormatError(
                "A Java stream has too many objects",
                offset=self._data.position,
                expected=f"<= {MAX_HANDLES}",
            )
        self._handles.append(None)
        return len(self._handles) - 1

    def _of_class(self, tag: int, depth: int) -> JavaValue:
        at = self._data.position
        description = self._class(depth + 1)
        if description is None:
            raise FormatError("A Java object has no class", offset=at)
        handle = self._new_handle()
        if tag == Tag.OBJECT:
            value = self._handles[handle] = JavaObject(description)
            for java_class in description.hierarchy():
                self._class_data(value, java_class, depth)
            return value
        if tag == Tag.ARRAY:
            array = self._handles[handle] = JavaArray(description)
            array.items = self._array(description.name[1:2], depth)
            return array
        if tag == Tag.ENUM:
            constant = self.content(depth + 1)
            if not isinstance(constant, str):
                raise FormatError("A Java enum constant has no name", offset=at)
            enum = self._handles[handle] = JavaEnum(description, constant)
            return enum
        self._handles[handle] = description
        return description

    def _class(self, depth: int) -> JavaClass | None:
        """Reads a class description: new, referenced, or null."""
        data, at = self._data, self._data.position
        if depth > MAX_DEPTH:
            raise FormatError(
                "A Java stream is nested too deeply", offset=at, expected=f"<= {MAX_DEPTH} levels"
            )
        tag = data.read_u8("Java class description")
        match tag:
            case Tag.NULL:
                return None
            case Tag.REFERENCE:
                referenced = self._reference()
                if isinstance(referenced, JavaClass):
                    return referenced
                raise FormatError("A Java reference does not point to a class", offset=at)
            case Tag.CLASS_DESCRIPTION:
                return self._new_class(depth)
        raise FormatError(
            "A Java stream lacks a class description",
            offset=at,
            expected="70..72",
            got=f"{tag:02x}",
        )

    def _reference(self) -> JavaValue:
        at = self._data.position
        handle = self._data.read_i32("Java reference") - BASE_HANDLE
        if not 0 <= handle < len(self._handles):
            raise FormatError(
                "A Java reference points nowhere",
                offset=at,
                expected=f"0..{len(self._handles) - 1}",
                got=handle,
            )
        return self._handles[handle]

    def _new_class(self, depth: int) -> JavaClass:
        data = self._data
        name = data.read_utf("Java class name")
        uid = data.read_i64("serialVersionUID")
        handle = self._new_handle()
        flags = data.read_u8("Java class flags")
        fields, types = [], []
        for _ in range(data.read_u16("Java field count")):
            at = data.position
            code = chr(data.read_u8("Java field type"))
            field_name = data.read_utf("Java field name")
            if code in "L[":
                types.append(self.content(depth + 1))
            elif code not in PRIMITIVES:
                raise FormatError("A Java field has an unknown type", offset=at, got=repr(code))
            fields.append((code, field_name))
        annotation = self._annotation(depth)
        at = data.position
        parent = self._class(depth + 1)
        parents = 0 if parent is None else parent.parents + 1
        if parents > MAX_PARENTS:
            raise FormatError(
                "A Java class has too many parents", offset=at, expected=f"<= {MAX_PARENTS}"
            )
        description = JavaClass(
            name, flags, tuple(fields), parent, parents, uid, tuple(types), tuple(annotation)
        )
        self._handles[handle] = description
        return description

    def _class_data(self, value: JavaObject, description: JavaClass, depth: int) -> None:
        flags = description.flags
        values: list[JavaValue] = []
        value.values.append(values)
        if flags & SERIALIZABLE:
            for code, _ in description.fields:
                values.append(self._value(code, depth))
            if flags & _WRITE_METHOD:
                value.annotations[description.name] = self._annotation(depth)
        elif flags & _EXTERNALIZABLE and flags & _HAS_BLOCK_DATA:
            value.annotations[description.name] = self._annotation(depth)
        else:
            raise FormatError(
                f"A Java object of class {description.name} cannot be read",
                offset=self._data.position,
                expected="a serializable class",
                got=f"flags {flags:02x}",
            )

    def _array(self, code: str, depth: int) -> list[JavaValue] | bytes:
        data = self._data
        primitive = PRIMITIVES.get(code)
        size = data.read_count("Java array size", primitive.size if primitive else 1)
        if code == "B":
            return data.read_bytes(size, "Java array")
        if primitive is not None:
            raw = data.read_bytes(size * primitive.size, "Java array")
            return [each[0] for each in primitive.iter_unpack(raw)]
        return [self.content(depth + 1) for _ in range(size)]

    def _value(self, code: str, depth: int) -> JavaValue:
        primitive = PRIMITIVES.get(code)
        if primitive is None:
            return self.content(depth + 1)
        return primitive.unpack(self._data.read_bytes(primitive.size, "Java field"))[0]

    def _annotation(self, depth: int) -> list[JavaValue]:
        """Block data (as bytes) and objects up to the end mark."""
        data = self._data
        items: list[JavaValue] = []
        while True:
            start = data.position
            tag = data.read_u8("Java block")
            if tag == Tag.END_BLOCK_DATA:
                return items
            if tag == Tag.BLOCK_DATA:
                items.append(data.read_bytes(data.read_u8("Java block size"), "Java block"))
            elif tag == Tag.LONG_BLOCK_DATA:
                items.append(data.read_bytes(data.read_length("Java block size"), "Java block"))
            else:
                data.seek(start)
                items.append(self.content(depth + 1))
