"""What a function says of its state: name, kind, type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from dstl_core.codec.serializers import (
    AnySerializer,
    ListSerializer,
    MapSerializer,
    TtlSerializer,
)
from dstl_core.codec.state_meta import KeyedStateType, StateMetaInfoSnapshot
from dstl_core.errors import ConfigError

Described = TypeVar("Described", bound="_Descriptor")


@dataclass(frozen=True)
class StateTtlConfig:
    """Values live ``ttl_ms`` after they were written. Only that they have a time is stored; the
    job's own configuration decides when they expire.
    """

    ttl_ms: int

    def __post_init__(self) -> None:
        if self.ttl_ms <= 0:
            raise ConfigError(f"A time to live is positive, got {self.ttl_ms} ms.")


@dataclass(frozen=True)
class _Descriptor:
    name: str

    def enable_time_to_live(self: Described, config: StateTtlConfig) -> Described:
        """The same state whose values carry the time of their last access."""
        return replace(self, ttl=config)  # type: ignore[call-arg]  # every subclass has it


def _with_ttl(value: AnySerializer, ttl: StateTtlConfig | None) -> AnySerializer:
    return value if ttl is None else TtlSerializer(value)


@dataclass(frozen=True)
class ValueStateDescriptor(_Descriptor):
    """One value per key."""

    type: AnySerializer
    ttl: StateTtlConfig | None = None

    def meta_info(self, namespace: AnySerializer | None = None) -> StateMetaInfoSnapshot:
        return StateMetaInfoSnapshot.key_value(
            self.name, KeyedStateType.VALUE, _with_ttl(self.type, self.ttl), namespace
        )


@dataclass(frozen=True)
class ListStateDescriptor(_Descriptor):
    """A list per key; ``element_type`` is the type of one element."""

    element_type: AnySerializer
    ttl: StateTtlConfig | None = None

    def meta_info(self, namespace: AnySerializer | None = None) -> StateMetaInfoSnapshot:
        element = _with_ttl(self.element_type, self.ttl)
        return StateMetaInfoSnapshot.key_value(
            self.name, KeyedStateType.LIST, ListSerializer(element), namespace
        )


@dataclass(frozen=True)
class MapStateDescriptor(_Descriptor):
    """A map per key; also the form of broadcast state."""

    key_type: AnySerializer
    value_type: AnySerializer
    ttl: StateTtlConfig | None = None

    def meta_info(self, namespace: AnySerializer | None = None) -> StateMetaInfoSnapshot:
        value = _with_ttl(self.value_type, self.ttl)
        return StateMetaInfoSnapshot.key_value(
            self.name, KeyedStateType.MAP, MapSerializer(self.key_type, value), namespace
        )


@dataclass(frozen=True)
class ReducingStateDescriptor(_Descriptor):
    """One value per key, made of all that were added by ``reduce_function(a, b)``."""

    reduce_function: Callable[[Any, Any], Any]
    type: AnySerializer
    ttl: StateTtlConfig | None = None

    def meta_info(self, namespace: AnySerializer | None = None) -> StateMetaInfoSnapshot:
        return StateMetaInfoSnapshot.key_value(
            self.name, KeyedStateType.REDUCING, _with_ttl(self.type, self.ttl), namespace
        )


class AggregateFunction(Protocol):
    """How an accumulator comes from elements, and a result from an accumulator."""

    def create_accumulator(self) -> Any: ...

    def add(self, value: Any, accumulator: Any) -> Any: ...

    def get_result(self, accumulator: Any) -> Any: ...

    def merge(self, a: Any, b: Any) -> Any: ...


@dataclass(frozen=True)
class AggregatingStateDescriptor(_Descriptor):
    """One accumulator per key; ``type`` is that of the accumulator."""

    aggregate_function: AggregateFunction
    type: AnySerializer
    ttl: StateTtlConfig | None = None

    def meta_info(self, namespace: AnySerializer | None = None) -> StateMetaInfoSnapshot:
        return StateMetaInfoSnapshot.key_value(
            self.name, KeyedStateType.AGGREGATING, _with_ttl(self.type, self.ttl), namespace
        )


StateDescriptor = (
    ValueStateDescriptor
    | ListStateDescriptor
    | MapStateDescriptor
    | ReducingStateDescriptor
    | AggregatingStateDescriptor
)
