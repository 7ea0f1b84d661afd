"""What the types of a job of Flink 1.x become in Flink 2.x, and how their values change.

Kryo values of lists, maps and sets become the types that Flink 2.x has for these; all other Kryo
values keep their type, and become bytes of Kryo 5. Everything else stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dstl_core.codec.big_decimal import BigDecimal
from dstl_core.codec.classfile.generic_types import JavaType, class_name_of
from dstl_core.codec.classfile.job_jar import JobClasses
from dstl_core.codec.classfile.source_types import OF_FLINK
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.kryo.flink_types import FlinkTypes, JobPojoSerializer, plain_class
from dstl_core.codec.kryo.kryo_objects import KryoObject, expect_readable
from dstl_core.codec.kryo.kryo_serializer import KryoValue, ReadableKryoSerializer
from dstl_core.codec.kryo.message_body import StoredMessage
from dstl_core.codec.kryo.object_bodies import items_of
from dstl_core.codec.serializers.arrays import GenericArraySerializer
from dstl_core.codec.serializers.base import AnySerializer, OpaqueValue
from dstl_core.codec.serializers.collections import (
    ListSerializer,
    MapSerializer,
    SetSerializer,
    TupleSerializer,
)
from dstl_core.codec.serializers.dates import Instant, SqlTimestamp
from dstl_core.codec.serializers.names import Types
from dstl_core.codec.serializers.optional_map import OptionalSnapshot
from dstl_core.codec.serializers.pojo import Pojo, PojoSerializer
from dstl_core.codec.serializers.runtime import TtlSerializer
from dstl_core.codec.serializers.structs import (
    Either,
    EitherSerializer,
    EnumSerializer,
    NullableSerializer,
    RowSerializer,
)
from dstl_core.display import option_text
from dstl_core.errors import FormatError, UnreadableValueError

Convert = Callable[[Any], Any]
_EXAMPLES = {
    "java.util.List": "List<..>",
    "java.util.Map": "Map<.., ..>",
    "java.util.Set": "Set<..>",
    "java.util.Collection": "Collection<..>",
}
COLLECTIONS = tuple(_EXAMPLES)
_BYTES = "[B"


@dataclass(frozen=True)
class TypeChange:
    """The type after the upgrade; ``convert`` makes its values of the old ones. Without it the
    bytes stay as they are. ``drops_none`` says that a None which it makes is no value at all.
    ``classes`` are those of the new job, for a type of Scala's API.
    """

    new: AnySerializer
    convert: Convert | None = None
    drops_none: bool = False
    classes: JobClasses | None = None


class UndeclaredError(UnreadableValueError):
    """The type of a collection is not known, so what it becomes is not.

    Args:
        java_class: Of the collection.
        place: The field that holds it, as ``CLASS.FIELD``; None if it is no field of a POJO.
        state: What selects the state that holds it.
    """

    def __init__(self, java_class: str, place: str | None = None, state: str | None = None) -> None:
        named = f"{place or state or 'STATE'}={_EXAMPLES[java_class]}"
        super().__init__(
            f"The jars do not show what {java_class}{f' in {place}' if place else ''} holds; give "
            f"the jar that has the class of the field, or the descriptor of the state with its "
            f"TypeHint (--jar), or name the type: {option_text('--type', named)}"
        )
        self.java_class = java_class
        self.place = place


class TypeChanges:
    """Derives changes of types.

    Args:
        types: The types of the new job.
    """

    def __init__(self, types: FlinkTypes) -> None:
        self._types = types

    def of(self, old: AnySerializer, declared: JavaType | None) -> TypeChange:
        """What a type becomes.

        Args:
            old: The type in the savepoint.
            declared: The Java type that the job declares for it; None if it is not known.

        Raises:
            UndeclaredError: A collection whose declared type is not known.
            UnreadableValueError: A class is not in the jars, or a type with Kryo inside is of a
                kind that is not converted.
        """
        if isinstance(old, ReadableKryoSerializer):
            return self._kryo(old, declared)
        if isinstance(old, PojoSerializer):
            return self._pojo(old)
        if not _has_changes(old):
            return TypeChange(old)
        arguments = () if declared is None else declared.arguments
        match old:
            case TupleSerializer():
                return self._parts(old, old.fields, arguments, TupleSerializer, tuple)
            case RowSerializer():
                return self._row(old)
            case ListSerializer():
                [element] = self._each([old.element], arguments)
                convert = each_of(_or_none(element))
                return TypeChange(type(old)(element.new), convert)
            case SetSerializer():
                [element] = self._each([old.element], arguments)
                return TypeChange(SetSerializer(element.new), each_of(_or_none(element)))
            case MapSerializer():
                return self._map(old, arguments)
            case GenericArraySerializer():
                name = class_name_of_component(old.component_class)
                if declared is None and name in COLLECTIONS:
                    raise UndeclaredError(name)
                inner = self.of(old.component, JavaType(name, arguments))
                new = GenericArraySerializer(old.component_class, inner.new)
                return TypeChange(new, each_of(_or_none(inner)))
            case NullableSerializer():
                inner = self.of(old.inner, declared)
                convert = _or_none(inner)
                return TypeChange(NullableSerializer(inner.new, old.padding), convert)
            case EitherSerializer():
                return self._either(old, arguments)
            case TtlSerializer():
                inner = self.of(old.value, declared)
                return TypeChange(type(old)(inner.new), _ttl(inner))
        raise UnreadableValueError(
            f"Type {old.type_name} holds Kryo values and is not converted; leave the state out by "
            f"its name"
        )

    # --------------------------------------------------------------------------------- Kryo

    def _kryo(self, old: ReadableKryoSerializer, declared: JavaType | None) -> TypeChange:
        new: AnySerializer
        expect_readable(old.java_class)
        message = old.classes.layouts.message(old.java_class)
        if message is not None:
            if declared is None or declared.name != _BYTES:
                raise message.not_in_flink_2()
            return TypeChange(Types.BYTES, _message_bytes)
        named = None if declared is None else OF_FLINK.get(declared.name, declared.name)
        if old.java_class in COLLECTIONS or named in COLLECTIONS:
            if declared is None:
                raise UndeclaredError(old.java_class)
            if named != old.java_class:
                raise UnreadableValueError(
                    f"The declared type does not fit: the savepoint has {old.java_class}, got "
                    f"{declared.name}"
                )
            new = self._types.of(declared)
        else:
            if not old.java_class.startswith("java."):  # that may be an interface of the JDK
                old.classes.layouts.expect_fields(old.java_class)  # says what is missing
            new = self._types.kryo(old.java_class)
        if isinstance(new, ReadableKryoSerializer):
            new = replace(old, classes=replace(old.classes, dialect=new.classes.dialect))
        return TypeChange(new, from_kryo_value(old, new))

    # --------------------------------------------------------------------------- composites

    def _each(
        self, parts: Sequence[AnySerializer], arguments: Sequence[JavaType | None]
    ) -> list[TypeChange]:
        known = arguments if len(arguments) == len(parts) else [None] * len(parts)
        return [self.of(part, given) for part, given in zip(parts, known, strict=True)]

    def _parts(
        self,
        old: AnySerializer,
        parts: Sequence[AnySerializer],
        arguments: Sequence[JavaType | None],
        make: Callable[[tuple[AnySerializer, ...]], AnySerializer],
        collect: Callable[[Any], Any],
    ) -> TypeChange:
        changes = self._each(parts, arguments)
        converts = [_present(each) for each in changes]

        def convert(value: Any) -> Any:
            return collect(each(item) for each, item in zip(converts, value, strict=True))

        return TypeChange(make(tuple(each.new for each in changes)), convert)

    def _row(self, old: RowSerializer) -> TypeChange:
        changes = self._each(old.fields, ())
        converts = [_or_none(each) for each in changes]

        def convert(value: Any) -> Any:
            fields = (each(item) for each, item in zip(converts, value.fields, strict=True))
            return value._replace(fields=tuple(fields))

        return TypeChange(replace(old, fields=tuple(each.new for each in changes)), convert)

    def _map(self, old: MapSerializer, arguments: Sequence[JavaType | None]) -> TypeChange:
        key, item = self._each([old.key, old.value], arguments)
        of_key, of_item = _present(key), _or_none(item)
        return TypeChange(
            MapSerializer(key.new, item.new),
            lambda pairs: [(of_key(each), of_item(value)) for each, value in pairs],
        )

    def _either(self, old: EitherSerializer, arguments: Sequence[JavaType | None]) -> TypeChange:
        left, right = self._each([old.left, old.right], arguments)
        of_left, of_right = _present(left), _present(right)

        def convert(value: Either) -> Either:
            return value._replace(
                value=of_left(value.value) if value.is_left else of_right(value.value)
            )

        return TypeChange(EitherSerializer(left.new, right.new), convert)

    def _pojo(self, old: PojoSerializer) -> TypeChange:
        changes = {
            name: self._field(old.pojo_class, name, key, field) for name, key, field in old.fields
        }
        fields = tuple(
            OptionalSnapshot(name, key, changes[name].new if field is not None else None)
            for name, key, field in old.fields
        )
        registered = self._subclasses(old.registered)
        others = self._subclasses(old.others)
        listed = zip(old.registered + old.others, registered + others, strict=True)
        subclasses = {entry.name: change for entry, change in listed}
        known = [*changes.values(), *(each for each in subclasses.values() if each is not None)]
        if not any(each.convert for each in known) and not self._has_subclasses(old):
            return TypeChange(old)
        new = JobPojoSerializer(
            old.pojo_class,
            fields,
            _with_serializers(old.registered, registered),
            _with_serializers(old.others, others),
            find_subclass=self._types.pojo,
        )
        converts = {name: _or_none(each) for name, each in changes.items()}

        def convert(value: Pojo | None) -> Pojo | None:
            if value is None:
                return None
            if value.class_name != old.pojo_class:
                return self._subclass_value(old, value, subclasses)
            return Pojo(
                value.class_name,
                {name: converts[name](each) for name, each in value.fields.items()},
            )

        return TypeChange(new, convert)

    def _field(
        self, pojo: str, name: str, key: bytes | None, old: AnySerializer | None
    ) -> TypeChange:
        if old is None:
            return TypeChange(old)  # type: ignore[arg-type]  # a field without a type stays so
        owner = None if key is None else DataInput(key).read_utf("declaring class")
        declaring = None if owner is None else self._types.classes.get(owner)
        try:
            return self.of(old, self._types.field_type(pojo, declaring, name))
        except UndeclaredError as error:
            if error.place is not None:
                raise
            raise UndeclaredError(error.java_class, f"{pojo}.{name}") from None

    def _subclasses(self, entries: Sequence[OptionalSnapshot]) -> list[TypeChange | None]:
        return [
            None if entry.serializer is None else self.of(entry.serializer, None)
            for entry in entries
        ]

    def _has_subclasses(self, old: PojoSerializer) -> bool:
        """Whether values may be of classes that the snapshot does not list."""
        return isinstance(old, JobPojoSerializer) and self._types.classes.has_subclass(
            old.pojo_class
        )

    def _subclass_value(
        self, old: PojoSerializer, value: Pojo, known: dict[str, TypeChange | None]
    ) -> Pojo | None:
        change = known.get(value.class_name)
        if change is None:
            subclass = (
                old.find_subclass(value.class_name) if isinstance(old, JobPojoSerializer) else None
            )
            if subclass is None:
                raise UnreadableValueError(
                    f"Class {value.class_name} is no POJO, so its values do not fit "
                    f"{old.pojo_class}"
                )
            change = known[value.class_name] = self.of(subclass, None)
        converted: Pojo | None = value if change.convert is None else change.convert(value)
        return converted


def class_name_of_component(name: str) -> str:
    """The class name in a snapshot of an array's type."""
    return class_name_of(name) if name.startswith("[") else name


def _has_changes(old: AnySerializer) -> bool:
    if isinstance(old, ReadableKryoSerializer | PojoSerializer):
        return True
    return any(_has_changes(each) for each in old.nested)


def _with_serializers(
    entries: Sequence[OptionalSnapshot], changes: Sequence[TypeChange | None]
) -> tuple[OptionalSnapshot, ...]:
    return tuple(
        entry._replace(serializer=None if change is None else change.new)
        for entry, change in zip(entries, changes, strict=True)
    )


def same(value: Any) -> Any:
    return value


def or_none(convert: Convert) -> Convert:
    return same if convert is same else lambda value: None if value is None else convert(value)


def each_of(convert: Convert) -> Convert:
    return lambda values: [convert(each) for each in values]


def _present(change: TypeChange) -> Convert:
    return change.convert or same


def _or_none(change: TypeChange) -> Convert:
    return or_none(_present(change))


def _ttl(change: TypeChange) -> Convert:
    convert = _or_none(change)
    return lambda value: value._replace(value=convert(value.value))


# -------------------------------------------------------------------------- values of Kryo


def from_kryo_value(old: ReadableKryoSerializer, new: AnySerializer) -> Convert:
    """Makes values of a type of Flink 2.x of values of Kryo in Flink 1.x."""
    if isinstance(new, ReadableKryoSerializer):
        return lambda value: OpaqueValue(old.java_class, new.write_new(value))
    make = flink_values(new)

    def convert(value: KryoValue | None) -> Any:
        if value is None:
            return None
        try:
            return make(value.content)
        except (TypeError, AttributeError, LookupError, ValueError) as error:
            if isinstance(error, FormatError):
                raise
            raise UnreadableValueError(
                f"A value of class {value.content.class_name} does not fit the type {new.type_name}"
            ) from error

    return convert


def flink_values(new: AnySerializer) -> Convert:
    """Makes values of a Flink type of the objects of Kryo that stand for them. None stays None, and
    so do plain values, which are primitive fields.

    The function raises ``UnreadableValueError`` for an object that is not of the type.
    """
    make = _maker(new)

    def value(read: Any) -> Any:
        return make(read) if isinstance(read, KryoObject) else read

    return value


def _message_bytes(value: KryoValue | None) -> bytes:
    if value is None:
        raise UnreadableValueError("A null has no form in byte[]")
    message: StoredMessage = value.content.value
    return message.raw


def _maker(new: AnySerializer) -> Callable[[KryoObject], Any]:
    match new:
        case NullableSerializer():
            return _maker(new.inner)
        case ReadableKryoSerializer():
            return lambda read: OpaqueValue(new.java_class, new.write_new(KryoValue(read, b"")))
        case ListSerializer() | SetSerializer():
            element = flink_values(new.element)
            return lambda stored: [element(each) for each in items_of(stored.value)]
        case MapSerializer():
            key, item = flink_values(new.key), flink_values(new.value)
            return lambda stored: [(key(one), item(other)) for one, other in items_of(stored.value)]
        case TupleSerializer():
            parts = [(f"f{at}", flink_values(part)) for at, part in enumerate(new.fields)]
            return lambda stored: tuple(part(stored.value[name]) for name, part in parts)
        case GenericArraySerializer():
            component = flink_values(new.component)
            return lambda stored: [component(each) for each in stored.value]
        case PojoSerializer():
            return _pojo_maker(new)
        case EnumSerializer():
            return lambda stored: new.constants[stored.value]
    plain = plain_class(new)
    return _leaf_value if plain is None else lambda stored: _plain_value(stored, plain)


def _pojo_maker(new: PojoSerializer) -> Callable[[KryoObject], Pojo]:
    fields = [
        (entry.name, flink_values(entry.serializer))
        for entry in new.fields
        if entry.serializer is not None
    ]
    subclasses: dict[str, Callable[[KryoObject], Pojo]] = {}

    def make(read: KryoObject) -> Pojo:
        name, content = read.class_name, read.value
        if name == new.pojo_class and isinstance(content, dict):
            return Pojo(name, {field: value(content[field]) for field, value in fields})
        if name not in subclasses:
            changed = new.find_subclass(name) if isinstance(new, JobPojoSerializer) else None
            if changed is None or changed.pojo_class == new.pojo_class:
                raise UnreadableValueError(
                    f"A value of class {name} does not fit the type {new.pojo_class}"
                )
            subclasses[name] = _pojo_maker(changed)
        return subclasses[name](read)

    return make


def _plain_value(read: KryoObject, expected: str) -> Any:
    if read.class_name != expected:
        raise UnreadableValueError(
            f"A value of class {read.class_name} does not fit the type {expected}"
        )
    return read.value


def _leaf_value(read: KryoObject) -> Any:
    match read.class_name:
        case "java.math.BigDecimal":
            return BigDecimal(*read.value)
        case "java.sql.Timestamp":
            millis, nanos = read.value
            return SqlTimestamp(millis + nanos // 1_000_000, nanos)
        case "java.time.Instant":
            return Instant(*read.value)
        case "[Ljava.lang.String;":
            return [None if each is None else each.value for each in read.value]
    return read.value
