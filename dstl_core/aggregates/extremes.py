"""The smallest and the largest value: ``min``, ``max``, ``bool_and`` and ``bool_or``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow.compute as pc

from dstl_core.aggregates.aggregate import Aggregate, Typed, check_flat
from dstl_core.aggregates.aggregate_merge import Columns, Merge, beyond
from dstl_core.aggregates.column_checks import BOOLEANS
from dstl_core.aggregates.rows_of_keys import Numbers, RowsOfKeys
from dstl_core.codec.declared_type import TypeLike
from dstl_core.codec.serializers import AnySerializer, Types


@dataclass(frozen=True)
class ExtremeOf(Typed):
    """The smallest or the largest value."""

    column: str
    type: TypeLike | None = None
    example: ClassVar = {"column": "amount", "type": "bigint"}
    largest: ClassVar[bool]
    """Whether it is the largest value."""

    def merge(self, uid: str, name: str, kinds: Sequence[AnySerializer]) -> Merge:
        [kind] = kinds
        check_flat(name, kind)
        return Extreme(uid, name, kind, largest=self.largest)


@dataclass(frozen=True)
class min(ExtremeOf):
    """The smallest value.

    Args:
        column: The values.
        type: Of a value.
    """

    of_keys: ClassVar = "min"
    largest = False


@dataclass(frozen=True)
class max(ExtremeOf):
    """The largest value; NaN is larger than any number, as in Spark.

    Args:
        column: The values.
        type: Of a value.
    """

    of_keys: ClassVar = "max"
    largest = True


@dataclass(frozen=True)
class OfBooleans(Aggregate):
    """The smallest or the largest boolean: false is smaller."""

    column: str
    example: ClassVar = {"column": "is_paid"}
    takes = BOOLEANS
    largest: ClassVar[bool]
    """Whether it is the largest one."""

    def merge(self, uid: str, name: str, kinds: Sequence[AnySerializer]) -> Merge:
        return Extreme(uid, name, Types.BOOLEAN, largest=self.largest)


@dataclass(frozen=True)
class bool_and(OfBooleans):
    """Whether all values are true.

    Args:
        column: Booleans.
    """

    largest = False


@dataclass(frozen=True)
class bool_or(OfBooleans):
    """Whether a value is true.

    Args:
        column: Booleans.
    """

    largest = True


class Extreme(Merge):
    """The smallest or the largest value; NaN is the largest number."""

    parts = ("value",)

    def __init__(self, uid: str, name: str, kind: AnySerializer, *, largest: bool) -> None:
        super().__init__(uid, name, {"": kind})
        self.largest = largest

    def _reduced(self, rows: RowsOfKeys) -> Columns:
        return [rows.extremes(largest=self.largest)]

    def joined(self, parts: Columns, numbers: Numbers, keys: int) -> Columns:
        return self._reduced(RowsOfKeys(numbers, keys, parts[0]))

    def merge(self, held: Columns, parts: Columns) -> Columns:
        old, new = self._comparable(held[0], parts[0])
        better = beyond(new, old, largest=self.largest)
        take = pc.and_(new.is_valid(), pc.or_(old.is_null(), better))
        return [pc.if_else(take, new, old)]
