"""Keyed state and operator state: descriptors, backends, changelog, timers, restore.

A name loads its module on first use.
"""

from typing import TYPE_CHECKING

from dstl_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from dstl_core.codec.data_io import DataInput, DataOutput
    from dstl_core.codec.serializers import (
        BUILT_IN,
        SerializerRegistry,
        SnapshotContext,
        Types,
        TypeSerializer,
    )
    from dstl_core.state.backends.state_backend import (
        EmbeddedRocksDBStateBackend,
        HashMapStateBackend,
        KeyedStateBackendParameters,
        StateBackend,
        StateBackendFactory,
        load_state_backend,
        register_state_backend,
    )
    from dstl_core.state.tables.descriptor import (
        AggregatingStateDescriptor,
        ListStateDescriptor,
        MapStateDescriptor,
        ReducingStateDescriptor,
        ValueStateDescriptor,
    )
    from dstl_core.state.tables.ttl import StateTtlConfig

__all__ = [
    "BUILT_IN",
    "AggregatingStateDescriptor",
    "DataInput",
    "DataOutput",
    "EmbeddedRocksDBStateBackend",
    "HashMapStateBackend",
    "KeyedStateBackendParameters",
    "ListStateDescriptor",
    "MapStateDescriptor",
    "ReducingStateDescriptor",
    "SerializerRegistry",
    "SnapshotContext",
    "StateBackend",
    "StateBackendFactory",
    "StateTtlConfig",
    "TypeSerializer",
    "Types",
    "ValueStateDescriptor",
    "load_state_backend",
    "register_state_backend",
]

__getattr__, __dir__ = lazy_names(__name__)
