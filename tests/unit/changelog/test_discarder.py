"""Deleting in the background, and reporting what stays."""

from __future__ import annotations

import logging

import pytest

from dstl_core.changelog.discarder import FileDiscarder, delete_by_scheme
from dstl_core.errors import StorageError
from dstl_core.storage.location import Location
from dstl_core.testing import ManualScheduler, MemoryFileIO

A, B = "s3://bucket/a", "file:/b"


class Deletes:
    """Deletions that take a while, or fail."""

    def __init__(self, threads: ManualScheduler, pause_ms: int = 0) -> None:
        self._threads = threads
        self._pause_ms = pause_ms
        self.error: OSError | None = None
        self.seen: list[tuple[str, int]] = []

    def __call__(self, location: Location) -> None:
        self.seen.append((str(location), self._threads.clock.monotonic_ms()))
        if self._pause_ms:
            self._threads.pause(self._pause_ms)
        if self.error is not None:
            raise self.error


def test_the_caller_does_not_wait_and_so_many_run_at_once() -> None:
    threads = ManualScheduler()
    deletes = Deletes(threads, pause_ms=10)
    discarder = FileDiscarder(deletes, threads, num_threads=2)
    for path in (A, B, "s3://bucket/c"):
        discarder.discard(path)
    assert deletes.seen == []
    threads.run_until_idle()
    assert deletes.seen == [(A, 0), (B, 0), ("s3://bucket/c", 10)]
    assert discarder.orphans == ()


@pytest.mark.parametrize(
    "error", [StorageError("Cannot delete: refused."), PermissionError(13, "refused")]
)
def test_what_cannot_be_deleted_is_an_orphan_until_it_can(error: OSError) -> None:
    threads = ManualScheduler()
    deletes = Deletes(threads)
    discarder = FileDiscarder(deletes, threads)
    deletes.error = error
    discarder.discard(A)
    threads.run_until_idle()
    assert discarder.orphans == (A,)
    deletes.error = None
    discarder.discard(A)
    threads.run_until_idle()
    assert discarder.orphans == ()


def test_closing_waits_a_while_and_reports_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    threads = ManualScheduler()
    discarder = FileDiscarder(Deletes(threads, pause_ms=40), threads)
    for path in (A, B, "s3://bucket/c"):
        discarder.discard(path)
    with caplog.at_level(logging.WARNING):
        discarder.close(50)
    assert set(discarder.orphans) == {B, "s3://bucket/c"}
    assert "left for gc" in caplog.text
    # The deletion that was running goes on and takes its report back.
    threads.run_until_idle()
    assert discarder.orphans == ("s3://bucket/c",)


def test_without_threads_the_callers_own_deletes() -> None:
    threads = ManualScheduler()
    deletes = Deletes(threads)
    discarder = FileDiscarder(deletes)
    discarder.discard(A)
    discarder.close(0)
    assert deletes.seen == [(A, 0)]
    gone = FileDiscarder(deletes, threads)
    threads.close(0)
    gone.discard(B)
    assert deletes.seen == [(A, 0), (B, 0)]


def test_each_file_goes_to_the_file_system_of_its_scheme() -> None:
    remote, local = MemoryFileIO(), MemoryFileIO()
    for files in (remote, local):
        for path in (A, B):
            files.write_new(Location.parse(path), b"x")
    delete = delete_by_scheme({"s3": remote, "file": local})
    delete(Location.parse(A))
    delete(Location.parse(B))
    assert list(remote.files) == [B]
    assert list(local.files) == [A]
