"""Triggers decide when a window fires and whether it is cleared.

Source: ``org.apache.flink.streaming.api.windowing.triggers`` of Flink 2.2.1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from dstl_core.codec.serializers import Types
from dstl_core.errors import ConfigError
from dstl_core.state.tables.descriptor import ReducingStateDescriptor, StateDescriptor


class TriggerResult(Enum):
    """The result of a trigger: ``(fires, is purged)``."""

    CONTINUE = (False, False)
    FIRE = (True, False)
    PURGE = (False, True)
    FIRE_AND_PURGE = (True, True)

    @property
    def is_fire(self) -> bool:
        return self.value[0]

    @property
    def is_purge(self) -> bool:
        return self.value[1]


class TriggerContext(Protocol):
    """Time, timers and state of a trigger, for one window of the current key."""

    @property
    def max_timestamp(self) -> int:
        """The last millisecond of the window."""
        ...

    def get_current_watermark(self) -> int: ...

    def get_current_processing_time(self) -> int: ...

    def register_event_time_timer(self, time_ms: int) -> None: ...

    def register_processing_time_timer(self, time_ms: int) -> None: ...

    def delete_event_time_timer(self, time_ms: int) -> None: ...

    def delete_processing_time_timer(self, time_ms: int) -> None: ...

    def get_partitioned_state(self, descriptor: StateDescriptor) -> Any:
        """The state of one of the trigger's ``states``, for the window."""
        ...

    def merge_partitioned_state(self, descriptor: StateDescriptor) -> None:
        """Merges the state of merged windows into the state of the new window."""
        ...


class Trigger(ABC):
    """Decides when a window fires. A trigger is a value; it keeps its data in its ``states``."""

    states: Sequence[StateDescriptor] = ()
    """The states that the trigger keeps per window."""

    @abstractmethod
    def on_element(self, ctx: TriggerContext) -> TriggerResult:
        """Runs when an element was added."""

    def on_event_time(self, time_ms: int, ctx: TriggerContext) -> TriggerResult:
        """Runs when an event-time timer of the window fires."""
        return TriggerResult.CONTINUE

    def on_processing_time(self, time_ms: int, ctx: TriggerContext) -> TriggerResult:
        """Runs when a processing-time timer of the window fires."""
        return TriggerResult.CONTINUE

    @abstractmethod
    def on_merge(self, ctx: TriggerContext) -> None:
        """Runs when windows were merged into the window of ``ctx``."""

    @abstractmethod
    def clear(self, ctx: TriggerContext) -> None:
        """Clears timers and state of the trigger when the window is removed."""


@dataclass(frozen=True)
class EventTimeTrigger(Trigger):
    """Fires when the watermark passes the end of the window, then for every late element."""

    @staticmethod
    def create() -> EventTimeTrigger:
        return EventTimeTrigger()

    def on_element(self, ctx: TriggerContext) -> TriggerResult:
        if ctx.max_timestamp <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(ctx.max_timestamp)
        return TriggerResult.CONTINUE

    def on_event_time(self, time_ms: int, ctx: TriggerContext) -> TriggerResult:
        # The window has one more timer, for its clean-up.
        return TriggerResult.FIRE if time_ms == ctx.max_timestamp else TriggerResult.CONTINUE

    def on_merge(self, ctx: TriggerContext) -> None:
        if ctx.max_timestamp > ctx.get_current_watermark():
            ctx.register_event_time_timer(ctx.max_timestamp)

    def clear(self, ctx: TriggerContext) -> None:
        ctx.delete_event_time_timer(ctx.max_timestamp)


@dataclass(frozen=True)
class ProcessingTimeTrigger(Trigger):
    """Fires when the clock passes the end of the window."""

    @staticmethod
    def create() -> ProcessingTimeTrigger:
        return ProcessingTimeTrigger()

    def on_element(self, ctx: TriggerContext) -> TriggerResult:
        ctx.register_processing_time_timer(ctx.max_timestamp)
        return TriggerResult.CONTINUE

    def on_processing_time(self, time_ms: int, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE

    def on_merge(self, ctx: TriggerContext) -> None:
        if ctx.max_timestamp > ctx.get_current_processing_time():
            ctx.register_processing_time_timer(ctx.max_timestamp)

    def clear(self, ctx: TriggerContext) -> None:
        ctx.delete_processing_time_timer(ctx.max_timestamp)


_COUNT = ReducingStateDescriptor("count", lambda a, b: a + b, Types.LONG)


@dataclass(frozen=True)
class CountTrigger(Trigger):
    """Fires after a number of elements, then counts from 0 again."""

    count: int
    states = (_COUNT,)

    def __post_init__(self) -> None:
        if self.count <= 0:
            raise ConfigError(f"The count of a count trigger must be 1 or more, got {self.count}.")

    @staticmethod
    def of(count: int) -> CountTrigger:
        return CountTrigger(count)

    def on_element(self, ctx: TriggerContext) -> TriggerResult:
        counter = ctx.get_partitioned_state(_COUNT)
        counter.add(1)
        if counter.get() < self.count:
            return TriggerResult.CONTINUE
        counter.clear()
        return TriggerResult.FIRE

    def on_merge(self, ctx: TriggerContext) -> None:
        ctx.merge_partitioned_state(_COUNT)

    def clear(self, ctx: TriggerContext) -> None:
        ctx.get_partitioned_state(_COUNT).clear()


@dataclass(frozen=True)
class NeverTrigger(Trigger):
    """Never fires. It is the default of global windows."""

    def on_element(self, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_merge(self, ctx: TriggerContext) -> None:
        """Does nothing: the trigger has no state."""

    def clear(self, ctx: TriggerContext) -> None:
        """Does nothing: the trigger has no state."""


@dataclass(frozen=True)
class PurgingTrigger(Trigger):
    """Fires with another trigger, and clears the contents of the window."""

    inner: Trigger

    @staticmethod
    def of(inner: Trigger) -> PurgingTrigger:
        return PurgingTrigger(inner)

    @property
    def states(self) -> Sequence[StateDescriptor]:  # type: ignore[override]  # is read only
        return self.inner.states

    def on_element(self, ctx: TriggerContext) -> TriggerResult:
        return _purged(self.inner.on_element(ctx))

    def on_event_time(self, time_ms: int, ctx: TriggerContext) -> TriggerResult:
        return _purged(self.inner.on_event_time(time_ms, ctx))

    def on_processing_time(self, time_ms: int, ctx: TriggerContext) -> TriggerResult:
        return _purged(self.inner.on_processing_time(time_ms, ctx))

    def on_merge(self, ctx: TriggerContext) -> None:
        self.inner.on_merge(ctx)

    def clear(self, ctx: TriggerContext) -> None:
        self.inner.clear(ctx)


def _purged(result: TriggerResult) -> TriggerResult:
    return TriggerResult.FIRE_AND_PURGE if result.is_fire else result
