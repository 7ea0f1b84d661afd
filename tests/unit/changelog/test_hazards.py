"""The hazards of the original, one by one: each test fails on its behaviour.

H1 a failed close is reported as success      H7  sizes that tell nothing
H2 I/O errors are not really retried          H8  offsets of 32 bits, one view for all handles
H3 a closed writer deletes a shared file      H10 futures and uploads without an end
H4 a failed upload poisons the writer         H11 misuse without an error
H5 a callback that raises starves the rest
H6 losers of a race leave files and entries

H9 speaks of priority queues in the state backend, which logs none.
"""

from __future__ import annotations

import logging
import mmap
from collections.abc import Iterator
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

from dstl_core.changelog import FsStateChangelogStorage, StateChangelogStorageLoader
from dstl_core.changelog.ledger import FsSnapshotResult
from dstl_core.changelog.reader import StateChangelogHandleReader
from dstl_core.changelog.upload import StateChangeUploadScheduler
from dstl_core.codec.change_format import write_change_set
from dstl_core.codec.data_io import DataOutput
from dstl_core.config import ChangelogOptions
from dstl_core.errors import (
    ChangelogError,
    UploadFailedError,
    WriterClosedError,
)
from dstl_core.metrics import MetricGroup
from dstl_core.model.change import StateChange
from dstl_core.model.handle import (
    ChangelogStateHandleStream,
    FileStateHandle,
    InMemoryChangelogStateHandle,
)
from dstl_core.model.ids import JobID
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.model.sequence import SequenceNumber
from dstl_core.storage.file_io import FsspecFileIO
from dstl_core.testing import (
    Fault,
    FaultyFileIO,
    ManualScheduler,
    MemoryFileIO,
    scripted_faults,
)

KEY_GROUPS = KeyGroupRange(0, 5)
ZERO = SequenceNumber(0)


class Job:
    """A storage on manual threads; by default a disk that works."""

    def __init__(self, *faults: Fault, **options: Any) -> None:
        self.threads = ManualScheduler()
        self.files = MemoryFileIO()
        self.io = FaultyFileIO(
            self.files, scripted_faults(faults), pause=self.threads.pause, pause_ms=60_000
        )
        self.metrics = MetricGroup()
        self.storage = FsStateChangelogStorage(
            JobID.for_name("job"),
            ChangelogOptions.of(**{"base_path": "s3://bucket/base", **options}),
            self.io,
            threads=self.threads,
            metrics=self.metrics,
        )

    def writer(self):  # type: ignore[no-untyped-def]
        return self.storage.create_writer("operator", KEY_GROUPS)

    def read(self, result: FsSnapshotResult) -> list[bytes]:
        reader = self.storage.create_reader()
        return [each.change for each in reader.get_changes(result.job_manager_owned_snapshot)]

    def counter(self, name: str) -> int:
        return self.metrics.add_group("ChangelogStorage").counter(name).count


# -------------------------------------------------------------------------------------- H1


class BadlyClosing(MemoryFileSystem):  # type: ignore[misc]
    """A store whose first files cannot be closed, or are short, without a word at writing."""

    protocol = "badly"
    store: dict[str, Any] = {}  # noqa: RUF012  # as fsspec's own
    pseudo_dirs = [""]  # noqa: RUF012  # as fsspec's own
    bad: list[str] = []  # noqa: RUF012  # what happens to the next files
    cachable = False

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        file = super()._open(path, mode=mode, **options)
        if "r" in mode or not self.bad:
            return file
        how = self.bad.pop(0)
        close = file.close

        def fail() -> None:
            close()
            raise OSError(5, "Input/output error")

        def shorten() -> None:
            file.truncate(3)
            close()

        file.close = fail if how == "error" else shorten
        return file


@pytest.fixture
def badly() -> Iterator[type[BadlyClosing]]:
    fsspec.register_implementation("badly", BadlyClosing, clobber=True)
    # A file of fsspec's memory closes itself by leaving its block: through close, here.
    before = MemoryFile.__exit__
    MemoryFile.__exit__ = lambda self, *_: self.close()  # type: ignore[method-assign]
    yield BadlyClosing
    MemoryFile.__exit__ = before  # type: ignore[method-assign]
    BadlyClosing.store.clear()


@pytest.mark.parametrize("how", ["error", "short"])
def test_h1_a_segment_that_was_not_closed_well_is_not_acknowledged(
    badly: type[BadlyClosing], how: str
) -> None:
    badly.bad = [how]
    options = ChangelogOptions.of(base_path="badly://base", retry_policy="none")
    storage = FsStateChangelogStorage(
        JobID.for_name("job"),
        options,
        FsspecFileIO("badly"),
        scheduler=StateChangeUploadScheduler.direct_scheduler,
    )
    writer = storage.create_writer("operator", KEY_GROUPS)
    writer.append(0, b"precious")
    with pytest.raises(UploadFailedError, match=r"Input/output error|wrong size"):
        writer.persist(ZERO, 1).result()
    result = writer.persist(ZERO, 2).result()
    [change] = storage.create_reader().get_changes(result.job_manager_owned_snapshot)
    assert change.change == b"precious"
    storage.close()


# -------------------------------------------------------------------------------------- H2


def test_h2_an_io_error_is_retried_and_the_retry_counts() -> None:
    job = Job(Fault.TRUNCATED, Fault.BAD_CLOSE, max_attempts=3)
    writer = job.writer()
    writer.append(0, b"x")
    future = writer.persist(ZERO, 1)
    assert job.read(future.result(60)) == [b"x"]
    assert job.counter("numberOfUploadRequests") == 3
    assert job.counter("numberOfUploadFailures") == 2
    job.threads.run_until_idle()
    # The original leaves a partial file and an orphan, and keeps counting a file for ever.
    assert len(job.files.files) == len(job.storage.registry.tracked) == 1
    assert job.storage.orphans == ()


def test_h2_bytes_in_flight_are_held_until_the_last_attempt() -> None:
    job = Job(
        Fault.REFUSED,
        Fault.REFUSED,
        max_attempts=3,
        max_in_flight=100,
        persist_size_threshold=100,
        next_attempt_delay_ms=500,
    )
    writer = job.writer()
    writer.append(0, bytes(100))
    future = writer.persist(ZERO, 1)
    job.threads.advance(900)
    assert not job.storage.get_availability_provider().is_available()
    assert future.result(60).state_size == 100
    assert job.storage.get_availability_provider().is_available()


# -------------------------------------------------------------------------------------- H3


def test_h3_closing_a_writer_never_deletes_what_its_neighbour_reports() -> None:
    job = Job()
    first, second = job.writer(), job.writer()
    first.append(0, b"first")
    second.append(0, b"second")
    first.persist(ZERO, 1)
    future = second.persist(ZERO, 1)
    first.close()  # the upload of both is still on its way
    result = future.result(60)
    job.threads.run_until_idle()
    assert job.read(result) == [b"second"]


# -------------------------------------------------------------------------------------- H4


def test_h4_a_failed_upload_does_not_poison_its_writer() -> None:
    job = Job(*[Fault.REFUSED] * 3)
    writer = job.writer()
    writer.append(0, b"kept")
    with pytest.raises(UploadFailedError, match="are kept, and the next persist"):
        writer.persist(ZERO, 1).result(60)
    writer.append(0, b"more")
    assert job.read(writer.persist(ZERO, 2).result(60)) == [b"kept", b"more"]


# -------------------------------------------------------------------------------------- H5


def test_h5_one_callback_that_raises_does_not_starve_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    job = Job(max_in_flight="10 mb")

    def refuse(drain: object) -> None:
        raise RuntimeError("the mailbox is closed")

    dead = [job.storage.create_writer("dead", KEY_GROUPS, mailbox=refuse) for _ in range(3)]
    alive = [job.writer() for _ in range(3)]
    futures = []
    for writer in (*dead, *alive):
        writer.append(0, b"x")
        futures.append(writer.persist(ZERO, 1))
    with caplog.at_level(logging.ERROR):
        for future in futures:
            assert job.read(future.result(60)) == [b"x"]
    assert len(job.files.files) == 1
    assert "a mailbox refused" in caplog.text


# -------------------------------------------------------------------------------------- H6


def test_h6_an_attempt_that_lost_leaves_no_file_and_no_entry() -> None:
    job = Job(Fault.SLOW, upload_timeout_ms=100)
    writer = job.writer()
    writer.append(0, b"x")
    result = writer.persist(ZERO, 1).result(60)
    assert job.threads.clock.monotonic_ms() < 1_000
    job.threads.run_until_idle()  # the first attempt ends too, long after the second
    [(stream, _)] = result.job_manager_owned_snapshot.handles_and_offsets
    assert list(job.files.files) == list(job.storage.registry.tracked) == [stream.path]
    assert job.counter("numberOfUploadRequests") == 2


# -------------------------------------------------------------------------------------- H7


def test_h7_sizes_count_everything_that_is_new_whatever_arrives_when() -> None:
    job = Job(Fault.SLOW, upload_timeout_ms=0, preemptive_persist_threshold=100)
    writer = job.writer()
    writer.append(0, bytes(100))  # on its way, and slow
    job.threads.advance(20)
    writer.append(0, bytes(30))
    first = writer.persist(ZERO, 1).result(120).job_manager_owned_snapshot
    assert (first.state_size, first.incremental_size) == (130, 130)  # the original says 100
    second = writer.persist(ZERO, 2).result(60).job_manager_owned_snapshot
    assert (second.state_size, second.incremental_size) == (130, 0)
    part = first.get_intersection(KeyGroupRange(0, 2))
    assert part is not None
    assert part.state_size == 130  # the original says 0


# -------------------------------------------------------------------------------------- H8


def test_h8_a_set_beyond_two_gib_is_found(tmp_path: Any) -> None:
    out = DataOutput()
    write_change_set(out, [StateChange(3, b"far away")])
    offset = 2**31 + 12345
    path = tmp_path / "segment"
    with open(path, "wb") as file:
        file.truncate(1 + offset)  # a hole: no disk space
        file.seek(1 + offset)
        file.write(out.to_bytes())
    size = offset + out.position
    handle = ChangelogStateHandleStream(
        ((FileStateHandle("s3://bucket/segment", size), offset),), KEY_GROUPS, 8, 8, "id"
    )
    with open(path, "rb") as file:
        content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        changes = list(StateChangelogHandleReader(lambda stream: content).get_changes(handle))
    assert changes == [StateChange(3, b"far away")]


def test_h8_every_handle_is_read_by_the_storage_that_it_names(tmp_path: Any) -> None:
    options = ChangelogOptions.of(storage="filesystem", base_path=str(tmp_path))
    loader = StateChangelogStorageLoader()
    in_memory = InMemoryChangelogStateHandle(((3, b"inline"),), KEY_GROUPS, 0, 1, "a")
    storage = loader.load(JobID.for_name("job"), options)
    writer = storage.create_writer("operator", KEY_GROUPS)
    writer.append(1, b"in a file")
    in_file = writer.persist(ZERO, 1).result(30).job_manager_owned_snapshot
    storage.close()
    for handle, expected in ((in_memory, b"inline"), (in_file, b"in a file")):
        view = loader.load_from_state_handle(options, handle)
        [change] = view.create_reader().get_changes(handle)
        assert change.change == expected
        view.close()


# ------------------------------------------------------------------------------------- H10


def test_h10_closing_a_writer_ends_its_pending_futures() -> None:
    job = Job()
    writer = job.writer()
    writer.append(0, b"x")
    future = writer.persist(ZERO, 1)
    writer.close()
    with pytest.raises(WriterClosedError):
        future.result(0)


@pytest.mark.parametrize("where", ["queued", "between attempts", "hanging"])
def test_h10_closing_the_storage_ends_every_upload(where: str) -> None:
    faults = {"queued": Fault.NONE, "between attempts": Fault.REFUSED, "hanging": Fault.HANGING}
    job = Job(
        *[faults[where]] * 9,
        persist_delay_ms=10_000 if where == "queued" else 10,
        next_attempt_delay_ms=30_000,
        upload_timeout_ms="2 min",
    )
    writer = job.writer()
    writer.append(0, b"x")
    future = writer.persist(ZERO, 1)
    job.threads.advance(100)
    job.storage.close()
    with pytest.raises(UploadFailedError, match="scheduler was closed"):
        future.result(0)


def test_h10_what_comes_after_the_close_gets_an_outcome_too() -> None:
    job = Job()
    writer = job.writer()
    job.storage.close()
    writer.append(0, b"x")
    with pytest.raises(UploadFailedError, match="scheduler"):
        writer.persist(ZERO, 1).result(0)


# ------------------------------------------------------------------------------------- H11


def test_h11_misuse_is_an_error() -> None:
    job = Job()
    writer = job.writer()
    with pytest.raises(ChangelogError, match=r"expected \[0, 5\], got 77"):
        writer.append(77, b"x")
    writer.append(0, b"x")
    number = writer.next_sequence_number()
    writer.truncate(number)
    with pytest.raises(ChangelogError, match="cannot be truncated to 0"):
        writer.truncate(ZERO)
    writer.append(0, b"y")
    with pytest.raises(ChangelogError, match="cannot own changes that are not durable"):
        writer.confirm(number, writer.next_sequence_number(), 1)
    writer.close()
    with pytest.raises(WriterClosedError):
        writer.append(0, b"z")
