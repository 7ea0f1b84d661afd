"""The value of one row by an order, or the row: ``first``, ``last``, ``max_by``, ``last_row``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.aggregates.aggregate import Kept, Typed, check_flat
from dstl_core.aggregates.aggregate_merge import ORDER_SUFFIX, Columns, Merge, beyond
from dstl_core.aggregates.column_checks import check_order, check_value
from dstl_core.aggregates.rows_of_keys import Numbers, RowsOfKeys
from dstl_core.codec.declared_type import TypeLike
from dstl_core.codec.serializers import AnySerializer
from dstl_core.errors import ConfigError

MOST_ORDERS = 8
"""Columns of an order that is kept."""


class Ordered(Typed):
    """An aggregate of rows by an order, which is state, too."""

    order_by: Any
    order_type: Any = None
    keeps_order: bool = True
    several_orders: ClassVar[bool] = False
    """Whether the order that is kept may have several columns."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.order:
            if not isinstance(name, str):
                raise ConfigError(
                    f"The order_by of the aggregate {self.how} of {self.column!r} is wrong: "
                    f"expected names of columns, got {name!r}."
                )
        if not self.order:
            raise ConfigError(
                f"The aggregate {self.how} of {self.column!r} needs an order; give order_by."
            )
        if not isinstance(self.keeps_order, bool):
            raise ConfigError(
                f"The keeps_order of the aggregate {self.how} of {self.column!r} is wrong: "
                f"expected True or False, got {self.keeps_order!r}."
            )
        if self.keeps_order and len(self.order) > 1 and not self.several_orders:
            raise ConfigError(
                f"The aggregate {self.how} of {self.column!r} keeps the order of one column, got "
                f"{', '.join(self.order)}; put them into one column, a string for one."
            )
        if self.keeps_order and len(self.order) > MOST_ORDERS:
            raise ConfigError(
                f"The aggregate {self.how} of {self.column!r} keeps the order of {MOST_ORDERS} "
                f"columns at most, got {', '.join(self.order)}; put some of them into one column."
            )
        if len(self.order) > 1 and self.order_type is not None:
            _check_types(self, "order_type", self.order_type, self.order)

    @property
    def order(self) -> tuple[str, ...]:
        several = isinstance(self.order_by, list | tuple)
        return tuple(self.order_by) if several else (self.order_by,)

    @property
    def kept(self) -> tuple[Kept, ...]:
        return (*super().kept, *(self._kept_order if self.keeps_order else ()))

    @property
    def _kept_order(self) -> list[Kept]:
        types = [self.order_type] if len(self.order) == 1 else self.order_type
        return [
            Kept(column, kind, "order_type", of_order=True, state=ending)
            for column, kind, ending in zip(
                self.order,
                types or [None] * len(self.order),
                order_suffixes(len(self.order)),
                strict=True,
            )
        ]


def order_suffixes(columns: int) -> list[str]:
    """Ends of the names of the states with the columns of an order."""
    return [ORDER_SUFFIX if at == 1 else f"{ORDER_SUFFIX}_{at}" for at in range(1, columns + 1)]


def _check_types(aggregate: Ordered, option: str, types: Any, columns: Sequence[str]) -> None:
    if not isinstance(types, list | tuple) or len(types) != len(columns):
        raise ConfigError(
            f"The {option} of the aggregate {aggregate.how} of {aggregate.column!r} is wrong: "
            f"expected a list with a type for each of {', '.join(columns)}, got {types!r}."
        )


_OF_ORDER = {"column": "shop", "order_by": "paid_at", "type": "string", "order_type": "timestamp"}


@dataclass(frozen=True)
class BestValue(Ordered):
    """The value of one row, with its order or without it."""

    column: str
    order_by: str | Sequence[str]
    type: TypeLike | None = None
    order_type: TypeLike | Sequence[TypeLike] | None = field(default=None, kw_only=True)
    example: ClassVar[Mapping[str, Any]] = _OF_ORDER
    largest: ClassVar[bool]
    """Whether the largest order counts."""
    skips_nulls: ClassVar[bool]
    """Whether rows without a value are passed over."""
    several_orders = True

    def merge(self, uid: str, name: str, kinds: Sequence[AnySerializer]) -> Merge:
        kind, *orders = kinds
        check_flat(name, kind)
        if not orders:
            return ByBatch(uid, name, kind, orders=len(self.order), last=self.largest)
        for order in orders:
            check_flat(name, order, "an order")
        return ByOrder(
            uid, name, {"": kind}, orders, largest=self.largest, skips_nulls=self.skips_nulls
        )


@dataclass(frozen=True)
class BestRow(Ordered):
    """The values of one row, with its order. ``fields`` are its columns."""

    fields: Sequence[str]
    order_by: str | Sequence[str]
    types: Sequence[TypeLike] | None = None
    order_type: TypeLike | Sequence[TypeLike] | None = field(default=None, kw_only=True)
    example: ClassVar = {
        "fields": ["shop", "amount"],
        "order_by": ["paid_at", "number"],
        "types": ["string", "decimal(18, 2)"],
        "order_type": ["timestamp", "bigint"],
    }
    largest: ClassVar[bool]
    """Whether the largest order counts."""
    several_orders = True

    def __post_init__(self) -> None:
        if not isinstance(self.fields, list | tuple) or not self.fields:
            raise ConfigError(
                f"The fields of the aggregate {self.how} are wrong: expected a list of names of "
                f"columns, got {self.fields!r}."
            )
        for name in self.fields:
            self._check_name("fields", name)
        if len(set(self.fields)) < len(self.fields):
            raise ConfigError(
                f"The fields of the aggregate {self.how} are wrong: expected names of columns "
                f"once each, got {', '.join(self.fields)}."
            )
        super().__post_init__()
        for name in self.fields:
            if f"_{name}" in order_suffixes(len(self.order)):
                raise ConfigError(
                    f"The fields of the aggregate {self.how} are wrong: the state of {name!r} "
                    f"would have the name of that of the order; rename the column."
                )
        if self.types is not None:
            _check_types(self, "types", self.types, self.fields)

    @property
    def column(self) -> str:  # type: ignore[override]  # what errors name
        return ", ".join(self.fields)

    @property
    def values(self) -> tuple[str, ...]:
        return tuple(self.fields)

    @property
    def kept(self) -> tuple[Kept, ...]:
        types = self.types or [None] * len(self.fields)
        values = [
            Kept(column, kind, "types", state=f"_{column}")
            for column, kind in zip(self.fields, types, strict=True)
        ]
        return (*values, *self._kept_order)

    def merge(self, uid: str, name: str, kinds: Sequence[AnySerializer]) -> Merge:
        for kind in kinds[: len(self.fields)]:
            check_flat(name, kind)
        orders = kinds[len(self.fields) :]
        for order in orders:
            check_flat(name, order, "an order")
        values = {f"_{each}": kind for each, kind in zip(self.fields, kinds, strict=False)}
        return ByOrder(uid, name, values, orders, largest=self.largest, skips_nulls=False)


@dataclass(frozen=True)
class first(BestValue):
    """The first value by an order. Of rows of one order, the smallest value.

    Args:
        column: The value; rows without one do not count.
        order_by: The column of the order; rows without one do not count. Further columns break
            ties, nulls first. The order holds between batches, too: a late row counts by it.
        type: Of the value.
        order_type: Of the order, which is kept as ``<name>_order``; a list for several columns.
        keeps_order: Without it nothing is kept of the order: between batches, the first batch has
            the first value, whatever its order.
    """

    keeps_order: bool = field(default=True, kw_only=True)
    example: ClassVar = {**_OF_ORDER, "keeps_order": True}
    largest = False
    skips_nulls = True


@dataclass(frozen=True)
class last(BestValue):
    """The last value by an order. Of rows of one order, the largest value.

    Args:
        column: The value; rows without one do not count.
        order_by: The column of the order; rows without one do not count. Further columns break
            ties, nulls first. The order holds between batches, too: a late row counts by it.
        type: Of the value.
        order_type: Of the order, which is kept as ``<name>_order``; a list for several columns.
        keeps_order: Without it nothing is kept of the order: between batches, the last batch has
            the last value, whatever its order.
    """

    keeps_order: bool = field(default=True, kw_only=True)
    example: ClassVar = {**_OF_ORDER, "keeps_order": False}
    largest = True
    skips_nulls = True


@dataclass(frozen=True)
class min_by(BestValue):
    """The value, which may be null, of the row with the smallest order. As in Spark, but that of
    rows of one order it is the smallest value, null first.

    Args:
        column: The value.
        order_by: The column of the order; rows without one do not count. Further columns break
            ties, nulls first.
        type: Of the value.
        order_type: Of the order, which is kept as ``<name>_order``; a list for several columns.
    """

    largest = False
    skips_nulls = False


@dataclass(frozen=True)
class max_by(BestValue):
    """The value, which may be null, of the row with the largest order; of rows of one order it is
    the largest value.

    Args:
        column: The value.
        order_by: The column of the order; rows without one do not count. Further columns break
            ties, nulls first.
        type: Of the value.
        order_type: Of the order, which is kept as ``<name>_order``; a list for several columns.
    """

    largest = True
    skips_nulls = False


@dataclass(frozen=True)
class first_row(BestRow):
    """The first row by an order, as a whole: all values are of one row. The output has a struct. Of
    rows of one order, that with the smallest values, null first.

    Args:
        fields: The columns of the row. Each is a state, ``<name>_<column>``.
        order_by: The column of the order; rows without one do not count. Further columns break
            ties, nulls first.
        types: Of the fields, a list.
        order_type: Of the order, which is kept as ``<name>_order``; a list for several columns.
    """

    largest = False


@dataclass(frozen=True)
class last_row(BestRow):
    """The last row by an order, as a whole: all values are of one row. The output has a struct. Of
    rows of one order, that with the largest values, null first.

    Args:
        fields: The columns of the row. Each is a state, ``<name>_<column>``.
        order_by: The column of the order; rows without one do not count. Further columns break
            ties, nulls first.
        types: Of the fields, a list.
        order_type: Of the order, which is kept as ``<name>_order``; a list for several columns.
    """

    largest = True


class ByOrder(Merge):
    """The values of the row with the smallest or largest order, and that order.

    Rows are compared by the columns of the order, then by the values. Null is the smallest.

    Args:
        uid: The uid of the operator, for errors.
        name: The name of the aggregate.
        values: Ends of the names of the states with the values, and their types. One without an
            end is the value of the aggregate; else the value is a struct.
        orders: The types of the columns of the order.
        largest: Whether the largest order counts.
        skips_nulls: Whether rows without a value are passed over.
    """

    def __init__(
        self,
        uid: str,
        name: str,
        values: Mapping[str, AnySerializer],
        orders: Sequence[AnySerializer],
        *,
        largest: bool,
        skips_nulls: bool,
    ) -> None:
        named = dict(zip(order_suffixes(len(orders)), orders, strict=True))
        super().__init__(uid, name, {**values, **named})
        self.largest = largest
        self._skips_nulls = skips_nulls
        self._values = len(values)
        self._fields = None if "" in values else [each.removeprefix("_") for each in values]
        counts = {"value": len(values), "order": len(orders)}
        self.parts = tuple(  # type: ignore[misc]
            f"{part}{at}" for part, count in counts.items() for at in range(count)
        )

    def check(self, fields: Sequence[pa.Field]) -> None:
        for column in fields[self._values :]:
            check_order(self.where, column)
        for column, kind in zip(fields, self.kinds, strict=True):
            check_value(self.where, column, kind)

    @property
    def always(self) -> Sequence[int]:
        return [self._values]

    def _reduced(self, rows: RowsOfKeys) -> Columns:
        best = rows.present if self._skips_nulls else rows
        best = best.where(best.orders[self._values - 1].is_valid())
        columns = [best.column, *best.orders]
        *values, last = columns[: self._values]
        ranked = RowsOfKeys(best.numbers, best.keys, last, [*columns[self._values :], *values])
        best = ranked.best(largest=self.largest)
        orders = len(columns) - self._values
        chosen = [*best.orders[orders:], best.column, *best.orders[:orders]]
        return [best.at_keys(column) for column in chosen]

    def merge(self, held: Columns, parts: Columns) -> Columns:
        pairs = [self._comparable(*each) for each in zip(held, parts, strict=True)]
        old_order, new_order = pairs[self._values]
        better, tied = pa.scalar(False), pa.scalar(True)
        for old, new in (*pairs[self._values :], *pairs[: self._values]):
            better = pc.or_(better, pc.and_(tied, self._precedes(new, old)))
            tied = pc.and_not(tied, pc.or_(self._precedes(new, old), self._precedes(old, new)))
        take = pc.and_(new_order.is_valid(), pc.or_(old_order.is_null(), better))
        return [pc.if_else(take, new, old) for old, new in pairs]

    def _precedes(self, one: pa.Array, other: pa.Array) -> pa.Array:
        """Whether the value of one row counts before that of another; null is the smallest."""
        larger, smaller = (one, other) if self.largest else (other, one)
        by_null = pc.and_(larger.is_valid(), smaller.is_null())
        return pc.or_(beyond(one, other, largest=self.largest), by_null)

    @property
    def final_type(self) -> pa.DataType:
        if self._fields is None:
            return super().final_type
        return pa.struct(list(zip(self._fields, self.types, strict=False)))

    def final(self, held: Columns) -> pa.Array:
        if self._fields is None:
            return super().final(held)
        has_no_row = held[self._values].is_null()
        return pa.StructArray.from_arrays(held[: self._values], self._fields, mask=has_no_row)


class ByBatch(Merge):
    """The first or the last value, batch by batch; within a batch, by the columns of an order.

    Args:
        uid: The uid of the operator, for errors.
        name: The name of the aggregate.
        kind: The type of the value.
        orders: How many columns the order has.
        last: Whether the last value counts.
    """

    def __init__(
        self, uid: str, name: str, kind: AnySerializer, *, orders: int, last: bool
    ) -> None:
        super().__init__(uid, name, {"": kind})
        self.parts = ("value", *(f"order{at}" for at in range(orders)))  # type: ignore[misc]
        self._last = last

    def _reduced(self, rows: RowsOfKeys) -> Columns:
        best = rows.present.best(largest=self._last)
        return [best.at_keys(column) for column in (best.column, *best.orders)]

    def joined(self, parts: Columns, numbers: Numbers, keys: int) -> Columns:
        return self._reduced(RowsOfKeys(numbers, keys, parts[0], parts[1:]))

    def merge(self, held: Columns, parts: Columns) -> Columns:
        old, new = self._comparable(held[0], parts[0])
        winner, other = (new, old) if self._last else (old, new)
        return [pc.if_else(winner.is_valid(), winner, other)]
