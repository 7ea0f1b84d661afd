"""Merges of bounded lists: the first, last, smallest or largest values of a key, by columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.aggregates.aggregate import Typed, check_flat
from dstl_core.aggregates.aggregate_merge import ORDER_SUFFIX, Columns, Merge, beyond
from dstl_core.aggregates.by_order import Ordered
from dstl_core.aggregates.rows_of_keys import Numbers, RowsOfKeys, lists_of
from dstl_core.codec.declared_type import TypeLike
from dstl_core.codec.serializers import AnySerializer, Types


@dataclass(frozen=True)
class OrderedValues(Ordered):
    """Values of a key in the order of their rows."""

    column: str
    limit: int
    order_by: str
    type: TypeLike | None = None
    order_type: TypeLike | None = field(default=None, kw_only=True)
    example: ClassVar = {
        "column": "shop",
        "limit": 3,
        "order_by": "paid_at",
        "type": "string",
        "order_type": "timestamp",
    }
    largest: ClassVar[bool]
    """Whether values with the largest orders are kept."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_size("limit")

    def merge(self, uid: str, name: str, kinds: Sequence[AnySerializer]) -> Merge:
        kind, order = kinds
        check_flat(name, kind)
        check_flat(name, order, "an order")
        return BoundedList(uid, name, kind, order, size=self.limit, largest=self.largest)


@dataclass(frozen=True)
class collect_list(OrderedValues):
    """The first values by an order, as a list in this order. Later values are dropped.

    Args:
        column: The values; rows without one do not count.
        limit: How many are kept, at most 100,000.
        order_by: The column of the order; rows without one do not count. Rows of one order come in
            the order of their values.
        type: Of a value.
        order_type: Of the order; the orders are kept as the list ``<name>_order``.
    """

    largest = False


@dataclass(frozen=True)
class last_values(OrderedValues):
    """The last values by an order, as a list, the last one first. Earlier values are dropped.

    Args:
        column: The values; rows without one do not count.
        limit: How many are kept, at most 100,000.
        order_by: The column of the order; rows without one do not count.
        type: Of a value.
        order_type: Of the order; the orders are kept as the list ``<name>_order``.
    """

    largest = True


@dataclass(frozen=True)
class ExtremeValues(Typed):
    """Values of a key in their own order."""

    column: str
    limit: int
    type: TypeLike | None = None
    distinct: ClassVar[bool]
    """Whether the smallest values are kept once each, or the largest ones."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_size("limit")

    def merge(self, uid: str, name: str, kinds: Sequence[AnySerializer]) -> Merge:
        [kind] = kinds
        check_flat(name, kind)
        largest, distinct = not self.distinct, self.distinct
        return BoundedList(
            uid, name, kind, None, size=self.limit, largest=largest, distinct=distinct
        )


@dataclass(frozen=True)
class collect_set(ExtremeValues):
    """The smallest distinct values, as a sorted list. Larger values are dropped.

    Args:
        column: The values.
        limit: How many are kept, at most 100,000.
        type: Of a value.
    """

    example: ClassVar = {"column": "shop", "limit": 3, "type": "string"}
    distinct = True


@dataclass(frozen=True)
class top(ExtremeValues):
    """The largest values, as a list, the largest one first. Smaller values are dropped.

    Args:
        column: The values.
        limit: How many are kept, at most 100,000.
        type: Of a value.
    """

    example: ClassVar = {"column": "amount", "limit": 3, "type": "bigint"}
    distinct = False


class BoundedList(Merge):
    """A bounded list of values of a key, sorted by the values or by a separate order.

    Args:
        uid: The uid of the operator, for errors.
        name: The name of the aggregate.
        kind: The type of a value.
        order: The type of the order; None: values are sorted by themselves.
        size: Maximum number of values.
        largest: Whether the largest values are kept, in descending order.
        distinct: Whether each value is kept only once.
    """

    def __init__(
        self,
        uid: str,
        name: str,
        kind: AnySerializer,
        order: AnySerializer | None,
        *,
        size: int,
        largest: bool,
        distinct: bool = False,
    ) -> None:
        states = {"": Types.LIST(kind)}
        if order is not None:
            states[ORDER_SUFFIX] = Types.LIST(order)
        super().__init__(uid, name, states)
        self.parts = ("values", "orders")[: len(states)]  # type: ignore[misc]  # by the order
        self.kinds = (kind,) if order is None else (kind, order)
        self.size, self.largest, self.distinct = size, largest, distinct

    def _reduced(self, rows: RowsOfKeys) -> Columns:
        rows = rows.present
        for at in range(len(rows.orders)):
            rows = rows.where(rows.orders[at].is_valid())
        return self._bounded(rows.numbers, rows.keys, [rows.column, *rows.orders])

    def merge(self, held: Columns, parts: Columns) -> Columns:
        owners = np.concatenate([owners_of(held[0]), owners_of(parts[0])])
        columns = [
            _joined(*self._comparable(pc.list_flatten(one), pc.list_flatten(other)))
            for one, other in zip(held, parts, strict=True)
        ]
        return self._bounded(owners, len(held[0]), columns)

    def _bounded(self, owners: Numbers, keys: int, columns: Columns) -> Columns:
        """The lists of keys, from values and orders of which several may be of one key."""
        values, *orders = columns
        places = self._in_order(owners, [*orders, values])
        if self.distinct:
            places = places[self._differs(owners[places], values.take(pa.array(places)))]
        owners = owners[places]
        counts = np.bincount(owners, minlength=keys)
        ranks = np.arange(len(owners)) - (np.cumsum(counts) - counts)[owners]
        chosen = pa.array(places[ranks < self.size])
        sizes = np.minimum(counts, self.size)
        return [lists_of(sizes, column.take(chosen)) for column in columns]

    def _in_order(self, owners: Numbers, columns: Columns) -> Numbers:
        """The positions of all values, sorted by key, by order, and by value."""
        direction = "descending" if self.largest else "ascending"
        arrays, keys = [pa.array(owners)], [("0", "ascending")]
        for column in columns:
            if pa.types.is_floating(column.type):
                # Arrow sorts NaN after all numbers in both directions.
                keys.append((str(len(arrays)), direction))
                arrays.append(pc.is_nan(column).cast(pa.int8()))
            keys.append((str(len(arrays)), direction))
            arrays.append(column)
        table = pa.Table.from_arrays(arrays, names=[str(at) for at in range(len(arrays))])
        order: Any = pc.sort_indices(table, sort_keys=keys).cast(pa.int64())
        places: Numbers = order.to_numpy()
        return places

    def _differs(self, owners: Numbers, values: pa.Array) -> npt.NDArray[np.bool_]:
        """Whether a value of a key differs from the value before it."""
        if not len(owners):
            return np.zeros(0, np.bool_)
        before, after = values[:-1], values[1:]
        other = pc.or_(beyond(after, before, largest=True), beyond(before, after, largest=True))
        moved = owners[1:] != owners[:-1]
        return np.concatenate([[True], moved | other.to_numpy(zero_copy_only=False)])


def owners_of(lists: pa.Array) -> Numbers:
    """The position of the list of each element."""
    owners: Numbers = pc.list_parent_indices(lists).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return owners


def lists_joined(parts: Columns, numbers: Numbers, keys: int) -> Columns:
    """The lists of keys, from lists of which several may be of one key."""
    columns = [pc.list_flatten(part) for part in parts]
    return RowsOfKeys(numbers[owners_of(parts[0])], keys).lists(*columns)


def _joined(one: pa.Array, other: pa.Array) -> pa.Array:
    return pa.concat_arrays([one, other])
