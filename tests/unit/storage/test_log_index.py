"""The index of the commit log: few requests, the same records, damage, take-overs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from dstl_core.errors import CheckpointError, FormatError
from dstl_core.storage.commit_log import CommitLog
from dstl_core.storage.file_io import FileIO
from dstl_core.storage.location import Location
from dstl_core.storage.log_index import LogIndex
from dstl_core.storage.log_record import LogRecord
from dstl_core.testing import MemoryFileIO
from tests.uncertain_file_io import FixedClock, UncertainFileIO, lose_the_answer


class CountingFileIO(UncertainFileIO):
    """Counts the requests, and how often somebody waits for an answer."""

    def __init__(self, files: FileIO) -> None:
        super().__init__(files)
        self.requests = self.waits = 0

    def read_each(self, locations: Sequence[Location]) -> list[bytes | None]:
        self.waits += 1
        return super().read_each(locations)

    def read_bytes(self, location: Location, start: int = 0, end: int | None = None) -> bytes:
        self.requests += 1
        return super().read_bytes(location, start, end)

    def size(self, location: Location) -> int | None:
        self.requests += 1
        self.waits += 1
        return super().size(location)


@pytest.fixture
def folder() -> Location:
    return Location.parse("s3://bucket/job/_dstl/log")


@pytest.fixture
def files() -> CountingFileIO:
    return CountingFileIO(MemoryFileIO())


def log(files: FileIO, folder: Location) -> CommitLog:
    return CommitLog(files, folder, FixedClock())


def count_of(log: CommitLog) -> Mapping[str, Any]:
    return {"records": log.count}


def write(log: CommitLog, count: int, *, indexed: bool = True) -> list[LogRecord]:
    """Claims and commits until there are so many records."""
    if log.count == 0:
        log.claim("a")
    while log.count < count:
        log.append("a", "commit", {"n": log.count + 1})
        if indexed:
            log.write_index(lambda: count_of(log))
    return list(log.records)


def test_without_an_index_many_records_are_read_at_a_time(
    files: CountingFileIO, folder: Location
) -> None:
    writer = log(files, folder)
    written = write(writer, 1000, indexed=False)
    files.waits = 0
    reader = log(files, folder)
    reader.refresh()
    assert files.waits == 15  # the head, 2, 4 .. 64 slots, then 128 each; a run to forget by
    assert list(reader.records) == written
    late = writer.append("a", "commit", {"n": 0})
    reader.refresh()
    assert reader.records_after(1000) == [late]
    files.replace(folder.child("500.json"), b"{")
    with pytest.raises(FormatError, match=r"500\.json"):
        log(files, folder).refresh()


@pytest.mark.parametrize("count", [108, 1208, 2303])
def test_a_new_process_asks_for_few_files_however_long_the_log_is(
    files: CountingFileIO, folder: Location, count: int
) -> None:
    written = write(log(files, folder), count)
    files.requests = files.waits = 0
    reader = log(files, folder)
    reader.refresh()
    assert (reader.count, reader.latest_claim) == (count, written[0])
    assert (files.requests <= 12, files.waits) == (True, 3)
    assert reader.summary == {"records": reader.opened_at}
    assert count - 8 < reader.opened_at <= count
    assert reader.records_after(count - 2) == written[-2:]
    files.requests = 0
    assert reader.records == tuple(written)
    assert files.requests <= count // 100 + 1


@pytest.mark.slow
def test_records_are_found_backwards_as_they_are_asked_for(
    files: CountingFileIO, folder: Location
) -> None:
    written = write(log(files, folder), 2303)
    reader = log(files, folder)
    reader.refresh()
    files.requests = 0
    newest = reader.backwards()
    assert [next(newest) for _ in range(3)] == written[:-4:-1]
    assert files.requests == 0
    assert list(newest) == written[-4::-1]
    assert list(reader.backwards(before=42)) == written[:41][::-1]
    assert list(reader.backwards(before=1)) == []
    assert reader.records_after(1990) == written[1990:]


@pytest.mark.slow
def test_memory_holds_the_last_records_only(files: CountingFileIO, folder: Location) -> None:
    writer, reader = log(files, folder), log(files, folder)
    for count in (50, 1050, 2250):
        write(writer, count)
        reader.refresh()
        assert reader.count == count
        assert len(writer._recent) <= 108
        assert len(reader._recent) <= 400
    assert writer.records == reader.records
    assert [record.number for record in reader.records] == list(range(1, 2251))


def test_an_index_comes_to_a_log_that_had_none(files: CountingFileIO, folder: Location) -> None:
    old = log(files, folder)
    written = write(old, 250, indexed=False)
    new = log(files, folder)
    new.claim("b")
    new.write_index(lambda: count_of(new))
    assert len(new._recent) == 51
    assert {each.location.name for each in files.list_folder(folder.child("index"))} == {
        "1.json",
        "2.json",
        "head.json",
    }
    reader = log(files, folder)
    reader.refresh()
    assert (reader.opened_at, reader.summary) == (251, {"records": 251})
    assert list(reader.records) == [*written, new.latest_claim]
    # The one that was there before goes on looking as before.
    old.refresh()
    assert old.records == reader.records


def test_two_writers_publish_the_same_run(files: CountingFileIO, folder: Location) -> None:
    first, second = log(files, folder), log(files, folder)
    write(first, 100, indexed=False)
    second.refresh()
    for index_writer in (first, second):
        index_writer.write_index(dict)
    run = folder.child("index", "1.json")
    published = files.read_bytes(run)
    files.delete(run)
    third = log(files, folder)
    files.delete(folder.child("index", "head.json"))
    third.refresh()
    third.write_index(dict)
    assert files.read_bytes(run) == published


def test_an_old_head_only_costs_requests(files: CountingFileIO, folder: Location) -> None:
    writer = log(files, folder)
    write(writer, 250)
    head = folder.child("index", "head.json")
    old = files.read_bytes(head)
    written = write(writer, 640)
    files.replace(head, old)
    reader = log(files, folder)
    files.requests = 0
    reader.refresh()
    assert reader.records_after(630) == written[630:]
    assert files.requests < 120  # four runs, and slots that are asked for beside them
    assert reader.records == tuple(written)


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"\xff", b"{}", "flip", "cut", "version"])
@pytest.mark.parametrize("name", ["head.json", "1.json"])
def test_a_damaged_file_of_the_index_is_not_used(
    files: CountingFileIO,
    folder: Location,
    name: str,
    damage: bytes | str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    written = write(log(files, folder), 250)
    place = folder.child("index", name)
    raw = files.read_bytes(place)
    match damage:
        case "flip":
            damaged = raw.replace(b'"n":50', b'"n":51').replace(b'"n":220', b'"n":221')
            assert damaged != raw
        case "cut":
            damaged = raw[:-20]
        case "version":
            body = json.loads(raw)
            damaged = json.dumps({**body, "version": 2}).encode()
        case _:
            assert isinstance(damage, bytes)
            damaged = damage
    files.replace(place, damaged)
    reader = log(files, folder)
    reader.refresh()
    assert reader.records == tuple(written)
    assert f"{place} is not used" in caplog.text


def test_a_lost_run_is_read_from_its_records(files: CountingFileIO, folder: Location) -> None:
    written = write(log(files, folder), 450)
    files.delete(folder.child("index", "2.json"))
    reader = log(files, folder)
    reader.refresh()
    assert reader.records == tuple(written)


def test_a_record_that_a_run_holds_may_be_missing(files: CountingFileIO, folder: Location) -> None:
    written = write(log(files, folder), 250)
    files.delete(folder.child("42.json"))
    for name in ("head.json", None):
        if name is not None:
            files.delete(folder.child("index", name))
        reader = log(files, folder)
        reader.refresh()
        assert reader.records == tuple(written)


@pytest.mark.parametrize("missing", [203, 249])
def test_a_record_that_is_missing_behind_the_head_is_named(
    files: CountingFileIO, folder: Location, missing: int
) -> None:
    writer = log(files, folder)
    write(writer, 200)
    write(writer, 250, indexed=missing != 203)
    files.delete(folder.child(f"{missing}.json"))
    with pytest.raises(CheckpointError, match=f"Record {missing} of the commit log is missing"):
        log(files, folder).claim("b")
    assert files.size(folder.child(f"{missing}.json")) is None


def test_records_that_were_lost_behind_the_index_are_not_written_again(
    files: CountingFileIO, folder: Location
) -> None:
    write(log(files, folder), 240)
    for number in range(231, 241):
        files.delete(folder.child(f"{number}.json"))
    with pytest.raises(CheckpointError, match="Record 240 of the commit log is missing"):
        log(files, folder).claim("b")
    assert files.size(folder.child("231.json")) is None


def test_an_index_of_another_log_is_refused(files: CountingFileIO, folder: Location) -> None:
    write(log(files, folder), 240)
    other = LogRecord(240, "commit", "somebody", 0, {})
    files.replace(folder.child("240.json"), other.to_bytes())
    with pytest.raises(CheckpointError, match="its index differ: record 240"):
        log(files, folder).refresh()


def test_an_index_that_could_not_be_written_comes_later(
    files: CountingFileIO, folder: Location
) -> None:
    writer = log(files, folder)
    written = write(writer, 120, indexed=False)
    files.after_publish = lose_the_answer
    with pytest.raises(OSError, match="connection was reset"):
        writer.write_index(lambda: count_of(writer))
    writer.write_index(lambda: count_of(writer))
    reader = log(files, folder)
    reader.refresh()
    assert (reader.opened_at, reader.records) == (120, tuple(written))
    assert LogIndex(files, folder).read_runs([1]) == [written[:100]]
