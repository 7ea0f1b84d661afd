"""Evictors remove elements of a window before or after its function.

Source: ``org.apache.flink.streaming.api.windowing.evictors`` of Flink 2.2.1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from dstl_core.codec.serializers.runtime import StreamRecord

Records: TypeAlias = list[StreamRecord]


@dataclass(frozen=True)
class Evictor:
    """Base of evictors; it removes nothing.

    A window with an evictor stores every element with its timestamp, for any function.
    """

    do_evict_after: bool = field(default=False, kw_only=True)

    def evict_before(self, records: Records) -> Records:
        """The elements that the function gets."""
        return records if self.do_evict_after else self.evict(records)

    def evict_after(self, records: Records) -> Records:
        """The elements that the window keeps after the function."""
        return self.evict(records) if self.do_evict_after else records

    def evict(self, records: Records) -> Records:
        """The elements that stay."""
        return records


@dataclass(frozen=True)
class CountEvictor(Evictor):
    """Keeps the last elements."""

    max_count: int

    @staticmethod
    def of(max_count: int, do_evict_after: bool = False) -> CountEvictor:
        return CountEvictor(max_count, do_evict_after=do_evict_after)

    def evict(self, records: Records) -> Records:
        return records[max(len(records) - self.max_count, 0) :]


@dataclass(frozen=True)
class TimeEvictor(Evictor):
    """Keeps elements that are less than ``window_size`` ms older than the newest one.

    Elements without timestamps stay.
    """

    window_size: int

    @staticmethod
    def of(window_size: int, do_evict_after: bool = False) -> TimeEvictor:
        return TimeEvictor(window_size, do_evict_after=do_evict_after)

    def evict(self, records: Records) -> Records:
        if not records or records[0].timestamp is None:
            return records
        cutoff = max(each.timestamp or 0 for each in records) - self.window_size
        return [each for each in records if (each.timestamp or 0) > cutoff]


@dataclass(frozen=True)
class DeltaEvictor(Evictor):
    """Keeps elements whose distance to the last element is below a threshold."""

    threshold: float
    delta: Callable[[Any, Any], float]

    @staticmethod
    def of(
        threshold: float, delta: Callable[[Any, Any], float], do_evict_after: bool = False
    ) -> DeltaEvictor:
        return DeltaEvictor(threshold, delta, do_evict_after=do_evict_after)

    def evict(self, records: Records) -> Records:
        if not records:
            return records
        last = records[-1].value
        return [each for each in records if self.delta(each.value, last) < self.threshold]
