"""The value of one row by an order: ``first``, ``last``, ``min_by`` and ``max_by``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow.compute as pc

from dstl_core.aggregates.aggregate import Kept, Typed, check_flat
from dstl_core.aggregates.aggregate_merge import ORDER_SUFFIX, Columns, Merge, beyond
from dstl_core.aggregates.rows_of_keys import Numbers, RowsOfKeys
from dstl_core.codec.declared_type import TypeLike
from dstl_core.codec.serializers import AnySerializer
from dstl_core.errors import ConfigError


class Ordered(Typed):
    """An aggregate of rows by an order, which is state, too."""

    order_by: Any
    order_type: TypeLike | None = None
    keeps_order: bool = True

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
        if self.keeps_order and len(self.order) > 1:
            raise ConfigError(
                f"The aggregate {self.how} of {self.column!r} keeps the order of one column, got "
                f"{', '.join(self.order)}; put them into one column, a string for one."
            )

    @property
    def order(self) -> tuple[str, ...]:
        several = isinstance(self.order_by, list | tuple)
        return tuple(self.order_by) if several else (self.order_by,)

    @property
    def kept(self) -> tuple[Kept, ...]:
        if not self.keeps_order:
            return super().kept
        order = Kept(self.order[0], self.order_type, "order_type", of_order=True)
        return (*super().kept, order)


class BestValue(Ordered):
    """The value of one row, with its order or without it."""

    largest: ClassVar[bool]
    """Whether the largest order counts."""
    skips_nulls: ClassVar[bool]
    """Whether rows without a value are passed over."""

    def merge(self, uid: str, name: str, kinds: Sequence[AnySerializer]) -> Merge:
        kind, *orders = kinds
        check_flat(name, kind)
        if not orders:
            return ByBatch(uid, name, kind, orders=len(self.order), last=self.largest)
        [order] = orders
        check_flat(name, order, "an order")
        return ByOrder(uid, name, kind, order, largest=self.largest, skips_nulls=self.skips_nulls)


_OF_ORDER = {"column": "shop", "order_by": "paid_at", "type": "string", "order_type": "timestamp"}


@dataclass(frozen=True)
class first(BestValue):
    """The first value by an order. Of rows of one order, the smallest value.

    Args:
        column: The value; rows without one do not count.
        order_by: The column of the order; rows without one do not count.
        type: Of the value.
        order_type: Of the order, which is kept as ``<name>_order``.
        keeps_order: Without it nothing is kept of the order, which may then have several columns,
            nulls first: between batches, the first batch has the first value.
    """

    column: str
    order_by: str | Sequence[str]
    type: TypeLike | None = None
    order_type: TypeLike | None = field(default=None, kw_only=True)
    keeps_order: bool = field(default=True, kw_only=True)
    example: ClassVar = {**_OF_ORDER, "keeps_order": True}
    largest = False
    skips_nulls = True


@dataclass(frozen=True)
class last(BestValue):
    """The last value by an order. Of rows of one order, the largest value.

    Args:
        column: The value; rows without one do not count.
        order_by: The column of the order; rows without one do not count.
        type: Of the value.
        order_type: Of the order, which is kept as ``<name>_order``.
        keeps_order: Without it nothing is kept of the order, which may then have several columns,
            nulls first: between batches, the last batch has the last value.
    """

    column: str
    order_by: str | Sequence[str]
    type: TypeLike | None = None
    order_type: TypeLike | None = field(default=None, kw_only=True)
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
        order_by: The column of the order; rows without one do not count.
        type: Of the value.
        order_type: Of the order, which is kept as ``<name>_order``.
    """

    column: str
    order_by: str
    type: TypeLike | None = None
    order_type: TypeLike | None = field(default=None, kw_only=True)
    example: ClassVar = _OF_ORDER
    largest = False
    skips_nulls = False


@dataclass(frozen=True)
class max_by(BestValue):
    """The value, which may be null, of the row with the largest order; of rows of one order it is
    the largest value.

    Args:
        column: The value.
        order_by: The column of the order; rows without one do not count.
        type: Of the value.
        order_type: Of the order, which is kept as ``<name>_order``.
    """

    column: str
    order_by: str
    type: TypeLike | None = None
    order_type: TypeLike | None = field(default=None, kw_only=True)
    example: ClassVar = _OF_ORDER
    largest = True
    skips_nulls = False


class ByOrder(Merge):
    """The value with the smallest or largest order, and that order.

    Args:
        uid: The uid of the operator, for errors.
        name: The name of the aggregate.
        kind: The type of the value.
        order: The type of the order.
        largest: Whether the largest order counts.
        skips_nulls: Whether rows without a value are passed over.
    """

    parts = ("value", "order")

    def __init__(
        self,
        uid: str,
        name: str,
        kind: AnySerializer,
        order: AnySerializer,
        *,
        largest: bool,
        skips_nulls: bool,
    ) -> None:
        super().__init__(uid, name, {"": kind, ORDER_SUFFIX: order})
        self.largest = largest
        self._skips_nulls = skips_nulls

    def _reduced(self, rows: RowsOfKeys) -> Columns:
        best = rows.present if self._skips_nulls else rows
        best = best.where(best.orders[0].is_valid()).best(largest=self.largest)
        return [best.at_keys(best.column), best.at_keys(best.orders[0])]

    def merge(self, held: Columns, parts: Columns) -> Columns:
        old, new = self._comparable(held[0], parts[0])
        old_order, new_order = self._comparable(held[1], parts[1])
        better = beyond(new_order, old_order, largest=self.largest)
        equal = pc.invert(pc.or_(better, beyond(old_order, new_order, largest=self.largest)))
        # Among rows with the same order, null is the smallest value.
        gone, came = (new, old) if not self.largest else (old, new)
        by_value = pc.or_(
            beyond(new, old, largest=self.largest), pc.and_(gone.is_null(), came.is_valid())
        )
        take = pc.and_(
            new_order.is_valid(),
            pc.or_(old_order.is_null(), pc.or_(better, pc.and_(equal, by_value))),
        )
        return [pc.if_else(take, new, old), pc.if_else(take, new_order, old_order)]


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
