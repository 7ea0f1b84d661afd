"""Tables for the kernels: which classes there are, and how Kryo stores each.

Tables grow with the classes that the values name. What a table cannot say makes a value odd.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dstl_core.codec.classfile.generic_types import JavaType, component_name
from dstl_core.codec.columnar.kernels.kryo import codes as k
from dstl_core.codec.columnar.kernels.memory import address_of
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.codec.kryo.class_layouts import ClassLayouts
from dstl_core.codec.kryo.jdk_bodies import SCALARS, AsListBody, Fixed, OptionalBody
from dstl_core.codec.kryo.kryo_objects import (
    READABLE_IN_KRYO_5,
    UNREADABLE_IN_KRYO_5,
    Dialect,
)
from dstl_core.codec.kryo.kryo_reader import Arguments, Body
from dstl_core.codec.kryo.object_bodies import (
    PRIMITIVES,
    CollectionBody,
    EnumBody,
    FieldsBody,
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
}
"""The scalars that the kernels know, by class."""
_TIME = "java.time."
_COMPOSED: dict[str, tuple[int, tuple[str, ...]]] = {
    _TIME + "LocalDateTime": (k.DATE_TIME, ("LocalDate", "LocalTime")),
    _TIME + "OffsetDateTime": (k.ZONED, ("LocalDateTime", "ZoneOffset")),
    _TIME + "ZonedDateTime": (k.ZONED, ("LocalDateTime", "ZoneOffset", "ZoneId")),
}
"""Classes made of objects of others, which Kryo 2.24 stores. A zone stands behind its class."""
_BIT_SET = "java.util.BitSet"
_REGION = "java.time.ZoneRegion"

Slot = tuple[int, int, int]
_NO_BODY = np.array([k.NONE, 0, 0, 0], np.int64)


class NotInTablesError(Exception):
    """The tables have no place for it, or the kernels no form."""


def primitive_kind(type_name: str) -> int | None:
    """The kind of a primitive type."""
    return _PRIMITIVE_KINDS.get(type_name)


@dataclass
class ClassTable:
    """Numbers of classes, and of lists of type arguments."""

    words: Int64s = field(default_factory=lambda: np.zeros((k.MAX_CLASSES, 2), np.int64))
    names: list[str] = field(default_factory=list)
    arguments: list[Arguments] = field(default_factory=lambda: [()])
    _numbers: dict[str, int] = field(default_factory=dict)
    _argument_numbers: dict[Arguments, int] = field(default_factory=lambda: {(): 0})
    _kept: list[npt.NDArray[np.uint8]] = field(default_factory=list)

    def number(self, name: str) -> int:
        """The number of a class.

        Raises:
            NotInTablesError: There is no place, or the name is not of two or more ASCII characters.
        """
        known = self._numbers.get(name)
        if known is not None:
            return known
        number = len(self.names)
        if number == k.MAX_CLASSES or len(name) < 2 or not name.isascii():
            raise NotInTablesError
        raw = np.frombuffer(bytearray(name, "ascii"), np.uint8)
        raw[-1] |= k.MORE
        self._kept.append(raw)
        self.words[number] = address_of(raw), len(raw)
        self.names.append(name)
        self._numbers[name] = number
        return number

    def arguments_number(self, arguments: Arguments) -> int:
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
        self._dialect = dialect
        self._bodies: list[Int64s] = []
        self._words = np.zeros(k.MAX_CLASSES * k.MAX_ARGUMENTS, np.int64)
        self.address = address_of(self._words)

    def add(self, number: int) -> None:
        """Answers a kernel: ``number`` is that of a class and that of its type arguments."""
        cls, arguments = divmod(number, k.MAX_ARGUMENTS)
        body = self._body(self._classes.names[cls], self._classes.arguments[arguments])
        self._bodies.append(body)
        self._words[number] = address_of(body)

    @property
    def _is_old(self) -> bool:
        return self._dialect is Dialect.KRYO_2

    def _body(self, name: str, arguments: Arguments) -> Int64s:
        if not self._is_old and (name in READABLE_IN_KRYO_5 or name in UNREADABLE_IN_KRYO_5):
            return _NO_BODY  # it is written as another class, or not at all
        try:
            return self._known(name, self._layouts.body(name), arguments)
        except (FormatError, NotInTablesError):
            return _NO_BODY

    def _known(self, name: str, body: Body, arguments: Arguments) -> Int64s:
        if body is SCALARS.get(name):
            if name in SCALAR_KINDS:
                flags = k.PLAIN if body.is_plain else 0
                return _words(k.SCALAR, flags, SCALAR_KINDS[name])
            return self._special(name)
        match body:
            case EnumBody():
                return _words(k.CONSTANT, k.ENUM, count=len(body.constants))
            case ObjectArrayBody():
                inner = arguments if self._is_old else ()
                element = JavaType(component_name(body.class_name), inner)
                return _words(k.ITEMS, 0, k.PLUS_ONE, 1, [self._typed(element)])
            case PrimitiveArrayBody():
                kind = _PRIMITIVE_KINDS[component_name(body.class_name)]
                return _words(k.PRIMITIVES, 0, k.PLUS_ONE, 1, [(k.PRIMITIVE, kind, 0)])
            case Fixed():
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
                [held] = arguments if len(arguments) == 1 else (None,)
                known = self._is_old and held is not None
                return _words(
                    k.OPTIONAL, 0, k.FIXED_COUNT, 1, [self._part(held) if known else _ANY]
                )
            case FieldsBody():
                return self._fields(body, arguments)
        return _NO_BODY

    def _special(self, name: str) -> Int64s:
        """Classes of the JDK that are neither scalars nor collections."""
        if name in _COMPOSED:
            kind, parts = _COMPOSED[name]
            slots = [self._typed(JavaType(_TIME + each)) for each in parts]
            return _words(kind, 0, k.FIXED_COUNT, len(slots), slots)
        if name == _BIT_SET:
            return _words(k.PRIMITIVES, slots=[(k.PRIMITIVE, k.DOUBLE, 0)])
        if name == _REGION:
            text = self._typed(JavaType("java.lang.String"))
            return _words(k.REGION, 0, k.FIXED_COUNT, 1, [text])
        return _NO_BODY

    def _collection(self, body: CollectionBody, arguments: Arguments) -> Int64s:
        element = arguments[0] if len(arguments) == 1 and body.is_typed else None
        if self._is_old and (element is None or not self._layouts.is_final(element.name)):
            slot = _ANY
        else:
            slot = self._part(element)
        compared = k.COMPARED if body.has_comparator else 0
        return _words(k.ITEMS, 0, compared, int(body.has_nulls), [slot])

    def _map(self, body: MapBody, arguments: Arguments) -> Int64s:
        pair = arguments if len(arguments) == 2 else (None, None)
        slots: list[Slot] = [self._part(each) for each in pair]
        if not self._is_old and not body.has_nulls:
            slots = [_never_null(each) for each in slots]
        has_comparator = body.has_comparator if self._is_old else body.has_new_comparator
        return _words(k.PAIRS, 0, k.COMPARED if has_comparator else 0, 1, slots)

    def _part(self, declared: JavaType | None) -> Slot:
        """An element, key or value: Kryo 2.24 forgets the type arguments of its type."""
        if declared is None:
            return _ANY
        return self._typed(declared.raw if self._is_old else declared)

    def _fields(self, body: FieldsBody, arguments: Arguments) -> Int64s:
        if any(slot.is_synthetic for slot in body.slots):
            return _NO_BODY
        slots = []
        for slot, declared, _ in body.types(self._dialect, arguments):
            kind = primitive_kind(slot.type.name)
            slots.append(self._typed(declared) if kind is None else (k.PRIMITIVE, kind, 0))
        return _words(k.FIELDS, 0, k.FIXED_COUNT, len(slots), slots)

    def _typed(self, declared: JavaType) -> Slot:
        arguments = self._classes.arguments_number(declared.arguments)
        if self._layouts.is_final(declared.name):
            return k.FINAL, self._classes.number(declared.name), arguments
        return k.DYNAMIC, 0, arguments


_ANY: Slot = (k.DYNAMIC, 0, 0)


def _never_null(slot: Slot) -> Slot:
    """An object without a class stands without a flag."""
    mode, cls, arguments = slot
    return k.OBJECT if mode == k.FINAL else mode, cls, arguments


def _words(
    kind: int, flags: int = 0, comparator: int = 0, count: int = 0, slots: Sequence[Slot] = ()
) -> Int64s:
    return np.array([kind, flags, comparator, count, *(word for slot in slots for word in slot)])
