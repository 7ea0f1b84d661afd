"""Keyed state and operator state: descriptors, backends, changelog, timers, restore.

A name loads its module on first use.
"""

from typing import TYPE_CHECKING

from dstl_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from dstl_core.codec.data_io import DataInput as DataInput, DataOutput as DataOutput
    from dstl_core.codec.serializers import (
        BUILT_IN as BUILT_IN,
        SerializerRegistry as SerializerRegistry,
        SnapshotContext as SnapshotContext,
        Types as Types,
        TypeSerializer as TypeSerializer,
    )
    from dstl_core.state.backends.state_backend import (
        EmbeddedRocksDBStateBackend as EmbeddedRocksDBStateBackend,
        HashMapStateBackend as HashMapStateBackend,
        KeyedStateBackendParameters as KeyedStateBackendParameters,
        StateBackend as StateBackend,
        StateBackendFactory as StateBackendFactory,
        load_state_backend as load_state_backend,
        register_state_backend as register_state_backend,
    )
    from dstl_core.state.tables.descriptor import (
        AggregatingStateDescriptor as AggregatingStateDescriptor,
        ListStateDescriptor as ListStateDescriptor,
        MapStateDescriptor as MapStateDescriptor,
        ReducingStateDescriptor as ReducingStateDescriptor,
        ValueStateDescriptor as ValueStateDescriptor,
    )
    from dstl_core.state.tables.ttl import StateTtlConfig as StateTtlConfig


__getattr__, __dir__ = lazy_names(__name__)
