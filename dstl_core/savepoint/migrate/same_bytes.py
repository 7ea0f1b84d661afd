"""Which types have the same bytes, so that only a header has to change."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest

from dstl_core.codec.logical_types import LogicalType
from dstl_core.codec.serializers import AnySerializer
from dstl_core.codec.serializers.pojo import PojoSerializer
from dstl_core.codec.serializers.table_types import RowDataSerializer
from dstl_core.savepoint.migrate.learn.lossless import widens

_WITH_LENGTH = ("VARCHAR", "VARBINARY")
_NO_CLASSES: Mapping[str, str] = {}


def pojo_classes(*serializers: AnySerializer) -> set[str]:
    """The POJO classes in types, at any depth."""
    found = {each.pojo_class for each in serializers if isinstance(each, PojoSerializer)}
    return found.union(*(pojo_classes(*each.nested) for each in serializers))


def same_bytes(
    old: AnySerializer, new: AnySerializer, classes: Mapping[str, str] = _NO_CLASSES
) -> bool:
    """Whether all values of the old type are values of the new one, with the same bytes.

    Args:
        old: The old type.
        new: The new type.
        classes: New names of POJO classes.
    """
    if old == new:
        return True
    if isinstance(old, RowDataSerializer) and isinstance(new, RowDataSerializer):
        return len(old.types) == len(new.types) and all(map(_same_slot, old.types, new.types))
    if isinstance(old, PojoSerializer) and isinstance(new, PojoSerializer):
        return _same_pojo(old, new, classes)
    if type(old) is not type(new) or not old.nested or len(old.nested) != len(new.nested):
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
    if old.registered or old.others or new.registered or new.others:
        return False
    if old.pojo_class != new.pojo_class and classes.get(old.pojo_class) != new.pojo_class:
        return False
    return all(
        a is not None
        and b is not None
        and a.name == b.name
        and a.serializer is not None
        and b.serializer is not None
        and same_bytes(a.serializer, b.serializer, classes)
        for a, b in zip_longest(old.fields, new.fields)
    )
