"""What a function says of its state: name, kind, type."""

from __future__ import annotations

from dataclasses import dataclass

from dstl_core.codec.serializers import AnySerializer, ListSerializer
from dstl_core.codec.state_meta import KeyedStateType, StateMetaInfoSnapshot


@dataclass(frozen=True)
class ValueStateDescriptor:
    """One value per key."""

    name: str
    type: AnySerializer

    def meta_info(self) -> StateMetaInfoSnapshot:
        return StateMetaInfoSnapshot.key_value(self.name, KeyedStateType.VALUE, self.type)


@dataclass(frozen=True)
class ListStateDescriptor:
    """A list per key; ``element_type`` is the type of one element."""

    name: str
    element_type: AnySerializer

    def meta_info(self) -> StateMetaInfoSnapshot:
        return StateMetaInfoSnapshot.key_value(
            self.name, KeyedStateType.LIST, ListSerializer(self.element_type)
        )


StateDescriptor = ValueStateDescriptor | ListStateDescriptor
