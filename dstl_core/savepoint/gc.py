"""Finds unreferenced files under a folder of savepoints and checkpoints.

A file is garbage only if all of these are true:

* Its name has a form that dstl or Flink gives to files. In the folders of killed migrations, names
  of snapshots count, too.
* No ``_metadata`` under the folder or among the further roots references it, and none of a snapshot
  that shares files here, as notes beside the files say.
* It is not stored output of an epoch that a commit references.
* It is older than the age limit.
* It is not a link.
* In a pipeline's folder, it is older than the latest claim, whose owner may still be writing.

An unreadable ``_metadata`` stops the collection, since the files that it references are unknown.
Snapshots behind a link count as references.

The files are listed before the metadata is read, so that references published in between count. A
pipeline may commit and retire checkpoints at the same time. Therefore its checkpoints are read
after its log, and again until no record was added in between. Before each deletion the log is read
once more: files that the latest checkpoint references stay. A snapshot of another folder may begin
to share files: it and the collection see each other, as ``announced_collection`` says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from dstl_core.checkpoint.store.completed_store import CompletedCheckpointStore
from dstl_core.checkpoint.store.guard import DeletionGuard
from dstl_core.checkpoint.store.metadata_file import load_metadata_file
from dstl_core.checkpoint.store.references import references_of
from dstl_core.checkpoint.store.sharing import (
    COLLECTION_MS,
    announced_collection,
    is_note,
    snapshot_of_note,
)
from dstl_core.clock import Clock, SystemClock
from dstl_core.errors import ConfigError, DstlError, SavepointError
from dstl_core.storage.file_io import FileIO, FileStatus, open_file_io
from dstl_core.storage.file_set import FileSet, real_location
from dstl_core.storage.location import (
    CHANGELOG_DIR,
    INTERNAL_DIR,
    METADATA_FILE_NAME,
    OUTPUT_NAME,
    SHARED_DIR,
    SIDECAR_FILE_NAME,
    TASK_OWNED_DIR,
    UUID_NAME,
    JobLayout,
    Location,
    checkpoint_id_of,
    is_scratch,
)
from dstl_core.storage.walk import files_behind, files_below

HOUR_MS = 3_600_000
DEFAULT_AGE_MS = 24 * HOUR_MS
_NAMES = re.compile(
    rf"{UUID_NAME.pattern}"  # state files, segments of the changelog, RocksDB's uploads
    rf"|{UUID_NAME.pattern}\.runs"  # runs that a bootstrap's tasks write for its second stage
    r"|\..*\.[0-9a-f]{32}\.tmp"  # a file whose publication did not finish
)
_SCRATCH_NAMES = re.compile(
    rf"{_NAMES.pattern}|{OUTPUT_NAME.pattern}|{METADATA_FILE_NAME}|{SIDECAR_FILE_NAME}"
    r"|([0-9]+|head)\.json"  # the log of a job that computes aggregates anew
)
"""Names of files that a migration writes before its commit."""
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
    """The result of a collection.

    ``kept`` counts the kept files by reason. It does not count files that were referenced from the
    start.
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
                {"path": str(file.location), "bytes": file.size, "modified_ms": file.modified_ms}
                for file in self.garbage
            ],
            "bytes": self.size,
            "kept": dict(sorted(self.kept.items())),
            "deleted": self.deleted,
        }


@dataclass(frozen=True)
class Pipeline:
    """A pipeline's folder, its log, and the time of its latest claim."""

    folder: Location
    store: CompletedCheckpointStore
    claimed_ms: int

    @classmethod
    def of(cls, files: FileIO, folder: Location) -> Pipeline | None:
        """The pipeline in a folder; None if its log has no claim."""
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
    """Finds the unreferenced files under ``base``, and deletes them on request.

    Args:
        base: A folder of savepoints, of a pipeline, or of several of these.
        delete: Whether to delete the files; by default they are only listed.
        older_than_ms: Younger files stay, since a writer may be about to reference them.
        also_referenced_from: Folders with further snapshots that may reference files here.
        flink_job_stopped: Required for the folder of a Flink job. It confirms that the job does not
            run; only the running job knows all files that it uses.
        file_io: File IO of the files; by default it follows from the scheme.
        clock: Source of the current time.

    Raises:
        SavepointError: A ``_metadata`` cannot be read, or a Flink job may be running.
    """
    root = base if isinstance(base, Location) else Location.parse(base)
    files = file_io if file_io is not None else open_file_io(root)
    time = clock or SystemClock()
    now = time.now_ms()
    report = GarbageReport()
    every = list(files_below(files, root))
    folder = real_location(root) if root.is_local else root  # a link may lead to it
    if checkpoint_id_of(folder.name) is not None:  # its notes are beside the folder
        every += filter(is_note, files.list_folder(folder.parent))
    pipelines = _pipelines(files, root, every, flink_job_stopped=flink_job_stopped)
    around = _checkpoints_around(files, folder)
    referenced = _referenced(files, [*every, *around], pipelines, report)
    others: list[Pipeline] = []
    for path in also_referenced_from:
        place = Location.parse(path)
        other_files = files if place.scheme == root.scheme else open_file_io(place)
        statuses = list(files_below(other_files, place))
        more_pipelines = _pipelines(other_files, place, statuses, flink_job_stopped=True)
        referenced.update(_referenced(other_files, statuses, more_pipelines, report))
        others += more_pipelines
    for status in every:
        if status.is_link or not _is_ours(status) or status.location in referenced:
            continue
        reason = _reason_to_keep(status, now - older_than_ms, pipelines)
        if reason is not None or status.modified_ms is None:
            report.keep(reason or "no modification time")
            continue
        report.garbage.append(Garbage(status.location, status.size, status.modified_ms))
    if delete:
        known = {status.location for status in every}
        begun_ms = time.now_ms()
        with announced_collection(files, _apart(report, pipelines), begun_ms) as notes:
            late = [note for note in notes if note.location not in known]
            referenced.update(_referenced(files, late, (), report))
            _delete(
                files,
                report,
                pipelines,
                others,
                referenced,
                lambda: time.now_ms() - begun_ms < COLLECTION_MS,
            )
    return report


def _apart(report: GarbageReport, pipelines: Sequence[Pipeline]) -> list[Location]:
    """The garbage that is in no pipeline's folder."""
    return [
        garbage.location
        for garbage in report.garbage
        if not any(pipeline.folder.contains(garbage.location) for pipeline in pipelines)
    ]


def _checkpoints_around(files: FileIO, folder: Location) -> list[FileStatus]:
    """The checkpoints of a job beside its folder of shared files, which they need."""
    if folder.name not in (SHARED_DIR, TASK_OWNED_DIR):
        return []
    return [
        status
        for place in files.list_folder(folder.parent)
        if place.is_folder and checkpoint_id_of(place.location.name) is not None
        for status in files.list_folder(place.location)
    ]


def check_is_folder(place: str) -> None:
    """Checks that a folder exists, since a misspelt folder would look like one without garbage.

    Raises:
        SavepointError: The folder does not exist. In an object store, a folder without files does
            not exist.
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
    if is_scratch(status.location):
        return _SCRATCH_NAMES.fullmatch(name) is not None
    if INTERNAL_DIR in status.location.path.split("/"):
        return OUTPUT_NAME.fullmatch(name) is not None
    return _NAMES.fullmatch(name) is not None


def _reason_to_keep(status: FileStatus, limit_ms: int, pipelines: Sequence[Pipeline]) -> str | None:
    if status.modified_ms is None:
        return "no modification time"
    if status.modified_ms > limit_ms:
        return "young"
    for pipeline in pipelines:
        if pipeline.folder.contains(status.location) and status.modified_ms >= pipeline.claimed_ms:
            return "of a live claim"
    return None


def _pipelines(
    files: FileIO, root: Location, every: Sequence[FileStatus], *, flink_job_stopped: bool
) -> list[Pipeline]:
    """The folders of dstl's pipelines.

    Raises:
        SavepointError: There is a Flink job's folder, and ``flink_job_stopped`` is not set.
    """
    pipelines: list[Pipeline] = []
    for job in sorted(_job_folders(root, every), key=str):
        pipeline = Pipeline.of(files, job)
        if pipeline is not None:
            pipelines.append(pipeline)
        elif not flink_job_stopped:
            raise SavepointError(
                f"A Flink job keeps its checkpoints in {job}, and only that job knows which files "
                f"it still uses; stop it and say so (flink_job_stopped, --flink-job-stopped), or "
                f"choose another folder."
            )
    return pipelines


def _job_folders(root: Location, every: Iterable[FileStatus]) -> set[Location]:
    """Folders that contain checkpoints, shared files or a changelog."""
    folders = set()
    for status in every:
        folder = status.location.parent
        while root.contains(folder):
            is_inside = INTERNAL_DIR in folder.parent.path.split("/")
            if not is_inside and _marks_a_job(folder, status.location):
                folders.add(folder.parent)
            if folder.path == "/":
                break
            folder = folder.parent
    return folders


def _marks_a_job(folder: Location, file: Location) -> bool:
    """Whether a folder with this file in or below it belongs to a job.

    Flink's folders ``shared``, ``taskowned`` and ``dstl`` contain files, and merged files one
    folder deeper. A folder of that name without files is a user's base folder.
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
    """Files that the snapshots in ``every`` and the current state of the pipelines reference."""
    references = FileSet()
    jobs = {each.folder for each in pipelines}
    for status in _with_linked(files, every):
        if is_note(status):
            with _unknown_stops(
                f"name the folder of that snapshot if it moved (also_referenced_from, "
                f"--also-referenced-from), and delete the note {status.location}"
            ):
                sharing = load_metadata_file(files, snapshot_of_note(files, status.location))
                references.update(references_of(files, sharing))
            report.snapshots += 1
        folder = status.location.parent
        is_own_checkpoint = checkpoint_id_of(folder.name) is not None and folder.parent in jobs
        # A migration that was killed begins anew, so its snapshots need nothing.
        is_left = is_own_checkpoint or is_scratch(status.location)
        if status.location.name == METADATA_FILE_NAME and not is_left:
            with _unknown_stops(f"repair or remove {status.location}"):
                references.update(references_of(files, load_metadata_file(files, folder)))
            report.snapshots += 1
    for pipeline in pipelines:
        with _unknown_stops(f"repair the pipeline in {pipeline.folder}"):
            references.update(pipeline.store.references.all())
        report.snapshots += pipeline.store.references.checkpoints
        # Output of retired checkpoints counts as well: their input may be given again.
        for name in (
            name for commit in pipeline.store.commits() for name in commit.facts.output_files
        ):
            references.add_name(name)
    return references


def _with_linked(files: FileIO, every: Iterable[FileStatus]) -> Iterator[FileStatus]:
    """Yields the files of a listing, then the files behind its links."""
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
            f"Nothing is collected: the files that a snapshot references are unknown ({error}); "
            f"{way_out} first."
        ) from error


def _delete(
    files: FileIO,
    report: GarbageReport,
    pipelines: Sequence[Pipeline],
    others: Sequence[Pipeline],
    referenced: FileSet,
    has_time: Callable[[], bool],
) -> None:
    """Deletes the garbage, except files that a checkpoint has referenced since they were found.

    Only the pipeline whose folder contains a file normally references it. That pipeline's log is
    read before each deletion, the other logs only before the first.
    """
    for pipeline in (*pipelines, *others):
        referenced.update(pipeline.store.references.latest())
    unreferenced, report.garbage = report.garbage, []
    for file in unreferenced:
        if not has_time():  # an edit would soon take the sign of this collection for an old one
            report.keep("left for another collection")
            continue
        of = next((each for each in pipelines if each.folder.contains(file.location)), None)
        guard = DeletionGuard(files, of.store.references.latest if of else FileSet)
        if file.location in referenced or not guard.delete(file.location):
            report.keep("referenced by now")
            continue
        report.garbage.append(file)
        report.deleted += 1


def parse_age(text: str) -> int:
    """The milliseconds of an age such as ``24h``, ``90m``, ``7d`` or ``30s``.

    Raises:
        ConfigError: The text is not an age.
    """
    match = re.fullmatch(r"([0-9]{1,9})(s|m|h|d)", text.strip())
    if match is None:
        raise ConfigError(f"An age is wrong: expected e.g. 24h, 90m or 7d, got {text!r}.")
    unit = {"s": 1000, "m": 60_000, "h": HOUR_MS, "d": 24 * HOUR_MS}[match[2]]
    return int(match[1]) * unit
