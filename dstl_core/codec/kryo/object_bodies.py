"""Bodies of numbers, enums, arrays, collections, maps, and objects with fields."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from dstl_core.codec.classfile.generic_types import JavaType, component_name
from dstl_core.codec.kryo.kryo_input import KryoInput, KryoOutput
from dstl_core.codec.kryo.kryo_objects import Dialect, KryoObject
from dstl_core.codec.kryo.kryo_reader import Arguments, KryoValueReader, KryoValueWriter
from dstl_core.errors import FormatError

MAX_NULLS = 1 << 16
"""Elements of a list of nothing but nulls, which takes no bytes for them."""


@dataclass(frozen=True)
class Scalar:
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
    is_enum: ClassVar[bool] = False

    def read(self, reader: KryoValueReader, arguments: Arguments) -> Any:
        get = self.get if reader.is_old or self.get_new is None else self.get_new
        return get(reader.input)

    def write(self, writer: KryoValueWriter, value: Any, arguments: Arguments) -> None:
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
class EnumBody:
    """The ordinal. ``constants`` are the names by ordinal, of the class or its subclass."""

    enum_class: str
    constants: tuple[str, ...]
    is_plain: ClassVar[bool] = False
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

    def write(self, writer: KryoValueWriter, value: int, arguments: Arguments) -> None:
        writer.output.varint(value + 1)


# ------------------------------------------------------------------------------------ arrays

_ARRAY_CODES = {"[S": "h", "[F": "f", "[D": "d"}


@dataclass(frozen=True)
class PrimitiveArrayBody:
    """A count plus 1, then the items; bytes are kept as bytes."""

    class_name: str
    is_plain: ClassVar[bool] = False
    is_enum: ClassVar[bool] = False

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

    def write(self, writer: KryoValueWriter, value: Any, arguments: Arguments) -> None:
        out = writer.output
        out.varint(len(value) + 1)
        if self.class_name == "[B":
            out.bytes(value)
            return
        item = PRIMITIVES[component_name(self.class_name)]
        for each in value:
            item.put(out, each)


@dataclass(frozen=True)
class ObjectArrayBody:
    """A count plus 1, then the elements; the class stands with each unless it is final."""

    class_name: str
    is_plain: ClassVar[bool] = False
    is_enum: ClassVar[bool] = False

    def read(self, reader: KryoValueReader, arguments: Arguments) -> list[KryoObject | None]:
        # Kryo 5 forgets type arguments here.
        element = JavaType(component_name(self.class_name), arguments if reader.is_old else ())
        count = reader.input.count("array length", 1)
        return [reader.typed(element) for _ in range(count)]

    def write(self, writer: KryoValueWriter, value: Any, arguments: Arguments) -> None:
        element = JavaType(component_name(self.class_name))
        writer.output.varint(len(value) + 1)
        for each in value:
            writer.typed(element, each)


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
class CollectionBody:
    """A count and the elements. Kryo 5 stores the class of the elements once if it is one.

    Args:
        has_comparator: Whether a comparator is stored.
        is_typed: Whether the declared type of the elements counts.
        has_nulls: Whether elements may be null in Kryo 5.
    """

    has_comparator: bool = False
    is_typed: bool = True
    has_nulls: bool = True
    is_plain: ClassVar[bool] = False
    is_enum: ClassVar[bool] = False

    def read(self, reader: KryoValueReader, arguments: Arguments) -> Any:
        element = arguments[0] if len(arguments) == 1 and self.is_typed else None
        if reader.is_old:
            comparator = reader.class_and_object() if self.has_comparator else None
            count = reader.input.count("collection size")
            if element is None or not reader.is_known_final(element):
                items = [reader.class_and_object() for _ in range(count)]
            else:
                items = [reader.object_or_null(element.name) for _ in range(count)]
        else:
            comparator, items = self._read_new(reader, element)
        return Sorted(comparator, items) if self.has_comparator else items

    def _read_new(
        self, reader: KryoValueReader, element: JavaType | None
    ) -> tuple[KryoObject | None, list[KryoObject | None]]:
        source = reader.input
        at = source.position
        is_known = element is not None and reader.is_known_final(element)
        if is_known and not self.has_nulls:
            stored, flag = source.varint("collection size"), False
        else:
            stored, flag = source.flagged_count("collection size")
        comparator = reader.class_and_object() if self.has_comparator else None
        count = stored - 1
        if count == 0:
            return comparator, []
        arguments = () if element is None else element.arguments
        if element is not None and is_known:
            source.checked(count, at, "collection size")
            read = reader.object_or_null if flag else reader.object
            return comparator, [read(element.name, arguments) for _ in range(count)]
        if not flag:
            source.checked(count, at, "collection size")
            return comparator, [reader.class_and_object(arguments) for _ in range(count)]
        name = reader.class_name()
        if name is None:
            if not 0 < count <= MAX_NULLS:
                raise FormatError(
                    "A list of nulls is too long", offset=at, expected=f"<= {MAX_NULLS}", got=count
                )
            return comparator, [None] * count
        with_nulls = self.has_nulls and source.boolean()
        read = reader.object_or_null if with_nulls else reader.object
        source.checked(count, at, "collection size")
        return comparator, [read(name, arguments) for _ in range(count)]

    def write(self, writer: KryoValueWriter, value: Any, arguments: Arguments) -> None:
        element = arguments[0] if len(arguments) == 1 and self.is_typed else None
        items = items_of(value)
        out = writer.output
        present = [each for each in items if each is not None]
        has_null = len(present) < len(items)
        is_known = writer.is_known_final(element)
        inner = () if element is None else element.arguments
        names = {each.class_name for each in present}
        flag = bool(items) and (has_null if is_known else len(names) <= 1)
        if is_known and not self.has_nulls:
            out.varint(len(items) + 1)
        else:
            out.flagged_count(len(items) + 1, flag)
        if self.has_comparator:
            writer.class_and_object(value.comparator)
        if not items:
            return
        if not is_known:
            if not flag:
                for each in items:
                    writer.class_and_object(each, inner)
                return
            if not names:
                out.u8(0)
                return
            writer.class_name(names.pop())
            if self.has_nulls:
                out.boolean(has_null)
        for each in items:
            if has_null:
                writer.object_or_null(each, inner)
            else:
                writer.object(each, inner)


@dataclass(frozen=True)
class MapBody:
    """A count and the pairs.

    Args:
        has_comparator: Whether Kryo 2.24 stores a comparator.
        has_new_comparator: Whether Kryo 5 does.
        has_nulls: Whether keys and values may be null in Kryo 5.
    """

    has_comparator: bool = False
    has_new_comparator: bool = False
    has_nulls: bool = True
    is_plain: ClassVar[bool] = False
    is_enum: ClassVar[bool] = False

    def read(self, reader: KryoValueReader, arguments: Arguments) -> Any:
        source = reader.input
        if reader.is_old:
            comparator = reader.class_and_object() if self.has_comparator else None
            count = source.count("map size", item_bytes=2)
        else:
            at = source.position
            stored = source.varint("map size")
            comparator = reader.class_and_object() if self.has_new_comparator else None
            count = source.checked(stored - 1, at, "map size", 2)
        key, item = arguments if len(arguments) == 2 else (None, None)
        items = [(self._part(reader, key), self._part(reader, item)) for _ in range(count)]
        is_sorted = self.has_comparator or self.has_new_comparator
        return Sorted(comparator, items) if is_sorted else items

    def _part(self, reader: KryoValueReader, declared: JavaType | None) -> KryoObject | None:
        if declared is None:
            return reader.class_and_object()
        if reader.is_old:
            return reader.typed(declared.raw)
        if not self.has_nulls and reader.is_known_final(declared):
            return reader.object(declared.name, declared.arguments)
        return reader.typed(declared)

    def write(self, writer: KryoValueWriter, value: Any, arguments: Arguments) -> None:
        items = items_of(value)
        writer.output.varint(len(items) + 1)
        if self.has_new_comparator:
            writer.class_and_object(value.comparator)
        key, item = arguments if len(arguments) == 2 else (None, None)
        for pair in items:
            for declared, each in zip((key, item), pair, strict=True):
                if declared is None:
                    writer.class_and_object(each)
                elif not self.has_nulls and writer.is_known_final(declared):
                    writer.object(each, declared.arguments)
                else:
                    writer.typed(declared, each)


# ------------------------------------------------------------------------ objects with fields


@dataclass(frozen=True)
class Slot:
    """A field. ``key`` is its name, with its class in front if a subclass has one of this name."""

    key: str
    name: str
    declaring: str
    type: JavaType
    is_synthetic: bool = False


Variables = dict[str, JavaType | None]


@dataclass(frozen=True)
class FieldsBody:
    """The fields of a class and its superclasses, sorted by name.

    Args:
        class_name: For messages.
        slots: In the order in which they are stored.
        parameters: Type parameters of the class.
        inherited: Types of the type parameters of superclasses, by the superclass and the name of
            the parameter. Kryo 5 follows these, Kryo 2.24 goes by the name alone.
        is_record: Whether type arguments are forgotten.
    """

    class_name: str
    slots: tuple[Slot, ...]
    parameters: tuple[str, ...] = ()
    inherited: dict[tuple[str, str], JavaType | None] = field(default_factory=dict)
    is_record: bool = False
    is_plain: ClassVar[bool] = False
    is_enum: ClassVar[bool] = False
    _types: dict[tuple[Dialect, Arguments], list[tuple[Slot, JavaType, Scalar | None]]] = field(
        default_factory=dict, compare=False, repr=False
    )

    def read(self, reader: KryoValueReader, arguments: Arguments) -> dict[str, Any]:
        found: dict[str, Any] = {}
        source = reader.input
        for slot, declared, primitive in self.types(reader.dialect, arguments):
            if slot.is_synthetic:
                reader.met_synthetic = True
                if not reader.synthetic:
                    continue
            if primitive is not None:
                found[slot.key] = primitive.get(source)
            else:
                found[slot.key] = reader.typed(declared)
        return found

    def write(self, writer: KryoValueWriter, value: Any, arguments: Arguments) -> None:
        for slot, declared, primitive in self.types(Dialect.KRYO_5, arguments):
            each = value[slot.key]
            if primitive is not None:
                primitive.put(writer.output, each)
            else:
                writer.typed(declared, each)

    def types(
        self, dialect: Dialect, arguments: Arguments
    ) -> list[tuple[Slot, JavaType, Scalar | None]]:
        """The fields with their types, where these are known from the type arguments."""
        known = self._types.get((dialect, arguments))
        if known is None:
            fits = len(arguments) == len(self.parameters)
            variables: Variables = (
                dict(zip(self.parameters, arguments, strict=True)) if fits else {}
            )
            if dialect is Dialect.KRYO_2:
                known = [self._typed(each, _old_type(each.type, variables)) for each in self.slots]
            else:
                slots = [each for each in self.slots if not each.is_synthetic]
                known = [self._typed(each, self._new_type(each, variables)) for each in slots]
            self._types[dialect, arguments] = known
        return known

    @staticmethod
    def _typed(slot: Slot, declared: JavaType) -> tuple[Slot, JavaType, Scalar | None]:
        return slot, declared, PRIMITIVES.get(slot.type.name)

    def _new_type(self, slot: Slot, variables: Variables) -> JavaType:
        if self.is_record:
            return slot.type.raw

        def lookup(name: str) -> JavaType | None:
            if slot.declaring == self.class_name:
                return variables.get(name)
            given = self.inherited.get((slot.declaring, name))
            if given is None or given.variable is None:
                return given
            return variables.get(given.variable)

        return _resolved(slot.type, lookup) or slot.type.raw


Lookup = Callable[[str], JavaType | None]


def _resolved(declared: JavaType | None, lookup: Lookup) -> JavaType | None:
    """A type with its variables replaced; what stands for a variable loses its arguments."""
    if declared is None or declared.name.startswith("["):
        return declared
    if declared.variable is not None:
        given = lookup(declared.variable)
        return None if given is None else given.raw
    return JavaType(declared.name, tuple(_resolved(each, lookup) for each in declared.arguments))


def _old_type(declared: JavaType, variables: Variables) -> JavaType:
    """The type of a field in Kryo 2.24, which knows one level of arguments and no wildcards."""
    if declared.variable is not None:
        return _resolved(declared, variables.get) or declared.raw
    found = (
        None if each is None or each.is_bound else _resolved(each, variables.get)
        for each in declared.arguments
    )
    return JavaType(declared.name, tuple(None if each is None else each.raw for each in found))
