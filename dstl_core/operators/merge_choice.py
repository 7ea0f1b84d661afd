"""Selects the merge of a declared aggregate."""

from __future__ import annotations

from collections.abc import Sequence

from dstl_core.aggregates import Aggregate
from dstl_core.codec.serializers import AnySerializer, Types
from dstl_core.errors import ConfigError
from dstl_core.operators.aggregate_merge import (
    FLOATING,
    WHOLE,
    Average,
    ByBatch,
    ByOrder,
    CountMerge,
    DecimalSum,
    Extreme,
    FloatSum,
    Merge,
    Moments,
    WholeSum,
)
from dstl_core.operators.gathered_merges import CountsByValue, DecayedSum
from dstl_core.operators.list_merges import BoundedList
from dstl_core.operators.sketch_merges import DistinctSketch, Histogram, QuantileSketch

FLAT = (
    Types.BOOLEAN,
    *WHOLE,
    *FLOATING,
    Types.STRING,
    Types.BYTES,
    Types.BIG_DEC,
    Types.LOCAL_DATE,
    Types.LOCAL_TIME,
    Types.LOCAL_DATE_TIME,
    Types.INSTANT,
    Types.SQL_DATE,
    Types.SQL_TIMESTAMP,
)
"""The types that have an order and a single column."""
_COUNTED = (
    Types.BOOLEAN,
    *WHOLE,
    Types.STRING,
    Types.LOCAL_DATE,
    Types.LOCAL_DATE_TIME,
    Types.INSTANT,
)
_TIMES = (Types.LONG, Types.INSTANT, Types.LOCAL_DATE_TIME)


def merge_of(
    uid: str, name: str, aggregate: Aggregate, kind: AnySerializer, order: AnySerializer
) -> Merge:
    """The merge of an aggregate.

    Args:
        uid: The uid of the operator, for errors.
        name: The name of the aggregate.
        aggregate: The aggregate.
        kind: The type of its state.
        order: The type of its order's state; unused if it has no order.

    Raises:
        ConfigError: These types cannot store the aggregate.
    """
    how = aggregate.how
    match how:
        case "count" | "count_null":
            return CountMerge(uid, name, of_nulls=how == "count_null")
        case "sum":
            return _sum_of(uid, name, kind)
        case "avg":
            return Average(uid, name, _sum_of(uid, f"{name}_sum", kind))
        case "variance" | "stddev":
            return Moments(uid, name, root=how == "stddev")
        case "bool_and" | "bool_or":
            return Extreme(uid, name, Types.BOOLEAN, largest=how == "bool_or")
        case "approx_count_distinct":
            return DistinctSketch(uid, name, aggregate.size)
        case "quantiles":
            return QuantileSketch(uid, name, aggregate.size, aggregate.points)
        case "histogram":
            return Histogram(uid, name, aggregate.points)
        case "value_counts":
            _check_in(_COUNTED, name, kind, "counts of values", "which cannot be the key of a map")
            return CountsByValue(uid, name, kind, size=aggregate.size)
        case "decayed_sum":
            _check_in(_TIMES, name, order, "a time", "which is no time")
            return DecayedSum(uid, name, order, aggregate.points[0])
    _check_flat(name, kind, "a value")
    match how:
        case "min" | "max":
            return Extreme(uid, name, kind, largest=how == "max")
        case "collect_set" | "top":
            is_set, size = how == "collect_set", aggregate.size
            return BoundedList(
                uid, name, kind, None, size=size, largest=not is_set, distinct=is_set
            )
        case _ if not aggregate.keeps_order:
            orders = len(aggregate.order_by)
            return ByBatch(uid, name, kind, orders=orders, last=how == "last")
        case _:
            _check_flat(name, order, "an order")
            if how in ("collect_list", "last_values"):
                largest = how == "last_values"
                return BoundedList(uid, name, kind, order, size=aggregate.size, largest=largest)
            return ByOrder(
                uid,
                name,
                kind,
                order,
                largest=how in ("last", "max_by"),
                skips_nulls=how in ("first", "last"),
            )


def _sum_of(uid: str, state: str, kind: AnySerializer) -> Merge:
    if kind in WHOLE:
        return WholeSum(uid, state, kind)
    if kind in FLOATING:
        return FloatSum(uid, state, kind)
    if kind == Types.BIG_DEC:
        return DecimalSum(uid, state, kind)
    raise ConfigError(
        f"The state {state!r} adds up numbers: expected the type of a whole number, a float, a "
        f"double or a decimal, got {kind.type_name}."
    )


def _check_flat(name: str, kind: AnySerializer, what: str) -> None:
    _check_in(FLAT, name, kind, what, "which has no order")


def _check_in(
    known: Sequence[AnySerializer], name: str, kind: AnySerializer, what: str, why: str
) -> None:
    if kind not in known:
        names = ", ".join(each.type_name for each in known)
        raise ConfigError(
            f"The aggregate {name!r} cannot keep {what} of type {kind.type_name}, {why}; expected "
            f"one of: {names}."
        )
