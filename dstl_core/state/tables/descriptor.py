"""State descriptors: name, kind, type and time to live of a state.

Types are declared; they are never derived from values. A type declared as Flink's own
(``Types.INSTANT``) has Flink's value classes. A type in any other form (``"timestamp"``,
``datetime.date``, a Spark type, a dataclass) has Python values.

Source: ``org.apache.flink.api.common.state`` of Flink 2.2.1; ``FoldingStateDescriptor`` of Flink
1.8.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, Self

from dstl_core.codec.declared_type import TypeLike, declared_type
from dstl_core.codec.python_values import function_type, stored_type
from dstl_core.codec.serializers import (
    AnySerializer,
    ListSerializer,
    MapSerializer,
    TtlSerializer,
)
from dstl_core.codec.state_meta import KeyedStateType, StateMetaInfoSnapshot
from dstl_core.errors import ConfigError
from dstl_core.state.tables.ttl import StateTtlConfig

ReduceFunction = Callable[[Any, Any], Any]
FoldFunction = Callable[[Any, Any], Any]


class AggregateFunction(Protocol):
    """Aggregates values in an accumulator."""

    def create_accumulator(self) -> Any: ...

    def add(self, value: Any, accumulator: Any) -> Any:
        """Returns the accumulator with the value added; it may be the same object."""
        ...

    def get_result(self, accumulator: Any) -> Any: ...

    def merge(self, left: Any, right: Any) -> Any: ...


@dataclass(frozen=True)
class StateDescriptor(ABC):
    """Base of all descriptors. Names are unique within an operator."""

    name: str
    ttl: StateTtlConfig | None = field(default=None, kw_only=True)
    """Time to live; in maps and lists each element has its own."""

    type_fields: ClassVar[tuple[str, ...]] = ("type",)
    """Names of the fields that are types. Any form of a type is converted to a serializer."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ConfigError(f"A state needs a name, got {self.name!r}.")
        if self.ttl is not None and not isinstance(self.ttl, StateTtlConfig):
            raise ConfigError(
                f"The time to live of state {self.name!r} is wrong: expected a StateTtlConfig, got "
                f"{self.ttl!r}."
            )
        for field_name in self.type_fields:
            if getattr(self, field_name) is not None:
                declared = declared_type(getattr(self, field_name), f"The state {self.name!r}")
                object.__setattr__(self, field_name, function_type(declared))

    @property
    @abstractmethod
    def kind(self) -> KeyedStateType: ...

    @property
    @abstractmethod
    def serializer(self) -> AnySerializer:
        """The serializer of the whole stored value, including its time to live."""

    def enable_time_to_live(self, config: StateTtlConfig) -> Self:
        """Returns a copy of the descriptor with a time to live."""
        return replace(self, ttl=config)

    @property
    def is_serializer_initialized(self) -> bool:
        """Whether the state has its types."""
        return all(getattr(self, each) is not None for each in self.type_fields)

    def initialize_serializer_unless_set(self, *types: TypeLike) -> Self:
        """Returns a copy whose missing types are these, in the order of its fields.

        Types that are set stay. A library declares a state with the type None, and the job that
        uses it gives the type.

        Raises:
            ConfigError: The number of types differs from that of the fields.
        """
        if len(types) != len(self.type_fields):
            raise ConfigError(
                f"The types of state {self.name!r} are wrong: expected {len(self.type_fields)} "
                f"({', '.join(self.type_fields)}), got {len(types)}."
            )
        named = zip(self.type_fields, types, strict=True)
        return replace(self, **{name: t for name, t in named if getattr(self, name) is None})

    def stored(self, field_name: str) -> AnySerializer:
        """The serializer of one of its types.

        Raises:
            ConfigError: The type is not set.
        """
        serializer = getattr(self, field_name)
        if serializer is None:
            raise ConfigError(
                f"The state {self.name!r} has no {field_name}; give it with "
                f"initialize_serializer_unless_set()."
            )
        return stored_type(serializer)

    def _with_ttl(self, serializer: AnySerializer) -> AnySerializer:
        return serializer if self.ttl is None else TtlSerializer(serializer)

    def meta_info(self, namespace: AnySerializer | None = None) -> StateMetaInfoSnapshot:
        """The description of the state in snapshots."""
        return StateMetaInfoSnapshot.key_value(self.name, self.kind, self.serializer, namespace)


@dataclass(frozen=True)
class ValueStateDescriptor(StateDescriptor):
    """One value per key. A key without a value has ``default_value``."""

    type: TypeLike
    default_value: Any = None

    kind = KeyedStateType.VALUE

    @property
    def serializer(self) -> AnySerializer:
        return self._with_ttl(self.stored("type"))


@dataclass(frozen=True)
class ListStateDescriptor(StateDescriptor):
    """A list per key; ``element_type`` is the type of one element."""

    element_type: TypeLike

    type_fields = ("element_type",)
    kind = KeyedStateType.LIST

    @property
    def serializer(self) -> AnySerializer:
        return ListSerializer(self._with_ttl(self.stored("element_type")))


@dataclass(frozen=True)
class MapStateDescriptor(StateDescriptor):
    """A map per key."""

    key_type: TypeLike
    value_type: TypeLike

    type_fields = ("key_type", "value_type")
    kind = KeyedStateType.MAP

    @property
    def serializer(self) -> AnySerializer:
        return MapSerializer(self.stored("key_type"), self._with_ttl(self.stored("value_type")))


@dataclass(frozen=True)
class ReducingStateDescriptor(StateDescriptor):
    """One value per key; each added value is reduced into it."""

    reduce_function: ReduceFunction
    type: TypeLike

    kind = KeyedStateType.REDUCING

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.reduce_function):
            raise ConfigError(
                f"The reduce_function of state {self.name!r} is wrong: expected a function of two "
                f"values, got {self.reduce_function!r}."
            )

    @property
    def serializer(self) -> AnySerializer:
        return self._with_ttl(self.stored("type"))


@dataclass(frozen=True)
class AggregatingStateDescriptor(StateDescriptor):
    """An accumulator per key; its type is ``accumulator_type``."""

    aggregate_function: AggregateFunction
    accumulator_type: TypeLike

    type_fields = ("accumulator_type",)
    kind = KeyedStateType.AGGREGATING

    @property
    def serializer(self) -> AnySerializer:
        return self._with_ttl(self.stored("accumulator_type"))


@dataclass(frozen=True)
class FoldingStateDescriptor(StateDescriptor):
    """One value per key; each added value is folded into it, starting from ``initial_value``.

    Flink 2.x does not restore it; use ``AggregatingStateDescriptor`` there.
    """

    initial_value: Any
    fold_function: FoldFunction
    type: TypeLike

    kind = KeyedStateType.FOLDING

    @property
    def serializer(self) -> AnySerializer:
        return self._with_ttl(self.stored("type"))
