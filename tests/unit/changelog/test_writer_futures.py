"""How a writer ends, and on which threads its futures do."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from dstl_core.changelog.writer import FsPersistFuture, FsStateChangelogWriter
from dstl_core.errors import (
    WriterClosedError,
)
from tests.unit.changelog.manual_upload import ZERO, Changelog, append, files_of, handle_of

pytestmark = pytest.mark.usefixtures("memory_files")

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
