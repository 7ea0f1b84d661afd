"""Batches and back-pressure: the same bytes on disk, cut at the same change, nothing dropped."""

from __future__ import annotations

from random import Random
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

from dstl_core.changelog.discarder import FileDiscarder
from dstl_core.changelog.reader import StateChangelogHandleReader
from dstl_core.changelog.registry import TaskChangelogRegistry
from dstl_core.changelog.upload import BatchingStateChangeUploadScheduler, StateChangeFsUploader
from dstl_core.changelog.writer import FsStateChangelogWriter
from dstl_core.errors import BackpressureTimeoutError, UploadFailedError
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.model.sequence import SequenceNumber
from dstl_core.storage.location import Location
from dstl_core.testing import Fault, FaultyFileIO, ManualScheduler, MemoryFileIO, scripted_faults
from tests.unit.changelog.manual_upload import Changelog

ZERO = SequenceNumber(0)
Change = tuple[int | None, bytes]
"""Key group (None: metadata) and value."""


def submitted(log: Changelog) -> list[tuple[int, bytes]]:
    """Number and bytes of every set that was handed over, in order."""
    return [
        (change_set.sequence_number.number, bytes(change_set.encoded))
        for task in log.scheduler.submitted
        for change_set in task.change_sets
    ]


def one_by_one(changes: list[Change], threshold: int) -> list[tuple[int, bytes]]:
    log = Changelog(threshold=threshold)
    writer = log.writer()
    for key_group, value in changes:
        if key_group is None:
            writer.append_meta(value)
        else:
            writer.append(key_group, value)
    writer.persist(ZERO, 1)
    return submitted(log)


@pytest.mark.slow
@pytest.mark.parametrize("threshold", [0, 1, 10, 64, 1_000])
def test_batches_write_what_single_appends_write(threshold: int) -> None:
    for seed in range(150):
        rng = Random(seed)
        changes: list[Change] = [
            (
                None if rng.random() < 0.05 else rng.randrange(6),
                rng.randbytes(rng.choice([0, 1, 3, 12, 70])),
            )
            for _ in range(rng.randrange(1, 60))
        ]
        log = Changelog(threshold=threshold)
        writer = log.writer()
        index = 0
        while index < len(changes):
            key_group, value = changes[index]
            if key_group is None:
                writer.append_meta(value)
                index += 1
            elif rng.random() < 0.5:
                writer.append(key_group, value)
                index += 1
            else:
                stop = index
                while stop < len(changes) and changes[stop][0] is not None and rng.random() < 0.9:
                    stop += 1
                batch = changes[index:stop]
                writer.append_batch([group for group, _ in batch], [value for _, value in batch])  # type: ignore[misc]
                index = stop
        writer.persist(ZERO, 1)
        assert submitted(log) == one_by_one(changes, threshold), seed


def test_a_large_batch_is_cut_where_the_threshold_trips() -> None:
    log = Changelog(threshold=100)
    writer = log.writer()
    writer.append(0, bytes(30))
    values = np.zeros((50, 10), np.uint8)
    writer.append_batch(np.zeros(50, np.int32), values)
    # 30 + 7 x 10, then ten by ten, and 30 bytes stay.
    assert log.scheduler.sizes == [100] * 5
    writer.persist(ZERO, 1)
    assert log.scheduler.sizes == [100] * 5 + [30]


def test_what_stays_of_a_batch_does_not_keep_the_batch_alive() -> None:
    log = Changelog(threshold=100)
    writer = log.writer()
    whole = pa.array([bytes(60)] * 2 + [bytes(5), bytes(100_000)], pa.binary())
    before = pa.total_allocated_bytes()
    writer.append_batch(pa.array([0, 0, 0]), whole.slice(0, 3))
    del whole
    assert pa.total_allocated_bytes() < before - 90_000


# --------------------------------------------------------------------------- back-pressure


class Stack:
    """A writer over the whole upload path, on manual threads and faulty files."""

    def __init__(self, *faults: Fault, limit: int = 100, threshold: int = 40) -> None:
        self.threads = ManualScheduler()
        self.files = MemoryFileIO()
        self.io = FaultyFileIO(
            self.files, scripted_faults(faults), pause=self.threads.pause, pause_ms=10_000
        )
        self.registry = TaskChangelogRegistry(FileDiscarder(self.io.delete, self.threads))
        self.scheduler = BatchingStateChangeUploadScheduler(
            StateChangeFsUploader(self.io, Location.parse("s3://b/dstl"), self.registry),
            self.threads,
            persist_delay_ms=1,
            size_threshold=limit,
            max_bytes_in_flight=limit,
            num_upload_threads=4,
            backpressure_timeout_ms=3_000,
        )
        self._threshold = threshold
        self._logs = 0

    def writer(self) -> FsStateChangelogWriter:
        self._logs += 1
        return FsStateChangelogWriter(
            UUID(int=self._logs - 1),
            KeyGroupRange(0, 5),
            self.scheduler,
            self.registry,
            preemptive_persist_threshold=self._threshold,
            threads=self.threads,
        )


def values_of(stack: Stack, writer: FsStateChangelogWriter) -> list[bytes]:
    result = writer.persist(ZERO, 1).result(60)
    reader = StateChangelogHandleReader(
        lambda stream: stack.files.read_bytes(Location.parse(stream.path))  # type: ignore[union-attr]
    )
    return [each.change for each in reader.get_changes(result.job_manager_owned_snapshot)]


def test_an_append_that_finds_no_room_in_time_is_not_appended() -> None:
    f = Stack(Fault.SLOW)
    writer = f.writer()
    for number in range(10):
        writer.append(number % 6, bytes([number]) * 10)
    # 80 bytes are on their way and take ten seconds; the next flush would make it 120.
    writer.append(0, bytes([10]) * 10)
    with pytest.raises(BackpressureTimeoutError, match="room for 40 bytes within 3000 ms"):
        writer.append(5, bytes([11]) * 10)
    assert f.threads.clock.monotonic_ms() == 3_000
    assert f.scheduler.bytes_in_flight == 80
    f.threads.run_until_idle()
    writer.append(5, bytes([11]) * 10)
    writer.append(5, b"last")
    values = values_of(f, writer)
    assert sorted(values) == sorted([*(bytes([n]) * 10 for n in range(12)), b"last"])


def test_a_batch_says_how_far_it_came() -> None:
    f = Stack(Fault.SLOW)
    writer = f.writer()
    writer.append(0, b"first")
    values = [bytes([number]) * 10 for number in range(20)]
    with pytest.raises(BackpressureTimeoutError) as caught:
        writer.append_batch([0] * 20, values)
    appended = caught.value.context["appended"]
    assert appended == 8  # 5 + 4 x 10, then 4 x 10: together 85; another 40 do not fit
    f.threads.run_until_idle()
    writer.append_batch([0] * (20 - appended), values[appended:])
    assert values_of(f, writer) == [b"first", *values]


def test_metadata_is_not_appended_either() -> None:
    f = Stack(Fault.SLOW)
    writer = f.writer()
    writer.append(0, bytes(100))
    with pytest.raises(BackpressureTimeoutError):
        writer.append_meta(bytes(40))
    f.threads.run_until_idle()
    assert values_of(f, writer) == [bytes(100)]


def test_a_persist_that_finds_no_room_keeps_everything() -> None:
    f = Stack(Fault.SLOW)
    writer = f.writer()
    writer.append(0, bytes(100))
    writer.append(0, b"more")
    with pytest.raises(BackpressureTimeoutError):
        writer.persist(ZERO, 1)
    f.threads.run_until_idle()
    assert values_of(f, writer) == [bytes(100), b"more"]


def test_failed_data_counts_as_in_flight_until_it_is_uploaded() -> None:
    f = Stack(Fault.REFUSED)
    writer = f.writer()
    writer.append(0, bytes(90))
    future = writer.persist(ZERO, 1)
    with pytest.raises(UploadFailedError):
        future.result(60)
    assert f.scheduler.bytes_in_flight == 90
    writer.append(0, b"more")
    assert values_of(f, writer) == [bytes(90), b"more"]
    assert f.scheduler.bytes_in_flight == 0


def test_an_append_heals_by_uploading_what_failed() -> None:
    f = Stack(Fault.REFUSED)
    writer = f.writer()
    writer.append(0, bytes(90))  # a flush that fails
    f.threads.run_until_idle()
    assert f.scheduler.bytes_in_flight == 90
    writer.append(0, bytes(40))  # no room until the failed set has gone out again
    f.threads.run_until_idle()
    assert f.scheduler.bytes_in_flight == 0
    assert values_of(f, writer) == [bytes(90), bytes(40)]


def test_a_dead_storage_bounds_memory_and_drops_nothing() -> None:
    f = Stack(*[Fault.REFUSED] * 1_000)
    writer = f.writer()
    appended = 0
    for number in range(1_000):
        try:
            writer.append(0, bytes([number % 256]) * 10)
        except BackpressureTimeoutError:
            break
        appended += 1
    assert appended < 20
    for _ in range(5):
        with pytest.raises(BackpressureTimeoutError):
            writer.append(0, b"0123456789")
    assert f.scheduler.bytes_in_flight <= 100
    f.io.next_fault = lambda: Fault.NONE
    assert values_of(f, writer) == [bytes([number % 256]) * 10 for number in range(appended)]


@pytest.mark.parametrize("end", ["truncate", "close", "truncate_and_close"])
def test_failed_data_that_nobody_wants_is_given_back(end: str) -> None:
    f = Stack(Fault.REFUSED, Fault.SLOW)
    writer = f.writer()
    writer.append(0, bytes(90))
    f.threads.run_until_idle()
    match end:
        case "truncate":
            writer.truncate(writer.next_sequence_number())
        case "close":
            writer.close()
        case "truncate_and_close":
            writer.truncate_and_close(ZERO)
    assert f.scheduler.bytes_in_flight == 0
    assert f.files.files == {}


def test_data_that_fails_after_its_writer_closed_is_given_back() -> None:
    f = Stack(Fault.HANGING)
    writer = f.writer()
    writer.append(0, bytes(90))
    f.threads.advance(1_000)
    writer.close()
    assert f.scheduler.bytes_in_flight == 90
    f.threads.run_until_idle()
    assert f.scheduler.bytes_in_flight == 0
    assert f.files.files == {}


def test_one_writers_failed_data_does_not_stop_another() -> None:
    # 8 bytes a task, so that the first writer's sets fail one by one until the limit is full.
    f = Stack(*[Fault.REFUSED] * 1_000, threshold=50)
    failing, other = f.writer(), f.writer()
    failing.append(0, bytes(100))
    f.threads.run_until_idle()
    assert f.scheduler.bytes_in_flight == 100
    f.io.next_fault = lambda: Fault.NONE
    other.append(0, bytes(60))
    assert values_of(f, other) == [bytes(60)]
    assert f.scheduler.bytes_in_flight == 100
    assert values_of(f, failing) == [bytes(100)]
    assert f.scheduler.bytes_in_flight == 0
