"""The ``TypeSerializer`` protocol, its snapshots, and the registry of snapshot readers.

A snapshot is ``utf class name, i32 version, payload``. It has no length, so an unknown class ends
the parsing of its header. The payload of a composite snapshot is
``i32 911108, i32 outer version, outer payload, nested block``, where the nested block is
``i32 1333245, i32 1, i32 n, n snapshots``.

Source: ``TypeSerializerSnapshot``, ``CompositeTypeSerializerSnapshot`` and
``NestedSerializersSnapshotDelegate`` of Flink 2.2.1.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Self, TypeVar

from dstl_core.codec.data_io import DataInput, DataOutput, KeyOutput
from dstl_core.errors import (
    ConfigError,
    FormatError,
    UnknownSerializerError,
    UnreadableValueError,
    UnsupportedVersionError,
)
from dstl_core.model.key_group import assign_to_key_group

COMPOSITE_MAGIC_NUMBER = 911108
NESTED_MAGIC_NUMBER = 1333245
NESTED_VERSION = 1
MAX_NESTING = 64

T = TypeVar("T")
JsonValue = Any
"""A value that ``json`` can print: text, number, boolean, null, list, object."""


class TypeSerializer(ABC, Generic[T]):
    """Reads and writes values of one Flink type, and the snapshot that describes the type.

    Instances are immutable, and equal if their types are equal. To add a type, write a subclass and
    register it by its snapshot class.
    """

    snapshot_class: ClassVar[str]
    """Java class of the snapshot, exactly as in files."""
    snapshot_version: ClassVar[int] = 3
    packed: ClassVar[struct.Struct | None] = None
    """The bytes of a number of Python's own class; None for all other types. It saves the calls of
    ``serialize`` and ``deserialize``, which give the same.
    """
    packed_class: ClassVar[type] = int
    """The class that ``packed`` takes."""

    ends_by_classes: ClassVar[bool] = False
    """Whether the end of a value follows from the layout of classes that are not in the file."""

    @property
    def nested(self) -> tuple[AnySerializer, ...]:
        """The serializers of the parts of this type, in the order of its snapshot."""
        return ()

    @property
    def length(self) -> int:
        """Size of every value in bytes; -1 if sizes vary. Determines the form of composite keys."""
        return -1

    @property
    @abstractmethod
    def type_name(self) -> str:
        """Readable name of the type, e.g. ``Map<String, Long>``."""

    @abstractmethod
    def serialize(self, value: T, out: DataOutput) -> None:
        """Appends the bytes of a value."""

    @abstractmethod
    def deserialize(self, data: DataInput) -> T:
        """Reads one value and moves behind it."""

    def write_snapshot_payload(self, out: DataOutput) -> None:
        """Appends the payload after class and version. Simple types have none."""

    @classmethod
    def read_snapshot_payload(cls, data: DataInput, context: SnapshotContext) -> Self:
        """The type of a snapshot, from what ``write_snapshot_payload`` appended."""
        return cls()

    def java_hash(self, value: T) -> int:
        """Java's ``hashCode()`` of a value. Only the low 32 bits of the result count."""
        raise ConfigError(
            f"{self.type_name} cannot be a key: its Java hash is not known; use a type of "
            f"the key types or register a serializer with java_hash."
        )

    def to_text(self, value: T) -> JsonValue:
        """The value in the form that ``dstl dump`` prints."""
        return value

    @property
    def opaque_class(self) -> str:
        """The ``$class`` of a value that cannot be read."""
        return self.type_name

    def __str__(self) -> str:
        return self.type_name


class OneByteSerializer(TypeSerializer[T]):
    """A type with one value, which is one byte."""

    byte: ClassVar[int] = 0
    noun: ClassVar[str]
    """What the byte is, for messages."""
    constant: ClassVar[Any] = None
    """The value."""
    length: ClassVar[int] = 1

    def serialize(self, value: T, out: DataOutput) -> None:
        out.write_u8(self.byte)

    def deserialize(self, data: DataInput) -> T:
        at = data.position
        got = data.read_u8(self.noun)
        if got != self.byte:
            raise bad_value(f"A {self.noun} is not {self.byte}", at, self.byte, got)
        value: T = self.constant
        return value


class CompositeSerializer(TypeSerializer[T]):
    """A type with a composite snapshot: a header, outer fields, the snapshots of the parts."""

    kind: ClassVar[str]
    """The name of the type, before those of its parts."""
    part_names: ClassVar[tuple[str, ...]]
    """The attributes that hold the parts, in the order of the snapshot."""
    outer_version: int = 1

    @property
    def nested(self) -> tuple[AnySerializer, ...]:
        return tuple(getattr(self, name) for name in self.part_names)

    @property
    def type_name(self) -> str:
        return f"{self.kind}<{', '.join(part.type_name for part in self.nested)}>"

    def write_snapshot_payload(self, out: DataOutput) -> None:
        write_composite_header(out, self.outer_version)
        self.write_outer_fields(out)
        write_nested(out, self.nested)

    def write_outer_fields(self, out: DataOutput) -> None:
        """Appends what stands between the header and the parts."""

    @classmethod
    def read_snapshot_payload(cls, data: DataInput, context: SnapshotContext) -> Self:
        read_composite_header(data, cls.outer_version)
        return cls(*context.read_nested(data, len(cls.part_names)))


class WrapperSerializer(CompositeSerializer[Any]):
    """A type whose values and bytes are those of another one, ``inner``."""

    inner: AnySerializer
    part_names: ClassVar[tuple[str, ...]] = ("inner",)

    @property
    def length(self) -> int:
        return self.inner.length

    def serialize(self, value: Any, out: DataOutput) -> None:
        self.inner.serialize(value, out)

    def deserialize(self, data: DataInput) -> Any:
        return self.inner.deserialize(data)

    def to_text(self, value: Any) -> JsonValue:
        return self.inner.to_text(value)


AnySerializer = TypeSerializer[Any]
SnapshotReader = Callable[[DataInput, int, "SnapshotContext"], AnySerializer]


class SerializerRegistry:
    """Finds the reader of a snapshot by the Java class name."""

    def __init__(self, readers: dict[str, SnapshotReader] | None = None) -> None:
        self._readers: dict[str, SnapshotReader] = dict(readers or {})
        self.changes = 0
        """How often a reader was added: what was parsed before may be parsed another way now."""

    def register(self, snapshot_class: str, reader: SnapshotReader) -> None:
        """Adds or replaces the reader of a snapshot class."""
        self._readers[snapshot_class] = reader
        self.changes += 1

    def copy(self) -> SerializerRegistry:
        return SerializerRegistry(self._readers)

    def beyond(self, other: SerializerRegistry) -> dict[str, SnapshotReader]:
        """The readers that another registry does not have, by snapshot class."""
        return {name: each for name, each in self._readers.items() if other.get(name) is not each}

    def get(self, snapshot_class: str) -> SnapshotReader | None:
        return self._readers.get(snapshot_class)

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)


class SnapshotContext:
    """Passed to snapshot readers, so that they can read nested snapshots.

    ``unknown`` has the payload length of each snapshot of an unknown class, by the position of the
    payload. ``dstl_core.codec.serializers.unknown`` determines these lengths.
    """

    __slots__ = ("_depth", "_registry", "unknown")

    def __init__(
        self,
        registry: SerializerRegistry,
        depth: int = 0,
        unknown: Mapping[int, int] | None = None,
    ) -> None:
        self._registry = registry
        self._depth = depth
        self.unknown = unknown or {}

    def with_unknown(self, unknown: Mapping[int, int]) -> SnapshotContext:
        return SnapshotContext(self._registry, self._depth, unknown)

    def read_snapshot(self, data: DataInput) -> AnySerializer:
        at = data.position
        if self._depth > MAX_NESTING:
            raise FormatError("Serializer snapshots are nested too deeply", offset=at)
        name = data.read_utf("snapshot class")
        version = data.read_i32("snapshot version")
        reader = self._registry.get(name)
        if reader is not None:
            inner = SnapshotContext(self._registry, self._depth + 1, self.unknown)
            return reader(data, version, inner)
        payload = data.position
        if payload in self.unknown:
            raw = data.read_bytes(self.unknown[payload], "snapshot of an unknown class")
            return UnknownSerializer(name, version, raw)
        raise UnknownSerializerError(
            f"No reader is registered for the serializer snapshot {name}",
            offset=at,
            snapshot_class=name,
            payload_offset=payload,
        )

    def read_nested(self, data: DataInput, count: int | None = None) -> list[AnySerializer]:
        """Reads the nested block; ``count`` is the expected number of snapshots."""
        data.read_expected_i32("nested snapshots magic", NESTED_MAGIC_NUMBER)
        data.read_expected_i32("nested snapshots version", NESTED_VERSION)
        at = data.position
        number = data.read_count("nested snapshots", 6)
        if count is not None and number != count:
            raise FormatError(
                "A composite type has the wrong number of parts",
                offset=at,
                expected=count,
                got=number,
            )
        return [self.read_snapshot(data) for _ in range(number)]


def read_composite_header(data: DataInput, *outer_versions: int) -> int:
    """Reads the outer version, which must be one of the given ones."""
    data.read_expected_i32("composite magic", COMPOSITE_MAGIC_NUMBER)
    at = data.position
    version = data.read_i32("composite version")
    if version not in outer_versions:
        raise UnsupportedVersionError(
            "A composite snapshot has an unknown version",
            offset=at,
            field="composite version",
            expected=" or ".join(str(each) for each in outer_versions),
            got=version,
        )
    return version


@dataclass(frozen=True)
class UnknownSerializer(TypeSerializer[Any]):
    """A class without a registered reader.

    The bytes of its snapshot are kept. Its values cannot be read, since their length is unknown.
    """

    unknown_class: str
    version: int
    payload: bytes
    snapshot_class: ClassVar[str] = ""

    @property
    def type_name(self) -> str:
        return f"Unknown<{self.unknown_class}>"

    @property
    def opaque_class(self) -> str:
        return self.unknown_class

    def serialize(self, value: Any, out: DataOutput) -> None:
        if not isinstance(value, OpaqueValue):
            raise TypeError("expected the bytes of a value")
        out.write_bytes(value.raw)

    def deserialize(self, data: DataInput) -> Any:
        raise UnreadableValueError(
            f"Values of the unknown serializer {self.unknown_class} are not readable; register a "
            f"serializer for it",
            offset=data.position,
        )


@dataclass(frozen=True, slots=True)
class OpaqueValue:
    """The bytes of a value that only a Java class can read; ``reason`` says why."""

    java_class: str
    raw: bytes
    reason: str = field(default="", compare=False)


def opaque_text(java_class: str, raw: bytes) -> JsonValue:
    return {"$class": java_class, "$hex": raw.hex()}


def readers_of(*kinds: type[AnySerializer]) -> dict[str, SnapshotReader]:
    def reader(kind: type[AnySerializer]) -> SnapshotReader:
        def read(data: DataInput, version: int, context: SnapshotContext) -> AnySerializer:
            check_snapshot_version(data, kind, version)
            return kind.read_snapshot_payload(data, context)

        return read

    return {kind.snapshot_class: reader(kind) for kind in kinds}


def write_snapshot(out: DataOutput, serializer: AnySerializer) -> None:
    if isinstance(serializer, UnknownSerializer):
        out.write_utf(serializer.unknown_class)
        out.write_i32(serializer.version)
        out.write_bytes(serializer.payload)
        return
    out.write_utf(serializer.snapshot_class)
    out.write_i32(serializer.snapshot_version)
    serializer.write_snapshot_payload(out)


def write_composite_header(out: DataOutput, outer_version: int) -> None:
    out.write_i32(COMPOSITE_MAGIC_NUMBER)
    out.write_i32(outer_version)


def write_nested(out: DataOutput, parts: Sequence[AnySerializer]) -> None:
    out.write_i32(NESTED_MAGIC_NUMBER)
    out.write_i32(NESTED_VERSION)
    out.write_i32(len(parts))
    for part in parts:
        write_snapshot(out, part)


def check_snapshot_version(data: DataInput, serializer: type[AnySerializer], version: int) -> None:
    check_version(data, serializer.snapshot_class, version, serializer.snapshot_version)


def check_version(data: DataInput, snapshot_class: str, version: int, *known: int) -> None:
    if version not in known:
        raise UnsupportedVersionError(
            f"The snapshot of {snapshot_class} has an unknown version",
            offset=data.position,
            expected=" or ".join(map(str, known)),
            got=version,
        )


def bad_value(what: str, offset: int, expected: object, got: object) -> FormatError:
    """The error for bytes that are not a value of their type."""
    return FormatError(what, offset=offset, expected=expected, got=got)


def serialize_to_bytes(serializer: TypeSerializer[T], value: T) -> bytes:
    """The bytes of one value.

    Raises:
        FormatError: The value does not fit the serializer's type. The message does not quote it.
    """
    if type(value) is serializer.packed_class and serializer.packed is not None:
        return _pack(serializer, serializer.packed, value)
    if isinstance(value, OpaqueValue):
        return value.raw
    return _serialize(serializer, value, DataOutput())


def serialize_key(serializer: TypeSerializer[T], key: T) -> bytes:
    """The bytes of a key of keyed state, map state or broadcast state.

    Keys that are equal in Java have equal bytes.

    Raises:
        FormatError: As ``serialize_to_bytes``.
    """
    is_plain = type(key) is serializer.packed_class and key == key  # no NaN
    if is_plain and serializer.packed is not None:
        return _pack(serializer, serializer.packed, key)
    return key.raw if isinstance(key, OpaqueValue) else _serialize(serializer, key, KeyOutput())


def _pack(serializer: TypeSerializer[T], packed: struct.Struct, value: T) -> bytes:
    try:
        return packed.pack(value)
    except struct.error:  # it is too large, and the error says so
        return _serialize(serializer, value, DataOutput())


def _serialize(serializer: TypeSerializer[T], value: T, out: DataOutput) -> bytes:
    try:
        serializer.serialize(value, out)
    except FormatError:
        raise
    except (struct.error, TypeError, AttributeError, OverflowError, ValueError) as error:
        # A ValueError may quote the value, which must not appear in a message.
        reason = "" if isinstance(error, ValueError) else f" ({error})"
        raise FormatError(
            "A value does not fit its type",
            expected=serializer.type_name,
            got=f"{type(value).__name__}{reason}",
        ) from error
    return out.to_bytes()


def deserialize_exactly(serializer: TypeSerializer[T], raw: bytes) -> T:
    """Reads the value in ``raw``.

    Raises:
        UnreadableValueError: Bytes are left, and classes of the job say where the value ends: those
            that were given may be others than the writer's.
        FormatError: Bytes are left.
    """
    packed = serializer.packed
    if packed is not None and len(raw) == packed.size:
        number: T = packed.unpack(raw)[0]
        return number
    data = DataInput(raw)
    value = serializer.deserialize(data)
    if data.remaining and _ends_by_classes(serializer):
        raise UnreadableValueError(
            f"A value of type {serializer.type_name} has {data.remaining} bytes more than the "
            f"layout of its classes; give the jar of the job that wrote it, unless the bytes are "
            f"damaged"
        )
    data.expect_end(f"a value of type {serializer.type_name}")
    return value


def _ends_by_classes(serializer: AnySerializer) -> bool:
    return serializer.ends_by_classes or any(map(_ends_by_classes, serializer.nested))


def deserialize_bounded(serializer: TypeSerializer[T], raw: bytes) -> T | OpaqueValue:
    """Like ``deserialize_exactly``, but returns ``OpaqueValue`` for a value that only Java can
    read.
    """
    try:
        return deserialize_exactly(serializer, raw)
    except UnreadableValueError as error:
        return OpaqueValue(serializer.opaque_class, raw, error.what)


def value_text(serializer: AnySerializer, value: Any) -> JsonValue:
    """The text form of a value that ``deserialize_bounded`` returned."""
    if isinstance(value, OpaqueValue):
        return opaque_text(value.java_class, value.raw)
    return serializer.to_text(value)


def combine_java_hash(parts: Sequence[int], start: int = 1) -> int:
    """Applies ``31 * h + part`` to all parts, in 32 bits."""
    h = start
    for part in parts:
        h = (31 * h + part) & 0xFFFFFFFF
    return h


def key_groups_of(serializer: AnySerializer, key: Any, max_parallelism: int) -> Sequence[int]:
    """The key groups that can have a key: all, if its Java hash is unknown."""
    try:
        key_hash = serializer.java_hash(key)
    except ConfigError:
        return range(max_parallelism)
    return (assign_to_key_group(key_hash, max_parallelism),)
