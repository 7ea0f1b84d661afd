"""Sums of doubles that do not overflow on the way, whatever the order of the values.

A sum is kept in two tiers: ``high`` has the values of at least ``LEAST_HIGH``, scaled down, and
infinities and NaN; ``low`` has all others. No order of the values makes a tier overflow. So the
total is infinite only if a value is, and a total that no double can hold is known as such.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

LEAST_HIGH = 2.0**460
"""The smallest size of a value in the upper tier. Squares of smaller ones add up to a double."""
SCALE = 2.0**600
"""What values of the upper tier are divided by. They lose no bit."""
_MOST_HALVES = 4096.0
"""Halved so many times, every finite double is 0."""

_Floats = npt.NDArray[np.float64]


def is_high(values: pa.Array) -> pa.Array:
    """Whether doubles are in the upper tier; null for null."""
    return pc.or_(pc.invert(pc.is_finite(values)), pc.greater_equal(pc.abs(values), LEAST_HIGH))


def tiers_of(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Doubles of the upper tier, scaled, and of the lower one; each has null for the others."""
    high, null = is_high(values), pa.scalar(None, pa.float64())
    if not pc.any(high, min_count=0).as_py():
        return pa.nulls(len(values), pa.float64()), values
    return pc.if_else(high, pc.divide(values, SCALE), null), pc.if_else(high, null, values)


def joined(high: pa.Array, low: pa.Array) -> tuple[pa.Array, bool]:
    """The totals of tiers, null without a value; and whether no double can hold one of them."""
    upper, lower = (pc.fill_null(each, 0.0).to_numpy(zero_copy_only=False) for each in (high, low))
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = upper + lower / SCALE
        total = np.where(upper == 0, lower, scaled * SCALE)
    has_half = pc.or_(high.is_valid(), low.is_valid())
    overflowed = bool(np.any(np.isfinite(upper) & ~np.isfinite(total)))
    return pc.if_else(has_half, pa.array(total), None), overflowed


def added(one: pa.Array, other: pa.Array) -> pa.Array:
    """The sums of two columns; null if both are null."""
    return pc.coalesce(pc.add(one, other), one, other)


def decayed(values: _Floats, half_lives: _Floats) -> _Floats:
    """Halves values so many times; an infinite value stays infinite.

    The power of two is exact, because a factor below the normal doubles would lose bits.
    """
    times = np.minimum(half_lives, _MOST_HALVES)
    whole = np.floor(times)
    with np.errstate(under="ignore", invalid="ignore"):
        decayed_values: _Floats = np.ldexp(values * np.exp2(whole - times), -whole.astype(np.int64))
    return decayed_values
