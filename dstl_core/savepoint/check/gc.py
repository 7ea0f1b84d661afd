"""Finds files that nothing references any more, under a folder of savepoints and checkpoints.

A file is garbage only if all of this holds: its name is one that dstl or Flink gives to files; no
``_metadata`` under the folder or among the further roots references it, nor a commit, if it is
stored output of an epoch; it is older than the age limit; it is no link; and, in a pipeline's
folder, it is older than the latest claim, whose owner may still be writing. A ``_metadata`` that
cannot be read stops everything: what it references is unknown. Snapshots behind a link count.

The files are listed before the metadata is read, so what is published in between is known. A
pipeline may commit and retire checkpoints meanwhile: its own are looked for after its log, until no
record has come in between. Right before a file is deleted, the log is read once more: what the
latest checkpoint references by then stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from dstl_core.checkpoint.store.completed_store import CompletedCheckpointStore
from dstl_core.checkpoint.store.guard import DeletionGuard
from dstl_core.checkpoint.store.metadata_file import load_metadata_file
from dstl_core.checkpoint.store.references import references_of
from dstl_core.clock import Clock, SystemClock
from dstl_core.errors import ConfigError, DstlError, SavepointError
from dstl_core.storage.file_io import FileIO, FileStatus, open_file_io
from dstl_core.storage.file_set import FileSet
from dstl_core.storage.location import (
    CHANGELOG_DIR,
    INTERNAL_DIR,
    METADATA_FILE_NAME,
    OUTPUT_NAME,
    SHARED_DIR,
    TASK_OWNED_DIR,
    UUID_NAME,
    JobLayout,
    Location,
    checkpoint_id_of,
)
from dstl_core.storage.walk import files_behind, files_below

HOUR_MS = 3_600_000
DEFAULT_AGE_MS = 24 * HOUR_MS
_NAMES = re.compile(
    rf"{UUID_NAME.pattern}"  # state files, segments of the changelog, RocksDB's uploads
    rf"|{UUID_NAME.pattern}\.runs"  # what a bootstrap's tasks leave for its second stage
    r"|\..*\.[0-9a-f]{32}\.tmp"  # a file that was being published
)
_JOB_ID = re.compile("[0-9a-f]{32}")
_JOB_FOLDERS = (SHARED_DIR, TASK_OWNED_DIR, CHANGELOG_DIR)


@dataclass(frozen=True, slots=True)
class Garbage:
    """An unreferenced file."""

    location: Location
    size: int
    modified_ms: int


@dataclass
class GarbageReport:
    """What was found. ``kept`` counts files by the reason why they stay; files that were referenced
    from the beginning are not among them.
    """

    garbage: list[Garbage] = field(default_factory=list)
    kept: dict[str, int] = field(default_factory=dict)
    snapshots: int = 0
    deleted: int = 0

    @property
    def size(self) -> int:
        return sum(each.size for each in self.garbage)

    def keep(self, reason: str) -> None:
        self.kept[reason] = self.kept.get(reason, 0) + 1

    def to_json(self) -> dict[str, Any]:
        return {
            "snapshots": self.snapshots,
            "garbage": [
                {"path": str(each.location), "bytes": each.size, "modified_ms": each.modified_ms}
                for each in self.garbage
            ],
            "bytes": self.size,
            "kept": dict(sorted(self.kept.items())),
            "deleted": self.deleted,
        }


@dataclass(frozen=True)
class Pipeline:
    """A pipeline's folder, its log, and when its owner claimed it."""

    folder: Location
    store: CompletedCheckpointStore
    claimed_ms: int

    @classmethod
    def of(cls, files: FileIO, folder: Location) -> Pipeline | None:
        """The pipeline in a folder; None if the log says that nobody claimed it."""
        store = CompletedCheckpointStore(files, JobLayout(folder), SystemClock())
        store.refresh()
        claimed_ms = store.claimed_ms()
        return None if claimed_ms is None else cls(folder, store, claimed_ms)


def collect_garbage(
    base: str | Location,
    *,
    delete: bool = False,
    older_than_ms: int = DEFAULT_AGE_MS,
    also_referenced_from: Sequence[str] = (),
    flink_job_stopped: bool = False,
    file_io: FileIO | None = None,
    clock: Clock | None = None,
) -> GarbageReport:
    """Finds the unreferenced files under ``base``, and deletes them if asked to.

    Args:
        base: A folder of savepoints, of a pipeline, or of several of these.
        delete: Delete them; else they are only listed.
        older_than_ms: Younger files stay: somebody may be about to name them.
        also_referenced_from: Folders with further snapshots that may name files here.
        flink_job_stopped: Needed where a Flink job keeps its checkpoints: it says that the job,
            whose files in use nobody else knows, does not run.
        file_io: How to reach the files; by their scheme if not given.
        clock: Tells the time.

    Raises:
        SavepointError: A ``_metadata`` cannot be read, or a Flink job may be running.
    """
    root = base if isinstance(base, Location) else Location.parse(base)
    files = file_io if file_io is not None else open_file_io(root)
    now = (clock or SystemClock()).now_ms()
    report = GarbageReport()
    every = list(files_below(files, root))
    pipelines = _pipelines(files, root, every, flink_job_stopped=flink_job_stopped)
    referenced = _referenced(files, every, pipelines, report)
    others: list[Pipeline] = []
    for each in also_referenced_from:
        place = Location.parse(each)
        other_files = files if place.scheme == root.scheme else open_file_io(place)
        there = list(files_below(other_files, place))
        found = _pipelines(other_files, place, there, flink_job_stopped=True)
        referenced.update(_referenced(other_files, there, found, report))
        others += found
    for status in every:
        if status.is_link or not _is_ours(status) or status.location in referenced:
            continue
        reason = _reason_to_keep(status, now - older_than_ms, pipelines)
        if reason is not None or status.modified_ms is None:
            report.keep(reason or "no modification time")
            continue
        report.garbage.append(Garbage(status.location, status.size, status.modified_ms))
    if delete:
        _delete(files, report, pipelines, others)
    return report


def check_is_folder(place: str) -> None:
    """Whoever names a folder by hand may have misspelt it, and would be told of no garbage.

    Raises:
        SavepointError: There is no such folder. In an object store that is one without files.
    """
    folder = Location.parse(place)
    files = open_file_io(folder)
    if files.list_folder(folder) or folder.parent == folder:
        return
    beside = files.list_folder(folder.parent)
    if not any(each.location == folder and (each.is_folder or each.is_link) for each in beside):
        raise SavepointError(
            "There is no such folder; give one of savepoints or of a pipeline.",
            location=str(folder),
        )


def _is_ours(status: FileStatus) -> bool:
    name = status.location.name
    if INTERNAL_DIR in status.location.path.split("/"):
        return OUTPUT_NAME.fullmatch(name) is not None
    return _NAMES.fullmatch(name) is not None


def _reason_to_keep(status: FileStatus, limit_ms: int, pipelines: Sequence[Pipeline]) -> str | None:
    if status.modified_ms is None:
        return "no modification time"
    if status.modified_ms > limit_ms:
        return "young"
    for each in pipelines:
        if each.folder.contains(status.location) and status.modified_ms >= each.claimed_ms:
            return "of a live claim"
    return None


def _pipelines(
    files: FileIO, root: Location, every: Sequence[FileStatus], *, flink_job_stopped: bool
) -> list[Pipeline]:
    """The folders of our own pipelines.

    Raises:
        SavepointError: There is a Flink job's folder, and nobody said that the job is stopped.
    """
    found: list[Pipeline] = []
    for job in sorted(_job_folders(root, every), key=str):
        pipeline = Pipeline.of(files, job)
        if pipeline is not None:
            found.append(pipeline)
        elif not flink_job_stopped:
            raise SavepointError(
                f"A Flink job keeps its checkpoints in {job}, and only that job knows which files "
                f"it still uses; stop it and say so with --flink-job-stopped, or choose another "
                f"folder."
            )
    return found


def _job_folders(root: Location, every: Iterable[FileStatus]) -> set[Location]:
    """Folders with checkpoints, shared files or a changelog in them."""
    found = set()
    for status in every:
        folder = status.location.parent
        while root.contains(folder):
            is_inside = INTERNAL_DIR in folder.parent.path.split("/")
            if not is_inside and _marks_a_job(folder, status.location):
                found.add(folder.parent)
            if folder.path == "/":
                break
            folder = folder.parent
    return found


def _marks_a_job(folder: Location, file: Location) -> bool:
    """Whether a folder with this file in or below it is one that a job has. Flink's ``shared``,
    ``taskowned`` and ``dstl`` hold files, and merged files one folder deeper; a folder of that name
    without any is somebody's base.
    """
    if folder.name == INTERNAL_DIR or checkpoint_id_of(folder.name) is not None:
        return True
    of_a_job = _JOB_ID.fullmatch(folder.parent.name) is not None
    holds_file = file.parent == folder or (of_a_job and file.parent.parent == folder)
    return folder.name in _JOB_FOLDERS and holds_file


def _referenced(
    files: FileIO,
    every: Iterable[FileStatus],
    pipelines: Sequence[Pipeline],
    report: GarbageReport,
) -> FileSet:
    """What the snapshots among ``every`` reference, and what the pipelines have by now."""
    found = FileSet()
    jobs = {each.folder for each in pipelines}
    for status in _with_linked(files, every):
        folder = status.location.parent
        is_own_checkpoint = checkpoint_id_of(folder.name) is not None and folder.parent in jobs
        if status.location.name == METADATA_FILE_NAME and not is_own_checkpoint:
            with _unknown_stops(f"repair or remove {status.location}"):
                found.update(references_of(files, load_metadata_file(files, folder)))
            report.snapshots += 1
    for each in pipelines:
        with _unknown_stops(f"mend the pipeline in {each.folder}"):
            found.update(each.store.references.all())
        report.snapshots += each.store.references.checkpoints
        # The output of retired ones, too: their input may be given again.
        for name in (name for commit in each.store.commits() for name in commit.facts.output_files):
            found.add_name(name)
    return found


def _with_linked(files: FileIO, every: Iterable[FileStatus]) -> Iterator[FileStatus]:
    """The files of a listing, then those behind its links."""
    for status in every:
        yield status
        if status.is_link:
            yield from files_behind(files, status.location)


@contextmanager
def _unknown_stops(way_out: str) -> Iterator[None]:
    try:
        yield
    except DstlError as error:
        raise SavepointError(
            f"Nothing is collected: what a snapshot references is unknown ({error}); {way_out} "
            f"first."
        ) from error


def _delete(
    files: FileIO,
    report: GarbageReport,
    pipelines: Sequence[Pipeline],
    others: Sequence[Pipeline],
) -> None:
    """Deletes the garbage, but for what a checkpoint has come to reference since it was found.

    A file is referenced by the pipeline in whose folder it lies, if by any. That one's log is read
    before each deletion, the other logs before the first.
    """
    referenced = FileSet()
    for each in (*pipelines, *others):
        referenced.update(each.store.references.latest())
    found, report.garbage = report.garbage, []
    for file in found:
        of = next((each for each in pipelines if each.folder.contains(file.location)), None)
        guard = DeletionGuard(files, of.store.references.latest if of else FileSet)
        if file.location in referenced or not guard.delete(file.location):
            report.keep("referenced by now")
            continue
        report.garbage.append(file)
        report.deleted += 1


def parse_age(text: str) -> int:
    """Milliseconds of an age such as ``24h``, ``90m``, ``7d`` or ``30s``.

    Raises:
        ConfigError: It has another form.
    """
    match = re.fullmatch(r"([0-9]{1,9})(s|m|h|d)", text.strip())
    if match is None:
        raise ConfigError(f"An age is wrong: expected e.g. 24h, 90m or 7d, got {text!r}.")
    unit = {"s": 1000, "m": 60_000, "h": HOUR_MS, "d": 24 * HOUR_MS}[match[2]]
    return int(match[1]) * unit
