"""Describes types to the kernels that convert values of Kryo 2.24."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

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
from dstl_core.codec.kryo.class_layouts import ClassLayouts
from dstl_core.codec.kryo.kryo_objects import Dialect
from dstl_core.codec.kryo.kryo_serializer import ReadableKryoSerializer
from dstl_core.codec.kryo.object_bodies import FieldsBody
from dstl_core.codec.serializers import arrays, dates, primitives
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
from dstl_core.codec.serializers.runtime import TtlSerializer
from dstl_core.codec.serializers.strings import StringSerializer
from dstl_core.codec.serializers.structs import EnumSerializer, NullableSerializer
from dstl_core.errors import FormatError

_MOST_DEPTH = 24
_FIXED = (
    primitives.ByteSerializer,
    primitives.CharSerializer,
    primitives.ShortSerializer,
    primitives.IntSerializer,
    primitives.LongSerializer,
    primitives.FloatSerializer,
    primitives.DoubleSerializer,
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
_NANOS = (dates.SqlTimestampSerializer, dates.InstantSerializer)
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
)
"""Types of Flink, and the class whose objects Kryo stores for them."""


class TypeNodes:
    """Nodes of types, and the tables that they name."""

    def __init__(self) -> None:
        self.classes = ClassTable()
        self.tables: dict[int, BodyTable] = {}
        self._by_layouts: dict[tuple[int, Dialect], BodyTable] = {}
        self._kept: list[object] = []

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
            return self._node(ops.UNKNOWN)
        parts: list[Int64s] = []

        def part(of_old: AnySerializer, of_new: AnySerializer) -> None:
            parts.append(self.converted(of_old, of_new, depth + 1))

        match old, new:
            case ReadableKryoSerializer(), _:
                return self._kryo(old, new)
            case PojoSerializer(), PojoSerializer():
                return self._pojo(old, new, depth)
            case (TupleSerializer(), TupleSerializer()):
                for old_field, other in zip(old.fields, new.fields, strict=True):
                    part(old_field, other)
                return self._node(ops.TUPLE, parts)
            case TtlSerializer(), TtlSerializer():
                parts.append(self._node(ops.FIXED, operand=8))
                part(old.value, new.value)
                return self._node(ops.TUPLE, parts)
            case (ListSerializer(), ListSerializer()):
                part(old.element, new.element)
                return self._node(ops.LIST, parts)
            case (SetSerializer(), SetSerializer()):
                part(old.element, new.element)
                return self._node(ops.SET, parts)
            case MapSerializer(), MapSerializer():
                part(old.key, new.key)
                part(old.value, new.value)
                return self._node(ops.MAP, parts)
            case GenericArraySerializer(), GenericArraySerializer():
                part(old.component, new.component)
                return self._node(ops.ARRAY, parts)
            case NullableSerializer(), NullableSerializer():
                part(old.inner, new.inner)
                return self._node(ops.NULLABLE, parts, operand=old.padding)
        return self._copied(old)

    def _copied(self, same: AnySerializer) -> Int64s:
        if type(same) in _FIXED:
            return self._node(ops.FIXED, operand=same.length)
        if type(same) in _ITEM_BYTES:
            return self._node(ops.NUMBERS, operand=_ITEM_BYTES[type(same)])
        if type(same) in _MILLIS:
            return self._node(ops.MILLIS)
        if type(same) in _NANOS:
            return self._node(ops.NANOS)
        match same:
            case primitives.BooleanSerializer():
                return self._node(ops.FLAG)
            case StringSerializer():
                return self._node(ops.TEXT)
            case BigIntSerializer():
                return self._node(ops.BIG_INTEGER)
            case BigDecSerializer():
                return self._node(ops.BIG_DECIMAL)
            case EnumSerializer() if len(set(same.constants)) == len(same.constants):
                return self._node(ops.CONSTANT, extra=len(same.constants))
        return self._node(ops.UNKNOWN)

    def _pojo(self, old: PojoSerializer, new: PojoSerializer, depth: int) -> Int64s:
        parts = []
        for old_field, other in zip(old.fields, new.fields, strict=True):
            if old_field.serializer is None or other.serializer is None:
                parts.append(self._node(ops.UNKNOWN))
            else:
                parts.append(self.converted(old_field.serializer, other.serializer, depth + 1))
        return self._node(ops.POJO, parts, extra=self._subclasses(old, new, depth))

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
            raw = self._keep_bytes(old_entry.name.encode())
            words += [node, address_of(raw), len(raw)]
        return address_of(self._keep(np.array(words, np.int64))) if len(words) > 2 else 0

    def _kryo(self, old: ReadableKryoSerializer, new: AnySerializer) -> Int64s:
        try:
            built = self._built(new, old.classes.layouts, 0)
            registered = self._registered(old.registered)
        except NotInTablesError:
            return self._node(ops.UNKNOWN)
        bodies = self._bodies(old.classes.layouts, Dialect.KRYO_2).address
        return self._node(ops.KRYO, [built], operand=address_of(registered), extra=bodies)

    # ------------------------------------------------------------------ types that are built

    def _built(self, new: AnySerializer, old: ClassLayouts, depth: int) -> Int64s:
        """The node that builds a type of an object of Kryo."""
        if depth > _MOST_DEPTH:
            return self._node(ops.UNKNOWN)
        match new:
            case ReadableKryoSerializer():
                bodies = self._bodies(new.classes.layouts, Dialect.KRYO_5).address
                ids = address_of(self._ids(new.registered))
                return self._node(ops.KRYO_5, operand=ids, extra=bodies)
            case NullableSerializer():
                inner = self._built(new.inner, old, depth + 1)
                return self._node(ops.NULLABLE, [inner], operand=new.padding)
            case ListSerializer() | SetSerializer():
                kind = ops.LIST if isinstance(new, ListSerializer) else ops.SET
                return self._node(kind, [self._built(new.element, old, depth + 1)])
            case MapSerializer():
                parts = [self._built(each, old, depth + 1) for each in (new.key, new.value)]
                return self._node(ops.MAP, parts)
            case TupleSerializer():
                name = f"org.apache.flink.api.java.tuple.Tuple{len(new.fields)}"
                names = [f"f{at}" for at in range(len(new.fields))]
                return self._object(ops.TUPLE, name, names, new.fields, old, depth)
            case PojoSerializer():
                fields = [(each.name, each.serializer) for each in new.fields]
                names = [name for name, _ in fields]
                types = [each for _, each in fields if each is not None]
                return self._object(ops.POJO, new.pojo_class, names, types, old, depth)
            case EnumSerializer():
                count = len(set(new.constants))
                if count < len(new.constants):
                    return self._node(ops.UNKNOWN)
                cls = self.classes.number(new.enum_class)
                return self._node(ops.CONSTANT, operand=cls, extra=count)
        for leaf, name in _LEAVES:
            if type(new) is leaf:
                cls = self.classes.number(name)
                return self._node(ops.LEAF, operand=cls, extra=SCALAR_KINDS[name])
        return self._node(ops.UNKNOWN)

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
            return self._node(ops.UNKNOWN)
        if not isinstance(body, FieldsBody) or [slot.key for slot in body.slots] != list(names):
            return self._node(ops.UNKNOWN)
        if len(types) != len(names):
            return self._node(ops.UNKNOWN)
        parts = []
        for slot, slot_type in zip(body.slots, types, strict=True):
            primitive = primitive_kind(slot.type.name)
            if primitive is None:
                parts.append(self._built(slot_type, layouts, depth + 1))
            else:
                parts.append(self._primitive(primitive, slot_type))
        return self._node(kind, parts, operand=self.classes.number(class_name))

    def _primitive(self, kind: int, new: AnySerializer) -> Int64s:
        """A primitive field.

        Raises:
            NotInTablesError: The field has another type in Flink.
        """
        known = {of: SCALAR_KINDS[name] for of, name in _LEAVES}
        if known.get(type(new)) != kind:
            raise NotInTablesError
        return self._node(ops.FIXED, extra=kind)

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
        return self._keep(np.append(np.int64(len(numbers)), numbers))

    def _ids(self, registered: Mapping[int, str]) -> Int64s:
        ids = np.full(k.MAX_CLASSES, -1, np.int64)
        for at, name in registered.items():
            ids[self.classes.number(name)] = at
        return self._keep(ids)

    def _keep_bytes(self, raw: bytes) -> npt.NDArray[np.uint8]:
        array = np.frombuffer(raw or b"\0", np.uint8)
        self._kept.append(array)
        return array

    def _keep(self, words: Int64s) -> Int64s:
        self._kept.append(words)
        return words

    def _node(
        self,
        kind: int,
        parts: Sequence[Int64s] = (),
        *,
        operand: int = 0,
        extra: int = 0,
    ) -> Int64s:
        addresses = [address_of(each) for each in parts]
        return self._keep(np.array([kind, len(parts), operand, extra, *addresses], np.int64))
