"""Segment files: StateChangeFsUploaderTest of Flink, the golden vector, what failures leave."""

from __future__ import annotations

import errno
import itertools
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from dstl_core.changelog.change_set import StateChangeSet
from dstl_core.changelog.discarder import FileDiscarder
from dstl_core.changelog.local_recovery import LocalRecoveryConfig
from dstl_core.changelog.registry import TaskChangelogRegistry
from dstl_core.changelog.storage_metrics import ChangelogStorageMetricGroup
from dstl_core.changelog.upload import (
    DuplicatingStateChangeFsUploader,
    StateChangeFsUploader,
    UploadTask,
)
from dstl_core.changelog.upload.uploader import fs_uploader
from dstl_core.codec.change_format import read_change_set, segment_body
from dstl_core.config import ChangelogOptions
from dstl_core.errors import ChangelogError, ConfigError, StorageError
from dstl_core.metrics import MetricGroup
from dstl_core.model.change import StateChange
from dstl_core.model.ids import JobID
from dstl_core.model.sequence import SequenceNumber
from dstl_core.storage.file_io import Content
from dstl_core.storage.location import Location
from dstl_core.testing import Fault, FaultyFileIO, MemoryFileIO, scripted_faults
from tests.unit.codec.test_change_format import VECTOR, VECTOR_COMPRESSED

FOLDER = Location.parse("s3://bucket/base/job/dstl")
LOCAL = Location.parse("/tmp/local/taskowned")


def change_set(log: int, number: int, *changes: tuple[int, bytes]) -> StateChangeSet:
    every = [StateChange(key_group, change) for key_group, change in changes]
    return StateChangeSet(UUID(int=log), SequenceNumber(number), every)


def task(*sets: StateChangeSet) -> UploadTask:
    return UploadTask(sets, lambda results: None, lambda numbers, error: None)


class Fixture:
    def __init__(self, *faults: Fault, local_faults: tuple[Fault, ...] | None = None) -> None:
        self.files = MemoryFileIO()
        self.io = FaultyFileIO(self.files, scripted_faults(faults), pause=lambda ms: None)
        self.discarder = FileDiscarder(self.io.delete)
        self.registry = TaskChangelogRegistry(self.discarder)
        self.metrics = MetricGroup()
        self._names = itertools.count(1)
        self._nanos = itertools.count(0, 250)
        keywords = {
            "metrics": ChangelogStorageMetricGroup(self.metrics),
            "new_name": lambda: f"file-{next(self._names)}",
            "nano_time": lambda: next(self._nanos),
        }
        if local_faults is None:
            self.uploader = StateChangeFsUploader(self.io, FOLDER, self.registry, **keywords)  # type: ignore[arg-type]
        else:
            local = FaultyFileIO(self.files, scripted_faults(local_faults), pause=lambda ms: None)
            self.uploader = DuplicatingStateChangeFsUploader(
                self.io,
                FOLDER,
                self.registry,
                local,
                LOCAL,
                **keywords,  # type: ignore[arg-type]
            )

    def count(self, name: str) -> int:
        return self.metrics.add_group("ChangelogStorage").counter(name).count

    def samples(self, name: str) -> tuple[float, ...]:
        group = self.metrics.add_group("ChangelogStorage")
        return group.histogram(name).statistics().samples


VECTOR_TASKS = (
    # Not in order: the uploader sorts a task's sets by writer and number.
    (
        change_set(0, 1, (5, b"b")),
        change_set(0, 0, (17, b"x"), (1, b"yy"), (-1, b"M"), (1, b"zz")),
    ),
    (change_set(1, 0, (2, b"w2")),),
)


@pytest.mark.parametrize(
    ("compressed", "segment"), [(False, VECTOR), (True, VECTOR_COMPRESSED)], ids=["plain", "snappy"]
)
@pytest.mark.parametrize("buffer_size", [1, 20, 1 << 20])
def test_the_golden_vector(compressed: bool, segment: bytes, buffer_size: int) -> None:
    f = Fixture()
    uploader = StateChangeFsUploader(
        f.files, FOLDER, f.registry, compressed=compressed, buffer_size=buffer_size
    )
    tasks = [task(*sets) for sets in VECTOR_TASKS]
    result = uploader.upload(tasks)
    [(path, content)] = f.files.files.items()
    assert content == segment
    assert (result.handle.path, result.state_size) == (path, 85)
    assert f.registry.tracked == {path: 3}
    offsets = {
        (own_set.log_id.int, own_set.sequence_number.number): (offset, own_set.size)
        for per_task in result.tasks_offsets.values()
        for own_set, offset in per_task.items()
    }
    assert offsets == {
        (0, 0): ((0, 0), 6),
        (0, 1): ((50, 50), 1),
        (1, 0): ((67, 67), 2),
    }


def test_writers_are_sorted_as_java_sorts_their_ids() -> None:
    # A UUID is two signed longs in Java: the highest bit comes first.
    f = Fixture()
    ids = [1, 1 << 127, (1 << 63) | 1, 0]
    result = f.uploader.upload([task(*(change_set(each, 0, (0, b"x")) for each in ids))])
    [offsets] = result.tasks_offsets.values()
    in_order = sorted(offsets, key=lambda own_set: offsets[own_set])
    assert [each.log_id.int for each in in_order] == [1 << 127, (1 << 63) | 1, 0, 1]


def test_base_path() -> None:
    job = JobID.for_name("job")
    options = ChangelogOptions.of(base_path="s3://bucket/base")
    files = MemoryFileIO()
    uploader = fs_uploader(job, options, files, TaskChangelogRegistry.NO_OP)
    handle = uploader.upload([task(change_set(0, 0, (0, b"x")))]).handle
    folder, _, name = handle.path.rpartition("/")
    assert folder == f"s3://bucket/base/{job.hex}/dstl"
    assert UUID(name).version == 4
    with pytest.raises(ConfigError, match=r"set state\.changelog\.dstl\.dfs\.base-path"):
        fs_uploader(job, ChangelogOptions.of(), files, TaskChangelogRegistry.NO_OP)


@pytest.mark.parametrize("compressed", [False, True])
def test_compression(compressed: bool) -> None:
    options = ChangelogOptions.of(base_path="s3://bucket", compression_enabled=compressed)
    files = MemoryFileIO()
    uploader = fs_uploader(JobID.for_name("job"), options, files, TaskChangelogRegistry.NO_OP)
    uploader.upload([task(change_set(0, 0, (3, bytes(1000))))])
    uploader.close()
    [content] = files.files.values()
    assert content[0] == int(compressed)
    assert (len(content) < 1000) is compressed
    assert list(read_change_set(segment_body(content), 0)) == [StateChange(3, bytes(1000))]


@pytest.mark.parametrize("tasks", [[], [task()], [task(), task()]])
def test_an_upload_of_nothing_is_refused(tasks: list[UploadTask]) -> None:
    f = Fixture()
    with pytest.raises(ChangelogError, match="at least one change set"):
        f.uploader.upload(tasks)
    assert f.files.files == {}


# -------------------------------------------------------------------------------- failures


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.TRUNCATED, Fault.BAD_CLOSE, Fault.HANGING])
def test_a_failed_attempt_raises_finishes_no_task_and_leaves_nothing(fault: Fault) -> None:
    f = Fixture(fault)
    mine = task(change_set(0, 0, (0, b"0123")))
    with pytest.raises(StorageError, match=fault.value):
        f.uploader.upload([mine])
    assert not mine.is_finished
    assert f.files.files == {}
    assert f.registry.tracked == {}
    assert f.registry.orphans == ()
    assert (f.count("numberOfUploadRequests"), f.count("numberOfUploadFailures")) == (1, 1)
    assert f.samples("uploadSizes") == ()


def test_what_cannot_be_deleted_is_reported() -> None:
    f = Fixture(Fault.TRUNCATED)
    f.io.delete_fails = lambda: True
    with pytest.raises(StorageError):
        f.uploader.upload([task(change_set(0, 0, (0, b"0123")))])
    assert set(f.registry.orphans) == set(f.files.files)
    assert len(f.registry.orphans) == 1


def test_metrics_of_what_ends_well() -> None:
    f = Fixture()
    f.uploader.upload([task(change_set(0, 0, (0, b"0123")))])
    assert (f.count("numberOfUploadRequests"), f.count("numberOfUploadFailures")) == (1, 0)
    assert f.samples("uploadSizes") == (4 + 8 + 4 + 4,)
    assert f.samples("uploadLatenciesNanos") == (250,)


def test_a_discarded_result_takes_its_entry_and_its_copy_with_it() -> None:
    # Hazard H6: the original leaves the registry entry and the local copy of a losing attempt.
    f = Fixture(local_faults=())
    result = f.uploader.upload([task(change_set(0, 0, (0, b"x")))])
    assert len(f.files.files) == len(f.registry.tracked) == 2
    result.discard()
    assert f.files.files == {}
    assert f.registry.tracked == {}


# ------------------------------------------------------------------------------ local copies


def test_the_copy_has_the_same_name_bytes_and_offsets() -> None:
    f = Fixture(local_faults=())
    first, second = change_set(0, 0, (0, b"x")), change_set(0, 1, (0, b"y"))
    result = f.uploader.upload([task(first, second)])
    assert result.local_handle is not None
    assert result.handle.path == "s3://bucket/base/job/dstl/file-1"
    assert result.local_handle.path == "file:/tmp/local/taskowned/file-1"
    assert len(set(f.files.files.values())) == 1
    assert f.registry.tracked == {result.handle.path: 2, result.local_handle.path: 2}
    [offsets] = result.tasks_offsets.values()
    assert offsets == {first: (0, 0), second: (17, 17)}


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.TRUNCATED, Fault.BAD_CLOSE])
def test_a_copy_that_fails_does_not_fail_the_upload(fault: Fault) -> None:
    # The original fails the checkpoint when the local disk has a problem.
    f = Fixture(local_faults=(fault,))
    result = f.uploader.upload([task(change_set(0, 0, (0, b"x")))])
    assert result.local_handle is None
    assert list(f.files.files) == [result.handle.path]
    assert f.registry.tracked == {result.handle.path: 1}


class FullDisk(MemoryFileIO):
    """A file IO of the user's, which raises the errors of the operating system."""

    def write_new(self, location: Location, data: Content) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_disk_of_the_user_that_is_full_does_not_fail_the_upload() -> None:
    files = MemoryFileIO()
    registry = TaskChangelogRegistry(FileDiscarder(files.delete))
    uploader = DuplicatingStateChangeFsUploader(files, FOLDER, registry, FullDisk(), LOCAL)
    result = uploader.upload([task(change_set(0, 0, (0, b"x")))])
    assert result.local_handle is None
    assert list(files.files) == [result.handle.path]


def test_no_copy_is_made_of_what_failed() -> None:
    f = Fixture(Fault.REFUSED, local_faults=())
    with pytest.raises(StorageError):
        f.uploader.upload([task(change_set(0, 0, (0, b"x")))])
    assert f.files.files == {}


def test_copies_lie_on_this_machine() -> None:
    with pytest.raises(ConfigError, match="expected a local folder, got s3://bucket/copies"):
        LocalRecoveryConfig((Location.parse("/disk"), Location.parse("s3://bucket/copies")))


@pytest.mark.parametrize(
    "folders",
    [
        "/disk",
        Path("/disk"),
        Location.parse("/disk"),
        ["/disk"],
        (Path("/disk"),),
        [Location.parse("file:///disk")],
    ],
)
def test_a_folder_for_copies_is_a_text_a_path_or_a_location(folders: Any) -> None:
    config = LocalRecoveryConfig(folders)
    assert [str(folder) for folder in config.folders] == ["file:/disk"]
    assert config == LocalRecoveryConfig("/disk", config.file_io)


@pytest.mark.parametrize(
    ("folders", "message"),
    [
        (7, "expected a folder or a list of folders, got 7"),
        (None, "expected a folder or a list of folders, got None"),
        ([7], "expected text or a Path, got 7"),
        ([""], "A path is empty"),
        ("s3://bucket/copies", "expected a local folder, got s3://bucket/copies"),
    ],
)
def test_what_is_no_folder_for_copies_is_explained(folders: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LocalRecoveryConfig(folders)


def test_where_copies_go() -> None:
    # JobID.hashCode() of these sixteen bytes, computed by Flink: 3150064.
    job = JobID(bytes((i * 17 + 3) & 0xFF for i in range(16)))
    bases = tuple(Location.parse(f"/disk{i}") for i in range(5))
    config = LocalRecoveryConfig(bases)
    assert config.is_local_backup_enabled
    assert not LocalRecoveryConfig().is_local_backup_enabled
    expected = f"file:/disk{3150064 % 5}/jid_031425364758697a8b9cadbecfe0f102/taskowned"
    assert str(config.task_owned_dir(job)) == expected
    uploader = fs_uploader(
        job,
        ChangelogOptions.of(base_path="s3://bucket"),
        MemoryFileIO(),
        TaskChangelogRegistry.NO_OP,
        local_recovery=LocalRecoveryConfig(bases, MemoryFileIO()),
    )
    result = uploader.upload([task(change_set(0, 0, (0, b"x")))])
    assert result.local_handle is not None
    assert result.local_handle.path.startswith(expected)
