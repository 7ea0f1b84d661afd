"""What a function says of its state: name, kind, type, time to live.

Types are given as serializers and never found out from values, so there is no serializer to be set
later. Source: ``org.apache.flink.api.common.state`` of Flink 2.2.1; ``FoldingStateDescriptor`` of
Flink 1.8.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

from dstl_core.codec.serializers import (
    AnySerializer,
    ListSerializer,
    MapSerializer,
    TtlSerializer,
)
from dstl_core.codec.state_meta import KeyedStateType, StateMetaInfoSnapshot
from dstl_core.errors import ConfigError
from dstl_core.state.ttl import StateTtlConfig

ReduceFunction = Callable[[Any, Any], Any]
FoldFunction = Callable[[Any, Any], Any]


class AggregateFunction(Protocol):
    """Adds values up in an accumulator."""

    def create_accumulator(self) -> Any: ...

    def add(self, value: Any, accumulator: Any) -> Any:
        """The accumulator with the value; may be the same object."""
        ...

    def get_result(self, accumulator: Any) -> Any: ...

    def merge(self, left: Any, right: Any) -> Any: ...


@dataclass(frozen=True)
class StateDescriptor(ABC):
    """Base of all descriptors. Names are unique within an operator."""

    name: str

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError("A state needs a name.")

    @property
    @abstractmethod
    def kind(self) -> KeyedStateType: ...

    @property
    @abstractmethod
    def serializer(self) -> AnySerializer:
        """The type of the whole stored value, time to live included."""

    @abstractmethod
    def enable_time_to_live(self, config: StateTtlConfig) -> Self:
        """The same state with a time to live; for a map and a list it is that of each element."""

    @property
    @abstractmethod
    def ttl_config(self) -> StateTtlConfig | None: ...

    def meta_info(self, namespace: AnySerializer | None = None) -> StateMetaInfoSnapshot:
        """The state as snapshots describe it."""
        return StateMetaInfoSnapshot.key_value(self.name, self.kind, self.serializer, namespace)


def _with_ttl(serializer: AnySerializer, ttl: StateTtlConfig | None) -> AnySerializer:
    return serializer if ttl is None else TtlSerializer(serializer)


@dataclass(frozen=True)
class ValueStateDescriptor(StateDescriptor):
    """One value per key. ``default_value`` is what a key without one has."""

    type: AnySerializer
    default_value: Any = None
    ttl: StateTtlConfig | None = None

    kind = KeyedStateType.VALUE

    def enable_time_to_live(self, config: StateTtlConfig) -> Self:
        return replace(self, ttl=config)

    @property
    def ttl_config(self) -> StateTtlConfig | None:
        return self.ttl

    @property
    def serializer(self) -> AnySerializer:
        return _with_ttl(self.type, self.ttl)


@dataclass(frozen=True)
class ListStateDescriptor(StateDescriptor):
    """A list per key; ``element_type`` is the type of one element."""

    element_type: AnySerializer
    ttl: StateTtlConfig | None = None

    kind = KeyedStateType.LIST

    def enable_time_to_live(self, config: StateTtlConfig) -> Self:
        return replace(self, ttl=config)

    @property
    def ttl_config(self) -> StateTtlConfig | None:
        return self.ttl

    @property
    def serializer(self) -> AnySerializer:
        return ListSerializer(_with_ttl(self.element_type, self.ttl))


@dataclass(frozen=True)
class MapStateDescriptor(StateDescriptor):
    """A map per key."""

    key_type: AnySerializer
    value_type: AnySerializer
    ttl: StateTtlConfig | None = None

    kind = KeyedStateType.MAP

    def enable_time_to_live(self, config: StateTtlConfig) -> Self:
        return replace(self, ttl=config)

    @property
    def ttl_config(self) -> StateTtlConfig | None:
        return self.ttl

    @property
    def serializer(self) -> AnySerializer:
        return MapSerializer(self.key_type, _with_ttl(self.value_type, self.ttl))


@dataclass(frozen=True)
class ReducingStateDescriptor(StateDescriptor):
    """One value per key, into which every added value is reduced."""

    reduce_function: ReduceFunction
    type: AnySerializer
    ttl: StateTtlConfig | None = None

    kind = KeyedStateType.REDUCING

    def enable_time_to_live(self, config: StateTtlConfig) -> Self:
        return replace(self, ttl=config)

    @property
    def ttl_config(self) -> StateTtlConfig | None:
        return self.ttl

    @property
    def serializer(self) -> AnySerializer:
        return _with_ttl(self.type, self.ttl)


@dataclass(frozen=True)
class AggregatingStateDescriptor(StateDescriptor):
    """An accumulator per key; its type is ``accumulator_type``."""

    aggregate_function: AggregateFunction
    accumulator_type: AnySerializer
    ttl: StateTtlConfig | None = None

    kind = KeyedStateType.AGGREGATING

    def enable_time_to_live(self, config: StateTtlConfig) -> Self:
        return replace(self, ttl=config)

    @property
    def ttl_config(self) -> StateTtlConfig | None:
        return self.ttl

    @property
    def serializer(self) -> AnySerializer:
        return _with_ttl(self.accumulator_type, self.ttl)


@dataclass(frozen=True)
class FoldingStateDescriptor(StateDescriptor):
    """One value per key, into which every added value is folded, starting from ``initial_value``.

    No Flink 2.x restores it; ``AggregatingStateDescriptor`` can do the same there.
    """

    initial_value: Any
    fold_function: FoldFunction
    type: AnySerializer
    ttl: StateTtlConfig | None = None

    kind = KeyedStateType.FOLDING

    def enable_time_to_live(self, config: StateTtlConfig) -> Self:
        return replace(self, ttl=config)

    @property
    def ttl_config(self) -> StateTtlConfig | None:
        return self.ttl

    @property
    def serializer(self) -> AnySerializer:
        return _with_ttl(self.type, self.ttl)
