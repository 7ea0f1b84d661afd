"""Copies on this machine: the local cases of Flink's FsStateChangelogWriterTest, and reading."""

from __future__ import annotations

import logging

import pytest

from dstl_core.changelog.ledger import FsSnapshotResult
from dstl_core.changelog.reader import StateChangelogHandleReader
from dstl_core.changelog.writer import FsStateChangelogWriter
from dstl_core.model.handle import ChangelogStateHandleStream, FileStateHandle, StreamStateHandle
from dstl_core.model.sequence import SequenceNumber
from dstl_core.storage.location import Location
from tests.unit.changelog.manual_upload import Changelog, files_of

pytestmark = pytest.mark.usefixtures("memory_files")

ZERO = SequenceNumber(0)


class Local:
    """A writer with copies, whose uploads end at once when a checkpoint asks."""

    def __init__(self, threshold: int = 100) -> None:
        self.log = Changelog(threshold=threshold, local=True)
        self.writer: FsStateChangelogWriter = self.log.writer()

    def append(self, size: int = 10) -> SequenceNumber:
        number = self.writer.next_sequence_number()
        self.writer.append(0, bytes(size))
        return number

    def persist(self, from_: SequenceNumber, checkpoint: int) -> FsSnapshotResult:
        future = self.writer.persist(from_, checkpoint)
        self.log.scheduler.complete_upload()
        return future.result(0)

    def confirm(self, from_: SequenceNumber, checkpoint: int) -> None:
        self.writer.confirm(from_, self.writer.next_sequence_number(), checkpoint)

    def copies(self, result: FsSnapshotResult) -> set[str]:
        """The local files that a snapshot names."""
        assert result.task_local_snapshot is not None
        remote = files_of(result.job_manager_owned_snapshot)
        return files_of(result.task_local_snapshot) - remote

    def there(self) -> set[str]:
        """The local files that exist."""
        return {str(status.location) for status in self.log.files.list_folder(self.log.local)}


def test_local_file_discard() -> None:
    f = Local()
    f.append()
    f.persist(ZERO, 1)
    f.confirm(ZERO, 1)
    f.append(100)  # uploaded before any checkpoint asks
    f.log.scheduler.complete_upload()
    second = f.copies(f.persist(ZERO, 2))
    f.confirm(ZERO, 2)
    assert len(second) == 2
    assert second <= f.there()
    materialized = f.writer.next_sequence_number()
    f.append()
    third = f.copies(f.persist(materialized, 3))
    f.confirm(materialized, 3)
    assert f.there() == third


def test_local_file_after_materialize() -> None:
    f = Local()
    f.append()
    first = f.writer.next_sequence_number()
    f.persist(ZERO, 1)
    f.confirm(ZERO, 1)
    materialized = f.append()
    f.persist(ZERO, 2)
    f.confirm(ZERO, 2)
    f.append()
    third = f.persist(materialized, 3)
    f.writer.truncate(min(materialized, first))
    f.confirm(materialized, 3)
    assert f.copies(third) <= f.there()
    assert files_of(third.job_manager_owned_snapshot) <= f.log.file_names()


def test_local_file_abort() -> None:
    f = Local()
    f.append()
    f.persist(ZERO, 1)
    f.confirm(ZERO, 1)
    f.append(200)
    f.log.scheduler.complete_upload()
    second = f.copies(f.persist(ZERO, 2))
    f.writer.reset(ZERO, f.writer.next_sequence_number(), 2)
    assert not second & f.there()
    f.append()
    third = f.copies(f.persist(ZERO, 3))
    f.confirm(ZERO, 3)
    # Unlike in the original, no copy that is gone is named again.
    assert third == f.there()
    assert len(third) == 1


def test_a_copy_that_arrives_late_belongs_to_the_checkpoint_that_waited_for_it() -> None:
    # In the original it is registered for no checkpoint, and never deleted.
    f = Local()
    f.append(100)
    future = f.writer.persist(ZERO, 7)
    f.log.scheduler.complete_upload()
    copies = f.copies(future.result(0))
    assert copies <= f.there()
    f.writer.reset(ZERO, f.writer.next_sequence_number(), 7)
    assert f.there() == set()


def test_a_confirm_of_an_earlier_checkpoint_keeps_copies_that_a_later_one_waits_with() -> None:
    f = Local()
    f.append()
    f.persist(ZERO, 1)
    f.append()
    pending = f.writer.persist(ZERO, 3)
    f.writer.confirm(ZERO, SequenceNumber(1), 2)
    f.log.scheduler.complete_upload()
    assert f.copies(pending.result(0)) <= f.there()


def test_truncated_copies_go_with_their_sets() -> None:
    f = Local()
    f.append()
    f.persist(ZERO, 1)
    f.writer.truncate(f.writer.next_sequence_number())
    assert f.there() == set()
    assert f.log.file_names() == set()


def test_a_late_upload_after_the_close_takes_its_copy_with_it() -> None:
    f = Local()
    f.append()
    f.writer.persist(ZERO, 1)
    f.writer.close()
    f.log.scheduler.complete_upload()
    assert f.there() == f.log.file_names() == set()


def test_sizes_of_the_local_handle() -> None:
    f = Local()
    f.append(30)
    result = f.persist(ZERO, 1)
    assert result.task_local_snapshot is not None
    assert result.task_local_snapshot.incremental_size == 0
    assert result.task_local_snapshot.state_size == result.state_size == 30


# --------------------------------------------------------------------------------- reading


class Reader(StateChangelogHandleReader):
    """Reads from the changelog's files, and remembers which."""

    def __init__(self, log: Changelog) -> None:
        super().__init__(self._read)
        self._log = log
        self.read: list[str] = []

    def _read(self, stream: StreamStateHandle) -> bytes:
        assert isinstance(stream, FileStateHandle)
        self.read.append(stream.path)
        return self._log.files.read_bytes(Location.parse(stream.path))


@pytest.fixture
def snapshot() -> tuple[Local, FsSnapshotResult]:
    f = Local(threshold=1)
    for value in (b"one", b"two", b"three"):
        f.writer.append(0, value)
        f.log.scheduler.complete_upload()
    return f, f.persist(ZERO, 1)


def values(reader: Reader, result: FsSnapshotResult) -> list[bytes]:
    local = result.task_local_snapshot
    assert isinstance(local, ChangelogStateHandleStream)
    remote = result.job_manager_owned_snapshot
    return [each.change for each in reader.get_changes(remote, local=local)]


def test_reading_prefers_what_is_local(snapshot: tuple[Local, FsSnapshotResult]) -> None:
    f, result = snapshot
    reader = Reader(f.log)
    assert values(reader, result) == [b"one", b"two", b"three"]
    assert set(reader.read) == f.copies(result)


@pytest.mark.parametrize("damage", ["gone", "empty", "cut", "longer", "bytes"])
def test_reading_falls_back_to_the_remote_file(
    snapshot: tuple[Local, FsSnapshotResult], damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    f, result = snapshot
    assert result.task_local_snapshot is not None
    second = Location.parse(result.task_local_snapshot.handles_and_offsets[1][0].path)  # type: ignore[union-attr]
    content = f.log.files.read_bytes(second)
    f.log.files.delete(second)
    match damage:
        case "empty":
            f.log.files.write_new(second, b"")
        case "cut":
            f.log.files.write_new(second, content[:-1])
        case "longer":
            f.log.files.write_new(second, content + b"x")
        case "bytes":
            f.log.files.write_new(second, content[:1] + b"\xff" + content[2:])
    reader = Reader(f.log)
    with caplog.at_level(logging.WARNING):
        assert values(reader, result) == [b"one", b"two", b"three"]
    remotes = [path for path in reader.read if Location.parse(path).parent == f.log.folder]
    assert remotes == [result.job_manager_owned_snapshot.handles_and_offsets[1][0].path]  # type: ignore[union-attr]
    assert "a local segment is ignored" in caplog.text
