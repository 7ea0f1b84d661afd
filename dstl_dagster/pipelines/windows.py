"""Windows of input as Dagster defines them, and how its runs go back or leave windows out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import dagster as dg

from dstl_core.errors import ConfigError
from dstl_core.job.coordination.input_windows import InputWindow, InputWindows

REWIND_TAG, TRUE = "dstl/rewind", "true"
"""A run with this tag and the value ``true`` first rewinds to the state before its first window."""
AGAIN = f"run it and what came after it again, by a run with the tag {REWIND_TAG}={TRUE}"
"""How inputs are applied again, as a part of a sentence."""
ALLOW_GAP_TAG = "dstl/allow-gap"
"""A run with this tag and the value ``true`` may skip windows."""


@dataclass(frozen=True)
class Windows(InputWindows):
    """The windows of time-window partitions.

    Args:
        pipeline: Name of the pipeline.
        store: Folder of the pipeline.
        partitions: The definition of the windows.
        op: Name of the op whose config has ``rewind_to``; None if a run rewinds by the tag
            ``REWIND_TAG``.
    """

    partitions: dg.TimeWindowPartitionsDefinition
    op: str | None = None

    @property
    def start(self) -> datetime:
        return self.partitions.start

    @property
    def end(self) -> datetime | None:
        return self.partitions.end

    def window(self, key: str) -> InputWindow:
        try:
            time_window = self.partitions.time_window_for_partition_key(key)
        except (ValueError, StopIteration) as error:
            raise ConfigError(
                f"{key!r} is no window of pipeline {self.pipeline!r}: expected a partition key in "
                f"the form {self.partitions.fmt!r}."
            ) from error
        return InputWindow(key, time_window.start.astimezone(UTC), time_window.end.astimezone(UTC))

    def keys_between(self, start: datetime, end: datetime) -> list[str]:
        if start >= end:
            return []
        zone = ZoneInfo(self.partitions.timezone)
        span = dg.TimeWindow(start.astimezone(zone), end.astimezone(zone))
        return list(self.partitions.get_partition_keys_in_time_window(span))

    def start_id(self, key: str) -> str:
        start = self.window(key).start
        if self.partitions.cron_schedule.split()[:2] == ["0", "0"]:
            return start.astimezone(ZoneInfo(self.partitions.timezone)).strftime("%Y-%m-%d")
        return start.strftime("%Y-%m-%dT%H:%MZ")

    def key_at(self, start: datetime) -> str | None:
        next_window = self.partitions.get_next_partition_window(start, respect_bounds=False)
        if next_window is None or next_window.start != start:
            return None
        return self.partitions.get_partition_key_for_timestamp(start.timestamp())

    @property
    def definition(self) -> dict[str, str]:
        return {
            "cron": self.partitions.cron_schedule,
            "timezone": self.partitions.timezone,
            "format": self.partitions.fmt,
        }

    def how_to_fill(self, first: str, key: str) -> str:
        return (
            f"launch a run of {first!r} to {key!r}, or give the run the tag {ALLOW_GAP_TAG}=true "
            f"to leave out what is missing."
        )

    def how_to_go_back(self, key: str, again: str) -> str:
        if self.op is None:
            return (
                f"launch a run of {key!r} with the tag {REWIND_TAG}={TRUE}, which goes back to "
                f"before it; run {again} again."
            )
        return (
            f"launch a run of partition {key!r} with the config {{ops: {{{self.op}: {{config: "
            f"{{rewind_to: '{key}'}}}}}}}}, which goes back to before it and runs {again} again."
        )
