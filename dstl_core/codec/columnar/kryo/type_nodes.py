"""Describes types to the kernels that convert values of Kryo 2.24."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from dstl_core.codec.classfile.generic_types import array_name
from dstl_core.codec.columnar.kernels.kryo import codes as k
from dstl_core.codec.columnar.kernels.kryo import convert as ops
from dstl_core.codec.columnar.kryo.class_tables import (
    SCALAR_KINDS,
    BodyTable,
    ClassTable,
    NotInTablesError,
    primitive_kind,
)
from dstl_core.codec.columnar.types.addresses import address_of
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.codec.data_io import DataOutput
from dstl_core.codec.kryo.class_layouts import ClassLayouts
from dstl_core.codec.kryo.flink_types import JobPojoSerializer
from dstl_core.codec.kryo.kryo_objects import Dialect
from dstl_core.codec.kryo.kryo_serializer import ReadableKryoSerializer
from dstl_core.codec.kryo.object_bodies import FieldsBody
from dstl_core.codec.serializers import arrays, dates, primitives, value_classes, window_types
from dstl_core.codec.serializers.arrays import GenericArraySerializer
from dstl_core.codec.serializers.base import AnySerializer
from dstl_core.codec.serializers.collections import (
    ListSerializer,
    MapSerializer,
    SetSerializer,
    TupleSerializer,
)
from dstl_core.codec.serializers.numbers import BigDecSerializer, BigIntSerializer
from dstl_core.codec.serializers.pojo import PojoSerializer
from dstl_core.codec.serializers.runtime import TtlSerializer, VoidNamespaceSerializer
from dstl_core.codec.serializers.strings import StringSerializer
from dstl_core.codec.serializers.structs import (
    EitherSerializer,
    EnumSerializer,
    NullableSerializer,
    RowSerializer,
)
from dstl_core.errors import FormatError, UnreadableValueError

_MOST_DEPTH = 24
_FIXED = (
    primitives.ByteSerializer,
    primitives.CharSerializer,
    primitives.ShortSerializer,
    primitives.IntSerializer,
    primitives.LongSerializer,
    primitives.FloatSerializer,
    primitives.DoubleSerializer,
    value_classes.ByteValueSerializer,
    value_classes.CharValueSerializer,
    value_classes.ShortValueSerializer,
    value_classes.IntValueSerializer,
    value_classes.LongValueSerializer,
    value_classes.FloatValueSerializer,
    value_classes.DoubleValueSerializer,
    window_types.TimeWindowSerializer,
    window_types.SqlTimeWindowSerializer,
    window_types.CountWindowSerializer,
)
"""Types whose bytes are copied by their length."""
_ITEM_BYTES: dict[type[AnySerializer], int] = {
    arrays.BytePrimitiveArraySerializer: 1,
    arrays.CharPrimitiveArraySerializer: 2,
    arrays.ShortPrimitiveArraySerializer: 2,
    arrays.IntPrimitiveArraySerializer: 4,
    arrays.LongPrimitiveArraySerializer: 8,
    arrays.FloatPrimitiveArraySerializer: 4,
    arrays.DoublePrimitiveArraySerializer: 8,
}
"""Arrays whose bytes are copied by their number of items."""
_MILLIS = (dates.DateSerializer, dates.SqlDateSerializer, dates.SqlTimeSerializer)
_NANOS: dict[type[AnySerializer], int] = {
    dates.SqlTimestampSerializer: 0,
    dates.InstantSerializer: -(1 << 31),
}
"""What stands for the nanoseconds of null."""
_LOCAL: dict[type[AnySerializer], tuple[bool, bool]] = {
    dates.LocalDateSerializer: (True, False),
    dates.LocalTimeSerializer: (False, True),
    dates.LocalDateTimeSerializer: (True, True),
}
"""Whether they have a date, and a time of the day."""
_LEAVES: tuple[tuple[type[AnySerializer], str], ...] = (
    (primitives.BooleanSerializer, "java.lang.Boolean"),
    (primitives.ByteSerializer, "java.lang.Byte"),
    (primitives.CharSerializer, "java.lang.Character"),
    (primitives.ShortSerializer, "java.lang.Short"),
    (primitives.IntSerializer, "java.lang.Integer"),
    (primitives.LongSerializer, "java.lang.Long"),
    (primitives.FloatSerializer, "java.lang.Float"),
    (primitives.DoubleSerializer, "java.lang.Double"),
    (StringSerializer, "java.lang.String"),
    (dates.DateSerializer, "java.util.Date"),
    (dates.SqlDateSerializer, "java.sql.Date"),
    (dates.SqlTimeSerializer, "java.sql.Time"),
    (dates.SqlTimestampSerializer, "java.sql.Timestamp"),
    (dates.InstantSerializer, "java.time.Instant"),
    (BigIntSerializer, "java.math.BigInteger"),
    (BigDecSerializer, "java.math.BigDecimal"),
)
"""Types of Flink, and the class whose objects Kryo stores for them."""
_ARRAYS: tuple[tuple[type[AnySerializer], str], ...] = (
    (arrays.BooleanPrimitiveArraySerializer, "boolean"),
    (arrays.BytePrimitiveArraySerializer, "byte"),
    (arrays.CharPrimitiveArraySerializer, "char"),
    (arrays.ShortPrimitiveArraySerializer, "short"),
    (arrays.IntPrimitiveArraySerializer, "int"),
    (arrays.LongPrimitiveArraySerializer, "long"),
    (arrays.FloatPrimitiveArraySerializer, "float"),
    (arrays.DoublePrimitiveArraySerializer, "double"),
)
"""Arrays of Flink, and the type of their items."""

Types = tuple[AnySerializer, AnySerializer]
"""A type before and after."""


class TypeNodes:
    """Nodes of types, and the tables that they name."""

    def __init__(self) -> None:
        self.classes = ClassTable()
        self.tables: dict[int, BodyTable] = {}
        self._by_layouts: dict[tuple[int, Dialect], BodyTable] = {}
        self._kept: list[object] = []
        self._pojos: dict[int, tuple[JobPojoSerializer, ClassLayouts, Int64s, int]] = {}
        """POJOs that are built, by their nodes: how, their subclasses, how deep they are."""
        self._subclasses_of: dict[tuple[str, int], Int64s] = {}
        """Tables of subclasses by class, which all fields of the class share."""

    def add_subclass(self, number: int, node: int) -> bool:
        """Answers a kernel that writes an object of a class where another POJO is declared."""
        declared, layouts, table, depth = self._pojos[node]
        name = self.classes.names[number]
        try:
            subclass = declared.find_subclass(name)
        except UnreadableValueError:
            subclass = None
        if subclass is None or subclass.pojo_class != name or name == declared.pojo_class:
            return False
        try:
            built = self._built(subclass, layouts, depth + 1)
        except NotInTablesError:
            return False
        if built[0] != ops.POJO:
            return False
        out = DataOutput()
        declared.write_other(name, out)
        front = self.keep_bytes(out.to_bytes())
        table[number] = address_of(built), address_of(front), len(front)
        return True

    def add_class(self, marked: bytes) -> bool:
        """Takes a class by its name in the bytes; False if there is no place for it."""
        name = marked[:-1] + bytes((marked[-1] & 0x7F,))
        try:
            self.classes.number(name.decode("ascii"))
        except NotInTablesError:
            return False
        return True

    def converted(self, old: AnySerializer, new: AnySerializer, depth: int = 0) -> Int64s:
        """The node that converts a type; an unknown type is unsupported."""
        if depth > _MOST_DEPTH:
            return self.node(ops.UNKNOWN)
        parts: list[Int64s] = []

        def part(of_old: AnySerializer, of_new: AnySerializer) -> None:
            parts.append(self.converted(of_old, of_new, depth + 1))

        match old, new:
            case ReadableKryoSerializer(), _:
                return self.kryo(old, new)
            case PojoSerializer(), PojoSerializer():
                return self._pojo(old, new, depth)
            case (TupleSerializer(), TupleSerializer()):
                for old_field, other in zip(old.fields, new.fields, strict=True):
                    part(old_field, other)
                return self.node(ops.TUPLE, parts)
            case TtlSerializer(), TtlSerializer():
                parts.append(self.node(ops.FIXED, operand=8))
                part(old.value, new.value)
                return self.node(ops.TUPLE, parts)
            case (ListSerializer(), ListSerializer()):
                part(old.element, new.element)
                return self.node(ops.LIST, parts)
            case (SetSerializer(), SetSerializer()):
                part(old.element, new.element)
                return self.node(ops.SET, parts)
            case MapSerializer(), MapSerializer():
                part(old.key, new.key)
                part(old.value, new.value)
                return self.node(ops.MAP, parts)
            case GenericArraySerializer(), GenericArraySerializer():
                part(old.component, new.component)
                return self.node(ops.ARRAY, parts)
            case RowSerializer(), RowSerializer() if old.with_kind == new.with_kind:
                for old_field, other in zip(old.fields, new.fields, strict=True):
                    part(old_field, other)
                return self.node(ops.ROW, parts, operand=2 if old.with_kind else 0)
            case EitherSerializer(), EitherSerializer():
                part(old.left, new.left)
                part(old.right, new.right)
                return self.node(ops.EITHER, parts)
            case NullableSerializer(), NullableSerializer():
                inner = self.converted(old.inner, new.inner, depth + 1)
                return self.nullable(inner, padding=old.padding)
        return self.copied(old)

    def unknown(self) -> Int64s:
        """The node of values that are left to the conversion of single objects."""
        return self.node(ops.UNKNOWN)

    def nullable(
        self,
        inner: Int64s,
        before: int = ops.NULL_FLAG,
        after: int = ops.NULL_FLAG,
        null: bytes = b"\1",
        padding: int = 0,
    ) -> Int64s:
        """The node of a value that may be null.

        Args:
            inner: The node of a value that is there.
            before: What says that it is there.
            after: What says so in the output.
            null: What stands for null in the output; empty if null is unsupported.
            padding: Bytes behind the flag of null.
        """
        raw = self.keep_bytes(null)
        how = self.keep(np.array([before, after, address_of(raw), len(null)], np.int64))
        return self.node(ops.NULLABLE, [inner], operand=padding, extra=address_of(how))

    def stored_key(self, prefix_bytes: int, parts: Sequence[Int64s]) -> Int64s:
        """The node of a stored key: the key group, then parts."""
        return self.node(ops.TUPLE, [self.node(ops.FIXED, operand=prefix_bytes), *parts])

    def copied(self, same: AnySerializer) -> Int64s:
        """The node of a type that stays."""
        if type(same) in _FIXED:
            return self.node(ops.FIXED, operand=same.length)
        if type(same) in _ITEM_BYTES:
            return self.node(ops.NUMBERS, operand=_ITEM_BYTES[type(same)])
        if type(same) in _MILLIS:
            return self.node(ops.MILLIS)
        if type(same) in _NANOS:
            return self.node(ops.NANOS, operand=_NANOS[type(same)])
        if type(same) in _LOCAL:
            has_date, has_time = _LOCAL[type(same)]
            return self.node(ops.LOCAL, operand=has_date, extra=has_time)
        match same:
            case primitives.BooleanSerializer():
                return self.node(ops.FLAG)
            case (
                VoidNamespaceSerializer()
                | primitives.VoidSerializer()
                | window_types.GlobalWindowSerializer()
            ):
                return self.node(ops.ZERO)
            case StringSerializer():
                return self.node(ops.TEXT)
            case arrays.BooleanPrimitiveArraySerializer():
                return self.node(ops.LIST, [self.node(ops.FLAG)])
            case arrays.StringArraySerializer():
                return self.node(ops.LIST, [self.node(ops.TEXT)])
            case BigIntSerializer():
                return self.node(ops.BIG_INTEGER)
            case BigDecSerializer():
                return self.node(ops.BIG_DECIMAL)
            case EnumSerializer() if len(set(same.constants)) == len(same.constants):
                return self.node(ops.CONSTANT, extra=len(same.constants))
        return self.node(ops.UNKNOWN)

    def _pojo(self, old: PojoSerializer, new: PojoSerializer, depth: int) -> Int64s:
        parts = []
        for old_field, other in zip(old.fields, new.fields, strict=True):
            if old_field.serializer is None or other.serializer is None:
                parts.append(self.node(ops.UNKNOWN))
            else:
                parts.append(self.converted(old_field.serializer, other.serializer, depth + 1))
        return self.node(ops.POJO, parts, extra=self._subclasses(old, new, depth))

    def _subclasses(self, old: PojoSerializer, new: PojoSerializer, depth: int) -> int:
        """The address of the table of subclasses in the snapshot.

        A value is written anew by the name of its class. So a name counts once, and a type that is
        not of this name is unsupported.
        """
        entries = zip(old.registered + old.others, new.registered + new.others, strict=True)
        known = {old.pojo_class}
        words = [len(old.registered), len(old.others)]
        for old_entry, other in entries:
            node = 0
            before, after = old_entry.serializer, other.serializer
            if (
                old_entry.name not in known
                and isinstance(before, PojoSerializer)
                and isinstance(after, PojoSerializer)
                and before.pojo_class == old_entry.name == after.pojo_class
            ):
                node = address_of(self.converted(before, after, depth + 1))
            known.add(old_entry.name)
            raw = self.keep_bytes(old_entry.name.encode())
            words += [node, address_of(raw), len(raw)]
        return address_of(self.keep(np.array(words, np.int64))) if len(words) > 2 else 0

    def kryo(self, old: ReadableKryoSerializer, new: AnySerializer) -> Int64s:
        try:
            built = self._built(new, old.classes.layouts, 0)
            registered = self._registered(old.registered)
        except NotInTablesError:
            return self.node(ops.UNKNOWN)
        bodies = self._bodies(old.classes.layouts, Dialect.KRYO_2).address
        return self.node(ops.KRYO, [built], operand=address_of(registered), extra=bodies)

    # ------------------------------------------------------------------ types that are built

    def _built(self, new: AnySerializer, old: ClassLayouts, depth: int) -> Int64s:
        """The node that builds a type of an object of Kryo."""
        if depth > _MOST_DEPTH:
            return self.node(ops.UNKNOWN)
        match new:
            case ReadableKryoSerializer():
                bodies = self._bodies(new.classes.layouts, Dialect.KRYO_5).address
                ids = address_of(self._ids(new.registered))
                return self.node(ops.KRYO_5, operand=ids, extra=bodies)
            case NullableSerializer():
                inner = self._built(new.inner, old, depth + 1)
                return self.node(ops.NULLABLE, [inner], operand=new.padding)
            case ListSerializer() | SetSerializer():
                kind = ops.LIST if isinstance(new, ListSerializer) else ops.SET
                return self.node(kind, [self._built(new.element, old, depth + 1)], operand=-1)
            case GenericArraySerializer():
                component = self._built(new.component, old, depth + 1)
                cls = self.classes.number(array_name(new.component_class))
                return self.node(ops.ARRAY, [component], operand=cls)
            case arrays.StringArraySerializer():
                text = self._built(StringSerializer(), old, depth + 1)
                cls = self.classes.number(array_name("java.lang.String"))
                return self.node(ops.LIST, [text], operand=cls)
            case MapSerializer():
                parts = [self._built(each, old, depth + 1) for each in (new.key, new.value)]
                return self.node(ops.MAP, parts)
            case TupleSerializer():
                name = f"org.apache.flink.api.java.tuple.Tuple{len(new.fields)}"
                names = [f"f{at}" for at in range(len(new.fields))]
                return self._object(ops.TUPLE, name, names, new.fields, old, depth)
            case PojoSerializer():
                fields = [(each.name, each.serializer) for each in new.fields]
                names = [name for name, _ in fields]
                types = [each for _, each in fields if each is not None]
                node = self._object(ops.POJO, new.pojo_class, names, types, old, depth)
                return self._with_subclasses(node, new, old, depth)
            case EnumSerializer():
                count = len(set(new.constants))
                if count < len(new.constants):
                    return self.node(ops.UNKNOWN)
                return self.node(ops.CONSTANT, extra=count)
        for leaf, name in _LEAVES:
            if type(new) is leaf:
                cls = self.classes.number(name)
                return self.node(ops.LEAF, operand=cls, extra=SCALAR_KINDS[name])
        for array, name in _ARRAYS:
            if type(new) is array:
                cls = self.classes.number(array_name(name))
                return self.node(ops.NUMBERS, operand=cls, extra=primitive_kind(name) or 0)
        return self.node(ops.UNKNOWN)

    def _object(
        self,
        kind: int,
        class_name: str,
        names: Sequence[str],
        types: Sequence[AnySerializer],
        layouts: ClassLayouts,
        depth: int,
    ) -> Int64s:
        """An object with fields, if Kryo has the same fields in the same order."""
        try:
            body = layouts.body(class_name)
        except FormatError:
            return self.node(ops.UNKNOWN)
        if not isinstance(body, FieldsBody) or [slot.key for slot in body.slots] != list(names):
            return self.node(ops.UNKNOWN)
        if len(types) != len(names):
            return self.node(ops.UNKNOWN)
        parts = []
        for slot, slot_type in zip(body.slots, types, strict=True):
            primitive = primitive_kind(slot.type.name)
            if primitive is None:
                parts.append(self._built(slot_type, layouts, depth + 1))
            else:
                parts.append(self._primitive(primitive, slot_type))
        return self.node(kind, parts, operand=self.classes.number(class_name))

    def _with_subclasses(
        self, node: Int64s, pojo: PojoSerializer, layouts: ClassLayouts, depth: int
    ) -> Int64s:
        """A POJO that is built, with a table of subclasses for those that values name."""
        if not isinstance(pojo, JobPojoSerializer) or pojo.registered + pojo.others:
            return node
        if node[0] == ops.POJO:
            key = pojo.pojo_class, id(layouts)
            table = self._subclasses_of.get(key)
            if table is None:
                table = self.keep(np.zeros((k.MAX_CLASSES, ops.SUBCLASS_BYTES // 8), np.int64))
                self._subclasses_of[key] = table
            self._pojos[address_of(node)] = pojo, layouts, table, depth
            node[ops.EXTRA // 8] = address_of(table)
        return node

    def _primitive(self, kind: int, new: AnySerializer) -> Int64s:
        """A primitive field.

        Raises:
            NotInTablesError: The field has another type in Flink.
        """
        known = {of: SCALAR_KINDS[name] for of, name in _LEAVES}
        if known.get(type(new)) != kind:
            raise NotInTablesError
        return self.node(ops.FIXED, extra=kind)

    # ------------------------------------------------------------------------------- tables

    def _bodies(self, layouts: ClassLayouts, dialect: Dialect) -> BodyTable:
        key = (id(layouts), dialect)
        known = self._by_layouts.get(key)
        if known is None:
            self._kept.append(layouts)  # so that its id stays
            known = self._by_layouts[key] = BodyTable(self.classes, layouts, dialect)
            self.tables[known.address] = known
        return known

    def _registered(self, registered: Mapping[int, str]) -> Int64s:
        numbers = np.full(max(registered, default=-1) + 1, -1, np.int64)
        for at, name in registered.items():
            numbers[at] = self.classes.number(name)
        return self.keep(np.append(np.int64(len(numbers)), numbers))

    def _ids(self, registered: Mapping[int, str]) -> Int64s:
        ids = np.full(k.MAX_CLASSES, -1, np.int64)
        for at, name in registered.items():
            ids[self.classes.number(name)] = at
        return self.keep(ids)

    def keep_bytes(self, raw: bytes) -> npt.NDArray[np.uint8]:
        array = np.frombuffer(raw or b"\0", np.uint8)
        self._kept.append(array)
        return array

    def keep(self, words: Int64s) -> Int64s:
        self._kept.append(words)
        return words

    def node(
        self,
        kind: int,
        parts: Sequence[Int64s] = (),
        *,
        operand: int = 0,
        extra: int = 0,
    ) -> Int64s:
        addresses = [address_of(each) for each in parts]
        return self.keep(np.array([kind, len(parts), operand, extra, *addresses], np.int64))
