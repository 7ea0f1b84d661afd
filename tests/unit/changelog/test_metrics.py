"""ChangelogStorageMetricsTest of Flink."""

from __future__ import annotations

from pathlib import Path

import pytest

from dstl_core.changelog import FsStateChangelogStorage
from dstl_core.changelog.upload.task import UploadTask, UploadTasksResult
from dstl_core.config import ChangelogOptions
from dstl_core.errors import UploadFailedError
from dstl_core.metrics import HistogramStatistics, MetricGroup
from dstl_core.model.ids import JobID
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.model.sequence import SequenceNumber
from dstl_core.testing import Fault, FaultyFileIO, ManualScheduler, MemoryFileIO, scripted_faults

ZERO = SequenceNumber(0)


class Fixture:
    def __init__(self, *faults: Fault, base_path: str = "s3://bucket", **options: object) -> None:
        self.threads = ManualScheduler()
        self.metrics = MetricGroup()
        files = FaultyFileIO(
            MemoryFileIO(), scripted_faults(faults), pause=self.threads.pause, pause_ms=10_000
        )
        self.storage = FsStateChangelogStorage(
            JobID.for_name("job"),
            ChangelogOptions.of(**{"base_path": base_path, **options}),
            None if base_path.startswith("/") else files,
            metrics=self.metrics,
            threads=self.threads,
        )

    def writer(self):  # type: ignore[no-untyped-def]
        return self.storage.create_writer("operator", KeyGroupRange(0, 0))

    def counter(self, name: str) -> int:
        return self.metrics.add_group("ChangelogStorage").counter(name).count

    def histogram(self, name: str) -> HistogramStatistics:
        return self.metrics.add_group("ChangelogStorage").histogram(name).statistics()


def test_uploads_counter() -> None:
    f = Fixture()
    writer = f.writer()
    for number in range(5):
        from_ = writer.next_sequence_number()
        writer.append(0, b"%d" % number)
        writer.persist(from_, number).result(60)
    assert f.counter("numberOfUploadRequests") == 5
    assert f.histogram("uploadLatenciesNanos").min > 0


def test_upload_sizes() -> None:
    # The size is the payload and a constant head: one set, one group, one change.
    f = Fixture()
    writer = f.writer()
    sizes = [0, 1, 1_000, 100_000]
    for size in sizes:
        from_ = writer.next_sequence_number()
        writer.append(0, bytes(size))
        writer.persist(from_, 1).result(60)
    assert f.histogram("uploadSizes").samples == tuple(size + 16 for size in sizes)


def test_upload_failures_counter(tmp_path: Path) -> None:
    base = tmp_path / "file"
    base.write_text("no folder")
    f = Fixture(base_path=str(base), max_attempts=1)
    writer = f.writer()
    for number in range(5):
        from_ = writer.next_sequence_number()
        writer.append(0, b"x")
        with pytest.raises(UploadFailedError):
            writer.persist(from_, number).result(60)
    assert f.counter("numberOfUploadFailures") == 5


def test_upload_batch_sizes() -> None:
    f = Fixture(persist_delay_ms=100)
    writers = [f.writer() for _ in range(5)]
    for round_ in range(3):
        futures = []
        for writer in writers:
            from_ = writer.next_sequence_number()
            writer.append(0, b"x")
            futures.append(writer.persist(from_, round_))
        for future in futures:
            future.result(60)
    histogram = f.histogram("uploadBatchSizes")
    assert (len(histogram.samples), histogram.min, histogram.max) == (3, 5, 5)


def test_attempts_per_upload() -> None:
    f = Fixture(*[Fault.REFUSED, Fault.REFUSED, Fault.NONE] * 3, max_attempts=5)
    writer = f.writer()
    for number in range(3):
        from_ = writer.next_sequence_number()
        writer.append(0, b"x")
        writer.persist(from_, number).result(60)
    histogram = f.histogram("attemptsPerUpload")
    assert (len(histogram.samples), histogram.min, histogram.max) == (3, 3, 3)
    assert f.counter("numberOfUploadRequests") == 9


def test_total_attempts_per_upload() -> None:
    # The first attempt is slow, the second fails, the third wins.
    f = Fixture(
        Fault.SLOW, Fault.REFUSED, max_attempts=5, upload_timeout_ms=50, next_attempt_delay_ms=1
    )
    writer = f.writer()
    writer.append(0, b"x")
    writer.persist(ZERO, 1).result(60)
    assert f.histogram("totalAttemptsPerUpload").samples == (3,)
    assert f.histogram("attemptsPerUpload").samples == (3,)


def test_queue_size() -> None:
    f = Fixture(persist_delay_ms=100)
    writers = [f.writer() for _ in range(11)]
    futures = []
    for writer in writers:
        writer.append(0, b"x")
        futures.append(writer.persist(ZERO, 1))
    gauge = f.metrics.add_group("ChangelogStorage").metrics()["uploadQueueSize"]
    assert callable(gauge)
    assert gauge() == 11
    for future in futures:
        future.result(60)
    assert gauge() == 0


def test_an_uploader_of_a_user_and_the_metrics_of_its_batches() -> None:
    threads = ManualScheduler()
    seen: list[int] = []

    class Counting:
        """Keeps nothing and says so."""

        def upload(self, tasks: list[UploadTask]) -> UploadTasksResult:
            seen.append(len(tasks))
            raise ValueError("nowhere to go")

        def close(self) -> None:
            seen.append(-1)

    storage = FsStateChangelogStorage(
        JobID.for_name("job"),
        ChangelogOptions.of(base_path="s3://bucket"),
        MemoryFileIO(),
        uploader=Counting(),  # type: ignore[arg-type]
        threads=threads,
    )
    writer = storage.create_writer("operator", KeyGroupRange(0, 0))
    writer.append(0, b"x")
    with pytest.raises(UploadFailedError, match="nowhere to go"):
        writer.persist(ZERO, 1).result(60)
    storage.close()
    assert seen == [1, -1]
    assert storage.metrics.upload_batch_sizes.count == 1
