"""Types and their parts: which values dstl can decode and write with another type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, cast

from dstl_core.codec.serializers import (
    AnySerializer,
    ListSerializer,
    MapSerializer,
    TtlSerializer,
    TupleSerializer,
    TypeSerializer,
    UnknownSerializer,
)
from dstl_core.codec.serializers.arrays import GenericArraySerializer
from dstl_core.codec.serializers.avro import AvroSerializer
from dstl_core.codec.serializers.collections import SetSerializer
from dstl_core.codec.serializers.opaque import KryoSerializer, ValueClassSerializer
from dstl_core.codec.serializers.pojo import PojoSerializer
from dstl_core.codec.serializers.runtime import TtlAwareSerializer
from dstl_core.codec.serializers.structs import (
    EitherSerializer,
    EnumSerializer,
    NullableSerializer,
    RowSerializer,
    UnionSerializer,
)
from dstl_core.codec.serializers.table_state import LinkedListSerializer

OPAQUE = (KryoSerializer, ValueClassSerializer, UnknownSerializer)
"""Values of these types are readable with Java classes only."""
CONVERTIBLE = (
    AvroSerializer,
    EitherSerializer,
    EnumSerializer,
    GenericArraySerializer,
    LinkedListSerializer,
    ListSerializer,
    MapSerializer,
    NullableSerializer,
    PojoSerializer,
    RowSerializer,
    SetSerializer,
    TtlAwareSerializer,
    TtlSerializer,
    TupleSerializer,
    UnionSerializer,
)
"""Types whose values become values of a changed type, part by part."""


def parts_of(serializer: AnySerializer) -> Iterator[AnySerializer]:
    """A type and all types inside it."""
    yield serializer
    for part in serializer.nested:
        yield from parts_of(part)


def outer_of(serializer: AnySerializer) -> list[object]:
    """What a type has beside its parts, e.g. the class of an array."""
    kind: Any = serializer
    if not is_dataclass(kind):
        return []
    values = [getattr(serializer, each.name) for each in fields(kind) if each.compare]
    return [each for each in values if not _has_parts(each)]


def with_parts(serializer: AnySerializer, parts: Sequence[AnySerializer]) -> AnySerializer:
    """The type with other parts, in the order of ``nested``."""
    left = iter(parts)
    changes: dict[str, Any] = {}
    for field in fields(cast(Any, serializer)):
        value = getattr(serializer, field.name)
        if isinstance(value, TypeSerializer):
            changes[field.name] = next(left)
        elif _has_parts(value):
            changes[field.name] = tuple(next(left) for _ in value)
    changed: AnySerializer = replace(cast(Any, serializer), **changes)
    return changed


def _has_parts(value: object) -> bool:
    if isinstance(value, tuple):
        return any(map(_has_parts, value))
    return isinstance(value, TypeSerializer)


def unconvertible_type(stored: AnySerializer, wanted: AnySerializer) -> str | None:
    """The name of a type in ``stored`` whose values dstl cannot rewrite; None if it can.

    Values that are rewritten are decoded as a whole, so also a part that stays must be readable.
    """
    stays = list(parts_of(wanted))
    for part in parts_of(stored):
        is_changed = part.nested and part not in stays
        if isinstance(part, OPAQUE) or (is_changed and not isinstance(part, CONVERTIBLE)):
            return part.type_name
    return None
