"""The folder of a pipeline or of a Flink job: its newest checkpoint, and how its state grew."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from dstl_core.checkpoint.store.commit_lineage import lineage
from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.completed_store import CompletedCheckpointStore
from dstl_core.clock import SystemClock
from dstl_core.errors import DAMAGED
from dstl_core.model.ids import JobID
from dstl_core.savepoint.folders.listing import FoundSnapshot, describe
from dstl_core.storage.file_io import FileIO, open_file_io
from dstl_core.storage.location import (
    INTERNAL_DIR,
    METADATA_FILE_NAME,
    JobLayout,
    Location,
    checkpoint_id_of,
)

MOST_POINTS = 500
"""Checkpoints of a history. Older ones are left out."""


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """The size of the state at a checkpoint.

    Args:
        checkpoint_id: Its number.
        at_ms: When it was written; None if the store does not tell.
        bytes: The state with its log.
        added: What the checkpoint added; None if only a commit log tells.
    """

    checkpoint_id: int
    at_ms: int | None
    bytes: int
    added: int | None = None


@dataclass(frozen=True)
class JobFolder:
    """A folder of ``chk-<n>``.

    Args:
        layout: The folder.
        file_io: Its store.
        numbers: The checkpoints that are there, in ascending order.
        has_log: Whether it is a pipeline's, whose log says what is committed.
    """

    layout: JobLayout
    file_io: FileIO
    numbers: tuple[int, ...]
    has_log: bool

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> JobFolder | None:
        """The folder of a job. A pipeline may be named ``<base>/<name>``, although its folder has
        another name. None if there is no job.
        """
        base = Location.parse(path)
        file_io = open_file_io(base)
        name = base.path.rpartition("/")[2]
        roots = [base]
        if not any("\ud800" <= char <= "\udfff" for char in name):  # bytes that are no UTF-8
            roots.append(base.parent.child(JobID.for_name(name).hex))
        for root in roots:
            entries = file_io.list_folder(root)
            folders = {entry.location.name: entry.is_folder for entry in entries}
            if METADATA_FILE_NAME in folders:
                return None
            numbers = sorted(
                number
                for child, is_folder in folders.items()
                if is_folder and (number := checkpoint_id_of(child)) is not None
            )
            has_log = folders.get(INTERNAL_DIR, False)
            if numbers or has_log:
                return cls(JobLayout(root), file_io, tuple(numbers), has_log)
        return None

    def newest(self) -> Location | None:
        """The folder of the newest checkpoint: the last commit of a pipeline, or the highest number
        of a Flink job that has metadata. None if there is none.
        """
        if self.has_log:
            latest = self._store().latest
            if latest is not None:
                checkpoint = self.layout.checkpoint(latest.checkpoint_id)
                return checkpoint if latest.location is None else Location.parse(latest.location)
        for number in reversed(self.numbers):
            folder = self.layout.checkpoint(number)
            if self.file_io.size(folder.child(METADATA_FILE_NAME)) is not None:
                return folder
        return None

    def history(self, until: int) -> list[dict[str, Any]]:
        """The fields of a ``HistoryPoint`` for each checkpoint up to a number, oldest first.

        A commit log has the sizes of checkpoints that are gone, too. Without one, checkpoints that
        cannot be read are left out.
        """
        points = self._committed() if self.has_log else self._stored()
        return [asdict(point) for point in points if point.checkpoint_id <= until]

    def _store(self) -> CompletedCheckpointStore:
        store = CompletedCheckpointStore(self.file_io, self.layout, SystemClock())
        store.refresh()
        return store

    def _committed(self) -> list[HistoryPoint]:
        """A materialization writes the whole state, and each commit after it adds to that."""
        commits: list[CompletedCheckpoint] = []
        for commit in lineage(self._store().commits()):
            if not commit.properties.is_savepoint:
                commits.append(commit)
            if len(commits) >= MOST_POINTS and commit.facts.materialized_bytes is not None:
                break
        size, points = 0, []
        for commit in reversed(commits):
            facts = commit.facts
            added = (
                facts.log_bytes if facts.materialized_bytes is None else facts.materialized_bytes
            )
            size = size + added if facts.materialized_bytes is None else added
            points.append(HistoryPoint(commit.checkpoint_id, commit.committed_ms, size, added))
        return points[-MOST_POINTS:]

    def _stored(self) -> Iterator[HistoryPoint]:
        for number in self.numbers[-MOST_POINTS:]:
            folder = self.layout.checkpoint(number)
            try:
                entries = self.file_io.list_folder(folder)
                written = [each for each in entries if each.location.name == METADATA_FILE_NAME]
                for entry in islice(written, 1):
                    snapshot = FoundSnapshot(folder, entry.modified_ms)
                    shown = describe(snapshot, self.layout.root, self.file_io)
                    if shown["problem"] is None:
                        yield HistoryPoint(number, entry.modified_ms, shown["bytes"])
            except DAMAGED:
                continue


def history_of(folder: Location) -> list[dict[str, Any]]:
    """How the state of a job came to that of a checkpoint; empty for a savepoint."""
    number = checkpoint_id_of(folder.path.rpartition("/")[2])
    job = None if number is None else JobFolder.at(str(folder.parent))
    return [] if job is None or number is None else job.history(number)
