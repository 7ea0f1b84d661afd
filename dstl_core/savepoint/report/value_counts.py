"""Counts of numbers and of moments, which are exact and take the same memory for any state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from dstl_core.codec.columnar.types.program import Int64s

_MINUTE, _HOUR, _DAY = 60_000, 3_600_000, 86_400_000
LADDER = (0, _MINUTE, _HOUR, _DAY, 7 * _DAY, 30 * _DAY, 365 * _DAY)
"""Bounds of distances in milliseconds, on both sides of the moment that they count from."""
_EDGES = np.array([*(-each for each in LADDER[:0:-1]), *LADDER], np.int64)
_FAR = 1 << 62
Number = TypeVar("Number", int, float)
MAX_WINDOWS = 100_000
"""Distinct windows are counted up to this number."""
_POWERS = np.array([1 << each for each in range(64)], np.uint64)


def _of_both(
    choose: Callable[[Number, Number], Number], one: Number | None, other: Number | None
) -> Number | None:
    """The smaller, or the larger, of two numbers that may be missing."""
    if one is None or other is None:
        return one if other is None else other
    return choose(one, other)


class NumberCounts:
    """The values of one numeric column, by powers of two."""

    def __init__(self, column: str) -> None:
        self.column = column
        self.count = self.nulls = self.not_finite = 0
        self.smallest: float | None = None
        self.largest: float | None = None
        self._is_integer = True
        self._buckets: Counter[tuple[int, int]] = Counter()

    def add(self, values: pa.Array) -> None:
        """Adds integers, floating-point numbers or decimals; decimals count as doubles."""
        self.nulls += values.null_count
        present = values.drop_null() if values.null_count else values
        if pa.types.is_decimal(present.type):
            present = present.cast(pa.float64())
        numbers = present.to_numpy(zero_copy_only=False)
        if pa.types.is_integer(present.type):
            numbers = numbers.astype(np.int64)
            exponents = _bit_lengths(numbers)
        else:
            self._is_integer = False
            numbers = numbers.astype(np.float64)
            finite = np.isfinite(numbers)
            self.not_finite += int(len(numbers) - finite.sum())
            numbers = numbers[finite]
            exponents = np.frexp(numbers)[1].astype(np.int64)
        self.count += len(numbers)
        if not len(numbers):
            return
        self.smallest = _of_both(min, self.smallest, numbers.min().item())
        self.largest = _of_both(max, self.largest, numbers.max().item())
        buckets = np.where(numbers == 0, 0, (exponents + 2048) * np.sign(numbers).astype(np.int64))
        for bucket, count in zip(*np.unique(buckets, return_counts=True), strict=True):
            sign = int(np.sign(bucket))
            self._buckets[sign, abs(int(bucket)) - 2048 if sign else 0] += int(count)

    def merge(self, other: NumberCounts) -> None:
        self.count += other.count
        self.nulls += other.nulls
        self.not_finite += other.not_finite
        self.smallest = _of_both(min, self.smallest, other.smallest)
        self.largest = _of_both(max, self.largest, other.largest)
        self._is_integer &= other._is_integer
        self._buckets += other._buckets

    def to_json(self, *, show_values: bool) -> dict[str, Any]:
        figures: dict[str, Any] = {
            "column": self.column,
            "count": self.count,
            "nulls": self.nulls,
            "not_finite": self.not_finite,
            "histogram": list(self._histogram()),
        }
        if show_values:
            figures |= {"smallest": self.smallest, "largest": self.largest}
        return figures

    def _histogram(self) -> Iterator[dict[str, Any]]:
        """Parts with values, ascending: ``from`` up to ``to``, whichever is nearer to 0 belongs to
        the part.
        """
        for sign, exponent in sorted(
            self._buckets, key=lambda bucket: (bucket[0], bucket[0] * bucket[1])
        ):
            low, high = self._power(exponent - 1), self._power(exponent)
            if sign == 0:
                low = high = 0
            ends = (low, high) if sign >= 0 else (-high, -low)
            yield {"from": ends[0], "to": ends[1], "count": self._buckets[sign, exponent]}

    def _power(self, exponent: int) -> float:
        if self._is_integer:
            return 1 << max(exponent, 0)
        return float("inf") if exponent > 1023 else 2.0**exponent


def _bit_lengths(numbers: Int64s) -> Int64s:
    magnitudes = np.abs(numbers).view(np.uint64)  # abs of the least Long wraps to 2^63
    return np.searchsorted(_POWERS, magnitudes, side="right").astype(np.int64)


class TimeCounts:
    """A histogram of time distances from a reference time.

    Args:
        reference_ms: The moment to count from.
    """

    def __init__(self, reference_ms: int) -> None:
        self.count = 0
        self.earliest: int | None = None
        self.latest: int | None = None
        self._reference = reference_ms
        self._counts = np.zeros(len(_EDGES) + 1, np.int64)
        self._bytes = np.zeros(len(_EDGES) + 1, np.int64)

    def add(self, moments: Int64s, sizes: Int64s | None = None) -> None:
        """Adds moments in milliseconds, and the bytes that each stands for."""
        if not len(moments):
            return
        self.count += len(moments)
        self.earliest = _of_both(min, self.earliest, int(moments.min()))
        self.latest = _of_both(max, self.latest, int(moments.max()))
        at = self._reference
        distances = np.clip(moments, max(at - _FAR, -(1 << 63)), min(at + _FAR, (1 << 63) - 1)) - at
        parts = np.searchsorted(_EDGES, distances, side="left")  # a timer is due at its time
        self._counts += np.bincount(parts, minlength=len(self._counts))
        if sizes is not None:
            np.add.at(self._bytes, parts, sizes)

    def merge(self, other: TimeCounts) -> None:
        """Adds other moments, which count from the same one."""
        self.count += other.count
        self.earliest = _of_both(min, self.earliest, other.earliest)
        self.latest = _of_both(max, self.latest, other.latest)
        self._counts += other._counts
        self._bytes += other._bytes

    def to_json(self) -> dict[str, Any]:
        bounds = [None, *map(int, _EDGES), None]
        return {
            "count": self.count,
            "from_ms": self._reference,
            "earliest_ms": self.earliest,
            "latest_ms": self.latest,
            "behind": int(self._counts[: len(LADDER)].sum()),
            "distances": [
                {
                    "from_ms": bounds[at],
                    "to_ms": bounds[at + 1],
                    "count": int(count),
                    "bytes": int(self._bytes[at]),
                }
                for at, count in enumerate(self._counts)
                if count
            ],
        }


class AgeCounts:
    """Ages of values with a time to live.

    Args:
        at_ms: The moment that ages count to.
        ttl_ms: The time to live, if it is known: a snapshot does not record it.
    """

    def __init__(self, at_ms: int, ttl_ms: int | None) -> None:
        self._times = TimeCounts(at_ms)
        self._at = at_ms
        self._ttl = ttl_ms
        self._expired = self._expired_bytes = 0

    def add(self, stamps: Int64s, sizes: Int64s | None) -> None:
        self._times.add(stamps, sizes)
        if self._ttl is not None:
            expired = stamps <= self._at - self._ttl
            self._expired += int(expired.sum())
            if sizes is not None:
                self._expired_bytes += int(sizes[expired].sum())

    def merge(self, other: AgeCounts) -> None:
        self._times.merge(other._times)
        self._expired += other._expired
        self._expired_bytes += other._expired_bytes

    def to_json(self) -> dict[str, Any]:
        times = self._times.to_json()
        return {
            "count": times["count"],
            "at_ms": self._at,
            "oldest_ms": times["earliest_ms"],
            "newest_ms": times["latest_ms"],
            "would_expire": list(_would_expire(times["distances"])),
            "ttl_ms": self._ttl,
            "expired": None if self._ttl is None else self._expired,
            "expired_bytes": None if self._ttl is None else self._expired_bytes,
        }


def _would_expire(distances: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Values that a time to live of each step of the ladder would expire."""
    for ttl in LADDER[1:]:
        older = [each for each in distances if each["to_ms"] is not None and each["to_ms"] <= -ttl]
        yield {
            "ttl_ms": ttl,
            "count": sum(each["count"] for each in older),
            "bytes": sum(each["bytes"] for each in older),
        }


class WindowCounts:
    """The windows of a state, by their ends. ``reference_ms`` is the watermark."""

    def __init__(self, reference_ms: int) -> None:
        self._ends = TimeCounts(reference_ms)
        self._windows: set[tuple[int, int]] = set()

    def add(self, starts: Int64s, ends: Int64s) -> None:
        """Adds the window of each entry; a window's last moment is its end - 1 ms."""
        self._ends.add(ends)
        if len(self._windows) <= MAX_WINDOWS:
            pairs = np.unique(np.column_stack([starts, ends]), axis=0)
            self._windows.update(map(tuple, pairs.tolist()))

    def merge(self, other: WindowCounts) -> None:
        self._ends.merge(other._ends)
        if len(self._windows) <= MAX_WINDOWS:
            self._windows |= other._windows

    def to_json(self) -> dict[str, Any]:
        ends = self._ends.to_json()
        many = len(self._windows) > MAX_WINDOWS
        return {
            "windows": MAX_WINDOWS if many else len(self._windows),
            "more": many,
            "entries": ends["count"],
            "from_ms": ends["from_ms"],
            "earliest_end_ms": ends["earliest_ms"],
            "latest_end_ms": ends["latest_ms"],
            "behind": ends["behind"],
            "distances": ends["distances"],
        }
