"""Names of the columns of a state, in flat form and in the form of one row per key.

The names are those of Flink's state catalog: ``state_key``, then in flat form ``state_value`` |
``list_index``, ``list_value`` | ``map_key``, ``map_value`` | ``timestamp`` (of timers, ms), and
``state_window`` or ``state_namespace`` if the namespace is a window or another non-void type. In
the form of one row per key (and window), every state is a column of its name: the value, a list, a
map (or a list of ``key, value`` structs), or the timestamps of a timer service.
"""

from __future__ import annotations

from dstl_core.codec.columnar.keyed.decoder import KEY, NAMESPACE, TIMESTAMP, USER_KEY, VALUE
from dstl_core.codec.keyed_records import part_of
from dstl_core.codec.serializers import AnySerializer, TimerSerializer
from dstl_core.codec.serializers.window_types import (
    CountWindowSerializer,
    GlobalWindowSerializer,
    TimeWindowSerializer,
)
from dstl_core.codec.state_meta import KeyedStateType, StateMetaInfoSnapshot

KEY_COLUMN = "state_key"
WINDOW_COLUMN = "state_window"
NAMESPACE_COLUMN = "state_namespace"
VALUE_COLUMN = "state_value"
LIST_INDEX_COLUMN, LIST_VALUE_COLUMN = "list_index", "list_value"
MAP_KEY_COLUMN, MAP_VALUE_COLUMN = "map_key", "map_value"
TIMESTAMP_COLUMN = "timestamp"
KEY_GROUP_COLUMN = "key_group"
"""Read only on request. Writing needs it for keys whose Java hash is not known."""


WINDOW_TYPES = (TimeWindowSerializer, GlobalWindowSerializer, CountWindowSerializer)
"""Types of namespaces that are windows; SQL's window types are subclasses."""


def is_kind(meta: StateMetaInfoSnapshot, kind: KeyedStateType) -> bool:
    return not meta.is_queue and meta.keyed_state_type is kind


def namespace_type(meta: StateMetaInfoSnapshot) -> AnySerializer:
    if meta.is_queue:
        timer: TimerSerializer = part_of(meta, TimerSerializer)
        return timer.namespace
    return meta.namespace_serializer


def namespace_column(meta: StateMetaInfoSnapshot) -> str:
    is_window = isinstance(namespace_type(meta), TimeWindowSerializer)
    return WINDOW_COLUMN if is_window else NAMESPACE_COLUMN


def role_names(meta: StateMetaInfoSnapshot) -> dict[str, str]:
    """The names of a state's columns in flat form, by their names in ``StateDecoder``.

    A list is one column here.
    """
    value = MAP_VALUE_COLUMN if is_kind(meta, KeyedStateType.MAP) else VALUE_COLUMN
    return {
        KEY: KEY_COLUMN,
        NAMESPACE: namespace_column(meta),
        TIMESTAMP: TIMESTAMP_COLUMN,
        USER_KEY: MAP_KEY_COLUMN,
        VALUE: value,
    }
