"""The layouts of Flink's Java types. To add a type, add one function.

The Arrow forms are listed in ``docs/reference/types.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa

from dstl_core.codec.columnar.kernels import instructions as i
from dstl_core.codec.columnar.types.choice_layouts import (
    EitherOf,
    EmptyLayout,
    MaskedRow,
    PojoClass,
    PojoOf,
    StreamElement,
    TwoSizes,
    same_shape,
)
from dstl_core.codec.columnar.types.layouts import (
    Bool,
    Fixed,
    Layout,
    MapOf,
    Marker,
    Nullable,
    Repeated,
    SetOf,
    Struct,
    Text,
    Variable,
)
from dstl_core.codec.columnar.types.type_registry import (
    ColumnOptions,
    Make,
    layout_for,
    layout_of,
    no_layout,
)
from dstl_core.codec.columnar.types.value_layouts import (
    BigInt,
    Names,
    RowKind,
    big_decimal,
    time_layout,
)
from dstl_core.codec.kryo.flink_types import JobPojoSerializer
from dstl_core.codec.serializers import (
    AnySerializer,
    ListSerializer,
    MapSerializer,
    TimerSerializer,
    TtlSerializer,
    TupleSerializer,
    UnknownSerializer,
    VoidNamespaceSerializer,
    arrays,
    dates,
    numbers,
    opaque,
    primitives,
    runtime,
    scala,
    strings,
    structs,
    table_state,
    table_types,
    value_classes,
    window_types,
)
from dstl_core.codec.serializers.base import WrapperSerializer
from dstl_core.codec.serializers.collections import ArrayListSerializer, SetSerializer
from dstl_core.codec.serializers.optional_map import OptionalSnapshot
from dstl_core.codec.serializers.pojo import PojoSerializer

# ---------------------------------------------------------------------------- fixed sizes


def _always(make: Callable[[], Layout], *types: type[AnySerializer]) -> None:
    """Types with one layout, whatever the options."""
    layout_for(*types)(lambda _, __: make())


_INT8 = partial(Fixed, pa.int8(), i.COPY1, 1)
_INT16 = partial(Fixed, pa.int16(), i.COPY2, 2)
_UINT16 = partial(Fixed, pa.uint16(), i.COPY2, 2)
_INT32 = partial(Fixed, pa.int32(), i.COPY4, 4)
_INT64 = partial(Fixed, pa.int64(), i.COPY8, 8)
_FLOAT = partial(Fixed, pa.float32(), i.COPY4, 4)
_DOUBLE = partial(Fixed, pa.float64(), i.COPY8, 8)

_always(_INT8, primitives.ByteSerializer, value_classes.ByteValueSerializer)
_always(_INT16, primitives.ShortSerializer, value_classes.ShortValueSerializer)
_always(_UINT16, primitives.CharSerializer, value_classes.CharValueSerializer)
_always(_INT32, primitives.IntSerializer, value_classes.IntValueSerializer)
_always(_INT64, primitives.LongSerializer, value_classes.LongValueSerializer)
_always(_INT64, window_types.CountWindowSerializer)
_always(_FLOAT, primitives.FloatSerializer, value_classes.FloatValueSerializer)
_always(_DOUBLE, primitives.DoubleSerializer, value_classes.DoubleValueSerializer)
_always(Bool, primitives.BooleanSerializer, value_classes.BooleanValueSerializer)
_always(partial(Marker, 0, always_null=True), VoidNamespaceSerializer, primitives.VoidSerializer)
_always(
    partial(Marker, 0), window_types.GlobalWindowSerializer, window_types.SqlGlobalWindowSerializer
)
_always(partial(Marker, None), value_classes.NullValueSerializer)
_always(partial(EmptyLayout, 42), structs.Tuple0Serializer)
_always(partial(EmptyLayout, 0), scala.ScalaUnitSerializer)


@layout_for(window_types.TimeWindowSerializer, window_types.SqlTimeWindowSerializer)
def _time_window(_: AnySerializer, __: ColumnOptions) -> Layout:
    return Struct([(name, _INT64()) for name in ("start", "end")])


@layout_for(structs.EnumSerializer)
def _enum(serializer: structs.EnumSerializer, _: ColumnOptions) -> Layout:
    return Names(serializer.constants, i.INDEX4, 4, len(serializer.constants))


# -------------------------------------------------------------------------- text, numbers


@layout_for(strings.StringSerializer)
def _string(_: AnySerializer, options: ColumnOptions) -> Layout:
    return Text(utf16=options.strings == "utf16")


@layout_for(value_classes.StringValueSerializer)
def _string_value(_: AnySerializer, options: ColumnOptions) -> Layout:
    return Text(utf16=options.strings == "utf16", without_null=True)


_always(partial(BigInt, nullable=True), numbers.BigIntSerializer)
_always(big_decimal, numbers.BigDecSerializer)

# ------------------------------------------------------------------------- dates and times


def _time(how: int, *, utc: bool = False) -> Make:
    def make(_: AnySerializer, options: ColumnOptions) -> Layout:
        return time_layout(how, exact=options.timestamps == "exact", nullable=True, utc=utc)

    return make


layout_for(dates.DateSerializer)(_time(i.TIME_MS, utc=True))
layout_for(dates.SqlDateSerializer, dates.SqlTimeSerializer)(_time(i.TIME_MS))
layout_for(dates.SqlTimestampSerializer)(_time(i.TIME_SQL))
layout_for(dates.InstantSerializer)(_time(i.TIME_INSTANT, utc=True))
layout_for(dates.LocalDateTimeSerializer)(_time(i.TIME_LOCAL))


def _nullable_fixed(arrow_type: pa.DataType, op: int, width: int) -> Layout:
    layout = Fixed(arrow_type, op, width)
    layout.nullable = True
    return layout


_always(partial(_nullable_fixed, pa.date32(), i.LOCAL_DATE, 4), dates.LocalDateSerializer)
_always(partial(_nullable_fixed, pa.time64("ns"), i.LOCAL_TIME, 8), dates.LocalTimeSerializer)

# ------------------------------------------------------------------------------- containers


@layout_for(ListSerializer, ArrayListSerializer)
def _list(serializer: ListSerializer, options: ColumnOptions) -> Layout:
    element = serializer.element
    return Repeated(layout_of(element, options), max(1, element.length))


@layout_for(SetSerializer)
def _set(serializer: SetSerializer, options: ColumnOptions) -> Layout:
    return SetOf(Nullable(layout_of(serializer.element, options)))


@layout_for(MapSerializer, table_state.SortedMapSerializer)
def _map(serializer: MapSerializer, options: ColumnOptions) -> Layout:
    key = layout_of(serializer.key, options)
    value = Nullable(layout_of(serializer.value, options))
    return MapOf(key, value, as_map=options.maps == "map")


_always(
    partial(Variable, pa.binary(), i.BYTES, i.BYTES_COUNTED),
    arrays.BytePrimitiveArraySerializer,
    arrays.ByteArrayWrapperSerializer,
    table_types.BinaryRowDataSerializer,
    table_state.RawValueDataSerializer,
)
_always(lambda: Repeated(Bool(), 1), arrays.BooleanPrimitiveArraySerializer)
_always(lambda: Repeated(_INT16(), 2), arrays.ShortPrimitiveArraySerializer)
_always(lambda: Repeated(_UINT16(), 2), arrays.CharPrimitiveArraySerializer)
_always(lambda: Repeated(_INT32(), 4), arrays.IntPrimitiveArraySerializer)
_always(lambda: Repeated(_INT64(), 8), arrays.LongPrimitiveArraySerializer)
_always(lambda: Repeated(_FLOAT(), 4), arrays.FloatPrimitiveArraySerializer)
_always(lambda: Repeated(_DOUBLE(), 8), arrays.DoublePrimitiveArraySerializer)


@layout_for(arrays.StringArraySerializer)
def _string_array(_: AnySerializer, options: ColumnOptions) -> Layout:
    return Repeated(Text(utf16=options.strings == "utf16"), 1)


@layout_for(arrays.GenericArraySerializer)
def _object_array(serializer: arrays.GenericArraySerializer, options: ColumnOptions) -> Layout:
    item = Nullable(layout_of(serializer.component, options), i.PRESENT_FLAG)
    return Repeated(item, 1)


@layout_for(TupleSerializer)
def _tuple(serializer: TupleSerializer, options: ColumnOptions) -> Layout:
    return Struct(_numbered(serializer.fields, options))


def _numbered(
    fields: tuple[AnySerializer, ...], options: ColumnOptions
) -> list[tuple[str, Layout]]:
    return [(f"f{at}", layout_of(each, options)) for at, each in enumerate(fields)]


@layout_for(structs.NullableSerializer)
def _nullable(serializer: structs.NullableSerializer, options: ColumnOptions) -> Layout:
    return Nullable(layout_of(serializer.inner, options), padding=serializer.padding)


@layout_for(structs.RowSerializer)
def _row(serializer: structs.RowSerializer, options: ColumnOptions) -> Layout:
    kind = RowKind() if options.row_kinds == "column" and serializer.with_kind else None
    fields = _numbered(serializer.fields, options)
    return MaskedRow(fields, with_kind=serializer.with_kind, kind=kind)


@layout_for(structs.EitherSerializer, scala.ScalaEitherSerializer, scala.ScalaTrySerializer)
def _either(serializer: structs.TwoSidesSerializer, options: ColumnOptions) -> Layout:
    return EitherOf(layout_of(serializer.left, options), layout_of(serializer.right, options))


@layout_for(structs.UnionSerializer)
def _union(serializer: structs.UnionSerializer, options: ColumnOptions) -> Layout:
    one, two = layout_of(serializer.one, options), layout_of(serializer.two, options)
    return EitherOf(one, two, tagged=True)


# ------------------------------------------------------------------------------------- Scala


@layout_for(scala.ScalaCaseClassSerializer, scala.ScalaTuple2Serializer)
def _case_class(serializer: scala.ScalaCaseClassSerializer, options: ColumnOptions) -> Layout:
    if serializer.problem is not None:
        raise no_layout(serializer)
    fields = zip(serializer.field_names, serializer.fields, strict=True)
    return Struct([(name, layout_of(each, options)) for name, each in fields])


@layout_for(scala.ScalaOptionSerializer)
def _option(serializer: scala.ScalaOptionSerializer, options: ColumnOptions) -> Layout:
    if isinstance(serializer.inner, scala.ScalaOptionSerializer):
        raise no_layout(serializer)  # a null would stand for two values
    return Nullable(layout_of(serializer.inner, options), i.PRESENT_FLAG)


@layout_for(scala.ScalaEnumSerializer)
def _scala_enum(serializer: scala.ScalaEnumSerializer, _: ColumnOptions) -> Layout:
    by_id = {number: name for name, number in serializer.constants}
    if sorted(by_id) != list(range(len(serializer.constants))):
        raise no_layout(serializer)  # an id between others would be a value
    return Names([by_id[number] for number in sorted(by_id)], i.INDEX4, 4, len(by_id))


@layout_for(scala.ScalaCollectionSerializer)
def _scala_collection(
    serializer: scala.ScalaCollectionSerializer, options: ColumnOptions
) -> Layout:
    return Repeated(Nullable(layout_of(serializer.element, options), i.PRESENT_FLAG), 1)


# -------------------------------------------------------------------------------- the runtime


@layout_for(TtlSerializer, runtime.TtlSerializerV2)
def _ttl(serializer: TtlSerializer, options: ColumnOptions) -> Layout:
    return Struct([("ts", _INT64()), ("v", layout_of(serializer.value, options))], ["v", "ts"])


@layout_for(
    runtime.TtlAwareSerializer, table_state.MapViewSerializer, table_state.ListViewSerializer
)
def _wrapped(serializer: WrapperSerializer, options: ColumnOptions) -> Layout:
    return layout_of(serializer.inner, options)


@layout_for(TimerSerializer)
def _timer(serializer: TimerSerializer, options: ColumnOptions) -> Layout:
    return Struct(
        [
            ("timestamp", Fixed(pa.int64(), i.FLIP8, 8)),
            ("key", layout_of(serializer.key, options)),
            ("namespace", layout_of(serializer.namespace, options)),
        ]
    )


@layout_for(runtime.StreamElementSerializer)
def _stream_element(serializer: runtime.StreamElementSerializer, options: ColumnOptions) -> Layout:
    return StreamElement(layout_of(serializer.value, options))


@layout_for(runtime.BufferEntrySerializer)
def _buffer_entry(serializer: runtime.BufferEntrySerializer, options: ColumnOptions) -> Layout:
    value = layout_of(serializer.value, options)
    return Struct([("joined", Bool()), ("value", value)], ["value", "joined"])


# ------------------------------------------------------------------------------ Java's own


@layout_for(
    opaque.KryoSerializer,
    opaque.ValueClassSerializer,
    opaque.CopyableValueClassSerializer,
    opaque.JavaSerializer,
    UnknownSerializer,
)
def _unbounded(serializer: AnySerializer, _: ColumnOptions) -> Layout:
    # Such a value has no readable end, so it can be kept only where something else bounds it.
    raise no_layout(serializer)


_always(lambda: TwoSizes(["value", "metadata"]), opaque.VariantSerializer)


@layout_for(PojoSerializer, JobPojoSerializer)
def _pojo(serializer: PojoSerializer, options: ColumnOptions) -> Layout:
    known = [PojoClass(serializer.pojo_class, _pojo_fields(serializer, options))]
    for entry in serializer.registered + serializer.others:
        if not isinstance(entry.serializer, PojoSerializer):
            raise no_layout(serializer)
        known.append(PojoClass(entry.name, _pojo_fields(entry.serializer, options)))
    columns: dict[str, Layout] = {}
    for pojo in known:
        pojo.fields = [_named(columns, pojo.name, *pair) for pair in pojo.fields]
    return PojoOf(known, len(serializer.registered), columns)


def _named(
    columns: dict[str, Layout], class_name: str, name: str, layout: Layout
) -> tuple[str, Layout]:
    """A field of a class with the name of its column.

    The column has the name of the field, unless another class has a field of this name and another
    type.
    """
    owner = columns.setdefault(name, layout)
    if owner is not layout and not same_shape(owner, layout):
        name = f"{name}@{class_name}"
        columns[name] = layout
    return name, layout


def _pojo_fields(serializer: PojoSerializer, options: ColumnOptions) -> list[tuple[str, Layout]]:
    return [(field.name, _pojo_field(serializer, field, options)) for field in serializer.fields]


def _pojo_field(
    serializer: PojoSerializer, field: OptionalSnapshot, options: ColumnOptions
) -> Layout:
    if field.serializer is None:
        raise no_layout(serializer)
    layout = layout_of(field.serializer, options)
    layout.nullable = True
    return layout
