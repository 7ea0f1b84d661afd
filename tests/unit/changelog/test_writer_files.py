"""Who releases the files of a writer, and what truncation does to persists under way."""

from __future__ import annotations

import pytest

from dstl_core.errors import (
    ChangelogError,
    StorageError,
)
from dstl_core.model.sequence import SequenceNumber
from tests.unit.changelog.manual_upload import SMALL, ZERO, Changelog, append, files_of, handle_of

pytestmark = pytest.mark.usefixtures("memory_files")

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
