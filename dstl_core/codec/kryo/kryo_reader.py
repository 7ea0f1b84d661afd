"""Reads one value of Kryo, with its references.

    value  := class, object
    class  := 0 null | 1 number of a name [name, where it comes first] | id + 2
    object := value of a number or boolean
            | 0 null | 1 a new object, body | number of an object + 2

Names and references start afresh with every value. Source: ``Kryo``, ``DefaultClassResolver`` and
``MapReferenceResolver`` of Kryo 2.24 and 5.6.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from dstl_core.codec.classfile.generic_types import JavaType, array_name
from dstl_core.codec.java_stream import JavaStream
from dstl_core.codec.kryo.generics import Generics, GenericType
from dstl_core.codec.kryo.java_stream_writer import JavaStreamWriter
from dstl_core.codec.kryo.kryo_input import KryoInput, KryoOutput
from dstl_core.codec.kryo.kryo_objects import (
    READABLE_IN_KRYO_5,
    SCALA_IDS,
    Dialect,
    KryoObject,
    expect_readable,
)
from dstl_core.errors import FormatError, UnreadableValueError

MAX_DEPTH = 120
MAX_OBJECTS = 1 << 22
"""Of one value, shared ones counted as often as they are referred to: text repeats them."""

Arguments = tuple[JavaType | None, ...]


class Body(ABC):
    """How the objects of one class are stored."""

    is_plain: bool = False
    """Whether objects have no reference marker in either version: numbers, booleans."""
    is_enum: ClassVar[bool] = False

    @abstractmethod
    def read(self, reader: KryoValueReader, arguments: Arguments) -> Any:
        """The value of an object.

        Args:
            reader: Of the whole value; it knows the type arguments in Kryo 5.
            arguments: The type arguments that its field declares, in Kryo 2.24.
        """

    @abstractmethod
    def write(self, writer: KryoValueWriter, value: Any) -> None:
        """Appends a value as Kryo 5 stores it."""


class Layouts(Protocol):
    """How classes are stored."""

    def body(self, class_name: str) -> Body:
        """How objects of a class are stored."""
        ...

    def is_final(self, class_name: str) -> bool: ...


class KryoValueReader:
    """Reads one Kryo value and resolves its references.

    Args:
        source: Where it starts.
        layouts: Of the classes in it.
        registered: Class names by id.
        synthetic: Whether references to outer objects are stored.
    """

    def __init__(
        self,
        source: KryoInput,
        layouts: Layouts,
        registered: Mapping[int, str],
        *,
        synthetic: bool = True,
    ) -> None:
        self.input = source
        self.dialect = source.dialect
        self.synthetic = synthetic
        self.met_synthetic = False
        self.generics = Generics()
        self.streams: dict[object, JavaStream] = {}
        """Streams of Java's own serialization, one for all values of a serializer."""
        self._layouts = layouts
        self._registered = registered
        self._names: list[str] = []
        self._objects: list[KryoObject] = []
        self._sizes: list[int] = []
        self._count = 0

    @property
    def is_old(self) -> bool:
        return self.dialect is Dialect.KRYO_2

    def class_name(self) -> str | None:
        at = self.input.position
        number = self.input.varint("class")
        if number == 0:
            return None
        if number > 1:
            return self._registered_class(number - 2, at)
        name_id = self.input.varint("number of a class name")
        if name_id < len(self._names):
            return self._names[name_id]
        if name_id > len(self._names):
            raise FormatError(
                "A class name of Kryo is missing",
                offset=at,
                expected=f"<= {len(self._names)}",
                got=name_id,
            )
        self._names.append(self.input.text("class name"))
        return self._names[-1]

    def _registered_class(self, class_id: int, at: int) -> str:
        class_name = self._registered.get(class_id)
        if class_name is None and self.is_old:
            class_name = SCALA_IDS.get(class_id)
        if class_name is None:
            what = (
                "stands for a class of Scala that dstl does not read"
                if 9 < class_id < 73
                else "is not registered"
            )
            raise UnreadableValueError(f"Class id {class_id} of a Kryo value {what}", offset=at)
        return class_name

    def class_and_object(self, arguments: Arguments = ()) -> KryoObject | None:
        name = self.class_name()
        return None if name is None else self.object(name, arguments)

    def typed(self, declared: JavaType) -> KryoObject | None:
        """An object of a declared type: one that is final has no class in front."""
        if self._layouts.is_final(declared.name):
            return self.object_or_null(declared.name, declared.arguments)
        return self.class_and_object(declared.arguments)

    def field(self, declared: GenericType, erased: str) -> KryoObject | None:
        """The value of a field in Kryo 5.

        Args:
            declared: Its type.
            erased: The class that the field has in the class file.
        """
        name = final_class_of_field(self._layouts, self.generics, declared, erased)
        if name is None:
            name = self.class_name()
            if name is None:
                return None
            self.generics.push(declared)
            value = self.object(name)
        else:
            self.generics.push(declared)
            value = self.object_or_null(name)
        self.generics.pop()
        return value

    def final_class(self, declared: GenericType) -> str | None:
        """The class of a type, if it is known and final."""
        return final_class(self._layouts, self.generics, declared)

    def object_or_null(self, name: str, arguments: Arguments = ()) -> KryoObject | None:
        body = self._layouts.body(name)
        if not self._has_reference(body) and not self.input.boolean():
            return None
        return self._object(name, body, arguments)

    def object(self, name: str, arguments: Arguments = ()) -> KryoObject | None:
        return self._object(name, self._layouts.body(name), arguments)

    def object_as(self, name: str, body: Body) -> KryoObject | None:
        """An object of a class that is stored as no class file has to say."""
        return self._object(name, body, ())

    def body(self, name: str) -> Body:
        """How objects of a class are stored."""
        return self._layouts.body(name)

    def is_final(self, name: str) -> bool:
        return self._layouts.is_final(name)

    def _has_reference(self, body: Body) -> bool:
        return not body.is_plain and (self.is_old or not body.is_enum)

    def _object(self, name: str, body: Body, arguments: Arguments) -> KryoObject | None:
        self._add(1)
        if not self._has_reference(body):
            return KryoObject(name, body.read(self, arguments))
        at = self.input.position
        reference = self.input.varint("reference")
        if reference == 0:
            return None
        if reference > 1:
            return self._known(reference - 2, name, at)
        stored = KryoObject(name)
        number = len(self._objects)
        self._objects.append(stored)
        self._sizes.append(0)
        before = self._count
        self.generics.depth += 1
        if self.generics.depth > MAX_DEPTH:
            raise UnreadableValueError(
                f"A Kryo value nests deeper than {MAX_DEPTH} levels", offset=at
            )
        stored.value = body.read(self, arguments)
        self.generics.depth -= 1
        self._sizes[number] = self._count - before
        return stored

    def _known(self, number: int, name: str, at: int) -> KryoObject:
        if number >= len(self._objects):
            raise FormatError(
                "A reference of a Kryo value points at no object",
                offset=at,
                expected=f"< {len(self._objects)}",
                got=number,
            )
        known = self._objects[number]
        if known.class_name != name:
            raise FormatError(
                "A reference of a Kryo value points at another class",
                offset=at,
                expected=name,
                got=known.class_name,
            )
        self.repeat(self._sizes[number])
        return known

    def repeat(self, objects: int) -> None:
        """Counts objects that have no bytes of their own: nulls, and shared ones.

        Raises:
            UnreadableValueError: The value has too many objects.
            FormatError: All values of the input have too many of them.
        """
        self._add(objects)
        self.input.count_free(objects)

    def _add(self, objects: int) -> None:
        self._count += objects
        if self._count > MAX_OBJECTS:
            raise UnreadableValueError(f"A Kryo value has more than {MAX_OBJECTS} objects")


def final_class(layouts: Layouts, generics: Generics, declared: GenericType) -> str | None:
    """The class of a type in Kryo 5, if it is known and final."""
    name = generics.resolve(declared)
    return name if name is not None and layouts.is_final(name) else None


def final_class_of_field(
    layouts: Layouts, generics: Generics, declared: GenericType, erased: str
) -> str | None:
    """The class of the values of a field in Kryo 5, if it is known and final."""
    if isinstance(declared.type, str):
        return declared.type if layouts.is_final(declared.type) else None
    if layouts.is_final(erased):
        return erased
    name = final_class(layouts, generics, declared)
    # A type parameter stands for the elements of an array of it, of one dimension.
    return array_name(name) if name is not None and erased.startswith("[") else name


class KryoValueWriter:
    """Writes one value in the format of Kryo 5.

    Args:
        layouts: Of the classes in it.
        ids: Ids by class name.
    """

    def __init__(self, layouts: Layouts, ids: Mapping[str, int]) -> None:
        self.output = KryoOutput()
        self.generics = Generics()
        self.streams: dict[object, JavaStreamWriter] = {}
        """Streams of Java's own serialization, one for all values of a serializer."""
        self._layouts = layouts
        self._ids = ids
        self._names: dict[str, int] = {}
        self._objects: dict[int, int] = {}

    def class_name(self, name: str) -> None:
        expect_readable(name)
        name = READABLE_IN_KRYO_5.get(name, name)
        class_id = self._ids.get(name)
        if class_id is not None:
            self.output.varint(class_id + 2)
            return
        self.output.varint(1)
        known = self._names.get(name)
        if known is not None:
            self.output.varint(known)
            return
        self.output.varint(len(self._names))
        self._names[name] = len(self._names)
        if name.isascii() and len(name) > 1:
            raw = bytearray(name, "ascii")
            raw[-1] |= 0x80
            self.output.bytes(bytes(raw))
        else:
            self.output.string(name)

    def class_and_object(self, value: KryoObject | None) -> None:
        if value is None:
            self.output.u8(0)
            return
        self.class_name(value.class_name)
        self.object(value)

    def field(self, declared: GenericType, erased: str, value: KryoObject | None) -> None:
        """The value of a field; see ``KryoValueReader.field``."""
        name = final_class_of_field(self._layouts, self.generics, declared, erased)
        if name is None:
            if value is None:
                self.output.u8(0)
                return
            self.class_name(value.class_name)
            self.generics.push(declared)
            self.object(value)
        else:
            self.generics.push(declared)
            self.object_or_null(value, name)
        self.generics.pop()

    def final_class(self, declared: GenericType) -> str | None:
        """The class of a type, if it is known and final."""
        return final_class(self._layouts, self.generics, declared)

    def is_final(self, name: str) -> bool:
        return self._layouts.is_final(name)

    def object_or_null(self, value: KryoObject | None, name: str) -> None:
        """An object of a class that is not stored; without references a flag says if it is null."""
        if value is None:
            self.output.u8(0)
            return
        body = self._body(value, name)
        if body.is_plain or body.is_enum:
            self.output.u8(1)
        self._object(value, body)

    def object(self, value: KryoObject, name: str | None = None) -> None:
        """An object that is not null; ``name`` is the class that Kryo takes it for, its own if that
        is stored.
        """
        self._object(value, self._body(value, name or value.class_name))

    def _body(self, value: KryoObject, name: str) -> Body:
        class_name = value.class_name
        # Kryo writes the elements of an array as those of the array that it takes it for.
        if class_name != name and not (is_object_array(class_name) and is_object_array(name)):
            raise UnreadableValueError(
                f"An object of class {class_name} stands where Kryo of Flink 2.x takes only "
                f"{name}, by the type arguments of the classes around it"
            )
        return self._layouts.body(name)

    def _object(self, value: KryoObject, body: Body) -> None:
        if not body.is_plain and not body.is_enum:
            known = self._objects.get(id(value))
            if known is not None:
                self.output.varint(known + 2)
                return
            self._objects[id(value)] = len(self._objects)
            self.output.u8(1)
        self.generics.depth += 1
        body.write(self, value.value)
        self.generics.depth -= 1


def is_object_array(name: str) -> bool:
    return name.startswith(("[[", "[L"))
