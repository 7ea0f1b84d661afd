"""Descriptor sets: what ``protoc --include_imports --descriptor_set_out=FILE.desc`` writes.

Source: ``google/protobuf/descriptor.proto``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from dstl_core.codec.protobuf.wire import WireField, read_fields
from dstl_core.errors import ConfigError, FormatError

MAX_NESTING = 64
_REPEATED = 3
_GROUP = 10
_MESSAGE, _ENUM = 11, 14


@dataclass(frozen=True, slots=True)
class FieldType:
    """A field of a message.

    Args:
        type: Its number in ``FieldDescriptorProto.Type``.
        type_name: Of a message or an enum.
        has_presence: Whether a default value on the wire is a value.
    """

    name: str
    number: int
    type: int
    type_name: str
    is_repeated: bool
    has_presence: bool


@dataclass(frozen=True)
class MessageType:
    """A message: its full name, and its fields by number."""

    name: str
    fields: Mapping[int, FieldType]
    is_map_entry: bool = False


@dataclass(frozen=True)
class Messages:
    """The messages and enums of descriptor sets, by their full names."""

    messages: Mapping[str, MessageType]
    enums: Mapping[str, Mapping[int, str]]
    java_classes: Mapping[str, str]
    """Names of messages by the Java classes that protoc makes of them."""

    def of_java_class(self, name: str) -> MessageType | None:
        return self.messages.get(self.java_classes.get(name, ""))


@dataclass
class _Declared:
    messages: dict[str, MessageType] = field(default_factory=dict)
    enums: dict[str, dict[int, str]] = field(default_factory=dict)
    java_classes: dict[str, str] = field(default_factory=dict)
    used: dict[tuple[str, bool], str] = field(default_factory=dict)
    """Types that a field has, whether it takes them for a message, and that field."""


@dataclass(frozen=True)
class _File:
    """What a message takes from its file."""

    package: str
    java_prefix: str
    is_proto3: bool


def read_descriptor_sets(sets: Mapping[str, bytes]) -> Messages:
    """The messages of descriptor sets, by the names of their files.

    Raises:
        ConfigError: One is no descriptor set, or lacks a file that another imports.
    """
    declared = _Declared()
    for name, raw in sets.items():
        try:
            files = [each for each in read_fields(raw) if each.number == 1]
            for part in files:
                _file(_bytes(part), declared)
        except FormatError as error:
            raise ConfigError(
                f"{name} is no descriptor set: {error.message}; make it by protoc "
                f"--include_imports --descriptor_set_out=FILE.desc"
            ) from error
        if not files:
            raise ConfigError(
                f"{name} is no descriptor set: it has no file; make it by protoc "
                f"--include_imports --descriptor_set_out=FILE.desc"
            )
    for (type_name, is_message), user in declared.used.items():
        known = declared.messages if is_message else declared.enums
        if type_name not in known:
            raise ConfigError(
                f"The descriptor set lacks {type_name}, which {user} has; make it by protoc "
                f"with --include_imports"
            )
    for message in declared.messages.values():
        if message.is_map_entry and not _is_pair(message):
            raise ConfigError(
                f"Map entry {message.name} of the descriptor set is no key with a value; make the "
                f"set by protoc"
            )
        if len({field.name for field in message.fields.values()}) < len(message.fields):
            raise ConfigError(
                f"Two fields of {message.name} in the descriptor set have one name; make the set "
                f"by protoc"
            )
    return Messages(declared.messages, declared.enums, declared.java_classes)


def _file(raw: bytes, declared: _Declared) -> None:
    fields = read_fields(raw)
    package = _text(fields, 2)
    options = _inner(fields, 8)
    java_package = _text(options, 1) or package
    messages = [_bytes(each) for each in fields if each.number == 4]
    prefix = f"{java_package}." if java_package else ""
    if not _number(options, 10):
        names = {_text(read_fields(each), 1) for each in messages}
        prefix += (_text(options, 8) or _outer_class(_text(fields, 1), names)) + "$"
    file = _File(package, prefix, _text(fields, 12) == "proto3")
    scope = f"{package}." if package else ""
    for message in messages:
        _message(message, scope, file.java_prefix, file, declared, 0)
    for declared_enum in _values(fields, 5):
        _enum(_bytes(declared_enum), scope, declared)


def _is_pair(entry: MessageType) -> bool:
    return {1, 2} == set(entry.fields) and not any(
        part.is_repeated for part in entry.fields.values()
    )


def _outer_class(path: str, names: set[str]) -> str:
    """The class around the messages of a file: its name in camel case."""
    stem = path.rpartition("/")[2].removesuffix(".proto")
    name = "".join(part[:1].upper() + part[1:] for part in re.split(r"[^A-Za-z0-9]+", stem))
    return f"{name}OuterClass" if name in names else name


def _message(
    raw: bytes, scope: str, java_scope: str, file: _File, declared: _Declared, depth: int
) -> None:
    if depth > MAX_NESTING:
        raise FormatError(f"Messages nest more than {MAX_NESTING} levels")
    fields = read_fields(raw)
    short = _text(fields, 1)
    name = scope + short
    types = [_field(_bytes(each), name, file, declared) for each in fields if each.number == 2]
    is_entry = bool(_number(_inner(fields, 7), 7))
    declared.messages[name] = MessageType(name, {each.number: each for each in types}, is_entry)
    declared.java_classes[java_scope + short] = name
    for part in fields:
        if part.number == 3:
            _message(_bytes(part), f"{name}.", f"{java_scope}{short}$", file, declared, depth + 1)
        elif part.number == 4:
            _enum(_bytes(part), f"{name}.", declared)


def _field(raw: bytes, owner: str, file: _File, declared: _Declared) -> FieldType:
    fields = read_fields(raw)
    type_number = _number(fields, 5)
    type_name = _text(fields, 6).removeprefix(".")
    name = _text(fields, 1)
    if type_number in (_MESSAGE, _GROUP, _ENUM):
        is_named_message = type_number != _ENUM
        declared.used.setdefault((type_name, is_named_message), f"{owner}.{name}")
    in_oneof = any(each.number == 9 for each in fields)
    has_presence = not file.is_proto3 or in_oneof or type_number == _MESSAGE
    is_repeated = _number(fields, 4) == _REPEATED
    return FieldType(name, _number(fields, 3), type_number, type_name, is_repeated, has_presence)


def _enum(raw: bytes, scope: str, declared: _Declared) -> None:
    fields = read_fields(raw)
    names: dict[int, str] = {}
    for part in _values(fields, 2):
        value = read_fields(_bytes(part))
        number = _number(value, 2)
        names.setdefault(number - (1 << 64) if number >> 63 else number, _text(value, 1))
    declared.enums[scope + _text(fields, 1)] = names


def _values(fields: list[WireField], number: int) -> Iterator[WireField]:
    return (each for each in fields if each.number == number)


def _inner(fields: list[WireField], number: int) -> list[WireField]:
    return [inner for each in _values(fields, number) for inner in read_fields(_bytes(each))]


def _text(fields: list[WireField], number: int) -> str:
    try:
        return b"".join([_bytes(each) for each in _values(fields, number)][-1:]).decode()
    except UnicodeDecodeError as error:
        raise FormatError("A name of a descriptor is not UTF-8") from error


def _number(fields: list[WireField], number: int) -> int:
    numbers = [each.value for each in _values(fields, number)][-1:] or [0]
    if not isinstance(numbers[0], int):
        raise FormatError("A number of a descriptor has another wire type")
    return numbers[0]


def _bytes(wire_field: WireField) -> bytes:
    if not isinstance(wire_field.value, bytes):
        raise FormatError("A part of a descriptor has another wire type")
    return wire_field.value
