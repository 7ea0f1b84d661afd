"""Numbers of rows: ``count`` and ``count_null``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.aggregates.aggregate import Aggregate
from dstl_core.aggregates.aggregate_merge import Columns, Merge, summed
from dstl_core.aggregates.rows_of_keys import Numbers, RowsOfKeys
from dstl_core.codec.serializers import AnySerializer, Types


@dataclass(frozen=True)
class count(Aggregate):
    """The number of rows, or of those that have a value in a column.

    Args:
        column: Values of any type; None counts rows.
    """

    column: str | None = None
    of_keys: ClassVar = "sum"
    example: ClassVar = {"column": "amount"}

    def __post_init__(self) -> None:
        if self.column is not None:
            super().__post_init__()

    def merge(self, uid: str, name: str, kinds: Sequence[AnySerializer]) -> Merge:
        return CountMerge(uid, name)


@dataclass(frozen=True)
class count_null(Aggregate):
    """The number of rows without a value in a column.

    Args:
        column: Values of any type.
    """

    column: str
    of_keys: ClassVar = "sum"
    example: ClassVar = {"column": "amount"}

    def merge(self, uid: str, name: str, kinds: Sequence[AnySerializer]) -> Merge:
        return CountMerge(uid, name, of_nulls=True)


class CountMerge(Merge):
    """A number of rows."""

    parts = ("count",)

    def __init__(self, uid: str, name: str, *, of_nulls: bool = False) -> None:
        super().__init__(uid, name, {"": Types.LONG})
        self._of_nulls = of_nulls

    def check(self, fields: Sequence[pa.Field]) -> None:
        """It counts rows with values of any type."""

    def _reduced(self, rows: RowsOfKeys) -> Columns:
        if rows.values is None:
            return [rows.counts()]
        return [(rows.where(rows.values.is_null()) if self._of_nulls else rows.present).counts()]

    def joined(self, parts: Columns, numbers: Numbers, keys: int) -> Columns:
        return summed(parts, numbers, keys)

    def merge(self, held: Columns, parts: Columns) -> Columns:
        return [pc.add(pc.fill_null(held[0], 0), parts[0])]

    def parts_of(self, held: Columns) -> Columns:
        return [pc.fill_null(held[0], 0)]
