"""Bodies of numbers, enums, arrays, collections, maps, and objects with fields."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from dstl_core.codec.classfile.generic_types import JavaType, array_name, component_name
from dstl_core.codec.kryo.generics import NO_PARAMETERS, GenericType, Hierarchy
from dstl_core.codec.kryo.kryo_input import KryoInput, KryoOutput
from dstl_core.codec.kryo.kryo_objects import KryoObject
from dstl_core.codec.kryo.kryo_reader import Arguments, Body, KryoValueReader, KryoValueWriter
from dstl_core.errors import FormatError, UnreadableValueError

MAX_NULLS = 1 << 16
"""Elements of a list of nothing but nulls, which takes no bytes for them."""


@dataclass(frozen=True)
class Scalar(Body):
    """A value without parts.

    Args:
        read: For Kryo 2.24, and for Kryo 5 unless it has a reader of its own.
        put: Appends the form of Kryo 5.
        read_new: For Kryo 5.
        is_plain: Whether it has no reference marker.
    """

    get: Callable[[KryoInput], Any]
    put: Callable[[KryoOutput, Any], None]
    get_new: Callable[[KryoInput], Any] | None = None
    is_plain: bool = False

    def read(self, reader: KryoValueReader, arguments: Arguments) -> Any:
        get = self.get if reader.is_old or self.get_new is None else self.get_new
        return get(reader.input)

    def write(self, writer: KryoValueWriter, value: Any) -> None:
        self.put(writer.output, value)


def _fixed(code: str) -> Scalar:
    return Scalar(
        lambda source: source.fixed(code), lambda out, value: out.fixed(code, value), is_plain=True
    )


PRIMITIVES: dict[str, Scalar] = {
    "boolean": Scalar(KryoInput.boolean, KryoOutput.boolean, is_plain=True),
    "byte": _fixed("b"),
    "char": Scalar(
        lambda source: chr(int(source.fixed("H"))),
        lambda out, value: out.fixed("H", ord(value)),
        is_plain=True,
    ),
    "short": _fixed("h"),
    "int": Scalar(KryoInput.zigzag, KryoOutput.zigzag, is_plain=True),
    "long": Scalar(KryoInput.zigzag_long, KryoOutput.zigzag_long, is_plain=True),
    "float": _fixed("f"),
    "double": _fixed("d"),
}


@dataclass(frozen=True)
class EnumBody(Body):
    """The ordinal. ``constants`` are the names by ordinal, of the class or its subclass."""

    enum_class: str
    constants: tuple[str, ...]
    is_enum: ClassVar[bool] = True

    def read(self, reader: KryoValueReader, arguments: Arguments) -> int:
        at = reader.input.position
        ordinal = reader.input.varint("enum constant") - 1
        if not 0 <= ordinal < len(self.constants):
            raise FormatError(
                f"A constant of {self.enum_class} does not exist",
                offset=at,
                expected=f"0..{len(self.constants) - 1}",
                got=ordinal,
            )
        return ordinal

    def write(self, writer: KryoValueWriter, value: int) -> None:
        writer.output.varint(value + 1)


# ------------------------------------------------------------------------------------ arrays

_ARRAY_CODES = {"[S": "h", "[F": "f", "[D": "d"}


@dataclass(frozen=True)
class PrimitiveArrayBody(Body):
    """A count plus 1, then the items; bytes are kept as bytes."""

    class_name: str

    def read(self, reader: KryoValueReader, arguments: Arguments) -> Any:
        source = reader.input
        count = source.count("array length", 1)
        code = _ARRAY_CODES.get(self.class_name)
        if self.class_name == "[B":
            return source.take(count, "array")
        if code is not None:
            return source.fixed_many(code, count)
        item = PRIMITIVES[component_name(self.class_name)]
        return [item.get(source) for _ in range(count)]

    def write(self, writer: KryoValueWriter, value: Any) -> None:
        out = writer.output
        out.varint(len(value) + 1)
        if self.class_name == "[B":
            out.bytes(value)
            return
        item = PRIMITIVES[component_name(self.class_name)]
        for element in value:
            item.put(out, element)


@dataclass(frozen=True)
class ObjectArrayBody(Body):
    """A count plus 1, then the elements; the class stands with each unless it is final.

    An array class is final to both versions here, whatever its elements are, but nowhere else.
    Source: ``DefaultArraySerializers.ObjectArraySerializer``.
    """

    class_name: str

    @property
    def component(self) -> str:
        return component_name(self.class_name)

    @property
    def has_arrays(self) -> bool:
        return self.component.startswith("[")

    def read(self, reader: KryoValueReader, arguments: Arguments) -> list[KryoObject | None]:
        # Kryo 5 forgets type arguments here: its readers get none.
        element = JavaType(self.component, arguments)
        count = reader.input.count("array length", 1)
        if self.has_arrays:
            return [reader.object_or_null(self.component, arguments) for _ in range(count)]
        return [reader.typed(element) for _ in range(count)]

    def write(self, writer: KryoValueWriter, value: Any) -> None:
        writer.output.varint(len(value) + 1)
        if self.has_arrays or writer.is_final(self.component):
            for element in value:
                writer.object_or_null(element, self.component)
        else:
            for element in value:
                writer.class_and_object(element)


# ------------------------------------------------------------------------- collections, maps


@dataclass(slots=True)
class Sorted:
    """A sorted collection or map: its comparator, and what it holds."""

    comparator: KryoObject | None
    items: list[Any]


def items_of(value: Any) -> list[Any]:
    """The elements or pairs of a collection or map."""
    return value.items if isinstance(value, Sorted) else value


@dataclass(frozen=True)
class CollectionBody(Body):
    """A count and the elements. Kryo 5 stores the class of the elements once if it is one.

    Args:
        has_comparator: Whether a comparator is stored.
        is_typed: Whether Kryo 2.24 goes by the declared type of the elements, as Kryo 5 does.
        has_nulls: Whether elements may be null in Kryo 5.
    """

    has_comparator: bool = False
    is_typed: bool = True
    has_nulls: bool = True

    def read(self, reader: KryoValueReader, arguments: Arguments) -> Any:
        if not reader.is_old:
            comparator, items = self._read_new(reader)
        else:
            [element] = arguments if len(arguments) == 1 and self.is_typed else (None,)
            comparator = reader.class_and_object() if self.has_comparator else None
            count = reader.input.count("collection size")
            if element is None or not reader.is_final(element.name):
                items = [reader.class_and_object() for _ in range(count)]
            else:
                items = [reader.object_or_null(element.name) for _ in range(count)]
        return Sorted(comparator, items) if self.has_comparator else items

    def _read_new(
        self, reader: KryoValueReader
    ) -> tuple[KryoObject | None, list[KryoObject | None]]:
        declared = reader.generics.next_arguments()
        known = None if declared is None else reader.final_class(declared[0])
        elements = self._read_elements(reader, known)
        reader.generics.pop()
        return elements

    def _read_elements(
        self, reader: KryoValueReader, known: str | None
    ) -> tuple[KryoObject | None, list[KryoObject | None]]:
        source = reader.input
        at = source.position
        if known is not None and not self.has_nulls:
            stored, flag = source.varint("collection size"), False
        else:
            stored, flag = source.flagged_count("collection size")
        comparator = reader.class_and_object() if self.has_comparator else None
        count = stored - 1
        if count == 0:
            return comparator, []
        if known is not None:
            source.checked(count, at, "collection size")
            read = reader.object_or_null if flag else reader.object
            return comparator, [read(known) for _ in range(count)]
        if not flag:
            source.checked(count, at, "collection size")
            return comparator, [reader.class_and_object() for _ in range(count)]
        name = reader.class_name()
        if name is None:
            if not 0 < count <= MAX_NULLS:
                raise FormatError(
                    "A list of nulls is too long", offset=at, expected=f"<= {MAX_NULLS}", got=count
                )
            reader.repeat(count)
            return comparator, [None] * count
        with_nulls = self.has_nulls and source.boolean()
        read = reader.object_or_null if with_nulls else reader.object
        source.checked(count, at, "collection size")
        return comparator, [read(name) for _ in range(count)]

    def write(self, writer: KryoValueWriter, value: Any) -> None:
        items = items_of(value)
        if not items:
            writer.output.u8(1)
            if self.has_comparator:
                writer.class_and_object(value.comparator)
            return
        declared = writer.generics.next_arguments()
        known = None if declared is None else writer.final_class(declared[0])
        self._write_elements(writer, value, known)
        writer.generics.pop()

    def _write_elements(self, writer: KryoValueWriter, value: Any, known: str | None) -> None:
        items, out = items_of(value), writer.output
        has_null = any(each is None for each in items)
        names = {each.class_name for each in items if each is not None}
        flag = has_null if known is not None else len(names) <= 1
        if known is not None and not self.has_nulls:
            out.varint(len(items) + 1)
        else:
            out.flagged_count(len(items) + 1, flag)
        if self.has_comparator:
            writer.class_and_object(value.comparator)
        if known is None:
            if not flag:
                for item in items:
                    writer.class_and_object(item)
                return
            if not names:
                out.u8(0)
                return
            [known] = names
            writer.class_name(known)
            if self.has_nulls:
                out.boolean(has_null)
        for item in items:
            if has_null:
                writer.object_or_null(item, known)
            else:
                writer.object(item, known)


@dataclass(frozen=True)
class MapBody(Body):
    """A count and the pairs.

    Args:
        has_comparator: Whether Kryo 2.24 stores a comparator.
        has_new_comparator: Whether Kryo 5 does.
        has_nulls: Whether keys and values may be null in Kryo 5.
    """

    has_comparator: bool = False
    has_new_comparator: bool = False
    has_nulls: bool = True

    def read(self, reader: KryoValueReader, arguments: Arguments) -> Any:
        source = reader.input
        if reader.is_old:
            comparator = reader.class_and_object() if self.has_comparator else None
            count = source.count("map size", item_bytes=2)
            parts = arguments if len(arguments) == 2 else (None, None)
            key, item = (None if each is None else each.raw for each in parts)
            items = [(_old_part(reader, key), _old_part(reader, item)) for _ in range(count)]
        else:
            at = source.position
            stored = source.varint("map size")
            comparator = reader.class_and_object() if self.has_new_comparator else None
            count = source.checked(stored - 1, at, "map size", 2)
            items = self._read_new(reader, count) if count else []
        is_sorted = self.has_comparator or self.has_new_comparator
        return Sorted(comparator, items) if is_sorted else items

    def _read_new(
        self, reader: KryoValueReader, count: int
    ) -> list[tuple[KryoObject | None, KryoObject | None]]:
        generics = reader.generics
        declared, keys, values = _map_classes(reader)

        def part(known: str | None) -> KryoObject | None:
            if known is None:
                return reader.class_and_object()
            return reader.object_or_null(known) if self.has_nulls else reader.object(known)

        items = []
        for _ in range(count):
            if declared is not None:
                generics.push(declared)
            key = part(keys)
            if declared is not None:
                generics.pop()
            items.append((key, part(values)))
        generics.pop()
        return items

    def write(self, writer: KryoValueWriter, value: Any) -> None:
        items = items_of(value)
        writer.output.varint(len(items) + 1)
        if self.has_new_comparator:
            writer.class_and_object(value.comparator)
        if not items:
            return
        generics = writer.generics
        declared, keys, values = _map_classes(writer)

        def part(known: str | None, content: KryoObject | None) -> None:
            if known is None:
                writer.class_and_object(content)
            elif self.has_nulls or content is None:
                writer.object_or_null(content, known)
            else:
                writer.object(content, known)

        for key, item in items:
            if declared is not None:
                generics.push(declared)
            part(keys, key)
            if declared is not None:
                generics.pop()
            part(values, item)
        generics.pop()


def _old_part(reader: KryoValueReader, declared: JavaType | None) -> KryoObject | None:
    return reader.class_and_object() if declared is None else reader.typed(declared)


def _map_classes(
    state: KryoValueReader | KryoValueWriter,
) -> tuple[GenericType | None, str | None, str | None]:
    """The type of the keys of a map in Kryo 5, and the classes of its keys and values, if they are
    known and final.
    """
    declared = state.generics.next_arguments()
    if declared is None:
        return None, None, None
    if len(declared) < 2:
        raise UnreadableValueError(
            "A map whose class has one type parameter is stored in a form that Kryo 5 cannot read"
        )
    return declared[0], state.final_class(declared[0]), state.final_class(declared[1])


# ------------------------------------------------------------------------ objects with fields


@dataclass(frozen=True)
class FieldSlot:
    """A field. ``key`` is its name, with its class in front if a subclass has one of this name.

    Args:
        type: Its type as declared.
        generic: What Kryo 5 makes of that.
    """

    key: str
    name: str
    type: JavaType
    generic: GenericType
    is_synthetic: bool = False

    @property
    def primitive(self) -> Scalar | None:
        """How its value is stored, if its type is primitive."""
        return PRIMITIVES.get(self.type.name)


def slot(name: str, declared: JavaType) -> FieldSlot:
    """A field of a class without type parameters, whose type arguments are plain classes."""
    arguments = tuple(GenericType(each.name) for each in declared.arguments if each is not None)
    return FieldSlot(name, name, declared, GenericType(declared.name, arguments or None))


@dataclass(frozen=True)
class FieldsBody(Body):
    """The fields of a class and its superclasses, sorted by name.

    Args:
        class_name: For messages.
        slots: In the order in which they are stored.
        parameters: Type parameters of the class and its superclasses.
        is_record: Whether Kryo 5 forgets type arguments.
    """

    class_name: str
    slots: tuple[FieldSlot, ...]
    parameters: Hierarchy = NO_PARAMETERS
    is_record: bool = False
    _types: dict[Arguments, list[tuple[FieldSlot, JavaType]]] = field(
        default_factory=dict, compare=False, repr=False
    )

    @property
    def new_slots(self) -> tuple[FieldSlot, ...]:
        """The fields that Kryo 5 stores."""
        return tuple(each for each in self.slots if not each.is_synthetic)

    def read(self, reader: KryoValueReader, arguments: Arguments) -> dict[str, Any]:
        if not reader.is_old:
            return self._read_new(reader)
        fields: dict[str, Any] = {}
        for old_slot, declared in self.old_types(arguments):
            if old_slot.is_synthetic:
                reader.met_synthetic = True
                if not reader.synthetic:
                    continue
            primitive = old_slot.primitive
            fields[old_slot.key] = (
                reader.typed(declared) if primitive is None else primitive.get(reader.input)
            )
        return fields

    def _read_new(self, reader: KryoValueReader) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        bound = 0 if self.is_record else reader.generics.bind(self.parameters)
        for own_slot in self.new_slots:
            if own_slot.primitive is not None:
                fields[own_slot.key] = own_slot.primitive.get(reader.input)
            elif self.is_record:
                fields[own_slot.key] = reader.typed(own_slot.type.raw)
            else:
                fields[own_slot.key] = reader.field(own_slot.generic, own_slot.type.name)
        if not self.is_record:
            reader.generics.unbind(bound)
        return fields

    def write(self, writer: KryoValueWriter, value: Any) -> None:
        bound = 0 if self.is_record else writer.generics.bind(self.parameters)
        for own_slot in self.new_slots:
            part = value[own_slot.key]
            if own_slot.primitive is not None:
                own_slot.primitive.put(writer.output, part)
            elif not self.is_record:
                writer.field(own_slot.generic, own_slot.type.name, part)
            elif writer.is_final(own_slot.type.name):
                writer.object_or_null(part, own_slot.type.name)
            else:
                writer.class_and_object(part)
        if not self.is_record:
            writer.generics.unbind(bound)

    def old_types(self, arguments: Arguments) -> list[tuple[FieldSlot, JavaType]]:
        """The fields with their types in Kryo 2.24, where type arguments are known."""
        known = self._types.get(arguments)
        if known is None:
            names = [group[0][1] for group in self.parameters.groups[: self.parameters.of_class]]
            fits = len(arguments) == len(names)
            variables = dict(zip(names, arguments, strict=True)) if fits else {}
            known = [(each, _old_type(each.type, variables)) for each in self.slots]
            self._types[arguments] = known
        return known


Variables = dict[str, JavaType | None]


def _old_type(declared: JavaType, variables: Variables) -> JavaType:
    """The type of a field in Kryo 2.24, which knows one level of arguments and no wildcards."""
    is_array = declared.name.startswith("[")
    if declared.variable is not None:
        known = None if is_array else variables.get(declared.variable)
        return declared if is_array else (known or declared).raw
    arguments = tuple(_old_argument(each, variables) for each in declared.arguments)
    return JavaType(declared.name, arguments)


def _old_argument(declared: JavaType | None, variables: Variables) -> JavaType | None:
    """A type argument in Kryo 2.24, which knows no array whose elements have type arguments.

    Source: ``FieldSerializerGenericsUtil.computeFieldGenerics``.
    """
    if declared is None or declared.is_bound:
        return None
    dimensions = len(declared.name) - len(declared.name.lstrip("["))
    if declared.variable is None:
        return None if dimensions and declared.arguments else declared.raw
    known = variables.get(declared.variable)
    if known is None or dimensions > 1:
        return None
    return JavaType(array_name(known.name)) if dimensions else known.raw
