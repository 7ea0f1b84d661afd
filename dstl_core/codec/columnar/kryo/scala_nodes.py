"""Describes to the kernels how values of Scala's API become those of a job that leaves it.

The rules are those of ``out_of_scala``. What has no node here is unknown, so its values are
converted one by one: ``Try``, numbers of Scala, and collections that become Kryo.
"""

from __future__ import annotations

import numpy as np

from dstl_core.codec.classfile.job_jar import JobClasses
from dstl_core.codec.columnar.kernels.kryo import codes as k
from dstl_core.codec.columnar.kernels.kryo import convert as ops
from dstl_core.codec.columnar.kryo.type_nodes import TypeNodes
from dstl_core.codec.columnar.types.addresses import address_of
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.codec.kryo.kryo_serializer import ReadableKryoSerializer
from dstl_core.codec.kryo.out_of_scala import (
    constants_of,
    element_of,
    fields_by_name,
    is_primitive,
    pair_of,
    takes_null,
)
from dstl_core.codec.kryo.type_changes import COLLECTIONS
from dstl_core.codec.serializers.arrays import GenericArraySerializer
from dstl_core.codec.serializers.base import AnySerializer, serialize_to_bytes
from dstl_core.codec.serializers.collections import (
    ListSerializer,
    MapSerializer,
    SetSerializer,
    TupleSerializer,
)
from dstl_core.codec.serializers.libraries.flink_scala_api import (
    CaseClassSerializer,
    CollectionSerializer,
    FlinkScalaEitherSerializer,
    OptionSerializer,
    ScalaMapSerializer,
)
from dstl_core.codec.serializers.names import Types
from dstl_core.codec.serializers.opaque import KryoSerializer, holds_kryo
from dstl_core.codec.serializers.pojo import PojoSerializer, primitive_default
from dstl_core.codec.serializers.primitives import VoidSerializer
from dstl_core.codec.serializers.runtime import TtlSerializer
from dstl_core.codec.serializers.scala import (
    ScalaCaseClassSerializer,
    ScalaCollectionSerializer,
    ScalaEitherSerializer,
    ScalaEnumSerializer,
    ScalaOptionSerializer,
    ScalaTrySerializer,
    ScalaUnitSerializer,
)
from dstl_core.codec.serializers.structs import (
    EitherSerializer,
    NullableSerializer,
    RowSerializer,
)

_MOST_DEPTH = 24
Piece = int | bytes
"""The number of a part, or bytes."""


class ScalaNodes:
    """Nodes of types with parts of Scala.

    Args:
        nodes: The nodes of all types.
        classes: The classes of the new job.
    """

    def __init__(self, nodes: TypeNodes, classes: JobClasses) -> None:
        self._nodes = nodes
        self._classes = classes

    def of(self, old: AnySerializer, new: AnySerializer, depth: int = 0) -> Int64s:
        """The node that makes a new value of an old one."""
        if depth > _MOST_DEPTH:
            return self._nodes.unknown()
        after = depth + 1
        if isinstance(old, ScalaOptionSerializer):
            return self._option(old, new, after)
        if isinstance(new, NullableSerializer):
            before = ops.NULL_FLAG if isinstance(old, NullableSerializer) else ops.NOTHING
            was = old.inner if isinstance(old, NullableSerializer) else old
            if new.padding or (isinstance(old, NullableSerializer) and old.padding):
                return self._nodes.unknown()
            return self._nodes.nullable(self.of(was, new.inner, after), before)
        if isinstance(old, KryoSerializer):
            return self._kryo(old, new)
        if old == new:
            return self._nodes.unknown() if holds_kryo(old) else self._nodes.converted(old, new)
        match old, new:
            case (CaseClassSerializer() | ScalaTrySerializer(), _):
                return self._nodes.unknown()
            case ScalaCaseClassSerializer(problem=str()), _:
                return self._nodes.unknown()  # single objects say what the problem is
            case TtlSerializer(), TtlSerializer():
                value = self._nodes.nullable(
                    self.of(old.value, new.value, after), ops.NOTHING, ops.NEVER_NULL, b""
                )
                return self._nodes.node(ops.TUPLE, [self._nodes.copied(Types.LONG), value])
            case ScalaCaseClassSerializer(), CaseClassSerializer():
                return self._record(old, new, after)
            case ScalaCaseClassSerializer() | TupleSerializer(), TupleSerializer():
                pairs = zip(old.fields, new.fields, strict=True)
                return self._nodes.node(ops.TUPLE, [self.of(*pair, after) for pair in pairs])
            case ScalaCaseClassSerializer() | TupleSerializer(), RowSerializer():
                return self._row(old, new, after)
            case ScalaCaseClassSerializer() | PojoSerializer(), PojoSerializer():
                return self._pojo(old, new, after)
            case (
                ScalaEitherSerializer() | EitherSerializer(),
                EitherSerializer() | FlinkScalaEitherSerializer(),
            ):
                sides = self.of(old.left, new.left, after), self.of(old.right, new.right, after)
                return self._nodes.node(ops.EITHER, sides)
            case ScalaEnumSerializer(), _:
                return self._enum(old, new)
            case ScalaUnitSerializer(), VoidSerializer():
                return self._nodes.copied(new)
        return self._collection(old, new, after)

    def _option(self, old: ScalaOptionSerializer, new: AnySerializer, depth: int) -> Int64s:
        if isinstance(old.inner, ScalaOptionSerializer):
            return self._nodes.unknown()
        before = ops.THERE_FLAG
        if isinstance(new, OptionSerializer):
            inner = self._item(old.inner, new.inner, ops.NOTHING, depth)
            return self._nodes.nullable(inner, before, ops.THERE_FLAG, b"\0")
        if isinstance(new, NullableSerializer):
            if new.padding:
                return self._nodes.unknown()
            return self._nodes.nullable(self.of(old.inner, new.inner, depth), before)
        return self._nodes.nullable(self.of(old.inner, new, depth), before, *_form_of_null(new))

    def _part(
        self, old: AnySerializer, new: AnySerializer, before: int, after: int, depth: int
    ) -> Int64s:
        """A part behind a flag that says whether it is null, or there."""
        null = b"\1" if after == ops.NULL_FLAG else b"\0"
        plain = not isinstance(new, NullableSerializer | OptionSerializer)
        if not isinstance(old, ScalaOptionSerializer) or not plain:
            return self._nodes.nullable(self.of(old, new, depth), before, after, null)
        if isinstance(old.inner, ScalaOptionSerializer):
            return self._nodes.unknown()
        inner = self.of(old.inner, new, depth)
        option = self._nodes.nullable(inner, ops.THERE_FLAG, after, null)
        if before == ops.NOTHING:
            return option
        return self._nodes.nullable(option, before, ops.NOTHING, null)

    def _item(self, old: AnySerializer, new: AnySerializer, before: int, depth: int) -> Int64s:
        """An element without a flag in front."""
        return self._nodes.nullable(self.of(old, new, depth), before, *_form_of_null(new))

    def _record(
        self, old: ScalaCaseClassSerializer, new: CaseClassSerializer, depth: int
    ) -> Int64s:
        """A record says how many fields it has: new ones have their defaults."""
        pairs = zip(old.fields, new.fields, strict=False)
        parts = [self._item(*pair, ops.NOTHING, depth) for pair in pairs]
        count = len(parts).to_bytes(4, "big")
        return self._assembled(parts, [count, *range(len(parts))])

    def _row(
        self, old: ScalaCaseClassSerializer | TupleSerializer, new: RowSerializer, depth: int
    ) -> Int64s:
        """A row without nulls; those in a mask are left to single objects."""
        parts = []
        for part, wanted in zip(old.fields, new.fields, strict=True):
            before, held = ops.NOTHING, part
            if isinstance(part, ScalaOptionSerializer):
                before, held = ops.THERE_FLAG, part.inner
            inner = self.of(held, wanted, depth)
            parts.append(self._nodes.nullable(inner, before, ops.NEVER_NULL, b""))
        mask = bytes((len(parts) + (2 if new.with_kind else 0) + 7) // 8)
        return self._assembled(parts, [mask, *range(len(parts))])

    def _pojo(
        self, old: ScalaCaseClassSerializer | PojoSerializer, new: PojoSerializer, depth: int
    ) -> Int64s:
        types = fields_by_name(old, new)
        wanted = {entry.name: entry.serializer for entry in new.fields if entry.serializer}
        is_pojo = isinstance(old, PojoSerializer)
        if len(wanted) < len(new.fields) or (is_pojo and len(types) < len(old.fields)):
            return self._nodes.unknown()
        before = ops.NULL_FLAG if is_pojo else ops.NOTHING
        parts = []
        for name, part in types.items():
            if is_primitive(self._classes, new.pojo_class, name):
                inner = self.of(part, wanted[name], depth)
                parts.append(self._nodes.nullable(inner, before, null=b""))
            else:
                parts.append(self._part(part, wanted[name], before, ops.NULL_FLAG, depth))
        numbers = {name: number for number, name in enumerate(types)}
        pieces: list[Piece] = [bytes((ops.ITSELF,))]
        for name, field in wanted.items():
            pieces.append(numbers[name] if name in numbers else _default(field))
        return self._assembled(parts, pieces, has_flags=is_pojo)

    def _assembled(
        self, parts: list[Int64s], pieces: list[Piece], *, has_flags: bool = False
    ) -> Int64s:
        if len(parts) > k.MAX_PARTS:
            return self._nodes.unknown()
        words = [len(pieces)]
        for piece in pieces:
            if isinstance(piece, bytes):
                words += [-1, address_of(self._nodes.keep_bytes(piece)), len(piece)]
            else:
                words += [piece, 0, 0]
        table = self._nodes.keep(np.array(words, np.int64))
        return self._nodes.node(
            ops.ASSEMBLED, parts, operand=address_of(table), extra=int(has_flags)
        )

    def _enum(self, old: ScalaEnumSerializer, new: AnySerializer) -> Int64s:
        convert = constants_of(old, new)
        words: list[int] = []
        for name, number in old.constants:
            content = serialize_to_bytes(new, convert(name))
            words += [number, address_of(self._nodes.keep_bytes(content)), len(content)]
        table = self._nodes.keep(np.array(words or [0], np.int64))
        return self._nodes.node(ops.CHOICE, operand=address_of(table), extra=len(old.constants))

    def _collection(self, old: AnySerializer, new: AnySerializer, depth: int) -> Int64s:
        nodes, is_map = self._nodes, isinstance(old, MapSerializer)
        pair, before = pair_of(old), ops.NULL_FLAG if is_map else ops.NOTHING
        if pair is not None and isinstance(new, ScalaMapSerializer | MapSerializer):
            key = self._item(pair[0], new.key, ops.NOTHING, depth)
            if isinstance(new, MapSerializer):
                value = self._part(pair[1], new.value, before, ops.NULL_FLAG, depth)
            else:
                value = self._item(pair[1], new.value, before, depth)
            entry = nodes.node(ops.TUPLE, [key, value])
            if not is_map:
                entry = nodes.nullable(entry, ops.THERE_FLAG, ops.NEVER_NULL, b"")
            return nodes.node(ops.LIST, [entry])
        part, wanted = element_of(old), element_of(new)
        if part is None or wanted is None:
            return nodes.unknown()
        before = _flag_of(old)
        if isinstance(new, ListSerializer | CollectionSerializer):
            return nodes.node(ops.LIST, [self._item(part, wanted, before, depth)])
        return nodes.node(ops.LIST, [self._part(part, wanted, before, _flag_of(new), depth)])

    def _kryo(self, old: KryoSerializer, new: AnySerializer) -> Int64s:
        is_same = isinstance(new, ReadableKryoSerializer) and new.java_class == old.java_class
        is_known = isinstance(old, ReadableKryoSerializer) and (
            is_same or old.java_class in COLLECTIONS
        )
        return self._nodes.converted(old, new) if is_known else self._nodes.unknown()


def _flag_of(collection: AnySerializer) -> int:
    """What says of an element whether it is there."""
    match collection:
        case ScalaCollectionSerializer() | GenericArraySerializer():
            return ops.THERE_FLAG
        case SetSerializer():
            return ops.NULL_FLAG
    return ops.NOTHING


def _form_of_null(new: AnySerializer) -> tuple[int, bytes]:
    """What says that a value without a flag is there, and the bytes of null."""
    if takes_null(new):
        return ops.NOTHING, serialize_to_bytes(new, None)
    return ops.NEVER_NULL, b""


def _default(field: AnySerializer) -> bytes:
    """The bytes of a new field of a POJO."""
    value = primitive_default(field)
    return b"\1" if value is None else b"\0" + serialize_to_bytes(field, value)
