"""Aggregates of the rows of a key, for an ``AggregateOperator``.

Null values are passed over, as in SQL. What an aggregate keeps is plain value state: one state of
the aggregate's name, or several (``<name>_sum``, ``<name>_count``), which can be merged with those
of the next batch. The state does not depend on how rows are split into batches, but for the last
digits of floating-point numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from dstl_core.codec.declared_type import TypeLike
from dstl_core.errors import ConfigError

How = Literal[
    "count",
    "count_null",
    "sum",
    "min",
    "max",
    "first",
    "last",
    "min_by",
    "max_by",
    "avg",
    "variance",
    "bool_and",
    "bool_or",
]
ORDERED = ("first", "last", "min_by", "max_by")


def check_how(how: str) -> None:
    """Raises ConfigError if there is no such aggregate."""
    if how not in get_args(How):
        raise ConfigError(f"An aggregate is one of {', '.join(get_args(How))}, got {how!r}.")


@dataclass(frozen=True)
class Aggregate:
    """One aggregate; the functions of this module make it.

    Args:
        how: Which one.
        column: What is aggregated; None counts rows.
        type: Type of the state, in any form; None: by the operator's ``schema``.
        order_by: The columns of the order, for those that have one.
        order_type: Type of the order's state; None: by the operator's ``schema``.
        keeps_order: Whether the order of the kept value is state, too.

    Raises:
        ConfigError: There is no such aggregate, or it lacks its column or its order.
    """

    how: How
    column: str | None = None
    type: TypeLike | None = None
    order_by: tuple[str, ...] = ()
    order_type: TypeLike | None = None
    keeps_order: bool = True

    def __post_init__(self) -> None:
        check_how(self.how)
        if self.column is None and self.how != "count":
            raise ConfigError(f"The aggregate {self.how} needs a column.")
        if self.how not in ORDERED:
            return
        if not self.order_by:
            raise ConfigError(
                f"The aggregate {self.how} of {self.column!r} needs an order; give order_by."
            )
        if self.keeps_order and len(self.order_by) > 1:
            raise ConfigError(
                f"The aggregate {self.how} of {self.column!r} keeps the order of one column, got "
                f"{', '.join(self.order_by)}; put them into one column, a string for one."
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return self.order_by if self.column is None else (self.column, *self.order_by)


def count(column: str | None = None) -> Aggregate:
    """The number of rows, or of those that have a value in a column."""
    return Aggregate("count", column)


def count_null(column: str) -> Aggregate:
    """The number of rows without a value in a column."""
    return Aggregate("count_null", column)


def sum(column: str, type: TypeLike | None = None) -> Aggregate:
    """The sum. One that does not fit its type fails the epoch and names the state.

    Args:
        column: Numbers.
        type: ``"bigint"``, ``"double"``, ``"decimal(38, 2)"``, ..; by the schema: the widest of
            the column's kind.
    """
    return Aggregate("sum", column, type)


def min(column: str, type: TypeLike | None = None) -> Aggregate:
    """The smallest value."""
    return Aggregate("min", column, type)


def max(column: str, type: TypeLike | None = None) -> Aggregate:
    """The largest value; NaN is larger than any number, as in Spark."""
    return Aggregate("max", column, type)


def first(
    column: str,
    order_by: str | Sequence[str],
    type: TypeLike | None = None,
    *,
    order_type: TypeLike | None = None,
    keeps_order: bool = True,
) -> Aggregate:
    """The first value by an order. Of rows of one order, the smallest value.

    Args:
        column: The value; rows without one do not count.
        order_by: The column of the order; rows without one do not count.
        type: Of the value.
        order_type: Of the order, which is kept as ``<name>_order``.
        keeps_order: Without it nothing is kept of the order, which may then have several columns,
            nulls first: between batches, the first batch has the first value.
    """
    return Aggregate("first", column, type, _names(order_by), order_type, keeps_order)


def last(
    column: str,
    order_by: str | Sequence[str],
    type: TypeLike | None = None,
    *,
    order_type: TypeLike | None = None,
    keeps_order: bool = True,
) -> Aggregate:
    """The last value by an order. Of rows of one order, the largest value. Arguments as ``first``;
    without ``keeps_order`` the last batch has the last value.
    """
    return Aggregate("last", column, type, _names(order_by), order_type, keeps_order)


def min_by(
    column: str, order_by: str, type: TypeLike | None = None, *, order_type: TypeLike | None = None
) -> Aggregate:
    """The value, which may be null, of the row with the smallest order. As in Spark, but that of
    rows of one order it is the smallest value, null first.
    """
    return Aggregate("min_by", column, type, (order_by,), order_type)


def max_by(
    column: str, order_by: str, type: TypeLike | None = None, *, order_type: TypeLike | None = None
) -> Aggregate:
    """The value, which may be null, of the row with the largest order; of rows of one order it is
    the largest value.
    """
    return Aggregate("max_by", column, type, (order_by,), order_type)


def avg(column: str, type: TypeLike | None = None) -> Aggregate:
    """The average, as ``<name>_sum`` and ``<name>_count``.

    Args:
        column: Numbers.
        type: Of the sum; ``"double"`` by default.
    """
    return Aggregate("avg", column, "double" if type is None else type)


def variance(column: str) -> Aggregate:
    """What variance and standard deviation are made of: ``<name>_count``, ``<name>_mean`` and
    ``<name>_m2``, the sum of the squares of the distances from the mean. The variance of a sample
    is ``m2 / (count - 1)``, that of a population ``m2 / count``.
    """
    return Aggregate("variance", column, "double")


def bool_and(column: str) -> Aggregate:
    """Whether all values are true."""
    return Aggregate("bool_and", column, "boolean")


def bool_or(column: str) -> Aggregate:
    """Whether a value is true."""
    return Aggregate("bool_or", column, "boolean")


def _names(order_by: str | Sequence[str]) -> tuple[str, ...]:
    return (order_by,) if isinstance(order_by, str) else tuple(order_by)
