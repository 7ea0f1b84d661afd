"""Parses class files: names, flags, fields with their types, methods. Code is skipped.

Source: The Java Virtual Machine Specification, chapter 4.
"""

from __future__ import annotations

from dataclasses import dataclass

from dstl_core.cached_property import cached_property
from dstl_core.codec.classfile.generic_types import (
    ClassSignature,
    JavaType,
    class_name_of,
    parse_class_signature,
    parse_field_type,
)
from dstl_core.codec.data_io import DataInput
from dstl_core.errors import FormatError

CLASS_MAGIC = 0xCAFEBABE
OBJECT = "java.lang.Object"
_TYPE_INFO = "Lorg/apache/flink/api/common/typeinfo/TypeInfo;"

_UTF8, _CLASS = 1, 7
_CONSTANT_BYTES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4} | {
    15: 3,
    16: 2,
    17: 4,
    18: 4,
    19: 2,
    20: 2,
}
_TWO_SLOTS = (5, 6)
_STRING = 8
_ANNOTATIONS = "RuntimeVisibleAnnotations"
_PARAMETERS = "MethodParameters"
_MAX_ANNOTATION_NESTING = 16
_MEMBERS = (9, 10, 11)


class Flag:
    """Access flags of classes, fields and methods."""

    PUBLIC = 0x1
    STATIC = 0x8
    FINAL = 0x10
    TRANSIENT = 0x80
    INTERFACE = 0x200
    ABSTRACT = 0x400
    SYNTHETIC = 0x1000
    ENUM = 0x4000


@dataclass(frozen=True, slots=True)
class Annotation:
    """An annotation that is there at run time.

    Args:
        name: Of its class.
        value: Its member ``value`` if that is a class: its name.
    """

    name: str
    value: str | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """A field or a method."""

    name: str
    descriptor: str
    flags: int
    signature: str | None = None
    annotations: tuple[Annotation, ...] = ()
    parameters: tuple[str, ...] | None = None
    """The names of a method's parameters; None if the compiler did not record them."""

    def has(self, flag: int) -> bool:
        return self.flags & flag != 0


@dataclass(frozen=True)
class ClassFile:
    """A class. Names are those of ``Class.getName()``; ``flags`` are those of the class itself,
    for a nested class too.
    """

    name: str
    flags: int
    superclass: str | None
    interfaces: tuple[str, ...]
    fields: tuple[Member, ...]
    methods: tuple[Member, ...]
    signature: str | None = None
    has_type_info: bool = False
    """Whether ``@TypeInfo`` of Flink is on the class or on one of its fields."""
    refers_to: frozenset[str] = frozenset()
    """The classes that its code names."""
    annotations: tuple[Annotation, ...] = ()

    def has(self, flag: int) -> bool:
        return self.flags & flag != 0

    @property
    def is_enum(self) -> bool:
        return self.superclass == "java.lang.Enum"

    @property
    def is_record(self) -> bool:
        return self.superclass == "java.lang.Record"

    @property
    def constants(self) -> tuple[str, ...]:
        """The constants of an enum, by ordinal."""
        return tuple(each.name for each in self.fields if each.has(Flag.ENUM))

    @cached_property
    def generic(self) -> ClassSignature:
        """Type parameters, and the superclass with its arguments."""
        if self.signature is None:
            return ClassSignature()
        return parse_class_signature(self.signature)

    def type_of(self, member: Member) -> JavaType:
        return parse_field_type(member.descriptor, member.signature)


def parse_class_file(raw: bytes) -> ClassFile:
    """The class in the bytes of a class file.

    Raises:
        FormatError: The bytes are no class file.
    """
    data = DataInput(raw)
    magic = data.read_i32("magic") & 0xFFFFFFFF
    if magic != CLASS_MAGIC:
        raise FormatError(
            "A class file starts with the wrong bytes",
            offset=0,
            expected=f"{CLASS_MAGIC:x}",
            got=f"{magic:x}",
        )
    data.read_i32("version")
    pool = ConstantPool(data)
    flags = data.read_u16("class flags")
    name = pool.class_name(data)
    superclass = pool.class_name(data)
    interfaces = [pool.class_name(data) for _ in range(_count(data, "interfaces", 2))]
    fields = tuple(_member(data, pool) for _ in range(_count(data, "fields", 8)))
    methods = tuple(_member(data, pool) for _ in range(_count(data, "methods", 8)))
    if name is None:
        raise FormatError("A class file has no class name")
    signature = None
    annotations: tuple[Annotation, ...] = ()
    for attribute, body in _attributes(data, pool):
        if attribute == "Signature":
            signature = pool.text(body.read_u16("signature"))
        elif attribute == "InnerClasses":
            flags = _nested_flags(body, pool, name, flags)
        elif attribute == _ANNOTATIONS:
            annotations = read_annotations(body, pool)
    known = tuple(each for each in interfaces if each is not None)
    has_type_info = _TYPE_INFO in pool.all_texts
    return ClassFile(
        name,
        flags,
        superclass,
        known,
        fields,
        methods,
        signature,
        has_type_info,
        pool.all_classes,
        annotations,
    )


@dataclass(frozen=True)
class ClassCode:
    """The bytecode of a method, and the constants that it refers to."""

    pool: ConstantPool
    code: bytes


def methods_with_code(raw: bytes) -> list[ClassCode]:
    """The code of all methods of a class file.

    Raises:
        FormatError: The bytes are no class file.
    """
    data = DataInput(raw)
    data.read_bytes(8, "magic and version")
    pool = ConstantPool(data)
    data.read_bytes(6, "class")
    data.read_bytes(2 * _count(data, "interfaces", 2), "interfaces")
    for _ in range(_count(data, "fields", 8)):
        _member(data, pool)
    codes = []
    for _ in range(_count(data, "methods", 8)):
        data.read_bytes(6, "method")
        for name, body in _attributes(data, pool):
            if name == "Code":
                body.read_bytes(4, "stack and locals")
                size = body.read_length("code length")
                codes.append(ClassCode(pool, body.read_bytes(size, "code")))
    return codes


def _count(data: DataInput, field: str, item_bytes: int) -> int:
    at = data.position
    count = data.read_u16(field)
    if count * item_bytes > data.remaining:
        raise FormatError(
            "A count does not fit into a class file",
            offset=at,
            field=field,
            expected=f"<= {data.remaining // item_bytes}",
            got=count,
        )
    return count


class ConstantPool:
    """The constants of a class file."""

    def __init__(self, data: DataInput) -> None:
        self._texts: dict[int, str] = {}
        self._classes: dict[int, int] = {}
        self._others: dict[int, tuple[int, bytes]] = {}
        count = data.read_u16("constants")
        index = 1
        while index < count:
            at = data.position
            tag = data.read_u8("constant tag")
            if tag == _UTF8:
                self._texts[index] = data.read_utf("constant")
            elif tag == _CLASS:
                self._classes[index] = data.read_u16("class name")
            elif tag in _CONSTANT_BYTES:
                self._others[index] = tag, data.read_bytes(_CONSTANT_BYTES[tag], "constant")
            else:
                raise FormatError("A constant has an unknown tag", offset=at, got=tag)
            index += 2 if tag in _TWO_SLOTS else 1

    def text(self, index: int) -> str:
        if index not in self._texts:
            raise FormatError("A class file lacks a constant", expected="a text", got=index)
        return self._texts[index]

    def class_at(self, index: int) -> str | None:
        """The name of a class; None for index 0."""
        if index == 0:
            return None
        if index not in self._classes:
            raise FormatError("A class file lacks a constant", expected="a class", got=index)
        return self.text(self._classes[index]).replace("/", ".")

    def class_or_none(self, index: int) -> str | None:
        """The name of a class; None if the constant is none."""
        return self.class_at(index) if index in self._classes else None

    def string_at(self, index: int) -> str | None:
        """The text of a string; None if the constant is none."""
        tag, raw = self._others.get(index, (0, b""))
        return self.text(int.from_bytes(raw, "big")) if tag == _STRING else None

    def member_at(self, index: int) -> tuple[str, str]:
        """Class and name of a field or method."""
        owner, name, _ = self.typed_member_at(index)
        return owner, name

    def typed_member_at(self, index: int) -> tuple[str, str, str]:
        """Class, name and descriptor of a field or method."""
        tag, raw = self._others.get(index, (0, b""))
        _, named = self._others.get(int.from_bytes(raw[2:], "big"), (0, b""))
        owner = self.class_at(int.from_bytes(raw[:2], "big"))
        if tag not in _MEMBERS or len(named) != 4 or owner is None:
            raise FormatError("A class file lacks a constant", expected="a member", got=index)
        name, descriptor = (int.from_bytes(each, "big") for each in (named[:2], named[2:]))
        return owner, self.text(name), self.text(descriptor)

    def dynamic_call_at(self, index: int) -> str:
        """The descriptor of an ``invokedynamic``."""
        _, raw = self._others.get(index, (0, b""))
        _, named = self._others.get(int.from_bytes(raw[2:], "big"), (0, b""))
        return self.text(int.from_bytes(named[2:], "big"))

    @cached_property
    def all_classes(self) -> frozenset[str]:
        return frozenset(self.text(each).replace("/", ".") for each in self._classes.values())

    @cached_property
    def all_texts(self) -> frozenset[str]:
        """All texts: names of classes and members, descriptors, strings."""
        return frozenset(self._texts.values())

    def class_name(self, data: DataInput) -> str | None:
        return self.class_at(data.read_u16("class"))


def _attributes(data: DataInput, pool: ConstantPool) -> list[tuple[str, DataInput]]:
    attributes = []
    for _ in range(_count(data, "attributes", 6)):
        name = pool.text(data.read_u16("attribute name"))
        attributes.append((name, data.sub_input(data.read_length("attribute length"), "attribute")))
    return attributes


def _member(data: DataInput, pool: ConstantPool) -> Member:
    flags = data.read_u16("member flags")
    name = pool.text(data.read_u16("member name"))
    descriptor = pool.text(data.read_u16("member descriptor"))
    signature = None
    annotations: tuple[Annotation, ...] = ()
    parameters = None
    for attribute, body in _attributes(data, pool):
        if attribute == "Signature":
            signature = pool.text(body.read_u16("signature"))
        elif attribute == "Synthetic":
            flags |= Flag.SYNTHETIC
        elif attribute == _ANNOTATIONS:
            annotations = read_annotations(body, pool)
        elif attribute == _PARAMETERS:
            parameters = _parameters(body, pool)
    return Member(name, descriptor, flags, signature, annotations, parameters)


def _parameters(body: DataInput, pool: ConstantPool) -> tuple[str, ...] | None:
    """The names of parameters; None if one has none."""
    names = []
    for _ in range(body.read_u8("parameters")):
        names.append(body.read_u16("parameter name"))
        body.read_u16("parameter flags")
    return tuple(pool.text(each) for each in names) if all(names) else None


def read_annotations(data: DataInput, pool: ConstantPool) -> tuple[Annotation, ...]:
    count = _count(data, "annotations", 4)
    return tuple(_annotation(data, pool, 0) for _ in range(count))


def _annotation(data: DataInput, pool: ConstantPool, depth: int) -> Annotation:
    if depth > _MAX_ANNOTATION_NESTING:
        raise FormatError("Annotations of a class file are nested too deeply")
    name = class_name_of(pool.text(data.read_u16("annotation")))
    value = None
    for _ in range(_count(data, "annotation members", 5)):
        member = pool.text(data.read_u16("annotation member"))
        of_class = _annotation_value(data, pool, depth)
        if member == "value":
            value = of_class
    return Annotation(name, value)


def _annotation_value(data: DataInput, pool: ConstantPool, depth: int) -> str | None:
    """Reads a member; returns the class that it names, if it is one."""
    at = data.position
    tag = chr(data.read_u8("annotation tag"))
    if tag in "BCDFIJSZs":
        data.read_u16("annotation constant")
    elif tag == "e":
        data.read_bytes(4, "annotation enum")
    elif tag == "c":
        return class_name_of(pool.text(data.read_u16("annotation class")))
    elif tag == "@":
        _annotation(data, pool, depth + 1)
    elif tag == "[":
        if depth > _MAX_ANNOTATION_NESTING:
            raise FormatError("Annotations of a class file are nested too deeply", offset=at)
        for _ in range(_count(data, "annotation array", 1)):
            _annotation_value(data, pool, depth + 1)
    else:
        raise FormatError("An annotation has an unknown tag", offset=at, got=repr(tag))
    return None


def _nested_flags(body: DataInput, pool: ConstantPool, name: str, flags: int) -> int:
    """The flags that the source gives a nested class; those of the class file differ."""
    for _ in range(_count(body, "nested classes", 8)):
        inner = pool.class_name(body)
        body.read_bytes(4, "outer class")
        nested_flags = body.read_u16("nested class flags")
        if inner == name:
            return nested_flags
    return flags
