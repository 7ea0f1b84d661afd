"""The types that the states of an old job have in the new one, where the old ones have no future.

Types of Flink's API for Scala are gone in Flink 2.x. What takes their place is a decision: a person
names the type of a state, or a savepoint of the new job has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from dstl_core.codec.classfile.generic_types import JavaType
from dstl_core.codec.kryo.flink_types import FlinkTypes
from dstl_core.codec.kryo.out_of_scala import OutOfScala, holds_scala
from dstl_core.codec.kryo.type_changes import TypeChange
from dstl_core.codec.serializers import (
    AnySerializer,
    ListSerializer,
    MapSerializer,
    TtlSerializer,
    TypeSerializer,
)
from dstl_core.codec.serializers.scala import (
    ScalaCaseClassSerializer,
    ScalaCollectionSerializer,
    ScalaEitherSerializer,
    ScalaEnumSerializer,
    ScalaOptionSerializer,
    ScalaUnitSerializer,
)
from dstl_core.codec.serializers.structs import NullableSerializer
from dstl_core.codec.state_meta import (
    KEY_SERIALIZER,
    BackendStateType,
    KeyedStateType,
    StateMetaInfoSnapshot,
)
from dstl_core.display import option_text
from dstl_core.errors import UnreadableValueError
from dstl_core.model.ids import OperatorID
from dstl_core.savepoint.edit.converted_state import StateConversion
from dstl_core.savepoint.read.operator_catalog import StateInfo
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot


def has_scala(meta: StateMetaInfoSnapshot) -> bool:
    """Whether a state has a type of Flink's API for Scala."""
    return any(holds_scala(serializer) for _, serializer in meta.serializers)


def has_scala_keys(operator: OperatorSnapshot) -> bool:
    """Whether the keys of an operator have a type of Flink's API for Scala."""
    return operator.key_type is not None and holds_scala(operator.key_type.serializer)


@dataclass(frozen=True)
class _TypeParts:
    """What a person names of a state: the value, the element or the map value; and user keys."""

    value: AnySerializer
    key: AnySerializer | None = None

    @classmethod
    def of(cls, meta: StateMetaInfoSnapshot) -> _TypeParts:
        value = meta.value_serializer
        if meta.backend_state_type is BackendStateType.BROADCAST:
            return cls(value, meta.serializer(KEY_SERIALIZER))
        if meta.backend_state_type is BackendStateType.KEY_VALUE:
            kind = meta.keyed_state_type
            if kind is KeyedStateType.MAP and isinstance(value, MapSerializer):
                return cls(value.value, value.key)
            if kind is KeyedStateType.LIST and isinstance(value, ListSerializer):
                return cls(value.element)
        return cls(value)


class TypesOfNewJob:
    """Finds the new types of states.

    Args:
        types: The types that classes have in the new job.
        declared: The Java types that a person has named for a state: those of its descriptor.
        keys: The Java types that a person has named for the keys of operators.
        template: A savepoint of the new job; None without one.
    """

    def __init__(
        self,
        types: FlinkTypes,
        declared: Callable[[OperatorSnapshot, str], tuple[JavaType | None, ...]],
        keys: Mapping[OperatorID, JavaType],
        template: Snapshot | None,
    ) -> None:
        self._types = types
        self._keys = keys
        self._declared = declared
        self._template = template
        self._conversions = OutOfScala(types.classes)

    def conversion(self, operator: OperatorSnapshot, info: StateInfo) -> StateConversion | None:
        """How a state with a type of Scala changes.

        Raises:
            UnreadableValueError: Its new type is not known, or has no place for a part of the old
                one.
        """
        old, new = _TypeParts.of(info.meta), self._new_parts(operator, info)
        # Without a value, the state of a key is what None is in Java.
        is_value = info.meta.backend_state_type is BackendStateType.KEY_VALUE and not isinstance(
            info.meta.value_serializer, ListSerializer
        )
        value = self._change(old.value, new.value, nullable=is_value)
        key = old.key and new.key and self._change(old.key, new.key)
        return StateConversion.of(value, key or None)

    def key(self, operator: OperatorSnapshot) -> TypeChange | None:
        """How the key of an operator changes; None if it stays.

        Raises:
            UnreadableValueError: Its new type is not known, or has no place for a part of the old
                one, or its hash is not known.
        """
        if operator.key_type is None or not has_scala_keys(operator):
            return None
        old = operator.key_type.serializer
        named = self._keys.get(operator.operator_id)
        new = self._template_key(operator) if named is None else self._types.of(named)
        if new is None:
            advice = option_text("--new-key", f"{operator.label}={java_text(old, is_key=True)}")
            raise UnreadableValueError(
                f"Flink 2.x has no type for keys of {old.type_name}, of Scala's API; "
                f"{self._choices(operator, 'keys', advice)}, or drop the operator's states (--drop)"
            )
        strange = _without_hash(new)
        if strange is not None:
            raise UnreadableValueError(
                f"Keys of {old.type_name} do not become {new.type_name}: the hash of "
                f"{strange.type_name} decides on their key groups, and only the job's code knows "
                f"it; take tuples as keys"
            )
        return TypeChange(new, self._conversions.of(old, new))

    def _choices(self, operator: OperatorSnapshot, what: str, advice: str) -> str:
        """How a person says what the new job has, as part of a sentence."""
        named = f"name what the new job has instead ({advice})"
        if self._template is None:
            return f"{named}, give a savepoint of the new job (--to-template)"
        return (
            f"the savepoint of the new job (--to-template) has no {what} in an operator "
            f"{operator.label!r}; {named}"
        )

    def _template_key(self, operator: OperatorSnapshot) -> AnySerializer | None:
        for candidate in () if self._template is None else self._template.operators:
            if candidate.operator_id == operator.operator_id and candidate.key_type is not None:
                return candidate.key_type.serializer
        return None

    def _change(
        self, old: AnySerializer, new: AnySerializer, *, nullable: bool = False
    ) -> TypeChange:
        if old == new and not holds_scala(old):
            return TypeChange(old)
        convert = self._conversions.of(old, new, nullable=nullable)
        inner = old.value if isinstance(old, TtlSerializer) else old
        drops_none = nullable and isinstance(inner, ScalaOptionSerializer)
        drops_none = drops_none and not isinstance(new, NullableSerializer)
        return TypeChange(new, convert, drops_none, self._types.classes)

    def _new_parts(self, operator: OperatorSnapshot, info: StateInfo) -> _TypeParts:
        old = _TypeParts.of(info.meta)
        declared = self._declared(operator, info.name)
        if not declared:
            of_template = self._of_template(operator, info)
            if of_template is not None:
                return of_template
            text = java_text(old.value)
            named = text if old.key is None else f"Map<{java_text(old.key)}, {text}>"
            advice = option_text("--type", f"{info.name}={named}")
            raise UnreadableValueError(
                f"Flink 2.x has no type for {info.type}, of Scala's API; "
                f"{self._choices(operator, f'state {info.name!r}', advice)}, or drop the state "
                f"(--drop)"
            )
        wanted = declared[-1]
        key = None
        if old.key is not None:
            arguments = () if wanted is None else wanted.arguments
            if len(arguments) != 2:
                raise UnreadableValueError(
                    f"The type of a map state is wrong: expected Map<KEY, VALUE>, got "
                    f"{getattr(wanted, 'name', '?')}"
                )
            key, wanted = arguments
        return _TypeParts(self._of(old.value, wanted), old.key and self._of(old.key, key))

    def _of(self, old: AnySerializer, wanted: JavaType | None) -> AnySerializer:
        if wanted is None:
            raise UnreadableValueError("A wildcard stands for no type; name it")
        if isinstance(old, TtlSerializer):
            return replace(old, value=self._of(old.value, wanted))
        return self._types.of(wanted)

    def _of_template(self, operator: OperatorSnapshot, info: StateInfo) -> _TypeParts | None:
        for candidate in () if self._template is None else self._template.operators:
            if candidate.operator_id != operator.operator_id:
                continue
            for other in candidate.states + candidate.operator_states:
                if other.name != info.name or other.kind.endswith("timer"):
                    continue
                if other.kind != info.kind:
                    raise UnreadableValueError(
                        f"The new job has another kind of state: expected {info.kind}, got "
                        f"{other.kind}"
                    )
                return _TypeParts.of(other.meta)
        return None


def _without_hash(new: AnySerializer) -> AnySerializer | None:
    """A part of a type whose Java hash is not known."""
    if type(new).java_hash is TypeSerializer.java_hash:
        return new
    return next((each for each in map(_without_hash, new.nested) if each is not None), None)


def java_text(old: AnySerializer, *, is_key: bool = False) -> str:
    """A type of Java that holds the values of a type, as a person may name it.

    Args:
        old: The type.
        is_key: Whether it is a key, which is no POJO.
    """

    def of(*parts: AnySerializer) -> str:
        return ", ".join(java_text(part, is_key=is_key) for part in parts)

    match old:
        case TtlSerializer():
            return of(old.value)
        case ScalaCaseClassSerializer() if old.is_tuple or (is_key and old.fields):
            return f"Tuple{len(old.fields)}<{of(*old.fields)}>"
        case ScalaCaseClassSerializer():
            return old.scala_class
        case ScalaOptionSerializer():
            return of(old.inner)
        case ScalaEitherSerializer():
            return f"Either<{of(*old.nested)}>"
        case ScalaCollectionSerializer(element=ScalaCaseClassSerializer(fields=(key, value))) if (
            old.is_map
        ):
            return f"Map<{of(key, value)}>"
        case ScalaCollectionSerializer():
            return f"{'Set' if old.is_set else 'List'}<{of(old.element)}>"
        case ScalaEnumSerializer():
            return "String"
        case ScalaUnitSerializer():
            return "Void"
    return old.type_name
