"""Types that Flink leaves to Kryo, read without Java.

Nothing in a file says which version of Kryo wrote it but the version of ``_metadata``: Flink 1.x
writes at most 4, Flink 2.x at least 5.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from dstl_core.cached_property import cached_property
from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.java_stream import JavaObject, read_java_object
from dstl_core.codec.kryo.class_layouts import ClassLayouts
from dstl_core.codec.kryo.kryo_input import KryoInput
from dstl_core.codec.kryo.kryo_objects import FIRST_OWN_ID, REGISTERED, Dialect, KryoObject
from dstl_core.codec.kryo.kryo_reader import KryoValueReader, KryoValueWriter
from dstl_core.codec.kryo.kryo_text import kryo_text
from dstl_core.codec.serializers.base import (
    JsonValue,
    OpaqueValue,
    SnapshotContext,
    SnapshotReader,
    check_snapshot_version,
)
from dstl_core.codec.serializers.opaque import KryoSerializer
from dstl_core.codec.serializers.optional_map import OptionalEntry, read_optional_map
from dstl_core.errors import FormatError, UnreadableValueError

FIRST_VERSION_OF_FLINK_2 = 5
"""Of ``_metadata``."""
_SERIALIZER_CLASS = 1
_NULL = b"\0"
_DEFAULT = "a default serializer of the job"


def dialect_of(metadata_version: int) -> Dialect:
    return Dialect.KRYO_5 if metadata_version >= FIRST_VERSION_OF_FLINK_2 else Dialect.KRYO_2


@dataclass(frozen=True, slots=True, eq=False)
class KryoValue:
    """A value of Kryo: the object, and its bytes. Values with equal bytes are equal."""

    content: KryoObject
    raw: bytes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KryoValue) and other.raw == self.raw

    def __hash__(self) -> int:
        return hash(self.raw)


@dataclass(frozen=True)
class KryoClasses:
    """Which version of Kryo wrote the values, and how it stores classes."""

    dialect: Dialect
    layouts: ClassLayouts


@dataclass(frozen=True)
class ReadableKryoSerializer(KryoSerializer):
    """``KryoSerializer`` whose values are read.

    Args:
        classes: How classes are stored; no part of the type.
        registered: Class names by id; they follow from the snapshot.
    """

    classes: KryoClasses = field(compare=False, repr=False)
    registered: Mapping[int, str] = field(compare=False, repr=False)
    ends_by_classes: ClassVar[bool] = True

    @property
    def is_readable(self) -> bool:
        """Whether the layout of the declared class is known."""
        try:
            self.classes.layouts.body(self.java_class)
        except FormatError:
            return False
        return True

    def serialize(self, value: Any, out: DataOutput) -> None:
        if value is None:
            out.write_bytes(_NULL)
        elif isinstance(value, KryoValue | OpaqueValue):
            out.write_bytes(value.raw)
        else:
            raise TypeError(f"expected a {self.java_class} as Kryo stores it")

    def deserialize(self, data: DataInput) -> KryoValue | None:
        start = data.position
        try:
            content, has_outer = self._read(data, synthetic=True)
            if has_outer and data.remaining:
                content = self._without_outer(data, start, content)
        except UnreadableValueError:
            raise
        except (FormatError, RecursionError) as error:
            raise self._does_not_fit(error, start) from error
        if content is None:
            return None
        end = data.position
        data.rewind(start)
        return KryoValue(content, data.read_bytes(end - start))

    def _read(self, data: DataInput, *, synthetic: bool) -> tuple[KryoObject | None, bool]:
        source = KryoInput(data, self.classes.dialect)
        reader = KryoValueReader(source, self.classes.layouts, self.registered, synthetic=synthetic)
        try:
            content = reader.class_and_object()
        except UnreadableValueError:
            raise
        except FormatError:
            if synthetic and reader.met_synthetic:
                return self._read(data, synthetic=False)
            raise
        source.commit()
        return content, reader.met_synthetic

    def _without_outer(
        self, data: DataInput, start: int, content: KryoObject | None
    ) -> KryoObject | None:
        """Whether references to outer objects are stored depends on the class path of the writer.
        Without them the value must end where its bytes do.
        """
        end = data.position
        data.rewind(start)
        try:
            other, _ = self._read(data, synthetic=False)
            if not data.remaining:
                return other
        except FormatError:
            pass
        data.rewind(end)
        return content

    def _does_not_fit(self, error: Exception, start: int) -> UnreadableValueError:
        reason = str(error) if isinstance(error, FormatError) else "it nests too deeply"
        return UnreadableValueError(
            f"A Kryo value of {self.java_class} does not follow the layout of its classes "
            f"({reason}); give the jar of the job that wrote it, unless the bytes are damaged",
            offset=start,
        )

    def write_new(self, value: KryoValue | None) -> bytes:
        """The bytes of a value as Kryo 5 stores it.

        Raises:
            UnreadableValueError: A class in it is not known, or a part is outside of its range.
        """
        if value is None:
            return _NULL
        writer = KryoValueWriter(self.classes.layouts, self._ids)
        try:
            writer.class_and_object(value.content)
        except (struct.error, OverflowError, UnicodeError) as error:
            raise UnreadableValueError(
                f"A Kryo value of {self.java_class} has a part outside of its range, e.g. a month"
            ) from error
        return bytes(writer.output.buffer)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {name: number for number, name in self.registered.items()}

    def to_text(self, value: KryoValue | None) -> JsonValue:
        if value is None:
            return None
        return kryo_text(self.classes.layouts, value.content, self.java_class)


def kryo_reader(classes: KryoClasses) -> SnapshotReader:
    """Reads the snapshots of types whose values are read."""

    def read(data: DataInput, version: int, context: SnapshotContext) -> ReadableKryoSerializer:
        check_snapshot_version(data, KryoSerializer, version)
        java_class = data.read_utf("Kryo class")
        maps = tuple(read_optional_map(data) for _ in range(3))
        layouts = classes.layouts.with_custom(_custom_serializers(maps))
        return ReadableKryoSerializer(
            java_class,
            maps,
            KryoClasses(classes.dialect, layouts),
            registered_classes([entry.name for entry in maps[0]]),
        )

    return read


def registered_classes(names: Sequence[str]) -> dict[int, str]:
    """Class names by id: a class that has an id already keeps it."""
    registered = dict(REGISTERED)
    known = set(registered.values())
    for name in names:
        if name not in known:
            registered[max(FIRST_OWN_ID, max(registered) + 1)] = name
            known.add(name)
    return registered


def _custom_serializers(maps: tuple[tuple[OptionalEntry, ...], ...]) -> dict[str, str]:
    """Classes that a serializer of the job or a library stores, and its class."""
    serializers: dict[str, str] = {}
    for entry in maps[0]:
        if entry.value is None:
            continue
        data = DataInput(entry.value)
        data.read_utf("registered class")
        kind = data.read_i32("kind of a registration")
        if kind == _SERIALIZER_CLASS:
            serializers[entry.name] = data.read_utf("serializer class")
        elif kind:
            serializers[entry.name] = "an object in the snapshot"
    for entry in maps[1]:
        serializers[entry.name] = _class_of_object(entry.value)
    for entry in maps[2]:
        name = None if entry.value is None else DataInput(entry.value).read_utf("serializer class")
        serializers[entry.name] = name or _DEFAULT
    return serializers


def _class_of_object(raw: bytes | None) -> str:
    """The class of a default serializer that is an object of Java, inside of one of Flink."""
    try:
        holder = None if raw is None else read_java_object(DataInput(raw))
    except FormatError:
        return _DEFAULT
    inside = holder.fields.get("serializer") if isinstance(holder, JavaObject) else None
    return inside.name if isinstance(inside, JavaObject) else _DEFAULT
