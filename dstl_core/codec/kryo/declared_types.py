"""The type that a job declares for a state, as far as its bytecode shows it.

A type is derived only if ``TypeExtractor`` of Flink gives the same for certain. Everything else
raises ``UnreadableValueError``, whose sentence says what is not known.
"""

from __future__ import annotations

from dstl_core.codec.classfile.class_file import OBJECT, ClassFile, Flag
from dstl_core.codec.classfile.expressions import Expression
from dstl_core.codec.classfile.generic_types import JavaType, component_name
from dstl_core.codec.kryo.flink_types import FlinkTypes, is_pojo
from dstl_core.codec.serializers.arrays import GenericArraySerializer
from dstl_core.codec.serializers.avro import AvroSerializer
from dstl_core.codec.serializers.base import AnySerializer
from dstl_core.codec.serializers.collections import (
    ListSerializer,
    MapSerializer,
    SetSerializer,
    TupleSerializer,
)
from dstl_core.codec.serializers.opaque import KryoSerializer
from dstl_core.codec.serializers.pojo import PojoSerializer
from dstl_core.codec.serializers.runtime import TtlSerializer
from dstl_core.codec.serializers.structs import EnumSerializer, NullableSerializer
from dstl_core.errors import UnreadableValueError

_TYPE_INFO = "org.apache.flink.api.common.typeinfo."
_TYPES, _TYPE_INFORMATION = f"{_TYPE_INFO}Types", f"{_TYPE_INFO}TypeInformation"
_TYPE_HINT = f"{_TYPE_INFO}TypeHint"
_TUPLE = "org.apache.flink.api.java.tuple.Tuple"
_OF_TYPES = {
    "STRING": "java.lang.String",
    "BYTE": "java.lang.Byte",
    "BOOLEAN": "java.lang.Boolean",
    "SHORT": "java.lang.Short",
    "INT": "java.lang.Integer",
    "LONG": "java.lang.Long",
    "FLOAT": "java.lang.Float",
    "DOUBLE": "java.lang.Double",
    "CHAR": "java.lang.Character",
    "BIG_DEC": "java.math.BigDecimal",
    "BIG_INT": "java.math.BigInteger",
    "SQL_DATE": "java.sql.Date",
    "SQL_TIME": "java.sql.Time",
    "SQL_TIMESTAMP": "java.sql.Timestamp",
    "INSTANT": "java.time.Instant",
}
"""Static fields of ``Types`` to the class whose type they are."""
_OWN_TYPES = ("org.apache.flink.", "org.apache.avro.", "org.apache.hadoop.", "scala.")
"""Flink has types of its own for subclasses of these."""
_JDK = ("java.", "javax.")


class DescriptorTypes:
    """Derives types. Not thread-safe.

    Args:
        types: The types of the job's version of Flink.
    """

    def __init__(self, types: FlinkTypes) -> None:
        self._types = types
        self._sure: set[str] = set()

    def of(self, declared: Expression | None) -> AnySerializer:
        """The type that an argument of a descriptor gives.

        Raises:
            UnreadableValueError: It is not certain.
        """
        if declared is not None:
            match declared.kind, declared.owner, declared.name:
                case "class", name, _:
                    return self.of_java(JavaType(name))
                case "field", owner, name if owner == _TYPES and name in _OF_TYPES:
                    return self._types.of(JavaType(_OF_TYPES[name]))
                case "call", owner, _ if owner in (_TYPES, _TYPE_INFORMATION):
                    return self._of_call(declared)
        raise UnreadableValueError("the jar does not show the type in its descriptor")

    def _of_call(self, call: Expression) -> AnySerializer:
        arguments = call.arguments
        match call.name, arguments:
            case "of", (Expression(kind="new") as hint,):
                class_file = self._types.classes.get(hint.owner)
                parent = None if class_file is None else class_file.generic.superclass
                if parent is not None and parent.name == _TYPE_HINT and len(parent.arguments) == 1:
                    return self.of_java(parent.arguments[0])
            case (("of" | "POJO" | "ENUM"), (Expression(kind="class") as of_class,)):
                return self.of(of_class)
            case "GENERIC", (Expression(kind="class") as of_class,):
                return self._types.kryo(of_class.owner)
            case "LIST", (element,):
                return ListSerializer(self.of(element))
            case "MAP", (key, value):
                return MapSerializer(self.of(key), self.of(value))
        raise UnreadableValueError(f"the jar does not show the type that {call.name}(..) makes")

    def of_java(self, declared: JavaType | None) -> AnySerializer:
        """The type of a Java type.

        Raises:
            UnreadableValueError: It is not certain.
        """
        if declared is None:
            raise UnreadableValueError("the type has a wildcard")
        self._check(declared, ())
        return self._types.of(declared)

    # -------------------------------------------------------------------------- certainty

    def _check(self, declared: JavaType, inside: tuple[str, ...]) -> None:
        name = declared.name
        if declared.variable is not None or declared.is_bound:
            raise UnreadableValueError("the type has a type variable or a wildcard")
        for argument in declared.arguments:
            if argument is None:
                raise UnreadableValueError("the type has a wildcard")
            self._check(argument, inside)
        if name.startswith("["):
            if "[" not in component_name(name):
                self._check(JavaType(component_name(name)), inside)
            return
        if name.startswith(_TUPLE) and declared.arguments:
            return
        if declared.is_primitive or name.startswith(_JDK):
            return
        if name.startswith(_OWN_TYPES):
            raise UnreadableValueError(f"Flink has a type of its own for {name}")
        if declared.arguments:
            raise UnreadableValueError(f"{name} is generic")
        if name in inside:
            raise UnreadableValueError(f"{name} contains itself")
        if name not in self._sure:
            self._check_class(name, (*inside, name))
            self._sure.add(name)

    def _check_class(self, name: str, inside: tuple[str, ...]) -> None:
        classes = self._types.classes
        class_of_name = classes.get(name)
        if class_of_name is None:
            raise UnreadableValueError(f"class {name} is not in the jars")
        chain = [class_of_name, *classes.parents(class_of_name)]
        for class_file in chain:
            if class_file.generic.parameters:
                raise UnreadableValueError(f"{class_file.name} is generic")
            if class_file.has_type_info:
                raise UnreadableValueError(f"{class_file.name} has the annotation TypeInfo")
        for parent in classes.supertypes(name):
            if parent.startswith(_OWN_TYPES):
                raise UnreadableValueError(f"Flink has a type of its own for {name}, a {parent}")
        last = chain[-1].superclass
        if last not in (None, OBJECT) and not str(last).startswith(_JDK):
            raise UnreadableValueError(f"class {last} is not in the jars")
        if (
            class_of_name.has(Flag.ABSTRACT)
            and not class_of_name.has(Flag.INTERFACE)
            and not _has_constructor(class_of_name)
        ):
            raise UnreadableValueError(f"{name} is abstract, without a public constructor")
        if not class_of_name.is_enum and is_pojo(chain):
            for class_file in chain:
                for member in class_file.fields:
                    if not member.has(Flag.STATIC) and not member.has(Flag.TRANSIENT):
                        self._check(class_file.type_of(member), inside)

    # ------------------------------------------------------------- the types of a snapshot

    def unchanged(self, stored: AnySerializer) -> AnySerializer:
        """The type of a declaration that did not change: its classes are those of the jars now.

        Raises:
            UnreadableValueError: It is not certain.
        """
        match stored:
            case PojoSerializer():
                return self.of_java(JavaType(stored.pojo_class))
            case EnumSerializer():
                return self.of_java(JavaType(stored.enum_class))
            case ListSerializer() | SetSerializer():
                return type(stored)(self.unchanged(stored.element))
            case MapSerializer():
                return MapSerializer(self.unchanged(stored.key), self.unchanged(stored.value))
            case NullableSerializer():
                return NullableSerializer(self.unchanged(stored.inner), stored.padding)
            case TupleSerializer():
                return TupleSerializer(tuple(map(self.unchanged, stored.fields)))
            case GenericArraySerializer():
                inner = self.unchanged(stored.component)
                return GenericArraySerializer(stored.component_class, inner)
            case TtlSerializer():
                return type(stored)(self.unchanged(stored.value))
            case KryoSerializer() if self._types.has_lists and stored.java_class in _COLLECTIONS:
                raise UnreadableValueError(f"the savepoint does not say what {stored} holds")
        if isinstance(stored, AvroSerializer) or any(map(_has_classes, stored.nested)):
            raise UnreadableValueError(f"the jars do not show what {stored.type_name} holds now")
        return stored

    def classes_of(self, stored: AnySerializer) -> set[str]:
        """The POJOs and enums in a type of a snapshot, whose classes Flink loads to read it."""
        names: set[str] = set()
        if isinstance(stored, PojoSerializer):
            names.add(stored.pojo_class)
        elif isinstance(stored, EnumSerializer):
            names.add(stored.enum_class)
        return names.union(*map(self.classes_of, stored.nested))


_COLLECTIONS = ("java.util.List", "java.util.Map", "java.util.Set", "java.util.Collection")


def _has_constructor(class_file: ClassFile) -> bool:
    return any(
        method.name == "<init>" and method.descriptor == "()V" and method.has(Flag.PUBLIC)
        for method in class_file.methods
    )


def _has_classes(stored: AnySerializer) -> bool:
    has_class = isinstance(
        stored, PojoSerializer | EnumSerializer | KryoSerializer | AvroSerializer
    )
    return has_class or any(map(_has_classes, stored.nested))
