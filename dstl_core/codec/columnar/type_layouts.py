"""The layout of each Flink type. Adding a type is one function here.

The table of Arrow forms is the one of ``docs/types.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import pyarrow as pa

from dstl_core.codec.columnar import instructions as i
from dstl_core.codec.columnar.layouts import (
    Bool,
    Fixed,
    Layout,
    MapOf,
    Marker,
    Nullable,
    Repeated,
    Struct,
    Text,
)
from dstl_core.codec.serializers import (
    AnySerializer,
    ListSerializer,
    MapSerializer,
    TimerSerializer,
    TtlSerializer,
    TupleSerializer,
    VoidNamespaceSerializer,
)
from dstl_core.codec.serializers.primitives import (
    BooleanSerializer,
    ByteSerializer,
    DoubleSerializer,
    FloatSerializer,
    IntSerializer,
    LongSerializer,
    ShortSerializer,
)
from dstl_core.codec.serializers.strings import StringSerializer
from dstl_core.codec.serializers.windows import TimeWindowSerializer
from dstl_core.errors import ConfigError


@dataclass(frozen=True)
class ColumnOptions:
    """How types become columns where there is a choice.

    Args:
        strings: ``error``: text columns, and a lone surrogate is an error; ``utf16``: binary
            columns of big-endian UTF-16, which hold every string.
        maps: ``map``: Arrow maps, and a null key is an error; ``entries``: lists of structs.
    """

    strings: Literal["error", "utf16"] = "error"
    maps: Literal["map", "entries"] = "map"

    def __post_init__(self) -> None:
        for name, known in (("strings", ("error", "utf16")), ("maps", ("map", "entries"))):
            got = getattr(self, name)
            if got not in known:
                raise ConfigError(f"{name} is wrong: expected {' or '.join(known)}, got {got!r}.")


DEFAULT_OPTIONS = ColumnOptions()


class NoLayoutError(Exception):
    """A type that has no columnar form. The caller has the slow path, or says so."""

    def __init__(self, serializer: AnySerializer) -> None:
        super().__init__(serializer.type_name)
        self.serializer = serializer


Make = Callable[[Any, ColumnOptions], Layout]
_MAKERS: dict[type[AnySerializer], Make] = {}
Maker = TypeVar("Maker", bound=Make)


def layout_of(serializer: AnySerializer, options: ColumnOptions = DEFAULT_OPTIONS) -> Layout:
    """A new layout of a type.

    Raises:
        NoLayoutError: The type, or one inside it, has none.
    """
    make = _MAKERS.get(type(serializer))
    if make is None:
        raise NoLayoutError(serializer)
    return make(serializer, options)


def has_layout(serializer: AnySerializer) -> bool:
    try:
        layout_of(serializer)
    except NoLayoutError:
        return False
    return True


def _for(*serializers: type[AnySerializer]) -> Callable[[Maker], Maker]:
    def register(make: Maker) -> Maker:
        for each in serializers:
            _MAKERS[each] = make
        return make

    return register


def _fixed(serializer: type[AnySerializer], arrow_type: pa.DataType, op: int, width: int) -> None:
    _MAKERS[serializer] = lambda _, __: Fixed(arrow_type, op, width)


_fixed(ByteSerializer, pa.int8(), i.COPY1, 1)
_fixed(ShortSerializer, pa.int16(), i.COPY2, 2)
_fixed(IntSerializer, pa.int32(), i.COPY4, 4)
_fixed(LongSerializer, pa.int64(), i.COPY8, 8)
_fixed(FloatSerializer, pa.float32(), i.COPY4, 4)
_fixed(DoubleSerializer, pa.float64(), i.COPY8, 8)


@_for(BooleanSerializer)
def _boolean(_: BooleanSerializer, __: ColumnOptions) -> Layout:
    return Bool()


@_for(StringSerializer)
def _string(_: StringSerializer, options: ColumnOptions) -> Layout:
    return Text(utf16=options.strings == "utf16")


@_for(ListSerializer)
def _list(serializer: ListSerializer, options: ColumnOptions) -> Layout:
    element = serializer.element
    return Repeated(layout_of(element, options), max(1, element.length))


@_for(MapSerializer)
def _map(serializer: MapSerializer, options: ColumnOptions) -> Layout:
    key = layout_of(serializer.key, options)
    value = Nullable(layout_of(serializer.value, options))
    return MapOf(key, value, as_map=options.maps == "map")


@_for(TupleSerializer)
def _tuple(serializer: TupleSerializer, options: ColumnOptions) -> Layout:
    fields = [(f"f{at}", layout_of(each, options)) for at, each in enumerate(serializer.fields)]
    return Struct(fields)


@_for(TtlSerializer)
def _ttl(serializer: TtlSerializer, options: ColumnOptions) -> Layout:
    timestamp = Fixed(pa.int64(), i.COPY8, 8)
    return Struct([("ts", timestamp), ("v", layout_of(serializer.value, options))], ["v", "ts"])


@_for(VoidNamespaceSerializer)
def _void_namespace(_: VoidNamespaceSerializer, __: ColumnOptions) -> Layout:
    return Marker(0)


@_for(TimeWindowSerializer)
def _time_window(_: TimeWindowSerializer, __: ColumnOptions) -> Layout:
    return Struct([(name, Fixed(pa.int64(), i.COPY8, 8)) for name in ("start", "end")])


@_for(TimerSerializer)
def _timer(serializer: TimerSerializer, options: ColumnOptions) -> Layout:
    return Struct(
        [
            ("timestamp", Fixed(pa.int64(), i.FLIP8, 8)),
            ("key", layout_of(serializer.key, options)),
            ("namespace", layout_of(serializer.namespace, options)),
        ]
    )
