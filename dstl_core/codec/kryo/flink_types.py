"""The types that Flink derives from Java types, as ``TypeExtractor`` does.

Flink 2.x takes ``List``, ``Map``, ``Set`` and ``Collection`` with concrete arguments as types of
their own; Flink 1.x leaves them to Kryo, as both do with classes that are no POJOs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dstl_core.codec.classfile.class_file import OBJECT, ClassFile, Flag, Member
from dstl_core.codec.classfile.generic_types import JavaType, component_name
from dstl_core.codec.classfile.job_jar import JobClasses
from dstl_core.codec.classfile.source_types import OF_FLINK
from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.kryo.kryo_objects import Dialect
from dstl_core.codec.kryo.kryo_serializer import (
    KryoClasses,
    ReadableKryoSerializer,
    registered_classes,
)
from dstl_core.codec.serializers import arrays
from dstl_core.codec.serializers.base import AnySerializer
from dstl_core.codec.serializers.collections import (
    ListSerializer,
    MapSerializer,
    SetSerializer,
    TupleSerializer,
)
from dstl_core.codec.serializers.names import Types
from dstl_core.codec.serializers.opaque import KryoSerializer
from dstl_core.codec.serializers.optional_map import OptionalEntry, OptionalSnapshot
from dstl_core.codec.serializers.pojo import Pojo, PojoSerializer
from dstl_core.codec.serializers.structs import (
    EitherSerializer,
    EnumSerializer,
    NullableSerializer,
    RowSerializer,
)
from dstl_core.errors import UnreadableValueError

_BASIC: dict[str, AnySerializer] = {
    "boolean": Types.BOOLEAN,
    "byte": Types.BYTE,
    "char": Types.CHAR,
    "short": Types.SHORT,
    "int": Types.INT,
    "long": Types.LONG,
    "float": Types.FLOAT,
    "double": Types.DOUBLE,
    "java.lang.Boolean": Types.BOOLEAN,
    "java.lang.Byte": Types.BYTE,
    "java.lang.Character": Types.CHAR,
    "java.lang.Short": Types.SHORT,
    "java.lang.Integer": Types.INT,
    "java.lang.Long": Types.LONG,
    "java.lang.Float": Types.FLOAT,
    "java.lang.Double": Types.DOUBLE,
    "java.lang.String": Types.STRING,
    "java.lang.Void": Types.VOID,
    "java.math.BigInteger": Types.BIG_INT,
    "java.math.BigDecimal": Types.BIG_DEC,
    "java.util.Date": Types.DATE,
    "java.sql.Date": Types.SQL_DATE,
    "java.sql.Time": Types.SQL_TIME,
    "java.sql.Timestamp": Types.SQL_TIMESTAMP,
    "java.time.Instant": Types.INSTANT,
    "[B": Types.BYTES,
    "[Z": arrays.BooleanPrimitiveArraySerializer(),
    "[S": arrays.ShortPrimitiveArraySerializer(),
    "[I": arrays.IntPrimitiveArraySerializer(),
    "[J": arrays.LongPrimitiveArraySerializer(),
    "[F": arrays.FloatPrimitiveArraySerializer(),
    "[D": arrays.DoublePrimitiveArraySerializer(),
    "[C": arrays.CharPrimitiveArraySerializer(),
    "[Ljava.lang.String;": Types.STRING_ARRAY,
}
_PLAIN = {type(each): name for name, each in _BASIC.items() if name.startswith("java.lang.")}
_WRAPPERS = {
    "Z": "Ljava/lang/Boolean;",
    "B": "Ljava/lang/Byte;",
    "C": "Ljava/lang/Character;",
    "S": "Ljava/lang/Short;",
    "I": "Ljava/lang/Integer;",
    "J": "Ljava/lang/Long;",
    "F": "Ljava/lang/Float;",
    "D": "Ljava/lang/Double;",
}
MAX_TYPE_PARTS = 1 << 16
"""Of a type. A few classes that hold each other twice make a type of any size."""
_LISTS = ("java.util.List", "java.util.Collection", "java.lang.Iterable")
_TUPLE = "org.apache.flink.api.java.tuple.Tuple"
_EITHER = "org.apache.flink.types.Either"
_AVRO = "org.apache.avro.generic.GenericData$Array"
_SERIALIZERS = "org.apache.flink.api.java.typeutils.runtime.kryo.Serializers$"


def plain_class(serializer: AnySerializer) -> str | None:
    """The class of ``java.lang``, all final, whose values a type stores; None for other types."""
    return _PLAIN.get(type(serializer))


@dataclass(frozen=True)
class JobPojoSerializer(PojoSerializer):
    """A POJO whose subclasses are looked up in the job's jar where the snapshot lacks them, as
    Flink does: it learns of them with the first value.
    """

    find_subclass: Callable[[str], PojoSerializer | None] = field(
        default=lambda _: None, compare=False, repr=False
    )

    def _read_other(self, data: DataInput, class_name: str, at: int) -> Pojo | None:
        if not self._has_other(class_name):
            subclass = self.find_subclass(class_name)
            if subclass is not None:
                return subclass.deserialize(data)
        return super()._read_other(data, class_name, at)

    def _serialize_subclass(self, value: Pojo, out: DataOutput) -> None:
        known = any(entry.name == value.class_name for entry in self.registered)
        subclass = (
            None
            if known or self._has_other(value.class_name)
            else self.find_subclass(value.class_name)
        )
        if subclass is None:
            super()._serialize_subclass(value, out)
            return
        self.write_other(value.class_name, out)
        subclass.serialize(value, out)

    def _has_other(self, class_name: str) -> bool:
        return any(entry.name == class_name and entry.serializer for entry in self.others)

    def to_text(self, value: Pojo | None) -> Any:
        if value is not None and value.class_name != self.pojo_class:
            listed = any(entry.name == value.class_name for entry in self.registered + self.others)
            subclass = None if listed else self.find_subclass(value.class_name)
            if subclass is not None:
                return {"@class": value.class_name} | subclass.to_text(value)
        return super().to_text(value)


class FlinkTypes:
    """Serializers of Java types. Not thread-safe.

    Args:
        kryo: How classes are stored; its version of Kryo says which line of Flink derives types.
        template: A Kryo type of the job, whose registered types all of them have.
        fields: Declared types that stand in place of those of the classes, by ``CLASS.FIELD``.
    """

    def __init__(
        self,
        kryo: KryoClasses,
        template: KryoSerializer | None = None,
        fields: Mapping[str, JavaType] | None = None,
    ) -> None:
        self._kryo = kryo
        self._template = template
        self._fields = fields or {}
        self._pojos: dict[str, AnySerializer | None] = {}
        self._sizes: dict[int, int] = {}
        """Parts of the POJOs above, by id."""

    @property
    def classes(self) -> JobClasses:
        return self._kryo.layouts.classes

    @property
    def has_lists(self) -> bool:
        """Whether lists, maps and sets have types of their own."""
        return self._kryo.dialect is Dialect.KRYO_5

    def of(self, declared: JavaType) -> AnySerializer:
        """The type that Flink takes for a Java type.

        Raises:
            UnreadableValueError: A class is not in the jars.
        """
        name = declared.name
        if name in OF_FLINK:
            return self._of_flink(declared)
        basic = _BASIC.get(name)
        if basic is not None:
            return basic
        if name.startswith("["):
            component = component_name(name)
            inner = self.of(JavaType(component, declared.arguments))
            return arrays.GenericArraySerializer(component, inner)
        if name.startswith(_TUPLE) and declared.arguments:
            return TupleSerializer(tuple(self.of(_upper(each)) for each in declared.arguments))
        if name == _EITHER and len(declared.arguments) == 2:
            left, right = (self.of(_upper(each)) for each in declared.arguments)
            return EitherSerializer(left, right)
        serializer = self._collection(declared) or self._pojo_or_enum(name)
        return self.kryo(name) if serializer is None else serializer

    def _of_flink(self, declared: JavaType) -> AnySerializer:
        parts = [self.of(_upper(each)) for each in declared.arguments]
        match declared.name, parts:
            case "Types.LIST", [element]:
                return ListSerializer(element)
            case "Types.SET", [element]:
                return SetSerializer(element)
            case "Types.MAP", [key, value]:
                return MapSerializer(key, value)
            case "Types.ROW", [_, *_]:
                return RowSerializer(tuple(parts))
        raise UnreadableValueError(f"{declared.name} needs the types of what it holds")

    def field_type(self, pojo: str, owner: ClassFile | None, name: str) -> JavaType | None:
        """The declared type of a field; None if it is not known.

        Args:
            pojo: The class of the value.
            owner: The class that declares the field.
            name: Of the field.
        """
        field_type = self._fields.get(f"{pojo}.{name}")
        if field_type is not None or owner is None:
            return field_type
        return next((owner.type_of(each) for each in owner.fields if each.name == name), None)

    def _collection(self, declared: JavaType) -> AnySerializer | None:
        arguments = declared.arguments
        if not self.has_lists or not arguments or not all(map(_is_class, arguments)):
            return None
        parts = [self.of(each) for each in arguments if each is not None]
        if declared.name == "java.util.Map" and len(parts) == 2:
            return NullableSerializer(MapSerializer(NullableSerializer(parts[0]), parts[1]))
        if declared.name in _LISTS and len(parts) == 1:
            return NullableSerializer(ListSerializer(NullableSerializer(parts[0])))
        if declared.name == "java.util.Set" and len(parts) == 1:
            return NullableSerializer(SetSerializer(parts[0]))
        return None

    def kryo(self, name: str) -> ReadableKryoSerializer:
        """Kryo, for a declared class."""
        of_class = OptionalEntry(name, _utf(name), _utf(name) + bytes(4))
        if self._template is None:
            avro = _utf(_SERIALIZERS + "DummyAvroRegisteredClass") + (1).to_bytes(4, "big")
            value = avro + _utf(_SERIALIZERS + "DummyAvroKryoSerializerClass")
            maps: tuple[tuple[OptionalEntry, ...], ...] = (
                (of_class, OptionalEntry(_AVRO, _utf(_AVRO), value)),
                (),
                (),
            )
        else:
            first = self._template.maps[0]
            others = [each for each in first[1:] if each.name != name]
            maps = ((of_class, *others), *self._template.maps[1:])
        names = [entry.name for entry in maps[0]]
        return ReadableKryoSerializer(name, maps, self._kryo, registered_classes(names))

    def pojo(self, name: str) -> PojoSerializer | None:
        """The type of a POJO; None if the class is none."""
        serializer = self._pojo_or_enum(name)
        return serializer if isinstance(serializer, PojoSerializer) else None

    def _pojo_or_enum(self, name: str) -> AnySerializer | None:
        if name not in self._pojos:
            self._pojos[name] = None  # a POJO inside itself goes to Kryo
            try:
                self._pojos[name] = self._find(name)
            except UnreadableValueError:
                del self._pojos[name]  # asked again, it says so again
                raise
        return self._pojos[name]

    def _find(self, name: str) -> AnySerializer | None:
        class_file = self.classes.get(name)
        if class_file is None:
            if name.startswith(("java.", "javax.", "org.apache.flink.")) or name == OBJECT:
                return None
            raise UnreadableValueError(
                f"Class {name} of the job is not in its jar; give the jar that has it (jars, --jar)"
            )
        if class_file.is_enum:
            return EnumSerializer(name, class_file.constants)
        chain = [class_file, *self.classes.parents(class_file)]
        if not is_pojo(chain):
            return None
        members = {
            member.name: (owner, member)
            for owner in chain
            for member in owner.fields
            if _is_field(member)
        }
        fields = tuple(
            OptionalSnapshot(
                name_of_field,
                _utf(members[name_of_field][0].name) + _utf(name_of_field),
                self.of(
                    self._fields.get(f"{name}.{name_of_field}")
                    or members[name_of_field][0].type_of(members[name_of_field][1])
                ),
            )
            for name_of_field in sorted(members)
        )
        made = JobPojoSerializer(name, fields, find_subclass=self.pojo)
        size = self._sizes[id(made)] = self._size(made)
        if size > MAX_TYPE_PARTS:
            raise UnreadableValueError(
                f"The type of class {name} has too many parts, since Flink repeats a class "
                f"wherever a field has it: expected at most {MAX_TYPE_PARTS}, got {size}"
            )
        return made

    def _size(self, serializer: AnySerializer) -> int:
        """Parts of a type. A POJO is counted once, however often it is part of others."""
        known = self._sizes.get(id(serializer))
        return 1 + sum(map(self._size, serializer.nested)) if known is None else known


def _upper(argument: JavaType | None) -> JavaType:
    """What is known of the values of a type argument."""
    return JavaType(OBJECT) if argument is None or argument.is_lower else argument


def _is_class(declared: JavaType | None) -> bool:
    """Whether a type argument is a class, not a variable, a wildcard or a parameterized type."""
    return (
        declared is not None
        and not declared.arguments
        and declared.variable is None
        and not declared.is_bound
    )


def _is_field(member: Member) -> bool:
    return not member.has(Flag.STATIC) and not member.has(Flag.TRANSIENT)


def is_pojo(chain: list[ClassFile]) -> bool:
    """Whether Flink takes a class as a POJO; ``chain`` is the class and its superclasses.

    Source: ``TypeExtractor.analyzePojo`` and ``isValidPojoField`` of Flink 1.20.5 and 2.2.1.
    """
    class_file = chain[0]
    if chain[-1].superclass not in (None, OBJECT, "java.lang.Record"):
        return False
    fields = [member for each in chain for member in each.fields if _is_field(member)]
    names = [member.name for member in fields]
    if not names or len(set(names)) < len(names) or class_file.has(Flag.INTERFACE):
        return False
    if not class_file.has(Flag.PUBLIC) or any(member.has(Flag.SYNTHETIC) for member in fields):
        return False
    methods = [each for each_class in chain for each in each_class.methods]
    if any(each.name in ("readObject", "writeObject") for each in methods):
        return False
    if class_file.is_record:
        return True
    makers = [
        method
        for method in class_file.methods
        if method.name == "<init>" and method.descriptor == "()V"
    ]
    public = [each for each in methods if each.has(Flag.PUBLIC)]
    return any(each.has(Flag.PUBLIC) for each in makers) and all(
        member.has(Flag.PUBLIC) or _has_accessors(member, class_file.name, public)
        for member in fields
    )


def _has_accessors(member: Member, owner: str, methods: list[Member]) -> bool:
    """Whether a field has a getter and a setter, whose names differ in case and ``_`` at most."""
    name, kinds = _plain(member.name), {member.descriptor, _WRAPPERS.get(member.descriptor)}
    getters = {f"(){each}" for each in kinds if each}
    results = ("V", f"L{owner.replace('.', '/')};")
    setters = {f"({each}){result}" for each in kinds if each for result in results}
    has_getter = any(
        method.descriptor in getters and _plain(method.name) in (f"get{name}", f"is{name}", name)
        for method in methods
    )
    return has_getter and any(
        method.descriptor in setters and _plain(method.name) in (f"set{name}", f"{name}$eq")
        for method in methods
    )


def _plain(name: str) -> str:
    return name.lower().replace("_", "")


def _utf(text: str) -> bytes:
    out = DataOutput()
    out.write_utf(text)
    return out.to_bytes()
