"""Window assigners, triggers and evictors: what of them shapes the state of a window operator.

Times are milliseconds. Source: ``org.apache.flink.streaming.api.windowing`` of Flink 2.2.1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from dstl_core.codec.serializers import AnySerializer
from dstl_core.codec.serializers.windows import (
    GlobalWindowSerializer,
    TimeWindow,
    TimeWindowSerializer,
)
from dstl_core.errors import ConfigError

MAX_TIMESTAMP = (1 << 63) - 1
GLOBAL = "global"


@dataclass(frozen=True)
class Trigger:
    """When a window fires.

    Args:
        kind: ``event`` or ``processing`` time (a timer at the end of the window), ``count``, or
            ``never``.
        count: Elements after which ``count`` fires.
        purges: Whether firing clears the contents.
    """

    kind: str
    count: int = 0
    purges: bool = False


class EventTimeTrigger:
    """Fires when the watermark passes the end of the window."""

    @staticmethod
    def create() -> Trigger:
        return Trigger("event")


class ProcessingTimeTrigger:
    """Fires when the clock passes the end of the window."""

    @staticmethod
    def create() -> Trigger:
        return Trigger("processing")


class CountTrigger:
    """Fires after so many elements."""

    @staticmethod
    def of(count: int) -> Trigger:
        return Trigger("count", count)


class PurgingTrigger:
    """Fires with another trigger, and clears the window."""

    @staticmethod
    def of(inner: Trigger) -> Trigger:
        return Trigger(inner.kind, inner.count, purges=True)


@dataclass(frozen=True)
class WindowAssigner(ABC):
    """Which windows an element belongs to."""

    @abstractmethod
    def assign_windows(self, timestamp: int, now: int) -> list[TimeWindow] | list[str]:
        """The windows of an element of event time ``timestamp`` at processing time ``now``."""

    is_event_time = True
    is_merging = False

    @property
    def window_serializer(self) -> AnySerializer:
        return TimeWindowSerializer()

    def default_trigger(self) -> Trigger:
        return Trigger("event" if self.is_event_time else "processing")


def _start(timestamp: int, offset: int, size: int) -> int:
    return timestamp - (timestamp - offset) % size


@dataclass(frozen=True)
class _Aligned(WindowAssigner):
    size: int
    slide: int
    offset: int = 0

    def __post_init__(self) -> None:
        if self.size <= 0 or self.slide <= 0 or abs(self.offset) >= self.slide:
            raise ConfigError(
                f"A window has size > 0, slide > 0 and |offset| < slide, got size {self.size}, "
                f"slide {self.slide}, offset {self.offset} ms."
            )

    def assign_windows(self, timestamp: int, now: int) -> list[TimeWindow] | list[str]:
        time = timestamp if self.is_event_time else now
        last = _start(time, self.offset, self.slide)
        return [
            TimeWindow(start, start + self.size)
            for start in range(last, time - self.size, -self.slide)
        ]


class TumblingEventTimeWindows(_Aligned):
    """Windows of one size, end to end."""

    @classmethod
    def of(cls, size: int, offset: int = 0) -> TumblingEventTimeWindows:
        return cls(size, size, offset)


class TumblingProcessingTimeWindows(_Aligned):
    """Windows of one size by the clock."""

    is_event_time = False

    @classmethod
    def of(cls, size: int, offset: int = 0) -> TumblingProcessingTimeWindows:
        return cls(size, size, offset)


class SlidingEventTimeWindows(_Aligned):
    """Windows of one size, a new one every ``slide``."""

    @classmethod
    def of(cls, size: int, slide: int, offset: int = 0) -> SlidingEventTimeWindows:
        return cls(size, slide, offset)


class SlidingProcessingTimeWindows(_Aligned):
    """Sliding windows by the clock."""

    is_event_time = False

    @classmethod
    def of(cls, size: int, slide: int, offset: int = 0) -> SlidingProcessingTimeWindows:
        return cls(size, slide, offset)


@dataclass(frozen=True)
class EventTimeSessionWindows(WindowAssigner):
    """Windows that end after a gap without elements."""

    gap: int
    is_merging = True

    @classmethod
    def with_gap(cls, gap: int) -> EventTimeSessionWindows:
        if gap <= 0:
            raise ConfigError(f"The gap of a session is positive, got {gap} ms.")
        return cls(gap)

    def assign_windows(self, timestamp: int, now: int) -> list[TimeWindow] | list[str]:
        return [TimeWindow(timestamp, timestamp + self.gap)]


@dataclass(frozen=True)
class GlobalWindows(WindowAssigner):
    """One window for everything."""

    @classmethod
    def create(cls) -> GlobalWindows:
        return cls()

    @property
    def window_serializer(self) -> AnySerializer:
        return GlobalWindowSerializer()

    def default_trigger(self) -> Trigger:
        return Trigger("never")

    def assign_windows(self, timestamp: int, now: int) -> list[TimeWindow] | list[str]:
        return [GLOBAL]
