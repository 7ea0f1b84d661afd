"""Reduces rows to the parts of aggregates by columns, for values that are numbers or times.

A task does this faster than Spark groups rows, where few rows share a key and where many do. The
parts are the same as Spark's; ``Merge`` classes define them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kinds

from dstl_core.operators.aggregate_merge import (
    FLOATING,
    HALF,
    LOW,
    Average,
    CountMerge,
    Extreme,
    FloatSum,
    Merge,
    WholeSum,
)
from dstl_core.operators.wide_sums import tiers_of

Numbers = npt.NDArray[np.int64]
"""The number of the key of each row, from 0."""


def is_reduced_by_columns(merge: Merge, kind: pa.DataType) -> bool:
    """Whether this module reduces an aggregate of a column of this type of fixed width."""
    match merge:
        case CountMerge():
            return True
        case WholeSum():
            return bool(kinds.is_integer(kind))
        case FloatSum():
            return bool(kinds.is_integer(kind) or kinds.is_floating(kind))
        case Average():
            return is_reduced_by_columns(merge.total, kind)
        case Extreme():
            has_order = (kinds.is_integer, kinds.is_boolean, kinds.is_date32, kinds.is_timestamp)
            is_float = merge.states[0].serializer in FLOATING
            return not is_float and any(each(kind) for each in has_order)
        case _:
            return False


def parts_of_rows(
    merge: Merge, how: str, values: pa.Array | None, numbers: Numbers, keys: int
) -> list[pa.Array]:
    """The parts of an aggregate, with an element for each of ``keys`` keys.

    Args:
        merge: The merge of the aggregate, which defines the parts.
        how: The aggregate.
        values: The values of its column; None if it has none.
        numbers: The number of the key of each row, from 0.
        keys: How many keys there are.
    """
    if values is None:
        return [counts(numbers, keys)]
    match merge:
        case CountMerge():
            chosen = values.is_null() if how == "count_null" else values.is_valid()
            return [counts(numbers[chosen.to_numpy(zero_copy_only=False)], keys)]
        case Average():
            total = parts_of_rows(merge.total, how, values, numbers, keys)
            return [*total, *parts_of_rows(merge.count, how, values, numbers, keys)]
        case WholeSum():
            # Sums of halves of 32 bits do not overflow.
            values, numbers = _present(values, numbers)
            longs = _longs(values)
            halves = pa.array(longs >> HALF), pa.array(longs & LOW)
            return [sums(each, numbers, keys) for each in halves]
        case FloatSum():
            tiers = tiers_of(values.cast(pa.float64(), safe=False))
            return [sums(each, numbers, keys) for each in tiers]
        case _:
            assert isinstance(merge, Extreme)
            return [extremes(values, numbers, keys, largest=merge.largest)]


def combined_parts(
    merge: Merge, parts: list[pa.Array], numbers: Numbers, keys: int
) -> list[pa.Array]:
    """The parts of an aggregate, from parts of which several may be of one key."""
    if isinstance(merge, Extreme):
        return [extremes(parts[0], numbers, keys, largest=merge.largest)]
    return [sums(each, numbers, keys) for each in parts]


def counts(numbers: Numbers, keys: int) -> pa.Array:
    """How many rows each key has."""
    return pa.array(np.bincount(numbers, minlength=keys))


def sums(values: pa.Array, numbers: Numbers, keys: int) -> pa.Array:
    """The sum of the values of each key, of longs or doubles; null for a key without a value."""
    values, numbers = _present(values, numbers)
    found = np.zeros(keys, values.type.to_pandas_dtype())
    with np.errstate(invalid="ignore"):
        np.add.at(found, numbers, values.to_numpy())
    return pa.array(found, mask=_without(numbers, keys))


def extremes(values: pa.Array, numbers: Numbers, keys: int, *, largest: bool) -> pa.Array:
    """The largest or the smallest value of each key; null for a key without a value."""
    values, numbers = _present(values, numbers)
    bounds = np.iinfo(np.int64)
    best = np.full(keys, bounds.min if largest else bounds.max)
    (np.maximum if largest else np.minimum).at(best, numbers, _longs(values))
    missing = _without(numbers, keys)
    best[missing] = 0
    found = pa.array(best, mask=missing)
    is_date = kinds.is_date32(values.type)
    return (found.cast(pa.int32()) if is_date else found).cast(values.type)


def _present(values: pa.Array, numbers: Numbers) -> tuple[pa.Array, Numbers]:
    """The values that are not null, and the numbers of their keys."""
    if not values.null_count:
        return values, numbers
    return values.drop_null(), numbers[values.is_valid().to_numpy(zero_copy_only=False)]


def _without(numbers: Numbers, keys: int) -> npt.NDArray[np.bool_]:
    """Which keys have no row."""
    found = np.ones(keys, np.bool_)
    found[numbers] = False
    return found


def _longs(values: pa.Array) -> npt.NDArray[np.int64]:
    """Values without nulls as whole numbers in the same order."""
    if kinds.is_date32(values.type):
        values = values.cast(pa.int32())
    found: npt.NDArray[np.int64] = values.cast(pa.int64()).to_numpy()
    return found
