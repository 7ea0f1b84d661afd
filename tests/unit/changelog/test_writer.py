"""The writer: Flink's own cases (FsStateChangelogWriterTest, ..SqnTest), then what it promises
beyond them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from dstl_core.changelog.writer import FsPersistFuture, FsStateChangelogWriter
from dstl_core.errors import (
    ChangelogError,
    StorageError,
    UploadFailedError,
    WriterClosedError,
)
from dstl_core.model.sequence import SequenceNumber
from tests.unit.changelog.manual_upload import Changelog, files_of, handle_of

pytestmark = pytest.mark.usefixtures("memory_files")

SMALL = b"0123456789"
ZERO = SequenceNumber(0)


def append(writer: FsStateChangelogWriter, change: bytes = SMALL) -> SequenceNumber:
    """Appends one change to a set of its own; gives the number of the set."""
    number = writer.next_sequence_number()
    writer.append(0, change)
    return number


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


# ---------------------------------------------------------------------- files and registry


def test_truncated_files_go_with_the_last_set_in_them() -> None:
    log = Changelog()
    first, second = log.writer(), log.writer()
    first.persist(append(first), 1)
    second.persist(append(second), 1)
    log.scheduler.complete_upload()  # one file for both
    assert len(log.file_names()) == 1
    first.truncate(first.next_sequence_number())
    assert len(log.file_names()) == 1
    second.truncate(second.next_sequence_number())
    assert log.file_names() == set()


def test_what_a_checkpoint_owns_is_never_deleted() -> None:
    log = Changelog()
    writer = log.writer()
    number = append(writer)
    future = writer.persist(number, 1)
    log.scheduler.complete_upload()
    writer.confirm(number, writer.next_sequence_number(), 1)
    writer.truncate(writer.next_sequence_number())
    writer.close()
    assert log.read(handle_of(future)) == [(0, SMALL)]


def test_a_confirm_by_one_writer_keeps_the_file_that_it_shares() -> None:
    log = Changelog()
    first, second = log.writer(), log.writer()
    future = first.persist(append(first), 1)
    second.persist(append(second), 1)
    log.scheduler.complete_upload()
    first.confirm(ZERO, first.next_sequence_number(), 1)
    second.truncate(second.next_sequence_number())
    second.close()
    assert log.read(handle_of(future)) == [(0, SMALL)]


def test_a_writer_that_closes_does_not_delete_what_its_neighbour_reports() -> None:
    # Hazard H3: the original deletes the file outright when it arrives after the close.
    log = Changelog()
    first, second = log.writer(), log.writer()
    first.persist(append(first), 1)
    future = second.persist(append(second), 1)
    first.close()
    log.scheduler.complete_upload()
    second.drain()
    assert log.read(handle_of(future)) == [(0, SMALL)]


def test_in_flight_sets_that_were_truncated_are_released_when_they_arrive() -> None:
    log = Changelog()
    writer = log.writer()
    writer.persist(append(writer), 1)
    writer.truncate(writer.next_sequence_number())
    log.scheduler.complete_upload()
    writer.drain()
    assert log.file_names() == set()


def test_truncate_and_close_releases_what_follows() -> None:
    log = Changelog()
    writer = log.writer()
    first = writer.persist(append(writer), 1)
    log.scheduler.complete_upload()
    number = writer.next_sequence_number()
    writer.confirm(ZERO, number, 1)
    writer.persist(append(writer), 2)
    log.scheduler.complete_upload()
    assert len(log.file_names()) == 2
    writer.truncate_and_close(number)
    assert log.file_names() == files_of(handle_of(first))


# ------------------------------------------------------------- truncation and pending persists


@pytest.mark.parametrize("uploaded_first", [False, True])
def test_a_pending_persist_of_truncated_changes_fails_and_does_not_hang(
    uploaded_first: bool,
) -> None:
    log = Changelog()
    writer = log.writer()
    writer.persist(append(writer), 1)
    if uploaded_first:
        log.scheduler.complete_upload()
    pending = writer.persist(ZERO, 2) if not uploaded_first else None
    append(writer, b"more")
    both = writer.persist(ZERO, 3)
    writer.truncate(SequenceNumber(1))
    log.scheduler.complete_upload()
    writer.drain()
    for future in filter(None, (pending, both)):
        assert future.done()
        with pytest.raises(ChangelogError, match="changes from 0 were truncated to 1"):
            future.result(0)
    again = writer.persist(SequenceNumber(1), 4)
    assert log.read(handle_of(again)) == [(0, b"more")]


def test_a_truncation_below_a_pending_persist_does_not_touch_it() -> None:
    log = Changelog()
    writer = log.writer()
    append(writer)
    number = append(writer, b"kept")
    future = writer.persist(number, 1)
    writer.truncate(number)
    log.scheduler.complete_upload()
    writer.drain()
    assert log.read(handle_of(future)) == [(0, b"kept")]


def test_a_bound_never_goes_back() -> None:
    # Hazard H11.
    writer = Changelog().writer()
    append(writer)
    writer.truncate(writer.next_sequence_number())
    with pytest.raises(ChangelogError, match=r"cannot be truncated to 0: expected 1\.\.1"):
        writer.truncate(ZERO)


def test_a_failed_upload_of_truncated_changes_brings_nothing_back() -> None:
    log = Changelog()
    writer = log.writer()
    writer.persist(append(writer), 1)
    writer.truncate(writer.next_sequence_number())
    log.scheduler.fail_upload(StorageError("no disk"))
    writer.drain()
    number = append(writer, b"new")
    writer.persist(number, 2)
    assert log.scheduler.sizes == [10, 3]


@pytest.mark.parametrize(("from_", "to"), [(1, 0), (0, 2), (2, 2)])
def test_impossible_confirm_ranges(from_: int, to: int) -> None:
    writer = Changelog().writer()
    append(writer)
    writer.next_sequence_number()
    with pytest.raises(ChangelogError, match="Invalid confirm range"):
        writer.confirm(SequenceNumber(from_), SequenceNumber(to), 1)


# --------------------------------------------------------------------------------- closing


def test_closing_ends_every_pending_future() -> None:
    # Hazard H10: the original leaves them pending for ever.
    log = Changelog()
    writer = log.writer()
    future = writer.persist(append(writer), 1)
    writer.close()
    assert future.done()
    with pytest.raises(WriterClosedError, match="closed before the persist ended"):
        future.result()
    log.scheduler.complete_upload()
    writer.drain()


@pytest.mark.parametrize(
    "act",
    [
        lambda writer: writer.append(0, b"x"),
        lambda writer: writer.append_meta(b"x"),
        lambda writer: writer.next_sequence_number(),
        lambda writer: writer.persist(ZERO, 1),
        lambda writer: writer.confirm(ZERO, ZERO, 1),
        lambda writer: writer.reset(ZERO, ZERO, 1),
        lambda writer: writer.truncate(ZERO),
    ],
)
def test_a_closed_writer_says_so(act: Callable[[FsStateChangelogWriter], object]) -> None:
    # Hazard H11: the original swallows appends after the close.
    writer = Changelog().writer()
    writer.close()
    writer.close()
    writer.truncate_and_close(ZERO)
    with pytest.raises(WriterClosedError, match="that is closed"):
        act(writer)


# --------------------------------------------------------------------- callbacks and threads


def test_callbacks_run_on_draining_and_may_call_the_writer() -> None:
    log = Changelog()
    writer = log.writer()
    seen: list[int] = []
    future = writer.persist(append(writer), 1)

    def persist_more(_: FsPersistFuture) -> None:
        append(writer, b"more")
        writer.persist(ZERO, 2).add_done_callback(
            lambda done: seen.append(len(files_of(handle_of(done))))
        )

    future.add_done_callback(persist_more)
    log.scheduler.complete_upload()
    assert not future.done()
    writer.drain()
    log.scheduler.complete_upload()
    writer.drain()
    assert seen == [2]
    future.add_done_callback(lambda _: seen.append(0))
    assert seen == [2, 0]


@pytest.mark.parametrize("act", ["close", "truncate", "drain"])
def test_a_callback_may_end_the_other_futures_of_its_batch(act: str) -> None:
    log = Changelog()
    writer = log.writer()
    number = append(writer)
    futures = [writer.persist(number, checkpoint) for checkpoint in (1, 2, 3)]

    def callback(_: FsPersistFuture) -> None:
        match act:
            case "close":
                writer.close()
            case "truncate":
                writer.truncate(writer.next_sequence_number())
            case "drain":
                writer.drain()

    futures[0].add_done_callback(callback)
    log.scheduler.complete_upload()
    writer.drain()
    assert all(future.done() for future in futures)
    assert handle_of(futures[0]).state_size == 10


def test_a_callback_that_raises_starves_nobody(caplog: pytest.LogCaptureFixture) -> None:
    # Hazard H5.
    log = Changelog()
    first, second = log.writer(), log.writer()
    number = append(first)
    futures = [
        first.persist(number, 1),
        first.persist(number, 2),
        second.persist(append(second), 1),
    ]
    seen = []

    def refuse(_: FsPersistFuture) -> None:
        raise RuntimeError("mine")

    for future in futures:
        future.add_done_callback(refuse)
        future.add_done_callback(seen.append)
    with caplog.at_level(logging.ERROR):
        log.scheduler.complete_upload()
        first.drain()
        second.drain()
    assert all(future.done() for future in futures)
    assert sorted(map(id, seen)) == sorted(map(id, futures))
    assert caplog.text.count("mine") >= 3


def test_a_mailbox_that_refuses_loses_nothing() -> None:
    # Hazard H5: the mailbox of a finished task rejects.
    log = Changelog()

    def refuse(_: Callable[[], None]) -> None:
        raise RuntimeError("shut down")

    first, second = log.writer(mailbox=refuse), log.writer()
    futures = [first.persist(append(first), 1), second.persist(append(second), 1)]
    log.scheduler.complete_upload()
    first.drain()
    second.drain()
    assert [handle_of(future).state_size for future in futures] == [10, 10]


def test_a_mailbox_completes_futures_without_a_further_call() -> None:
    log = Changelog()
    mails: list[Callable[[], None]] = []
    writer = log.writer(mailbox=mails.append)
    future = writer.persist(append(writer), 1)
    log.scheduler.complete_upload()
    assert not future.done()
    for mail in mails:
        mail()
    assert handle_of(future).state_size == 10


def test_result_drains_on_the_owners_thread_and_waits_on_others() -> None:
    log = Changelog()
    writer = log.writer()
    future = writer.persist(append(writer), 1)
    with ThreadPoolExecutor(2) as pool:
        other = pool.submit(future.result, 30)
        pool.submit(log.scheduler.complete_upload).result()
        assert future.result(30).job_manager_owned_snapshot.state_size == 10
        assert other.result(30) == future.result()


def test_result_gives_up_in_time() -> None:
    log = Changelog()
    writer = log.writer()
    future = writer.persist(append(writer), 1)
    with pytest.raises(TimeoutError, match=r"not done after 0\.01 s"):
        future.result(0.01)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(future.result, 0.01)
        with pytest.raises(TimeoutError):
            waiting.result(30)
    log.scheduler.complete_upload()
    assert future.result(0).job_manager_owned_snapshot.state_size == 10


def test_uploads_that_end_on_another_thread_are_taken_over_by_the_owner() -> None:
    log = Changelog()
    writer = log.writer()
    future = writer.persist(append(writer), 1)
    called_on: list[int] = []
    future.add_done_callback(lambda _: called_on.append(threading.get_ident()))
    with ThreadPoolExecutor(1) as pool:
        pool.submit(log.scheduler.complete_upload).result()
    assert not future.done()
    writer.drain()
    assert called_on == [threading.get_ident()]
