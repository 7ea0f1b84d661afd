"""Reads one value of Kryo, with its references.

    value  := class, object
    class  := 0 null | 1 number of a name [name, where it comes first] | id + 2
    object := value of a number or boolean
            | 0 null | 1 a new object, body | number of an object + 2

Names and references start afresh with every value. Source: ``Kryo``, ``DefaultClassResolver`` and
``MapReferenceResolver`` of Kryo 2.24 and 5.6.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from dstl_core.codec.classfile.generic_types import JavaType
from dstl_core.codec.kryo.kryo_input import KryoInput, KryoOutput
from dstl_core.codec.kryo.kryo_objects import (
    READABLE_IN_KRYO_5,
    Dialect,
    KryoObject,
    expect_readable,
)
from dstl_core.errors import FormatError, UnreadableValueError

MAX_DEPTH = 120
MAX_OBJECTS = 1 << 22
"""Of one value, shared ones counted as often as they are referred to: text repeats them."""

Arguments = tuple[JavaType | None, ...]


class Body(Protocol):
    """How the objects of one class are stored."""

    @property
    def is_plain(self) -> bool:
        """Whether objects have no reference marker in either version: numbers, booleans."""
        ...

    @property
    def is_enum(self) -> bool: ...

    def read(self, reader: KryoValueReader, arguments: Arguments) -> Any:
        """The value of an object; ``arguments`` are the type arguments that its field declares."""
        ...

    def write(self, writer: KryoValueWriter, value: Any, arguments: Arguments) -> None:
        """Appends a value as Kryo 5 stores it."""
        ...


class Layouts(Protocol):
    """How classes are stored."""

    def body(self, class_name: str) -> Body:
        """How objects of a class are stored."""
        ...

    def is_final(self, class_name: str) -> bool: ...


class KryoValueReader:
    """One value on its way in.

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
        self._layouts = layouts
        self._registered = registered
        self._names: list[str] = []
        self._objects: list[KryoObject] = []
        self._sizes: list[int] = []
        self._count = 0
        self._depth = 0

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
        found = self._registered.get(class_id)
        if found is None:
            what = "stands for a class of Scala" if 9 < class_id < 73 else "is not registered"
            raise UnreadableValueError(f"Class id {class_id} of a Kryo value {what}", offset=at)
        return found

    def class_and_object(self, arguments: Arguments = ()) -> KryoObject | None:
        name = self.class_name()
        return None if name is None else self.object(name, arguments)

    def typed(self, declared: JavaType) -> KryoObject | None:
        """An object of a declared type: one that is final has no class in front."""
        if self._layouts.is_final(declared.name):
            return self.object_or_null(declared.name, declared.arguments)
        return self.class_and_object(declared.arguments)

    def object_or_null(self, name: str, arguments: Arguments = ()) -> KryoObject | None:
        body = self._layouts.body(name)
        if not self._has_reference(body) and not self.input.boolean():
            return None
        return self._object(name, body, arguments)

    def object(self, name: str, arguments: Arguments = ()) -> KryoObject | None:
        return self._object(name, self._layouts.body(name), arguments)

    def body(self, name: str) -> Body:
        """How objects of a class are stored."""
        return self._layouts.body(name)

    def is_known_final(self, declared: JavaType | None) -> bool:
        return declared is not None and self._layouts.is_final(declared.name)

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
        found = KryoObject(name)
        number = len(self._objects)
        self._objects.append(found)
        self._sizes.append(0)
        before = self._count
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise UnreadableValueError(
                f"A Kryo value nests deeper than {MAX_DEPTH} levels", offset=at
            )
        found.value = body.read(self, arguments)
        self._depth -= 1
        self._sizes[number] = self._count - before
        return found

    def _known(self, number: int, name: str, at: int) -> KryoObject:
        if number >= len(self._objects):
            raise FormatError(
                "A reference of a Kryo value points at no object",
                offset=at,
                expected=f"< {len(self._objects)}",
                got=number,
            )
        found = self._objects[number]
        if found.class_name != name:
            raise FormatError(
                "A reference of a Kryo value points at another class",
                offset=at,
                expected=name,
                got=found.class_name,
            )
        self._add(self._sizes[number])
        return found

    def _add(self, objects: int) -> None:
        self._count += objects
        if self._count > MAX_OBJECTS:
            raise UnreadableValueError(f"A Kryo value has more than {MAX_OBJECTS} objects")


class KryoValueWriter:
    """One value on its way out, as Kryo 5 stores it.

    Args:
        layouts: Of the classes in it.
        ids: Ids by class name.
    """

    def __init__(self, layouts: Layouts, ids: Mapping[str, int]) -> None:
        self.output = KryoOutput()
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

    def class_and_object(self, value: KryoObject | None, arguments: Arguments = ()) -> None:
        if value is None:
            self.output.u8(0)
            return
        self.class_name(value.class_name)
        self.object(value, arguments)

    def typed(self, declared: JavaType, value: KryoObject | None) -> None:
        if self._layouts.is_final(declared.name):
            self.object_or_null(value, declared.arguments)
        else:
            self.class_and_object(value, declared.arguments)

    def is_known_final(self, declared: JavaType | None) -> bool:
        return declared is not None and self._layouts.is_final(declared.name)

    def object_or_null(self, value: KryoObject | None, arguments: Arguments = ()) -> None:
        if value is None:
            self.output.u8(0)
            return
        body = self._layouts.body(value.class_name)
        if body.is_plain or body.is_enum:
            self.output.u8(1)
        self.object(value, arguments)

    def object(self, value: KryoObject, arguments: Arguments = ()) -> None:
        body = self._layouts.body(value.class_name)
        if not body.is_plain and not body.is_enum:
            known = self._objects.get(id(value))
            if known is not None:
                self.output.varint(known + 2)
                return
            self._objects[id(value)] = len(self._objects)
            self.output.u8(1)
        body.write(self, value.value, arguments)
