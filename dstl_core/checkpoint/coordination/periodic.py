"""The schedule of periodic checkpoints."""

from __future__ import annotations

from dstl_core.config import CheckpointConfig
from dstl_core.errors import ConfigError
from dstl_core.model.ids import OperatorID


class PeriodicSchedule:
    """When the next periodic checkpoint is due. Times are monotonic milliseconds.

    The interval is never shorter than the minimum pause between checkpoints. Missed triggers are
    not replayed.
    """

    def __init__(self, config: CheckpointConfig) -> None:
        self._config = config
        self._backlog: set[OperatorID] = set()
        self.started = False
        self.next_ms: int | None = None

    def start(self, first_ms: int) -> None:
        """Raises: ConfigError: No interval is configured."""
        if self._config.interval_ms is None:
            raise ConfigError(
                "No interval of periodic checkpoints is configured; set "
                "execution.checkpointing.interval."
            )
        self.started = True
        self.next_ms = first_ms

    def stop(self) -> None:
        self.started = False
        self.next_ms = None

    def postpone(self, to_ms: int) -> None:
        """Moves the next trigger to ``to_ms``; the interval counts from there."""
        if self.started:
            self.next_ms = to_ms

    def backlog_changed(
        self, operator_id: OperatorID, is_processing_backlog: bool, now_ms: int
    ) -> None:
        """Changes the interval if the backlog changes it; a shorter one applies at once."""
        if is_processing_backlog:
            self._backlog.add(operator_id)
        else:
            self._backlog.discard(operator_id)
        interval = self._interval_ms()
        if not self.started or interval is None:
            return
        if self.next_ms is None or now_ms + interval < self.next_ms:
            self.next_ms = now_ms + interval

    def take_beat(self, now_ms: int) -> bool:
        """Whether a trigger is due; if so, sets the next one."""
        due = self.next_ms
        if due is None or now_ms < due:
            return False
        interval = self._interval_ms()
        if interval is None:
            self.next_ms = None
            return False
        self.next_ms = due + (1 + (now_ms - due) // interval) * interval
        return True

    def _interval_ms(self) -> int | None:
        interval = self._config.interval_ms
        if self._backlog and self._config.interval_during_backlog_ms is not None:
            interval = self._config.interval_during_backlog_ms or None
        return None if interval is None else max(interval, self._config.min_pause_ms)
