"""The writer: Flink's cases (FsStateChangelogWriterTest, ..SqnTest), and what handles hold."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dstl_core.changelog.writer import FsStateChangelogWriter
from dstl_core.errors import (
    ChangelogError,
    StorageError,
    UploadFailedError,
)
from dstl_core.model.sequence import SequenceNumber
from tests.unit.changelog.manual_upload import SMALL, ZERO, Changelog, append, files_of, handle_of

pytestmark = pytest.mark.usefixtures("memory_files")

# --------------------------------------------------------------- FsStateChangelogWriterTest


def test_append_uploads_nothing() -> None:
    log = Changelog()
    writer = log.writer()
    for _ in range(3):
        append(writer)
    assert log.scheduler.submitted == []


def test_pre_upload() -> None:
    log = Changelog()
    writer = log.writer()
    number = append(writer, bytes(1000))
    assert log.scheduler.sizes == [1000]
    writer.persist(number, 1)
    assert log.scheduler.sizes == [1000]


def test_pre_emptively_upload() -> None:
    changelog = Changelog(threshold=100)
    writer = changelog.writer()
    writer.append(0, bytes(10))
    writer.next_sequence_number()  # a materialization starts: the set waits, nobody persists it
    writer.append(0, bytes(99))
    assert changelog.scheduler.sizes == []
    writer.append(0, bytes(1))
    assert changelog.scheduler.sizes == [110]


def test_one_byte_less_is_not_uploaded() -> None:
    log = Changelog()
    writer = log.writer()
    append(writer, bytes(999))
    assert log.scheduler.sizes == []
    writer.append(0, b"")
    assert log.scheduler.sizes == []
    writer.append(0, b"x")
    assert log.scheduler.sizes == [1000]


def test_persist() -> None:
    log = Changelog()
    writer = log.writer()
    future = writer.persist(append(writer), 1)
    assert not future.done()
    log.scheduler.complete_upload()
    writer.drain()
    handle = handle_of(future)
    assert len(handle.handles_and_offsets) == 1
    assert log.read(handle) == [(0, SMALL)]


def test_persist_again() -> None:
    log = Changelog()
    writer = log.writer()
    number = append(writer)
    writer.persist(number, 1)
    log.scheduler.complete_upload()
    writer.confirm(number, writer.next_sequence_number(), 1)
    again = writer.persist(number, 2)
    assert log.scheduler.sizes == [10]
    assert log.read(handle_of(again)) == [(0, SMALL)]


def test_file_available_after_pre_upload() -> None:
    log = Changelog(threshold=100)
    writer = log.writer()

    def checkpoint(number: int, from_: SequenceNumber) -> set[str]:
        future = writer.persist(from_, number)
        log.scheduler.complete_upload()
        writer.drain()
        writer.confirm(from_, writer.next_sequence_number(), number)
        return files_of(handle_of(future))

    append(writer)
    first = writer.next_sequence_number()
    checkpoint(1, ZERO)
    append(writer)
    materialized = append(writer)
    second = checkpoint(2, materialized)
    writer.truncate(min(materialized, first))
    append(writer)
    third = checkpoint(3, materialized)
    append(writer, bytes(100))
    log.scheduler.complete_upload()
    writer.truncate(min(materialized, first))
    fourth = checkpoint(4, materialized)
    assert second | third | fourth <= log.file_names()


def test_file_available_after_close() -> None:
    log = Changelog(threshold=100)
    writer = log.writer()
    append(writer)
    future = writer.persist(ZERO, 1)
    number = writer.next_sequence_number()
    append(writer, bytes(100))  # goes into the same file
    log.scheduler.complete_upload()
    writer.truncate_and_close(number)
    assert log.read(handle_of(future)) == [(0, SMALL)]


def test_no_re_upload_before_completion() -> None:
    log = Changelog()
    writer = log.writer()
    number = append(writer)
    first = writer.persist(number, 1)
    second = writer.persist(number, 2)
    assert log.scheduler.sizes == [10]
    log.scheduler.complete_upload()
    writer.drain()
    assert log.read(handle_of(first)) == log.read(handle_of(second)) == [(0, SMALL)]


def test_persist_newly_appended() -> None:
    log = Changelog()
    writer = log.writer()
    writer.persist(append(writer), 1)
    number = append(writer, b"new")
    writer.persist(number, 2)
    assert log.scheduler.sizes == [10, 3]


def test_persist_after_reset() -> None:
    log = Changelog()
    writer = log.writer()
    number = append(writer)
    writer.reset(number, SequenceNumber(2**63 - 1), 2**63 - 1)
    future = writer.persist(number, 1)
    log.scheduler.complete_upload()
    writer.drain()
    assert log.read(handle_of(future)) == [(0, SMALL)]


def test_persist_failure_keeps_its_cause() -> None:
    log = Changelog()
    writer = log.writer()
    future = writer.persist(append(writer), 1)
    cause = RuntimeError("no disk")
    log.scheduler.fail_upload(cause)
    writer.drain()
    with pytest.raises(UploadFailedError, match=r"changes 0\.\.0 failed \(no disk\)") as caught:
        future.result()
    assert caught.value.__cause__ is cause
    assert future.exception() is caught.value


def test_failed_changes_are_uploaded_again_by_the_next_persist() -> None:
    # The original refuses every further persist and fails the task (hazard H4).
    log = Changelog()
    writer = log.writer()
    number = append(writer)
    writer.persist(number, 1)
    log.scheduler.fail_upload(StorageError("no disk"))
    append(writer, b"more")
    future = writer.persist(number, 2)
    log.scheduler.complete_upload()
    writer.drain()
    assert log.read(handle_of(future)) == [(0, SMALL), (0, b"more")]


def test_persist_non_failed_changes() -> None:
    log = Changelog()
    writer = log.writer()
    writer.persist(append(writer), 1)
    log.scheduler.fail_upload(StorageError("no disk"))
    future = writer.persist(append(writer, b"new"), 2)
    log.scheduler.complete_upload()
    writer.drain()
    assert log.read(handle_of(future)) == [(0, b"new")]


def test_truncate_does_not_reach_the_active_set() -> None:
    writer = Changelog().writer()
    number = append(writer)
    with pytest.raises(ChangelogError, match=r"cannot be truncated to 1: expected 0\.\.0"):
        writer.truncate(number.next())


# --------------------------------------------- FsStateChangelogWriterSqnTest, all nine rows


@pytest.mark.parametrize(
    ("act", "appended_before", "moves"),
    [
        (lambda writer: writer.next_sequence_number(), False, False),
        (lambda writer: writer.next_sequence_number(), True, True),
        (lambda writer: writer.persist(ZERO, 1), False, False),
        (lambda writer: writer.persist(ZERO, 1), True, True),
        (lambda writer: writer.append(0, b"x"), False, False),
        (lambda writer: writer.append(0, b"x"), True, False),
        (lambda writer: writer.truncate(ZERO), False, False),
        (lambda writer: writer.truncate(ZERO), True, False),
        (lambda writer: writer.truncate(writer.next_sequence_number()), True, True),
    ],
)
def test_when_the_sequence_number_moves(
    act: Callable[[FsStateChangelogWriter], object], appended_before: bool, moves: bool
) -> None:
    writer = Changelog().writer()
    if appended_before:
        writer.append(0, SMALL)
    act(writer)
    # The active number, without rolling over: the highest that a truncation may name.
    with pytest.raises(ChangelogError, match=rf"expected \d\.\.{int(moves)}\."):
        writer.truncate(SequenceNumber(9))


# -------------------------------------------------------------------------------- handles


def test_a_handle_names_sets_in_the_order_of_their_numbers() -> None:
    log = Changelog(threshold=10)
    writer = log.writer()
    for change in (b"a" * 10, b"b" * 10):
        append(writer, change)
    writer.append(0, b"c")
    future = writer.persist(ZERO, 1)
    log.scheduler.complete_last()
    writer.drain()
    assert not future.done()
    log.scheduler.complete_last()
    log.scheduler.complete_upload()
    writer.drain()
    handle = handle_of(future)
    assert log.read(handle) == [(0, b"a" * 10), (0, b"b" * 10), (0, b"c")]
    assert handle.key_group_range == writer._key_group_range
    assert handle.storage_identifier == "filesystem"


def test_sizes_count_payload_and_every_byte_is_new_once() -> None:
    log = Changelog(threshold=100)
    writer = log.writer()
    append(writer, bytes(100))
    writer.append(0, bytes(30))
    # Hazard H7: the original reports the bytes of the last callback, here 100.
    first = writer.persist(ZERO, 1)
    log.scheduler.complete_last()
    log.scheduler.complete_upload()
    writer.drain()
    assert (handle_of(first).state_size, handle_of(first).incremental_size) == (130, 130)
    append(writer, bytes(7))
    second = writer.persist(ZERO, 2)
    log.scheduler.complete_upload()
    writer.drain()
    assert (handle_of(second).state_size, handle_of(second).incremental_size) == (137, 7)


def test_an_empty_persist_is_done_and_empty() -> None:
    log = Changelog()
    handle = handle_of(log.writer().persist(ZERO, 1))
    assert (handle.handles_and_offsets, handle.state_size) == ((), 0)
    assert log.file_names() == set()


def test_metadata_comes_first_and_key_groups_are_kept_apart() -> None:
    log = Changelog()
    writer = log.writer()
    for key_group, change in ((5, b"a"), (0, b"b"), (5, b"c")):
        writer.append(key_group, change)
    writer.append_meta(b"meta")
    future = writer.persist(ZERO, 1)
    log.scheduler.complete_upload()
    writer.drain()
    changes = log.read(handle_of(future))
    assert changes[0] == (-1, b"meta")
    assert [change for key_group, change in changes if key_group == 5] == [b"a", b"c"]
    assert sorted(changes[1:]) == [(0, b"b"), (5, b"a"), (5, b"c")]


@pytest.mark.parametrize("key_group", [-1, 6, 77])
def test_a_key_group_outside_the_range_is_refused(key_group: int) -> None:
    log = Changelog()
    writer = log.writer()
    with pytest.raises(ChangelogError, match=rf"expected \[0, 5\], got {key_group}"):
        writer.append(key_group, SMALL)
    assert handle_of(writer.persist(ZERO, 1)).handles_and_offsets == ()


@pytest.mark.parametrize(
    ("from_", "problem"),
    [(0, r"truncated \(requested: 0, truncated: 1\)"), (3, r"not yet appended \(requested: 3")],
)
def test_persisting_what_is_not_there(from_: int, problem: str) -> None:
    writer = Changelog().writer()
    append(writer)
    writer.truncate(writer.next_sequence_number())
    append(writer)
    with pytest.raises(ChangelogError, match=problem):
        writer.persist(SequenceNumber(from_), 1)
