"""Which types have the same bytes, so that only a header has to change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

from dstl_core.codec.logical_types import LogicalType
from dstl_core.codec.serializers import AnySerializer
from dstl_core.codec.serializers.arrays import GenericArraySerializer
from dstl_core.codec.serializers.optional_map import OptionalSnapshot
from dstl_core.codec.serializers.pojo import PojoSerializer
from dstl_core.codec.serializers.runtime import TtlAwareSerializer
from dstl_core.codec.serializers.structs import EnumSerializer
from dstl_core.codec.serializers.table_types import RowDataSerializer
from dstl_core.state.tables.convertible import outer_of
from dstl_core.state.tables.sql_widening import widens

_WITH_LENGTH = ("VARCHAR", "VARBINARY")
_NO_CLASSES: Mapping[str, str] = {}


def pojo_classes(*serializers: AnySerializer) -> set[str]:
    """The POJO classes in types, at any depth."""
    names = {each.pojo_class for each in serializers if isinstance(each, PojoSerializer)}
    return names.union(*(pojo_classes(*each.nested) for each in serializers))


def same_bytes(
    old: AnySerializer, new: AnySerializer, classes: Mapping[str, str] = _NO_CLASSES
) -> bool:
    """Whether all values of the old type are values of the new one, with the same bytes.

    Args:
        old: The old type.
        new: The new type.
        classes: New names of POJO classes.
    """
    if isinstance(old, TtlAwareSerializer):
        return same_bytes(old.inner, new, classes)
    if isinstance(new, TtlAwareSerializer):
        return same_bytes(old, new.inner, classes)
    if isinstance(old, PojoSerializer) and isinstance(new, PojoSerializer):
        return _same_pojo(old, new, classes)
    if old == new and not old.nested:
        return True
    if isinstance(old, EnumSerializer) and isinstance(new, EnumSerializer):
        is_named = old.enum_class == new.enum_class
        return is_named and new.constants[: len(old.constants)] == old.constants
    if isinstance(old, RowDataSerializer) and isinstance(new, RowDataSerializer):
        return len(old.types) == len(new.types) and all(map(_same_slot, old.types, new.types))
    if type(old) is not type(new) or not old.nested or len(old.nested) != len(new.nested):
        return False
    # The class of an array's items is not in its bytes.
    if outer_of(old) != outer_of(new) and not isinstance(old, GenericArraySerializer):
        return False
    return all(same_bytes(a, b, classes) for a, b in zip(old.nested, new.nested, strict=True))


def _same_slot(old: LogicalType, new: LogicalType) -> bool:
    """A slot of a binary row: the null bit is there for NOT NULL columns, too."""
    if old == new:
        return True
    if not widens(old, new):
        return False
    return (old.root == new.root and old.root in _WITH_LENGTH) or _but_null(old) == _but_null(new)


def _but_null(kind: LogicalType) -> LogicalType:
    return LogicalType(
        kind.root, True, kind.precision, kind.scale, kind.length, kind.children, kind.names
    )


def _same_pojo(old: PojoSerializer, new: PojoSerializer, classes: Mapping[str, str]) -> bool:
    """Fields stay in place. Subclasses keep their tags; those without a tag are still known."""
    if old.pojo_class != new.pojo_class and classes.get(old.pojo_class) != new.pojo_class:
        return False
    names = {entry.name for entry in old.others}
    kept = [entry for entry in new.others if entry.name in names]
    return (
        len(old.fields) == len(new.fields)
        and _same_entries(old.fields, new.fields, classes)
        and _same_entries(old.registered, new.registered[: len(old.registered)], classes)
        and _same_entries(_by_name(old.others), _by_name(kept), classes)
    )


def _by_name(entries: Sequence[OptionalSnapshot]) -> list[OptionalSnapshot]:
    return sorted(entries, key=lambda entry: entry.name)


def _same_entries(
    old: Sequence[OptionalSnapshot], new: Sequence[OptionalSnapshot], classes: Mapping[str, str]
) -> bool:
    return all(
        a is not None
        and b is not None
        and a.name == b.name
        and a.serializer is not None
        and b.serializer is not None
        and same_bytes(a.serializer, b.serializer, classes)
        for a, b in zip_longest(old, new)
    )
