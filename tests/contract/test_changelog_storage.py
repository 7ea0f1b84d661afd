"""The changelog of a job on every file system that it is meant for: Flink's
FsStateChangelogStorageTest with StateChangelogStorageTest, and what a user relies on.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from dstl_core.changelog import (
    FsStateChangelogStorage,
    FsStateChangelogStorageForRecovery,
    LocalRecoveryConfig,
)
from dstl_core.changelog.storage import segment_reader
from dstl_core.config import ChangelogOptions
from dstl_core.errors import BackpressureTimeoutError, PathNotAllowedError
from dstl_core.model.handle import ChangelogStateHandleStream, FileStateHandle
from dstl_core.model.ids import JobID
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.model.sequence import SequenceNumber
from dstl_core.storage.file_io import FileIO, open_file_io
from dstl_core.storage.location import Location
from dstl_core.testing import ManualScheduler, MemoryFileIO

JOB = JobID.for_name("job")
KEY_GROUPS = KeyGroupRange(0, 5)
ZERO = SequenceNumber(0)
WAIT_S = 30


@dataclass
class Place:
    """A base path and the file system that it is on."""

    base: Location
    files: FileIO

    def storage(self, **options: object) -> FsStateChangelogStorage:
        values = {"base_path": str(self.base), "persist_delay_ms": 1, "upload_timeout_ms": 30_000}
        return FsStateChangelogStorage(
            JOB, ChangelogOptions.of(**{**values, **options}), self.files
        )

    def segments(self) -> set[str]:
        folder = self.base.child(JOB.hex, "dstl")
        return {str(status.location) for status in self.files.list_folder(folder)}


@pytest.fixture(params=["local", "memory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, memory_files: None) -> Place:
    match request.param:
        case "local":
            base = Location.parse(tmp_path / "base")
            return Place(base, open_file_io(base))
        case "memory":
            base = Location.parse("memory://contract/base")
            return Place(base, open_file_io(base))
        case _:
            base = Location.parse(request.getfixturevalue("bucket")).child("base")
            return Place(base, open_file_io(base, request.getfixturevalue("s3").storage_options))


@pytest.fixture
def storage(place: Place) -> Iterator[FsStateChangelogStorage]:
    made = place.storage()
    yield made
    made.close()


def handle_of(storage: FsStateChangelogStorage, *values: bytes) -> ChangelogStateHandleStream:
    writer = storage.create_writer("operator", KEY_GROUPS)
    for value in values:
        writer.append(0, value)
    return writer.persist(ZERO, 1).result(WAIT_S).job_manager_owned_snapshot


@pytest.mark.parametrize("compressed", [False, True])
def test_write_and_read(place: Place, compressed: bool) -> None:
    storage = place.storage(compression_enabled=compressed)
    rng = Random(7)
    writer = storage.create_writer("operator", KEY_GROUPS)
    written: dict[int, list[bytes]] = {}
    for key_group in KEY_GROUPS:
        for _ in range(20):
            change = rng.randbytes(405)
            writer.append(key_group, change)
            written.setdefault(key_group, []).append(change)
        writer.next_sequence_number()
    handle = writer.persist(ZERO, 1).result(WAIT_S).job_manager_owned_snapshot
    storage.close()
    # Another process reads it, from nothing but the handle.
    by_key_group: dict[int, list[bytes]] = {}
    reader = place.storage().create_reader()
    for read in reader.get_changes(handle):
        by_key_group.setdefault(read.key_group, []).append(read.change)
    assert by_key_group == written


def test_segments_lie_below_the_job_and_have_the_size_that_they_say(
    place: Place, storage: FsStateChangelogStorage
) -> None:
    handle = handle_of(storage, b"x")
    [(stream, offset)] = handle.handles_and_offsets
    assert isinstance(stream, FileStateHandle)
    assert place.segments() == {stream.path}
    assert (offset, place.files.size(Location.parse(stream.path))) == (0, 1 + stream.state_size)


def test_writers_that_persist_together_share_a_file(place: Place) -> None:
    storage = place.storage(persist_delay_ms=300)
    writers = [storage.create_writer(f"operator {n}", KEY_GROUPS) for n in range(5)]
    for number, writer in enumerate(writers):
        writer.append(0, b"%d" % number)
    futures = [writer.persist(ZERO, 1) for writer in writers]
    handles = [future.result(WAIT_S).job_manager_owned_snapshot for future in futures]
    assert len(place.segments()) == 1
    for number, handle in enumerate(handles):
        [change] = storage.create_reader().get_changes(handle)
        assert change.change == b"%d" % number
    storage.close()


def test_unused_segments_are_deleted_and_owned_ones_stay(place: Place) -> None:
    storage = place.storage()
    writer = storage.create_writer("operator", KEY_GROUPS)
    writer.append(0, b"a")
    owned = writer.persist(ZERO, 1).result(WAIT_S).job_manager_owned_snapshot
    first = writer.next_sequence_number()
    writer.confirm(ZERO, first, 1)
    writer.append(0, b"b")
    writer.persist(ZERO, 2).result(WAIT_S)
    assert len(place.segments()) == 2
    writer.truncate(writer.next_sequence_number())
    storage.close()  # waits for the deletion
    assert place.segments() == {stream.path for stream, _ in owned.handles_and_offsets}  # type: ignore[union-attr]
    assert storage.orphans == ()


def test_pre_emptive_uploads_join_the_checkpoint(place: Place) -> None:
    storage = place.storage(preemptive_persist_threshold=100)
    writer = storage.create_writer("operator", KEY_GROUPS)
    values = [bytes([number]) * 30 for number in range(20)]
    for value in values:
        writer.append(0, value)
    handle = writer.persist(ZERO, 1).result(WAIT_S).job_manager_owned_snapshot
    assert len(handle.handles_and_offsets) == 5
    read = [each.change for each in storage.create_reader().get_changes(handle)]
    assert read == values
    storage.close()


def test_many_writers_on_threads_of_their_own(place: Place) -> None:
    storage = place.storage(
        preemptive_persist_threshold=500, max_in_flight=4_000, persist_size_threshold=1_000
    )

    def work(number: int) -> None:
        writer = storage.create_writer("operator", KEY_GROUPS)
        values = [b"%d %d " % (number, index) * 5 for index in range(60)]
        for index, value in enumerate(values):
            writer.append(0, value)
            if index % 20 == 19:
                writer.persist(ZERO, index).result(WAIT_S)
        handle = writer.persist(ZERO, 99).result(WAIT_S).job_manager_owned_snapshot
        read = [each.change for each in storage.create_reader().get_changes(handle)]
        assert read == values

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    storage.close()
    assert storage.orphans == ()


def test_recovery_reads_each_remote_segment_once(place: Place, tmp_path: Path) -> None:
    # ChangelogRecoveryCachingITCase of Flink: a second open of any file is a failure.
    storage = place.storage(
        preemptive_persist_threshold=50, compression_enabled=True, persist_delay_ms=0
    )
    handle = handle_of(storage, *(bytes([n]) * 20 for n in range(30)))
    storage.close()
    opened: list[str] = []
    read = segment_reader({place.base.scheme: place.files}, [place.base])

    def read_once(stream):  # type: ignore[no-untyped-def]
        opened.append(stream.path)
        return read(stream)

    view = FsStateChangelogStorageForRecovery(
        read_once, ChangelogOptions.of(), cache_folders=[tmp_path]
    )
    # One segment after the other, twice: as the subtasks of a rescaled job do.
    for _ in range(2):
        for part in (KeyGroupRange(0, 2), KeyGroupRange(0, 5)):
            cut = handle.get_intersection(part)
            assert cut is not None
            read_again = [each.change for each in view.create_reader().get_changes(cut)]
            assert read_again == [bytes([n]) * 20 for n in range(30)]
    if place.base.is_local:
        assert len(opened) > len(set(opened))  # what is local already is not copied
    else:
        assert len(opened) == len(set(opened)) > 1
    view.close()


def test_a_segment_elsewhere_is_refused(
    place: Place, storage: FsStateChangelogStorage, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_bytes(b"\0 1234")
    for path in (f"file:{tmp_path}/secret", "s3://other-bucket/secret", f"{place.base}x/secret"):
        handle = ChangelogStateHandleStream(
            ((FileStateHandle(path, 5), 0),), KEY_GROUPS, 5, 5, "id"
        )
        with pytest.raises(PathNotAllowedError, match="refused"):
            list(storage.create_reader().get_changes(handle))


def test_local_copies_beside_any_remote_storage(place: Place, tmp_path: Path) -> None:
    local = tmp_path / "local"
    storage = FsStateChangelogStorage(
        JOB,
        ChangelogOptions.of(
            base_path=str(place.base), persist_delay_ms=1, upload_timeout_ms=30_000
        ),
        place.files,
        local_recovery=LocalRecoveryConfig((Location.parse(local),)),
    )
    writer = storage.create_writer("operator", KEY_GROUPS)
    writer.append(0, b"x")
    result = writer.persist(ZERO, 1).result(WAIT_S)
    [copy] = (local / f"jid_{JOB.hex}" / "taskowned").iterdir()
    [remote] = place.segments()
    assert copy.read_bytes() == place.files.read_bytes(Location.parse(remote))
    assert copy.name == Location.parse(remote).name
    # The remote file is gone: the copy alone is read.
    place.files.delete(Location.parse(remote))
    changes = storage.create_reader().get_changes(
        result.job_manager_owned_snapshot, local=result.task_local_snapshot
    )
    assert [each.change for each in changes] == [b"x"]
    writer.truncate(writer.next_sequence_number())
    storage.close()
    assert not copy.exists()


def test_a_closed_storage_leaves_no_thread_behind(place: Place) -> None:
    before = set(threading.enumerate())
    storage = place.storage()
    handle_of(storage, b"x")
    storage.close()
    storage.close()
    left = [each for each in set(threading.enumerate()) - before if each.name.startswith("dstl")]
    for thread in left:  # it has said that it is over, and may be on its last instruction
        thread.join(WAIT_S)
    assert not any(thread.is_alive() for thread in left)


# ------------------------------------------------------------------- not on every storage


def test_deadlock_on_upload_completion() -> None:
    """Flink's test of that name: one upload thread, room for ten bytes, every append flushes, and
    nobody drains. The third append waits until the first upload is over; it must not wait for its
    own thread.
    """
    threads = ManualScheduler()
    storage = FsStateChangelogStorage(
        JOB,
        ChangelogOptions.of(
            base_path="s3://bucket",
            num_upload_threads=1,
            max_in_flight=10,
            persist_size_threshold=10,
            preemptive_persist_threshold=0,
            persist_delay_ms=0,
        ),
        MemoryFileIO(),
        threads=threads,
    )
    mails: list[object] = []
    writer = storage.create_writer("operator", KEY_GROUPS, mailbox=mails.append)
    for size in (1, 10, 1):
        writer.append(0, bytes(size))
    threads.run_until_idle()
    assert len(mails) == 3


def test_a_storage_that_hangs_for_ever_blocks_nobody_for_ever() -> None:
    threads = ManualScheduler()

    class Hanging(MemoryFileIO):
        def write_new(self, location, data):  # type: ignore[no-untyped-def]
            threads.pause(10**9)

    storage = FsStateChangelogStorage(
        JOB,
        ChangelogOptions.of(
            base_path="s3://bucket",
            max_in_flight=1_000,
            persist_size_threshold=100,
            preemptive_persist_threshold=100,
        ),
        Hanging(),
        threads=threads,
    )
    writer = storage.create_writer("operator", KEY_GROUPS)
    refused = 0
    for _ in range(200):
        try:
            writer.append(0, bytes(50))
        except BackpressureTimeoutError:
            refused += 1
            if refused == 5:
                break
    assert refused == 5
    # Bounded by the options: so many bytes in flight, so many threads that hang.
    assert threads.pending <= 64 + 5
    writer.close()
    storage.close()
    assert storage.orphans != ()
    threads.close(0)
