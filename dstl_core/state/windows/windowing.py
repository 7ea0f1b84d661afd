"""Window assigners.

Times are milliseconds. ``of`` and ``with_gap`` also take text as Flink writes durations, such as
``"1 h"``, and a ``timedelta``. Source: ``org.apache.flink.streaming.api.windowing.assigners`` and
``WindowOperator.cleanupTime`` of Flink 2.2.1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from dstl_core.codec.serializers import AnySerializer
from dstl_core.codec.serializers.window_types import (
    GlobalWindowSerializer,
    TimeWindow,
    TimeWindowSerializer,
)
from dstl_core.errors import ConfigError
from dstl_core.flink_text import DurationLike, duration_ms
from dstl_core.state.windows.triggers import (
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    Trigger,
)

MAX_TIMESTAMP = (1 << 63) - 1
GLOBAL = "global"


def max_timestamp(window: Any) -> int:
    """The last millisecond of a window. The global window never ends."""
    return window.max_timestamp if isinstance(window, TimeWindow) else MAX_TIMESTAMP


@dataclass(frozen=True)
class WindowAssigner(ABC):
    """Assigns elements to windows."""

    @abstractmethod
    def assign_windows(self, timestamp: int, now: int) -> list[TimeWindow] | list[str]:
        """The windows of an element of event time ``timestamp`` at processing time ``now``."""

    is_event_time = True
    is_merging = False

    @property
    def first_time(self) -> int:
        """The first event time, in milliseconds, whose windows have bounds of 64 bits."""
        return -MAX_TIMESTAMP

    @property
    def last_time(self) -> int:
        return MAX_TIMESTAMP

    def time_error(self) -> ConfigError:
        """The error for a row of an event time outside ``first_time`` to ``last_time``."""
        return ConfigError(
            f"A row has a timestamp whose windows cannot be stored: expected {self.first_time} to "
            f"{self.last_time} milliseconds; correct the row, or leave it out of the input."
        )

    @property
    def window_serializer(self) -> AnySerializer:
        return TimeWindowSerializer()

    def default_trigger(self) -> Trigger:
        return EventTimeTrigger() if self.is_event_time else ProcessingTimeTrigger()

    def cleanup_time(self, window: Any, allowed_lateness: int) -> int:
        """When a window and its state are removed; ``MAX_TIMESTAMP`` means never."""
        lateness = allowed_lateness if self.is_event_time else 0
        return min(max_timestamp(window) + lateness, MAX_TIMESTAMP)


def _ms(name: str, duration: DurationLike) -> int:
    return duration_ms(duration, f"The {name} of a window")


def _check_millis(**times: Any) -> None:
    """Raises ConfigError: a time is not a whole number of 64 bits."""
    for name, time in times.items():
        if type(time) is not int or not -MAX_TIMESTAMP <= time <= MAX_TIMESTAMP:
            raise ConfigError(
                f"The {name} of a window is wrong: expected whole milliseconds, got {time!r}."
            )


def _start(timestamp: int, offset: int, size: int) -> int:
    return timestamp - (timestamp - offset) % size


@dataclass(frozen=True)
class _Aligned(WindowAssigner):
    size: int
    slide: int
    offset: int = 0

    def __post_init__(self) -> None:
        _check_millis(size=self.size, slide=self.slide, offset=self.offset)
        if self.size <= 0 or self.slide <= 0 or abs(self.offset) >= self.slide:
            raise ConfigError(
                f"A window needs size > 0, slide > 0 and |offset| < slide, got size {self.size}, "
                f"slide {self.slide}, offset {self.offset} ms."
            )

    @property
    def first_time(self) -> int:
        return -self.last_time

    @property
    def last_time(self) -> int:
        return MAX_TIMESTAMP - self.size - self.slide

    def assign_windows(self, timestamp: int, now: int) -> list[TimeWindow] | list[str]:
        time = timestamp if self.is_event_time else now
        last = _start(time, self.offset, self.slide)
        return [
            TimeWindow(start, start + self.size)
            for start in range(last, time - self.size, -self.slide)
        ]


class TumblingEventTimeWindows(_Aligned):
    """Windows of one size, without gaps or overlap."""

    @classmethod
    def of(cls, size: DurationLike, offset: DurationLike = 0) -> TumblingEventTimeWindows:
        length = _ms("size", size)
        return cls(length, length, _ms("offset", offset))


class TumblingProcessingTimeWindows(_Aligned):
    """Tumbling windows in processing time."""

    is_event_time = False

    @classmethod
    def of(cls, size: DurationLike, offset: DurationLike = 0) -> TumblingProcessingTimeWindows:
        length = _ms("size", size)
        return cls(length, length, _ms("offset", offset))


class SlidingEventTimeWindows(_Aligned):
    """Windows of one size that start every ``slide``."""

    @classmethod
    def of(
        cls, size: DurationLike, slide: DurationLike, offset: DurationLike = 0
    ) -> SlidingEventTimeWindows:
        return cls(_ms("size", size), _ms("slide", slide), _ms("offset", offset))


class SlidingProcessingTimeWindows(_Aligned):
    """Sliding windows in processing time."""

    is_event_time = False

    @classmethod
    def of(
        cls, size: DurationLike, slide: DurationLike, offset: DurationLike = 0
    ) -> SlidingProcessingTimeWindows:
        return cls(_ms("size", size), _ms("slide", slide), _ms("offset", offset))


@dataclass(frozen=True)
class _Sessions(WindowAssigner):
    gap: int
    is_merging = True

    def __post_init__(self) -> None:
        _check_millis(gap=self.gap)
        if self.gap <= 0:
            raise ConfigError(f"The gap of a session must be more than 0 ms, got {self.gap} ms.")

    @property
    def last_time(self) -> int:
        return MAX_TIMESTAMP - self.gap

    def assign_windows(self, timestamp: int, now: int) -> list[TimeWindow] | list[str]:
        time = timestamp if self.is_event_time else now
        return [TimeWindow(time, time + self.gap)]


class EventTimeSessionWindows(_Sessions):
    """Session windows: each ends after a gap without elements."""

    @classmethod
    def with_gap(cls, gap: DurationLike) -> EventTimeSessionWindows:
        return cls(_ms("gap", gap))


class ProcessingTimeSessionWindows(_Sessions):
    """Session windows in processing time."""

    is_event_time = False

    @classmethod
    def with_gap(cls, gap: DurationLike) -> ProcessingTimeSessionWindows:
        return cls(_ms("gap", gap))


@dataclass(frozen=True)
class GlobalWindows(WindowAssigner):
    """One window for all elements. It never ends, so no element is late."""

    is_event_time = False

    @classmethod
    def create(cls) -> GlobalWindows:
        return cls()

    @property
    def window_serializer(self) -> AnySerializer:
        return GlobalWindowSerializer()

    def default_trigger(self) -> Trigger:
        return NeverTrigger()

    def assign_windows(self, timestamp: int, now: int) -> list[TimeWindow] | list[str]:
        return [GLOBAL]
