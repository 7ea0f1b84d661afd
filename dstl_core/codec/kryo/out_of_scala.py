"""Values of Flink's API for Scala as values of types that Flink 2.x has.

    case class, tuple   tuple or row by position; POJO or record by the names of fields
    Option              the value or null
    Either              Either
    Try                 the value of a success; or Either, with the text of a failure as left value
    list, set, map      List, Set, Map, array
    Enumeration         an enum or a text by the name of the constant, a number by its id
    Unit                Void

A job that stays in Scala has the same types under the names of flink-scala-api: case classes by
position, where fields may be added at the end, and ``BigDecimal`` and ``BigInt``, too.

Both types are compared part by part. What has no counterpart is refused before anything is written;
a value without a form, such as ``None`` where no null can be, when it is met.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from dstl_core.codec.big_decimal import BigDecimal
from dstl_core.codec.classfile.job_jar import JobClasses
from dstl_core.codec.kryo.flink_types import plain_class
from dstl_core.codec.kryo.kryo_objects import KryoObject
from dstl_core.codec.kryo.kryo_serializer import KryoValue, ReadableKryoSerializer
from dstl_core.codec.kryo.type_changes import (
    COLLECTIONS,
    Convert,
    each_of,
    from_kryo_value,
    or_none,
    same,
)
from dstl_core.codec.serializers.arrays import GenericArraySerializer, StringArraySerializer
from dstl_core.codec.serializers.base import AnySerializer, OpaqueValue
from dstl_core.codec.serializers.collections import (
    ListSerializer,
    MapSerializer,
    SetSerializer,
    TupleSerializer,
)
from dstl_core.codec.serializers.libraries.flink_scala_api import (
    CaseClassSerializer,
    CollectionSerializer,
    CoproductSerializer,
    FlinkScalaEitherSerializer,
    MappedSerializer,
    OptionSerializer,
    ScalaMapSerializer,
    UnitSerializer,
)
from dstl_core.codec.serializers.names import Types
from dstl_core.codec.serializers.opaque import KryoSerializer
from dstl_core.codec.serializers.pojo import Pojo, PojoSerializer, primitive_default
from dstl_core.codec.serializers.primitives import VoidSerializer
from dstl_core.codec.serializers.runtime import TtlSerializer
from dstl_core.codec.serializers.scala import (
    PACKAGE,
    Option,
    ScalaCaseClassSerializer,
    ScalaCollectionSerializer,
    ScalaEitherSerializer,
    ScalaEnumSerializer,
    ScalaOptionSerializer,
    ScalaTrySerializer,
    ScalaUnitSerializer,
)
from dstl_core.codec.serializers.structs import (
    Either,
    EitherSerializer,
    EnumSerializer,
    NullableSerializer,
    Row,
    RowSerializer,
)
from dstl_core.errors import UnreadableValueError

_TAKE_NULL = (
    Types.STRING,
    Types.BIG_DEC,
    Types.BIG_INT,
    Types.DATE,
    Types.SQL_DATE,
    Types.SQL_TIME,
    Types.SQL_TIMESTAMP,
    Types.INSTANT,
)
"""Types whose bytes have a form of null."""
_NULLABLE = (NullableSerializer, PojoSerializer, CaseClassSerializer, CoproductSerializer)
_NUMBER_MAPPERS = ("BigDecMapper", "BigIntMapper")
"""Mappers of flink-scala-api that store a number of Scala as one of Java."""
_KRYO_COLLECTIONS = {
    "java.util.List": "java.util.ArrayList",
    "java.util.ArrayList": "java.util.ArrayList",
    "java.util.Collection": "java.util.ArrayList",
    "java.util.Set": "java.util.HashSet",
    "java.util.HashSet": "java.util.HashSet",
    "java.util.Map": "java.util.HashMap",
    "java.util.HashMap": "java.util.HashMap",
}
"""Declared classes of collections to the class of the values."""
_TEXTS: dict[tuple[str, AnySerializer], Convert] = {
    ("scala.math.BigDecimal", Types.BIG_DEC): lambda text: _big_decimal(text),
    ("scala.math.BigInt", Types.BIG_INT): int,
    ("scala.Symbol", Types.STRING): lambda text: text.removeprefix("'"),
}
"""What becomes of classes of Scala that Kryo stores, of whose values there is a text."""


def holds_scala(serializer: AnySerializer) -> bool:
    """Whether a type has a part of Scala's API, which Flink 2.x cannot read."""
    return serializer.snapshot_class.startswith(PACKAGE) or any(map(holds_scala, serializer.nested))


class OutOfScala:
    """Finds how values of one type become values of another one.

    Args:
        classes: The classes of the new job, as far as they are known: those of POJOs say which of
            their fields take no null.
    """

    def __init__(self, classes: JobClasses) -> None:
        self._classes = classes

    def of(self, old: AnySerializer, new: AnySerializer, *, nullable: bool = False) -> Convert:
        """What makes a new value of an old one.

        Args:
            old: The type in the savepoint.
            new: The type in the new job.
            nullable: Whether None has a form where the value stands, whatever the new type.

        Raises:
            UnreadableValueError: A part has no counterpart.
        """
        if isinstance(old, ScalaOptionSerializer):
            return self._option(old, new, nullable)
        if isinstance(new, MappedSerializer) and new.mapper.endswith(_NUMBER_MAPPERS):
            return self.of(old, new.inner, nullable=nullable)
        if isinstance(new, NullableSerializer):
            was = old.inner if isinstance(old, NullableSerializer) else old
            return or_none(self.of(was, new.inner, nullable=True))
        if isinstance(old, KryoSerializer):
            return self._kryo(old, new)
        if isinstance(new, ReadableKryoSerializer):
            return _into_kryo(old, new)
        if old == new:
            return same
        match old, new:
            case TtlSerializer(), TtlSerializer():
                inner = self.of(old.value, new.value, nullable=nullable)
                return lambda stored: _with_time(stored, inner(stored.value))
            case ScalaCaseClassSerializer(), CaseClassSerializer():
                return self._case_class(old, new)
            case ScalaCaseClassSerializer() | TupleSerializer(), TupleSerializer():
                return self._positions(old, old.fields, new, new.fields, tuple, nullable=False)
            case ScalaCaseClassSerializer() | TupleSerializer(), RowSerializer():
                return self._positions(
                    old, old.fields, new, new.fields, lambda parts: Row(0, tuple(parts)), True
                )
            case ScalaCaseClassSerializer() | PojoSerializer(), PojoSerializer():
                return self._pojo(old, new)
            case ScalaTrySerializer(), EitherSerializer(left=left) if left == Types.STRING:
                success = self.of(old.left, new.right)
                return lambda value: (
                    Either(False, success(value.value))
                    if value.is_left
                    else Either(True, _failure(old, value.value))
                )
            case ScalaTrySerializer(), _:
                return self._success(old, new, nullable)
            case (
                ScalaEitherSerializer() | EitherSerializer(),
                EitherSerializer() | FlinkScalaEitherSerializer(),
            ):
                of_left, of_right = self.of(old.left, new.left), self.of(old.right, new.right)
                return lambda value: Either(
                    value.is_left, (of_left if value.is_left else of_right)(value.value)
                )
            case ScalaEnumSerializer(), _:
                return constants_of(old, new)
            case ScalaUnitSerializer(), VoidSerializer() | UnitSerializer():
                return same
        return self._collection(old, new)

    def _option(self, old: ScalaOptionSerializer, new: AnySerializer, nullable: bool) -> Convert:
        if isinstance(new, OptionSerializer):
            of_item = self._items(old.inner, new.inner)
            return lambda value: Option(True, of_item(value.value)) if value.is_there else value
        if isinstance(old.inner, ScalaOptionSerializer):
            raise _refused(old, new, "a null says nothing of the Option inside")
        inner = new.inner if isinstance(new, NullableSerializer) else new
        of_content = self.of(old.inner, inner)
        if not nullable and not takes_null(new):
            return lambda value: of_content(_content(value, new))
        return lambda value: of_content(value.value) if value.is_there else None

    def _positions(
        self,
        old: AnySerializer,
        parts: Sequence[AnySerializer],
        new: AnySerializer,
        new_parts: Sequence[AnySerializer],
        collect: Callable[[Any], Any],
        nullable: bool,
    ) -> Convert:
        if len(parts) != len(new_parts):
            raise _refused(old, new, f"they have {len(parts)} and {len(new_parts)} fields")
        pairs = zip(parts, new_parts, strict=True)
        converts = [self.of(part, wanted, nullable=nullable) for part, wanted in pairs]

        def convert(value: Sequence[Any]) -> Any:
            return collect([each(item) for each, item in zip(converts, value, strict=True)])

        return convert

    def _case_class(self, old: ScalaCaseClassSerializer, new: CaseClassSerializer) -> Convert:
        """A record of flink-scala-api says how many fields it has: new ones have their defaults."""
        count, new_count = len(old.fields), len(new.fields)
        if count > new_count or (old.is_tuple and count != new_count):
            raise _refused(old, new, f"they have {count} and {new_count} fields")
        converts = [
            self._items(part, wanted) for part, wanted in zip(old.fields, new.fields, strict=False)
        ]
        return lambda value: tuple(each(item) for each, item in zip(converts, value, strict=True))

    def _pojo(self, old: ScalaCaseClassSerializer | PojoSerializer, new: PojoSerializer) -> Convert:
        parts = fields_by_name(old, new)
        wanted = {entry.name: entry.serializer for entry in new.fields if entry.serializer}
        lost = [name for name in parts if name not in wanted]
        if lost:
            raise _refused(
                old, new, f"{new.pojo_class} has no field {lost[0]}; it has: {', '.join(wanted)}"
            )
        converts = [
            (name, self._field(part, wanted[name], f"{new.pojo_class}.{name}"))
            for name, part in parts.items()
        ]
        defaults = {
            name: primitive_default(field) for name, field in wanted.items() if name not in parts
        }

        def convert(value: Any) -> Pojo | None:
            if value is None:
                return None
            if isinstance(old, PojoSerializer) and value.class_name != old.pojo_class:
                raise UnreadableValueError(
                    f"A value of class {value.class_name} does not become {new.pojo_class}"
                )
            items = value.fields.values() if isinstance(value, Pojo) else value
            pairs = zip(converts, items, strict=True)
            return Pojo(
                new.pojo_class, defaults | {name: make(item) for (name, make), item in pairs}
            )

        return convert

    def _field(self, old: AnySerializer, new: AnySerializer, place: str) -> Convert:
        if is_primitive(self._classes, *place.rpartition(".")[::2]):
            return self.of(old, new)
        return or_none(self.of(old, new, nullable=True))

    def _success(self, old: ScalaTrySerializer, new: AnySerializer, nullable: bool) -> Convert:
        of_value = self.of(old.left, new, nullable=nullable)

        def convert(value: Either) -> Any:
            if not value.is_left:
                raise UnreadableValueError(
                    f"A failed Try ({_failure(old, value.value)}) has no form in {new.type_name}; "
                    f"take Either<String, ..> as its type"
                )
            return of_value(value.value)

        return convert

    def _collection(self, old: AnySerializer, new: AnySerializer) -> Convert:
        pair = pair_of(old)
        if pair is not None and isinstance(new, ScalaMapSerializer):
            key_of, item = self._items(pair[0], new.key), self._items(pair[1], new.value)
            return lambda pairs: [(key_of(key), item(value)) for key, value in pairs]
        if pair is not None and isinstance(new, MapSerializer):
            of_key = self._items(pair[0], new.key)
            of_item = or_none(self.of(pair[1], new.value, nullable=True))
            return lambda pairs: [(of_key(key), of_item(value)) for key, value in pairs]
        part, wanted = element_of(old), element_of(new)
        if part is None or wanted is None:
            raise _refused(old, new)
        if _is_set(new) and not _is_set(old):
            raise _refused(old, new, "a set holds nothing twice")
        if isinstance(new, ListSerializer | CollectionSerializer):
            return each_of(self._items(part, wanted))
        return each_of(or_none(self.of(part, wanted, nullable=True)))

    def _items(self, old: AnySerializer, new: AnySerializer) -> Convert:
        """Elements, of which Scala's collections and Java's arrays may lack some."""
        convert = self.of(old, new)
        if takes_null(new):
            return or_none(convert)

        def present(value: Any) -> Any:
            if value is None and not isinstance(new, VoidSerializer):
                raise _no_null("A null", new)
            return convert(value)

        return present

    def _kryo(self, old: KryoSerializer, new: AnySerializer) -> Convert:
        make = _TEXTS.get((old.java_class, new))
        if make is not None:
            return lambda value: make(_text(old, value))
        is_same = isinstance(new, ReadableKryoSerializer) and new.java_class == old.java_class
        if not isinstance(old, ReadableKryoSerializer) or old.java_class.startswith("scala."):
            raise _refused(old, new)
        if not is_same and old.java_class not in COLLECTIONS:
            raise _refused(old, new)
        return from_kryo_value(old, new)


def is_primitive(classes: JobClasses, pojo: str, name: str) -> bool:
    """Whether a field takes no null; it takes one if its class is not known."""
    declared = classes.get(pojo)
    chain = [] if declared is None else [declared, *classes.parents(declared)]
    return any(
        member.name == name and owner.type_of(member).is_primitive
        for owner in chain
        for member in owner.fields
    )


def fields_by_name(
    old: ScalaCaseClassSerializer | PojoSerializer, new: PojoSerializer
) -> dict[str, AnySerializer]:
    """The types of fields by name, in the order of a value."""
    if isinstance(old, PojoSerializer):
        every = {entry.name: entry.serializer for entry in old.fields}
        return {name: field for name, field in every.items() if field is not None}
    if not old.names and not old.is_tuple:
        raise UnreadableValueError(
            f"The names of the fields of case class {old.scala_class} are not known, so they "
            f"cannot be found in {new.pojo_class}; give the jar of the old job (jars, --jar)"
        )
    return dict(zip(old.field_names, old.fields, strict=True))


def pair_of(old: AnySerializer) -> tuple[AnySerializer, AnySerializer] | None:
    match old:
        case MapSerializer():
            return old.key, old.value
        case ScalaCollectionSerializer(element=ScalaCaseClassSerializer(fields=(key, value))):
            return (key, value) if old.is_map else None
    return None


def element_of(serializer: AnySerializer) -> AnySerializer | None:
    match serializer:
        case (
            ScalaCollectionSerializer()
            | CollectionSerializer()
            | ListSerializer()
            | SetSerializer()
        ):
            element: AnySerializer = serializer.element
            return element
        case GenericArraySerializer():
            return serializer.component
        case StringArraySerializer():
            return Types.STRING
    return None


def _is_set(old: AnySerializer) -> bool:
    if isinstance(old, ScalaCollectionSerializer):
        return old.is_set or old.is_map
    if isinstance(old, CollectionSerializer):
        return "SetSerializer" in old.serializer_class
    return isinstance(old, SetSerializer)


def _with_time(stored: Any, value: Any) -> Any:
    return None if value is None else stored._replace(value=value)


def takes_null(new: AnySerializer) -> bool:
    """Whether the bytes of a type have a form of null."""
    return isinstance(new, _NULLABLE) or new in _TAKE_NULL


def _content(value: Option, new: AnySerializer) -> Any:
    if not value.is_there:
        raise _no_null("A None", new)
    return value.value


def constants_of(old: ScalaEnumSerializer, new: AnySerializer) -> Convert:
    """What makes values of the names of constants."""
    if new == Types.INT:
        return dict(old.constants).__getitem__
    if new == Types.STRING:
        return same
    if not isinstance(new, EnumSerializer):
        raise _refused(old, new)
    names = [name for name, _ in old.constants]
    by_name = {name: name for name in new.constants}
    if not set(names) <= set(by_name):
        by_name = {name.upper(): name for name in new.constants}
        if len({name.upper() for name in names}) < len(names) or len(by_name) < len(new.constants):
            by_name = {}  # two constants would become one
    of_constant = {name: by_name.get(name, by_name.get(name.upper())) for name in names}
    lost = [name for name, constant in of_constant.items() if constant is None]
    if lost:
        raise _refused(old, new, f"it has no constant {lost[0]}, but: {', '.join(new.constants)}")
    return of_constant.__getitem__


def _into_kryo(old: AnySerializer, new: ReadableKryoSerializer) -> Convert:
    """Collections of collections, which Flink 2.x leaves to Kryo."""
    if new.java_class not in _KRYO_COLLECTIONS:
        raise _refused(old, new)
    make = _object_maker(old)
    if make is None or _KRYO_COLLECTIONS[new.java_class] != _kind_of_collection(old):
        raise _refused(old, new)
    of_value = make

    def convert(value: Any) -> OpaqueValue:
        content = of_value(value)
        value_of_kryo = None if content is None else KryoValue(content, b"")
        return OpaqueValue(new.java_class, new.write_new(value_of_kryo))

    return convert


def _kind_of_collection(old: AnySerializer) -> str:
    if pair_of(old) is not None:
        return "java.util.HashMap"
    return "java.util.HashSet" if _is_set(old) else "java.util.ArrayList"


def _object_maker(old: AnySerializer) -> Callable[[Any], KryoObject | None] | None:
    """Makes objects of the JDK of values; None for values that are no such objects."""
    plain = plain_class(old)
    if plain is not None:
        return lambda value: None if value is None else KryoObject(plain, value)
    if isinstance(old, ScalaOptionSerializer):
        content = _object_maker(old.inner)
        return content and (lambda value: content(value.value) if value.is_there else None)
    pair, element = pair_of(old), element_of(old)
    if pair is not None:
        key, item = map(_object_maker, pair)
        if key is None or item is None:
            return None
        of_key, of_item = key, item
        return lambda value: KryoObject(
            "java.util.HashMap", [(of_key(own), of_item(other)) for own, other in value]
        )
    of_element = None if element is None else _object_maker(element)
    if of_element is None:
        return None
    kind, of_part = _kind_of_collection(old), of_element
    return lambda value: KryoObject(kind, [of_part(each) for each in value])


def _text(old: KryoSerializer, value: Any) -> str:
    if not isinstance(value, KryoValue):
        raise UnreadableValueError(f"A value of class {old.java_class} cannot be read")
    return str(old.to_text(value))


def _big_decimal(text: str) -> BigDecimal:
    sign, digits, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int)  # Java has no infinite numbers of this class
    unscaled = int("".join(map(str, digits)))
    return BigDecimal(-unscaled if sign else unscaled, -exponent)


def _failure(old: ScalaTrySerializer, value: Any) -> str:
    """The text of an exception, as ``Throwable.toString`` gives it."""
    match old.right.to_text(value):
        case {"@class": name, "message": None}:
            return str(name)
        case {"@class": name, "message": message}:
            return f"{name}: {message}"
    raise UnreadableValueError("The exception of a failed Try cannot be read")


def _no_null(what: str, new: AnySerializer) -> UnreadableValueError:
    return UnreadableValueError(f"{what} has no form in {new.type_name}, which holds no null")


def _refused(old: AnySerializer, new: AnySerializer, why: str = "") -> UnreadableValueError:
    return UnreadableValueError(
        f"{old.type_name} does not become {new.type_name}{f': {why}' if why else ''}"
    )
