"""Finds files that nothing names any more, under a folder of savepoints and checkpoints.

A file is garbage only if all of this holds: its name is one that dstl or Flink gives to files; no
``_metadata`` under the folder or among the further roots names it, nor a commit, if it is stored
output of an epoch; it is older than the age limit; it is no link; and, in a pipeline's folder, it
is older than the latest claim, whose owner may still be writing. A ``_metadata`` that cannot be
read stops everything: what it names is unknown.

The files are listed before the metadata is read, so what is published in between is known. A
pipeline may commit and retire checkpoints meanwhile: its own are looked for after its log, until no
record has come in between.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dstl_core.checkpoint.metadata_file import load_metadata_file
from dstl_core.clock import Clock, SystemClock
from dstl_core.errors import ConfigError, DstlError, SavepointError, StateFileNotFoundError
from dstl_core.model.handle import FileStateHandle, RelativeFileStateHandle, SegmentFileStateHandle
from dstl_core.storage.commit_log import CommitLog
from dstl_core.storage.file_io import FileIO, FileStatus, open_file_io
from dstl_core.storage.location import (
    CHANGELOG_DIR,
    INTERNAL_DIR,
    METADATA_FILE_NAME,
    SHARED_DIR,
    TASK_OWNED_DIR,
    JobLayout,
    Location,
    checkpoint_id_of,
)

HOUR_MS = 3_600_000
DEFAULT_AGE_MS = 24 * HOUR_MS
_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_NAMES = re.compile(
    rf"{_UUID}"  # state files, segments of the changelog, RocksDB's uploads
    rf"|{_UUID}\.runs"  # what a bootstrap's tasks leave for its second stage
    r"|\..*\.[0-9a-f]{32}\.tmp"  # a file that was being published
)
_OUTPUT = re.compile(r"part-[0-9]{5}-[0-9a-f]{32}\.parquet")
"""Stored output of an epoch; the commit records name what counts."""
_LOOKS = 20
_JOB_FOLDERS = (SHARED_DIR, TASK_OWNED_DIR, CHANGELOG_DIR)


@dataclass(frozen=True, slots=True)
class Garbage:
    """A file that nothing names."""

    location: Location
    size: int
    modified_ms: int


@dataclass
class GarbageReport:
    """What was found. ``kept`` counts unnamed files by the reason why they stay."""

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
    """Finds the files under ``base`` that nothing names, and deletes them if asked to.

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
    every = list(_walk(files, root))
    logs = _commit_logs(files, root, every, flink_job_stopped=flink_job_stopped)
    claims = [(job, log.latest_claim.at_ms) for job, log in logs.items() if log.latest_claim]
    referenced = _referenced(files, every, logs, report)
    for log in logs.values():
        referenced |= _committed_output(log)
    for other in also_referenced_from:
        place = Location.parse(other)
        other_files = files if place.scheme == root.scheme else open_file_io(place)
        there = list(_walk(other_files, place))
        others = _commit_logs(other_files, place, there, flink_job_stopped=True)
        referenced |= _referenced(other_files, there, others, report)
    for status in every:
        if status.location.name in referenced or not _is_ours(status):
            continue
        reason = _reason_to_keep(status, now - older_than_ms, claims)
        if reason is not None or status.modified_ms is None:
            report.keep(reason or "no modification time")
            continue
        report.garbage.append(Garbage(status.location, status.size, status.modified_ms))
    if delete:
        report.deleted = sum(files.delete(each.location) for each in report.garbage)
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


def _walk(files: FileIO, folder: Location) -> Iterator[FileStatus]:
    """Every file below a folder. A listing shows a link as neither file nor folder to follow."""
    for status in files.list_folder(folder):
        if status.is_folder:
            yield from _walk(files, status.location)
        elif not status.is_link:
            yield status


def _is_ours(status: FileStatus) -> bool:
    name = status.location.name
    if INTERNAL_DIR in status.location.path.split("/"):
        return _OUTPUT.fullmatch(name) is not None
    return _NAMES.fullmatch(name) is not None


def _reason_to_keep(
    status: FileStatus, limit_ms: int, claims: Sequence[tuple[Location, int]]
) -> str | None:
    if status.modified_ms is None:
        return "no modification time"
    if status.modified_ms > limit_ms:
        return "young"
    for folder, claimed_at in claims:
        if folder.contains(status.location) and status.modified_ms >= claimed_at:
            return "of a live claim"
    return None


def _commit_logs(
    files: FileIO, root: Location, every: Iterable[FileStatus], *, flink_job_stopped: bool
) -> dict[Location, CommitLog]:
    """The folders of our own pipelines, with their logs.

    Raises:
        SavepointError: There is a Flink job's folder, and nobody said that the job is stopped.
    """
    logs: dict[Location, CommitLog] = {}
    for job in sorted(_job_folders(root, every), key=str):
        log = CommitLog(files, JobLayout(job).commit_log, SystemClock())
        log.refresh()
        if log.latest_claim is not None:
            logs[job] = log
        elif not flink_job_stopped:
            raise SavepointError(
                f"A Flink job keeps its checkpoints in {job}, and only that job knows which files "
                f"it still uses; stop it and say so with --flink-job-stopped, or choose another "
                f"folder."
            )
    return logs


def _committed_output(log: CommitLog) -> set[str]:
    """Of all commits, retired ones too: their input may be given again."""
    found: set[str] = set()
    for record in log.commits:
        names = record.payload.get("facts", {}).get("output_files", ())
        found.update(name for name in names if isinstance(name, str))
    return found


def _job_folders(root: Location, every: Iterable[FileStatus]) -> set[Location]:
    """Folders with checkpoints, shared files or a changelog in them."""
    found = set()
    for status in every:
        folder = status.location.parent
        while root.contains(folder):
            name = folder.name
            is_inside = INTERNAL_DIR in folder.parent.path.split("/")
            is_mark = name in (*_JOB_FOLDERS, INTERNAL_DIR) or checkpoint_id_of(name) is not None
            if is_mark and not is_inside:
                found.add(folder.parent)
            if folder.path == "/":
                break
            folder = folder.parent
    return found


def _referenced(
    files: FileIO,
    every: Iterable[FileStatus],
    logs: Mapping[Location, CommitLog],
    report: GarbageReport,
) -> set[str]:
    """The base names of the files that the snapshots among ``every`` name, and those that the
    pipelines of ``logs`` have by now. The names are unique wherever they lie, so a file that was
    moved with its folder counts as named too.
    """
    found: set[str] = set()
    for status in every:
        folder = status.location.parent
        if status.location.name == METADATA_FILE_NAME and not _is_own_checkpoint(folder, logs):
            found |= _named_by(files, folder) or set()
            report.snapshots += 1
    for job, log in logs.items():
        checkpoints = _checkpoints(files, job, log)
        report.snapshots += len(checkpoints)
        found = found.union(*checkpoints)
    return found


def _is_own_checkpoint(folder: Location, logs: Mapping[Location, CommitLog]) -> bool:
    return checkpoint_id_of(folder.name) is not None and folder.parent in logs


def _checkpoints(files: FileIO, job: Location, log: CommitLog) -> list[set[str]]:
    """What each checkpoint of a pipeline names. While no record comes, none of those goes that the
    log holds.
    """
    for _ in range(_LOOKS):
        known = log.count
        found = []
        for status in files.list_folder(job):
            if status.is_folder and checkpoint_id_of(status.location.name) is not None:
                names = _named_by(files, status.location, may_be_gone=True)
                if names is not None:  # else it was retired, or is not published yet
                    found.append(names)
        log.refresh()
        if log.count == known:
            return found
    raise SavepointError(
        f"Nothing is collected: {job} committed at each of {_LOOKS} looks at its checkpoints; "
        f"collect when it is less busy."
    )


def _named_by(files: FileIO, folder: Location, *, may_be_gone: bool = False) -> set[str] | None:
    """What one snapshot names; None if it may be gone and is.

    Raises:
        SavepointError: It cannot be read.
    """
    try:
        metadata = load_metadata_file(files, folder).metadata
    except DstlError as error:
        if may_be_gone and isinstance(error, StateFileNotFoundError):
            return None
        raise SavepointError(
            f"Nothing is collected: what a snapshot names is unknown ({error}); repair or "
            f"remove {folder.child(METADATA_FILE_NAME)} first."
        ) from error
    found: set[str] = set()
    for operator in metadata.operators:
        for subtask in operator.subtasks:
            for stream in subtask.streams():
                match stream:
                    case RelativeFileStateHandle():
                        found.add(posixpath.basename(stream.relative_path))
                    case FileStateHandle() | SegmentFileStateHandle():
                        found.add(posixpath.basename(stream.path))
                    case _:
                        pass  # inline
    return found


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
