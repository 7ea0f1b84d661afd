"""Reads a pipeline's folder for sensors and checks, and resets it. It does not need Spark.

A *lease* shows that a run works on the pipeline. It is a file ``_dstl/leases/<run id>.json``. The
run writes it before its first epoch and deletes it when it ends, normally or by exception. A killed
run leaves its lease. Safety does not depend on leases; the commit log alone is authoritative.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import Self

from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.completed_store import CompletedCheckpointStore
from dstl_core.checkpoint.store.guard import DeletionGuard
from dstl_core.checkpoint.store.metadata_file import MetadataFile
from dstl_core.clock import Clock, SystemClock
from dstl_core.errors import CheckpointError, FormatError
from dstl_core.model.ids import JobID
from dstl_core.model.state_size import StateSize
from dstl_core.storage.file_io import FileStatus, open_file_io
from dstl_core.storage.json_document import CONVERSION_ERRORS, parse_json_object, write_json_object
from dstl_core.storage.location import (
    INTERNAL_DIR,
    UUID_NAME,
    JobLayout,
    Location,
    checkpoint_id_of,
    is_scratch,
)

_LEASE = re.compile(r"([A-Za-z0-9_-]+)\.json")


@dataclass(frozen=True)
class Lease:
    """The lease of a run that works on the pipeline or was killed."""

    run_id: str
    since_ms: int


@dataclass(frozen=True)
class Reset:
    """The result of a reset. If ``busy`` names live runs, the reset changed nothing."""

    busy: tuple[str, ...] = ()
    swept_runs: tuple[str, ...] = ()
    deleted: tuple[str, ...] = field(default=(), repr=False)
    deleted_bytes: int = 0


class PipelineStore:
    """Reads the folder of one pipeline, without Spark.

    Args:
        base_path: Folder or URL of all jobs.
        name: Name of the pipeline.
        clock: The clock; the system's by default.
        layout: Its folder, if it is not that of its name.
    """

    def __init__(
        self,
        base_path: str,
        name: str,
        *,
        clock: Clock | None = None,
        layout: JobLayout | None = None,
    ) -> None:
        self.name = name
        base = Location.parse(base_path)
        self.layout = layout or JobLayout.of(base, JobID.for_name(name).hex)
        self._clock = clock or SystemClock()
        self._file_io = open_file_io(self.layout.root)
        self._store = CompletedCheckpointStore(self._file_io, self.layout, self._clock)
        self._leases = self.layout.root.child(INTERNAL_DIR, "leases")

    @classmethod
    def in_folder(cls, folder: str, *, clock: Clock | None = None) -> Self:
        """The pipeline in a folder, by which it is named then.

        Raises:
            CheckpointError: The folder has no pipeline.
        """
        root = Location.parse(folder)
        store = cls(str(root.parent), root.name, clock=clock, layout=JobLayout(root))
        if store.latest() is None:
            raise CheckpointError(
                f"There is no pipeline of dstl with a checkpoint in {root}; give the folder of "
                f"one, <base>/<job id>.",
                location=str(root),
            )
        return store

    # ------------------------------------------------------------------------------ commits

    def history(self) -> list[CompletedCheckpoint]:
        """All commits, oldest first. It reads them all, so the time grows with their number."""
        self._store.refresh()
        return self._store.completed

    def commits(self) -> Iterator[CompletedCheckpoint]:
        """Yields all commits, newest first. It reads old ones when they are needed."""
        self._store.refresh()
        return self._store.commits()

    def recent(self, count: int, *, until: int | None = None) -> list[CompletedCheckpoint]:
        """The last ``count`` commits up to checkpoint ``until``, oldest first."""
        commits = (each for each in self.commits() if until is None or each.checkpoint_id <= until)
        return list(islice(commits, count))[::-1]

    def commit_of(self, checkpoint_id: int) -> CompletedCheckpoint | None:
        self._store.refresh()
        return self._store.commit_of(checkpoint_id)

    def latest(self) -> CompletedCheckpoint | None:
        """The last commit."""
        self._store.refresh()
        return self._store.latest

    def require_latest(self) -> CompletedCheckpoint:
        """The last commit.

        Raises:
            CheckpointError: The pipeline has no commit yet.
        """
        latest = self.latest()
        if latest is None:
            raise CheckpointError(
                f"The pipeline {self.name!r} has no checkpoint yet; run it first.",
                location=str(self.layout.root),
            )
        return latest

    def path_of(self, checkpoint: CompletedCheckpoint) -> str:
        """The folder of a commit."""
        return str(self.layout.checkpoint(checkpoint.checkpoint_id))

    def metadata_of(self, checkpoint: CompletedCheckpoint) -> MetadataFile:
        """The metadata of a commit. ``Snapshot.load(path_of(checkpoint))`` reads its state.

        Raises:
            CheckpointError: The folder holds other metadata than was committed.
            StateFileNotFoundError: The checkpoint was retired.
        """
        return self._store.load(checkpoint)

    def size(self) -> StateSize:
        """Bytes of state and log in the latest checkpoint."""
        return StateSize.of(self.metadata_of(self.require_latest()).metadata)

    # ------------------------------------------------------------------------------- leases

    @contextmanager
    def lease(self, run_id: str) -> Iterator[None]:
        """Holds a lease for the length of the block."""
        self.begin(run_id)
        try:
            yield
        finally:
            self.end(run_id)

    def begin(self, run_id: str) -> None:
        """Writes a lease. This or another process deletes it with ``end``."""
        content = {"run_id": run_id, "since_ms": self._clock.now_ms()}
        # A killed attempt of the same run may have left its lease.
        self._file_io.publish_once(self._lease(run_id), write_json_object(content, "A lease"))

    def end(self, run_id: str) -> None:
        self._file_io.delete(self._lease(run_id))

    def _lease(self, run_id: str) -> Location:
        return self._leases.child(f"{run_id}.json")

    def leases(self) -> list[Lease]:
        """The leases of runs that work on the pipeline or were killed."""
        leases = []
        for status in self._file_io.list_folder(self._leases):
            match = _LEASE.fullmatch(status.location.name)
            if match is None:
                continue
            try:
                body = parse_json_object(self._file_io.read_bytes(status.location), "A lease")
                leases.append(Lease(str(body["run_id"]), int(body["since_ms"])))
            except FileNotFoundError:  # its run has ended since the listing
                continue
            except (FormatError, *CONVERSION_ERRORS):
                leases.append(Lease(match[1], 0))
        return leases

    # -------------------------------------------------------------------------------- reset

    def reset(self, owner: str, is_alive: Callable[[str], bool]) -> Reset:
        """Claims the pipeline and deletes the files of dead runs.

        Args:
            owner: Unique name of the owner for the claim.
            is_alive: Whether a run may still work.

        Returns:
            The deleted files and leases; or the live runs, if nothing was changed.

        Raises:
            FencedError: Another run claimed the pipeline; nothing was deleted.
        """
        leases = self.leases()
        busy = tuple(lease.run_id for lease in leases if is_alive(lease.run_id))
        if busy:
            return Reset(busy)
        if not leases and not self.orphans():
            # No claim is made either: it would fence a run that is about to begin.
            return Reset()
        self._store.claim(owner)
        # After the claim, dead runs cannot commit. A later owner claims before it writes files, so
        # this listing has none of its files.
        deleted = self.sweep_orphans(self._store.check_claim)
        for lease in leases:
            self.end(lease.run_id)
        return Reset(
            swept_runs=tuple(lease.run_id for lease in leases),
            deleted=tuple(str(status.location) for status in deleted),
            deleted_bytes=sum(status.size for status in deleted),
        )

    def sweep_orphans(self, check_claim: Callable[[], None]) -> list[FileStatus]:
        """Deletes files and folders of uncommitted epochs. The caller has claimed the pipeline.

        Args:
            check_claim: Raises FencedError if another owner has claimed since; nothing is deleted.
        """
        orphans = self._orphans()
        check_claim()
        guard = DeletionGuard(self._file_io, self._store.references.latest)
        return [
            status
            for status in orphans
            if (guard.delete_folder if status.is_folder else guard.delete)(status.location)
        ]

    def sweep_scratch(self) -> int:
        """Deletes what killed migrations and plans of migrations have left; returns how many of
        them. The caller has claimed the pipeline.
        """
        folders = [
            status.location
            for status in self._file_io.list_folder(self.layout.root.child(INTERNAL_DIR))
            if is_scratch(status.location)
        ]
        for folder in folders:
            self._file_io.delete_folder(folder)
        return len(folders)

    def unnamed_outputs(self) -> list[Location]:
        """Files of attempts of tasks that were not committed, beside the output of commits."""
        folders = self._file_io.list_folder(self.layout.output(0).parent)
        places = {checkpoint_id_of(folder.location.name): folder.location for folder in folders}
        return [
            status.location
            for commit in self.commits()
            if commit.checkpoint_id in places
            for status in self._file_io.list_folder(places[commit.checkpoint_id])
            if not status.is_folder and status.location.name not in commit.facts.output_files
        ]

    def sweep_unnamed_outputs(self, check_claim: Callable[[], None]) -> int:
        """Deletes these files; returns how many. Arguments and errors are as of
        ``sweep_orphans``.
        """
        files = self.unnamed_outputs()
        check_claim()
        for file in files:
            self._file_io.delete(file)
        return len(files)

    def left_folders(self) -> list[str]:
        """Folders of checkpoints beside the latest one, with a file that it does not need; and of
        snapshots that the pipeline has claimed.
        """
        latest = self.require_latest().checkpoint_id
        needed = self._store.references.latest()
        claimed = map(self._store.folder_of, self._store.claimed_and_there())
        return [*map(str, claimed)] + [
            str(status.location)
            for status in self._file_io.list_folder(self.layout.root)
            if checkpoint_id_of(status.location.name) not in (None, latest)
            and any(
                file.location not in needed for file in self._file_io.list_folder(status.location)
            )
        ]

    def latest_files(self) -> Container[Location]:
        """The files that the latest checkpoint needs."""
        return self._store.references.latest()

    def claimed_and_gone(self) -> list[Location]:
        """Folders of claimed snapshots whose metadata is gone, and of which files may be left."""
        return self._store.claimed_and_gone()

    def claimed_folders(self) -> Sequence[Location]:
        """Folders of snapshots of Flink that the pipeline has claimed."""
        return self._store.claimed_folders()

    def orphans(self) -> list[str]:
        """Files and folders of uncommitted epochs, also of a running epoch."""
        self._store.refresh()
        return [str(status.location) for status in self._orphans()]

    def _orphans(self) -> list[FileStatus]:
        list_folder = self._file_io.list_folder
        files = [
            status
            for folder in (self.layout.changelog, self.layout.task_owned)
            for status in list_folder(folder)
            if not status.is_folder and UUID_NAME.fullmatch(status.location.name)
        ]
        needed = self._store.references.all()
        orphans = [status for status in files if status.location not in needed]
        folders = {
            checkpoint_id_of(status.location.name): status
            for status in list_folder(self.layout.output(0).parent)
        }
        ids = {each for each in folders if each is not None}
        newest_first = takewhile(
            lambda commit: commit.checkpoint_id >= min(ids, default=0), self._store.commits()
        )
        ids.difference_update([each.checkpoint_id for each in newest_first])
        return orphans + [folders[each] for each in sorted(ids)]
