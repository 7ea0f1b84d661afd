"""Tables for the kernels: which classes there are, and how Kryo stores each.

Tables grow with the classes that the values name. A class that the
tables cannot describe is unsupported: its values are converted one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from dstl_core.codec.classfile.class_file import OBJECT
from dstl_core.codec.classfile.generic_types import JavaType, component_name
from dstl_core.codec.columnar.kernels.kryo import codes as k
from dstl_core.codec.columnar.types.addresses import address_of
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.codec.kryo.class_layouts import ClassLayouts
from dstl_core.codec.kryo.generics import Generics, GenericType, Variable
from dstl_core.codec.kryo.jdk_bodies import (
    SCALARS,
    AsListBody,
    EnumSetBody,
    FixedSizeBody,
    OptionalBody,
)
from dstl_core.codec.kryo.kryo_objects import (
    READABLE_IN_KRYO_5,
    UNREADABLE_IN_KRYO_5,
    Dialect,
)
from dstl_core.codec.kryo.kryo_reader import Arguments, Body, final_class_of_field
from dstl_core.codec.kryo.object_bodies import (
    PRIMITIVES,
    CollectionBody,
    EnumBody,
    FieldsBody,
    FieldSlot,
    MapBody,
    ObjectArrayBody,
    PrimitiveArrayBody,
)
from dstl_core.errors import FormatError

_PRIMITIVE_KINDS = {
    "boolean": k.BOOLEAN,
    "byte": k.BYTE,
    "char": k.CHAR,
    "short": k.SHORT,
    "int": k.INT,
    "long": k.LONG,
    "float": k.FLOAT,
    "double": k.DOUBLE,
}
_KIND_OF_BODY = {id(PRIMITIVES[name]): kind for name, kind in _PRIMITIVE_KINDS.items()}
_KIND_OF_BODY[id(SCALARS["java.lang.String"])] = k.TEXT
SCALAR_KINDS = {
    name: _KIND_OF_BODY[id(body)] for name, body in SCALARS.items() if id(body) in _KIND_OF_BODY
} | {
    "java.math.BigInteger": k.BIG_INTEGER,
    "java.math.BigDecimal": k.BIG_DECIMAL,
    "java.util.Date": k.MILLIS,
    "java.sql.Date": k.MILLIS,
    "java.sql.Time": k.MILLIS,
    "java.util.UUID": k.UUID,
    "java.time.LocalDate": k.DATE,
    "java.time.LocalTime": k.TIME,
    "java.time.Instant": k.INSTANT,
    "java.time.Duration": k.DURATION,
    "java.time.Period": k.PERIOD,
    "java.time.Year": k.YEAR,
    "java.time.YearMonth": k.YEAR_MONTH,
    "java.time.MonthDay": k.MONTH_DAY,
    "java.time.ZoneOffset": k.OFFSET,
    "java.sql.Timestamp": k.TIMESTAMP,
    "java.util.concurrent.atomic.AtomicInteger": k.INT,
    "java.util.concurrent.atomic.AtomicLong": k.LONG,
    "java.util.concurrent.atomic.AtomicBoolean": k.ATOMIC_FLAG,
    "java.util.OptionalInt": k.MAYBE_INT,
    "java.util.OptionalLong": k.MAYBE_LONG,
    "java.util.OptionalDouble": k.MAYBE_DOUBLE,
}
"""The scalars that the kernels know, by class."""
_TIME = "java.time."
_COMPOSED: dict[str, tuple[int, tuple[str, ...]]] = {
    _TIME + "LocalDateTime": (k.DATE_TIME, ("LocalDate", "LocalTime")),
    _TIME + "OffsetTime": (k.OFFSET_TIME, ("ZoneOffset", "LocalTime")),
    _TIME + "OffsetDateTime": (k.ZONED, ("LocalDateTime", "ZoneOffset")),
    _TIME + "ZonedDateTime": (k.ZONED, ("LocalDateTime", "ZoneOffset", "ZoneId")),
}
"""Classes made of objects of others, which Kryo 2.24 stores. A zone stands behind its class."""
_BIT_SET = "java.util.BitSet"
_REGION = "java.time.ZoneRegion"

Slot = tuple[int, int, int]
TypeArguments = tuple[JavaType | GenericType | None, ...]
_NO_BODY = np.array([k.NONE, 0, 0, 0], np.int64)


class NotInTablesError(Exception):
    """The class does not fit the tables, or the kernels have no form for it."""


def primitive_kind(type_name: str) -> int | None:
    return _PRIMITIVE_KINDS.get(type_name)


@dataclass
class ClassTable:
    """Numbers of classes, and of lists of type arguments."""

    words: Int64s = field(default_factory=lambda: np.zeros((k.MAX_CLASSES, 3), np.int64))
    names: list[str] = field(default_factory=list)
    arguments: list[TypeArguments] = field(default_factory=lambda: [()])
    _numbers: dict[str, int] = field(default_factory=dict)
    _argument_numbers: dict[TypeArguments, int] = field(default_factory=lambda: {(): 0})
    _kept: list[npt.NDArray[np.uint8]] = field(default_factory=list)

    def number(self, name: str) -> int:
        """The number of a class.

        Raises:
            NotInTablesError: There is no place, or the name is not of two or more ASCII characters.
        """
        known = self._numbers.get(name)
        if known is not None:
            return known
        written = READABLE_IN_KRYO_5.get(name)
        place = None if written is None else self.number(written)
        number = len(self.names)
        if number == k.MAX_CLASSES or len(name) < 2 or not name.isascii():
            raise NotInTablesError
        raw = np.frombuffer(bytearray(name, "ascii"), np.uint8)
        raw[-1] |= k.MORE
        self._kept.append(raw)
        self.names.append(name)
        self._numbers[name] = number
        self.words[number] = address_of(raw), len(raw), number if place is None else place
        return number

    def arguments_number(self, arguments: TypeArguments) -> int:
        known = self._argument_numbers.get(arguments)
        if known is None:
            known = len(self.arguments)
            if known == k.MAX_ARGUMENTS:
                raise NotInTablesError
            self.arguments.append(arguments)
            self._argument_numbers[arguments] = known
        return known


class BodyTable:
    """How one version of Kryo stores the classes of a table, as far as the kernels asked.

    Args:
        classes: The classes.
        layouts: How they are stored.
        dialect: The version.
    """

    def __init__(self, classes: ClassTable, layouts: ClassLayouts, dialect: Dialect) -> None:
        self._classes = classes
        self._layouts = layouts
        self._is_old = dialect is Dialect.KRYO_2
        # The arguments of a body are of the kind that the same class made.
        self._slots: Any = (_OldSlots if self._is_old else _NewSlots)(classes, layouts)
        self._bodies: list[Int64s] = []
        self._free: list[tuple[set[Variable], Int64s]] = []
        self._bound: set[Variable] = set()
        self._words = np.zeros(k.MAX_CLASSES * k.MAX_ARGUMENTS, np.int64)
        self.address = address_of(self._words)

    def add(self, number: int) -> None:
        """Answers a kernel: ``number`` is that of a class and that of its type arguments."""
        cls, arguments = divmod(number, k.MAX_ARGUMENTS)
        self._slots.begin()
        body = self._body(self._classes.names[cls], self._classes.arguments[arguments])
        body = self._checked(body, self._slots.free, self._slots.bound)
        self._bodies.append(body)
        self._words[number] = address_of(body)

    def _checked(self, body: Int64s, free: set[Variable], bound: set[Variable]) -> Int64s:
        """The body, if what it takes for a type parameter without an argument is one in all values.

        It is not where an object around gives the parameter an argument. Kryo 5 then takes that. So
        such bodies are unsupported once there is a body that gives one.
        """
        self._bound |= bound
        for of_other, other in self._free:
            if of_other & bound:
                other[0] = k.NONE
        if free & self._bound:
            return _NO_BODY
        if free:
            self._free.append((free, body))
        return body

    def _body(self, name: str, arguments: TypeArguments) -> Int64s:
        if not self._is_old and name in UNREADABLE_IN_KRYO_5:
            return _NO_BODY
        try:
            return self._known(name, self._layouts.body(name), arguments)
        except (FormatError, NotInTablesError):
            return _NO_BODY

    def _known(self, name: str, body: Body, arguments: TypeArguments) -> Int64s:
        if body is SCALARS.get(name):
            if name in SCALAR_KINDS:
                flags = k.PLAIN if body.is_plain else 0
                return _words(k.SCALAR, flags, SCALAR_KINDS[name])
            return self._special(name)
        match body:
            case EnumBody():
                return _words(k.CONSTANT, k.ENUM, count=len(body.constants))
            case ObjectArrayBody():
                slot = self._slots.component(body, arguments)
                if body.has_arrays:
                    slot = k.FINAL, self._classes.number(body.component), slot[2]
                return _words(k.ITEMS, 0, k.PLUS_ONE, 1, [slot])
            case EnumSetBody():
                return _words(k.ENUM_SET)
            case PrimitiveArrayBody():
                kind = _PRIMITIVE_KINDS[component_name(body.class_name)]
                return _words(k.PRIMITIVES, 0, k.PLUS_ONE, 1, [(k.PRIMITIVE, kind, 0)])
            case FixedSizeBody():
                kind = k.PAIRS if body.is_map else k.ITEMS
                return _words(kind, 0, k.FIXED_COUNT, body.elements, [_ANY, _ANY])
            case CollectionBody():
                return self._collection(body, arguments)
            case AsListBody():
                if self._is_old:
                    return _words(k.ITEMS, 0, k.ELEMENT_CLASS, 1, [_ANY])
                return self._collection(CollectionBody(), arguments)
            case MapBody():
                return self._map(body, arguments)
            case OptionalBody():
                return _words(k.OPTIONAL, 0, k.FIXED_COUNT, 1, [self._slots.held(arguments)])
            case FieldsBody() if not any(each.is_synthetic for each in body.slots):
                slots = self._slots.fields(body, arguments)
                return _words(k.FIELDS, 0, k.FIXED_COUNT, len(slots), slots)
        return _NO_BODY

    def _special(self, name: str) -> Int64s:
        """Classes of the JDK that are neither scalars nor collections."""
        if name in _COMPOSED:
            kind, parts = _COMPOSED[name]
            slots = [self._slots.of_class(_TIME + each) for each in parts]
            return _words(kind, 0, k.FIXED_COUNT, len(slots), slots)
        if name == _BIT_SET:
            return _words(k.PRIMITIVES, slots=[(k.PRIMITIVE, k.DOUBLE, 0)])
        if name == _REGION:
            text = self._slots.of_class("java.lang.String")
            return _words(k.REGION, 0, k.FIXED_COUNT, 1, [text])
        return _NO_BODY

    def _collection(self, body: CollectionBody, arguments: TypeArguments) -> Int64s:
        compared = k.COMPARED if body.has_comparator else 0
        slot = self._slots.element(body, arguments)
        return _words(k.ITEMS, 0, compared, int(body.has_nulls), [slot])

    def _map(self, body: MapBody, arguments: TypeArguments) -> Int64s:
        slots = self._slots.pair(body, arguments)
        has_comparator = body.has_comparator if self._is_old else body.has_new_comparator
        return _words(k.PAIRS, 0, k.COMPARED if has_comparator else 0, 1, slots)


_ANY: Slot = (k.DYNAMIC, 0, 0)


class _Slots:
    """How the parts of objects stand. ``arguments`` are those of the class of the object."""

    def __init__(self, classes: ClassTable, layouts: ClassLayouts) -> None:
        self._classes = classes
        self._layouts = layouts
        self.begin()

    def begin(self) -> None:
        """Begins a body: which type parameters it leaves without an argument, and which get one."""
        self.free: set[Variable] = set()
        self.bound: set[Variable] = set()

    def of_class(self, name: str, arguments: TypeArguments = ()) -> Slot:
        """A part of a declared class."""
        number = self._classes.arguments_number(arguments)
        if self._layouts.is_final(name):
            return k.FINAL, self._classes.number(name), number
        return k.DYNAMIC, 0, number


class _OldSlots(_Slots):
    """Those of Kryo 2.24; type arguments are types as declared."""

    def component(self, body: ObjectArrayBody, arguments: Arguments) -> Slot:
        return self.of_class(body.component, arguments)

    def element(self, body: CollectionBody, arguments: Arguments) -> Slot:
        [declared] = arguments if len(arguments) == 1 and body.is_typed else (None,)
        if declared is None or not self._layouts.is_final(declared.name):
            return _ANY
        return self.of_class(declared.name)

    def pair(self, body: MapBody, arguments: Arguments) -> list[Slot]:
        both = arguments if len(arguments) == 2 else (None, None)
        return [_ANY if each is None else self.of_class(each.name) for each in both]

    def held(self, arguments: Arguments) -> Slot:
        [declared] = arguments if len(arguments) == 1 else (None,)
        return _ANY if declared is None else self.of_class(declared.name)

    def fields(self, body: FieldsBody, arguments: Arguments) -> list[Slot]:
        return [
            _primitive(slot_type) or self.of_class(declared.name, declared.arguments)
            for slot_type, declared in body.old_types(arguments)
        ]


NewArguments = tuple[GenericType, ...]


class _NewSlots(_Slots):
    """Those of Kryo 5; type arguments have no type parameters in them."""

    def component(self, body: ObjectArrayBody, arguments: NewArguments) -> Slot:
        return self.of_class(body.component)  # Kryo 5 forgets the arguments here

    def element(self, body: CollectionBody, arguments: NewArguments) -> Slot:
        return self._part(arguments[0], arguments[-1]) if arguments else _ANY

    def pair(self, body: MapBody, arguments: NewArguments) -> list[Slot]:
        if not arguments:
            return [_ANY, _ANY]
        if len(arguments) < 2:
            raise NotInTablesError
        key, item = arguments[:2]
        slots = [self._part(key, key), self._part(item, arguments[-1])]
        return slots if body.has_nulls else [_never_null(each) for each in slots]

    def held(self, arguments: NewArguments) -> Slot:
        return _ANY

    def fields(self, body: FieldsBody, arguments: NewArguments) -> list[Slot]:
        generics = _AskedGenerics(self.free)
        generics.push(GenericType(body.class_name, arguments or None))
        generics.depth = 1
        generics.bind(body.parameters)
        self.bound |= generics.variables
        return [_primitive(each) or self._field(body, each, generics) for each in body.new_slots]

    def _field(self, body: FieldsBody, field_: FieldSlot, generics: Generics) -> Slot:
        name = field_.type.name
        if body.is_record:
            return self.of_class(name)
        declared = _closed(field_.generic, generics)
        known = final_class_of_field(self._layouts, generics, field_.generic, name)
        return self.of_class(known or OBJECT, declared.arguments or ())

    def _part(self, declared: GenericType, pushed: GenericType) -> Slot:
        """A part of a type, whose objects find the arguments of another."""
        if not isinstance(declared.type, str):
            self.free.add(declared.type)
            return k.DYNAMIC, 0, self._classes.arguments_number(pushed.arguments or ())
        return self.of_class(declared.type, pushed.arguments or ())


class _AskedGenerics(Generics):
    """Type arguments of one body; ``free`` gets the type parameters that have none."""

    def __init__(self, free: set[Variable]) -> None:
        super().__init__()
        self._asked = free

    def resolve(self, declared: GenericType) -> str | None:
        name = super().resolve(declared)
        if name is None and not isinstance(declared.type, str):
            self._asked.add(declared.type)
        return name


def _closed(declared: GenericType, generics: Generics) -> GenericType:
    """A type whose type parameters are replaced, as far as they have arguments."""
    name = generics.resolve(declared) or declared.type
    if declared.arguments is None:
        return GenericType(name)
    return GenericType(name, tuple(_closed(each, generics) for each in declared.arguments))


def _primitive(field_: FieldSlot) -> Slot | None:
    kind = primitive_kind(field_.type.name)
    return None if kind is None else (k.PRIMITIVE, kind, 0)


def _never_null(slot: Slot) -> Slot:
    """An object without a class stands without a flag."""
    mode, cls, arguments = slot
    return k.OBJECT if mode == k.FINAL else mode, cls, arguments


def _words(
    kind: int, flags: int = 0, comparator: int = 0, count: int = 0, slots: Sequence[Slot] = ()
) -> Int64s:
    return np.array([kind, flags, comparator, count, *(word for slot in slots for word in slot)])
