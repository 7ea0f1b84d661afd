"""The last epochs of a pipeline on the page of its checkpoint: a row each, and their sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg

from dstl_core.checkpoint.store.commit_lineage import lineage
from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.pipeline_store import PipelineStore
from dstl_core.job.coordination.input_windows import NOTE, key_of
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import checkpoint_id_of
from dstl_dagster import metadata as show
from dstl_dagster.charts import log_totals

SHOWN_EPOCHS = 30
"""Rows of the table: a month of days. The event log keeps each table for ever."""


@dataclass(frozen=True)
class EpochsPage:
    """What the page of a checkpoint shows of the epochs before it.

    Args:
        history: Commits up to that of the checkpoint, oldest first.
        log_bytes: The log of the checkpoint; None if it is no longer retained.
        retained: The ids of the checkpoints whose folders are there.
        now: The time of the report.
    """

    history: Sequence[CompletedCheckpoint]
    log_bytes: int | None
    retained: frozenset[int]
    now: datetime

    @classmethod
    def of(
        cls, store: PipelineStore, history: Sequence[CompletedCheckpoint], log_bytes: int | None
    ) -> EpochsPage:
        """The page of the last one of ``history``. It lists the pipeline's folder."""
        root = store.layout.root
        names = (each.location.name for each in open_file_io(root).list_folder(root))
        retained = frozenset(each for each in map(checkpoint_id_of, names) if each is not None)
        return cls(history, log_bytes, retained, datetime.now(UTC))

    def metadata(self, *, is_last: bool) -> dict[str, Any]:
        """The table, newest first, and its sums; of the last epoch of a run also how many windows
        are left.
        """
        epochs = [each for each in self.history if each.facts.input is not None]
        current = list(lineage(reversed(self.history)))
        ids = {each.checkpoint_id for each in current}
        times = _times_run(epochs)
        missing = _missing_before([each for each in reversed(current) if each.facts.input])
        ratios = self._ratios()
        rows: list[dict[str, Any]] = []
        for epoch in epochs[::-1][:SHOWN_EPOCHS]:
            number = epoch.checkpoint_id
            rows.append(
                {
                    "epoch": _label(epoch),
                    "rows": 0 if epoch.facts.input is None else epoch.facts.input.rows,
                    "keys changed": epoch.facts.changed_keys,
                    "log bytes": epoch.facts.log_bytes,
                    "seconds": round(epoch.facts.seconds, 2),
                    "cost": _cost(epoch),
                    "lag": _span(_lag(epoch)),
                    "log to base": ratios[number],
                    "run": times[number],
                    "missing before": missing.get(number, 0),
                    "state": _state(number, ids, self.retained),
                    "checkpoint": number,
                }
            )
        shown = {row["checkpoint"] for row in rows}
        metadata: dict[str, Any] = {
            "dstl/epochs": show.rows_table(rows),
            "dstl/restatements": sum(times[each] > 1 for each in shown),
            "dstl/windows_left_out": sum(missing.get(each, 0) for each in shown),
            "dstl/retained_checkpoints": len(self.retained),
            "dstl/goes_back_to": self._goes_back_to(current),
        }
        behind = self._behind(current) if is_last else None
        if behind is not None:
            metadata["dstl/windows_behind"] = behind
        return metadata

    def _goes_back_to(self, current: Sequence[CompletedCheckpoint]) -> str:
        """The first epoch that a run can go back to: the state before it is retained."""
        epochs = (commit for commit in reversed(current) if commit.facts.input is not None)
        can = (commit for commit in epochs if commit.facts.restored_from in self.retained)
        first = next(can, None)
        return "none" if first is None else _label(first)

    def _ratios(self) -> dict[int, str]:
        """The log against the base after each commit; empty where the base is not known."""
        base: int | None = None
        ratios = {}
        for commit, log in zip(self.history, log_totals(self.history, self.log_bytes), strict=True):
            if commit.facts.materialized_bytes is not None:
                base = commit.facts.materialized_bytes
            ratios[commit.checkpoint_id] = f"{log / base:.2f}" if base else ""
        return ratios

    def _behind(self, current: Sequence[CompletedCheckpoint]) -> int | None:
        """How many windows have ended by now and follow the last one; None without windows."""
        last = next((each for each in current if each.facts.input is not None), None)
        note = None if last is None else _window(last)
        if note is None:
            return None
        return len(_windows_between(note, datetime.fromisoformat(note["end"]), self.now))


def _times_run(epochs: Sequence[CompletedCheckpoint]) -> dict[int, int]:
    """How often the input of each epoch had been run with it."""
    counts: Counter[Any] = Counter()
    times = {}
    for epoch in epochs:
        input_id = None if epoch.facts.input is None else epoch.facts.input.id
        counts[input_id] += 1
        times[epoch.checkpoint_id] = counts[input_id]
    return times


def _missing_before(line: Sequence[CompletedCheckpoint]) -> dict[int, int]:
    """How many windows were left out before each epoch of a lineage, oldest first."""
    missing = {}
    for before, epoch in pairwise(line):
        first, note = _window(before), _window(epoch)
        if first is not None and note is not None:
            start, end = (datetime.fromisoformat(time) for time in (first["end"], note["start"]))
            missing[epoch.checkpoint_id] = len(_windows_between(note, start, end))
    return missing


def _windows_between(note: Mapping[str, Any], start: datetime, end: datetime) -> list[str]:
    """The windows of the definition that a commit has noted, within a span."""
    if start >= end:
        return []
    windows = dg.TimeWindowPartitionsDefinition(
        start=start, fmt=note["format"], cron_schedule=note["cron"], timezone=note["timezone"]
    )
    zone = ZoneInfo(note["timezone"])
    span = dg.TimeWindow(start.astimezone(zone), end.astimezone(zone))
    keys = list(windows.get_partition_keys_in_time_window(span))
    has_ended = not keys or windows.time_window_for_partition_key(keys[-1]).end <= end
    return keys if has_ended else keys[:-1]


def _window(commit: CompletedCheckpoint) -> Mapping[str, Any] | None:
    note = commit.facts.notes.get(NOTE)
    return note if isinstance(note, Mapping) else None


def _lag(commit: CompletedCheckpoint) -> timedelta | None:
    """The time from the end of a window to its commit; None without a window."""
    note = _window(commit)
    if note is None:
        return None
    committed = datetime.fromtimestamp(commit.committed_ms / 1000, UTC)
    return committed - datetime.fromisoformat(note["end"])


def _span(span: timedelta | None) -> str:
    """A time of two units, such as ``2 d 3 h``."""
    if span is None:
        return ""
    seconds = int(abs(span).total_seconds())
    units = (("d", seconds // 86_400), ("h", seconds // 3_600 % 24), ("min", seconds // 60 % 60))
    text = " ".join(f"{number} {unit}" for unit, number in units if number) or f"{seconds} s"
    sign = "-" if span < timedelta(0) else ""
    return sign + " ".join(text.split()[:4])


def _cost(commit: CompletedCheckpoint) -> str:
    """Seconds for a million rows, and bytes that are logged for a key that changed."""
    facts, rows = commit.facts, 0 if commit.facts.input is None else commit.facts.input.rows
    parts = [f"{facts.seconds / rows * 1e6:,.1f} s per 1M rows"] if rows else []
    if facts.changed_keys:
        parts.append(f"{facts.log_bytes / facts.changed_keys:,.0f} B per key")
    return ", ".join(parts)


def _label(commit: CompletedCheckpoint) -> str:
    text = str(key_of(commit) or (commit.facts.input and commit.facts.input.id))
    return text if text.isprintable() else repr(text)


def _state(number: int, current: set[int], retained: frozenset[int]) -> str:
    """What a checkpoint is good for."""
    if number not in current:
        return "undone"
    return "retained" if number in retained else "current"
