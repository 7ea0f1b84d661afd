"""The commit log: fencing, take-over, answers that got lost, damage."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dstl_core.errors import (
    CheckpointError,
    ConfigError,
    FencedError,
    FormatError,
    StorageError,
)
from dstl_core.storage.commit_log import CommitLog, LogRecord
from dstl_core.storage.file_io import FileIO, open_file_io
from dstl_core.storage.location import Location
from tests.uncertain_file_io import FixedClock, UncertainFileIO, lose_the_answer


@pytest.fixture(params=["local", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, memory_files: None) -> Location:
    return Location.parse(tmp_path / "log" if request.param == "local" else "memory://job/log")


@pytest.fixture
def files(folder: Location) -> UncertainFileIO:
    return UncertainFileIO(open_file_io(folder, fsync=False))


def log(files: FileIO, folder: Location) -> CommitLog:
    return CommitLog(files, folder, FixedClock())


def test_claim_then_commit(files: UncertainFileIO, folder: Location) -> None:
    mine = log(files, folder)
    assert mine.latest_claim is None
    claim = mine.claim("a")
    record = mine.append("a", "commit", {"checkpoint_id": 1})
    assert (claim.number, claim.type, record.number, record.type) == (1, "claim", 2, "commit")
    seen = log(files, folder)
    assert seen.records == ()
    seen.refresh()
    assert seen.records == (claim, record)
    assert seen.commits == [record]
    assert seen.latest_claim == claim
    raw = json.loads(files.read_bytes(folder.child("2.json")))
    assert raw == {
        "version": 1,
        "number": 2,
        "type": "commit",
        "owner": "a",
        "at_ms": 1_700_000_000_000,
        "payload": {"checkpoint_id": 1},
    }


def test_without_a_claim_nothing_is_committed(files: UncertainFileIO, folder: Location) -> None:
    with pytest.raises(FencedError, match="'a' does not own this pipeline"):
        log(files, folder).append("a", "commit", {})
    assert files.list_folder(folder) == []


def test_a_take_over_fences_the_earlier_owner(files: UncertainFileIO, folder: Location) -> None:
    old, new = log(files, folder), log(files, folder)
    old.claim("old")
    old.append("old", "commit", {"n": 1})
    new.claim("new")
    # The old owner knows nothing of it yet: the slot tells.
    with pytest.raises(FencedError, match="'new' claimed it with record 3"):
        old.append("old", "commit", {"n": 2})
    with pytest.raises(FencedError):
        old.append("old", "commit", {"n": 2})
    assert new.append("new", "commit", {"n": 3}).number == 4
    new.refresh()
    assert [record.payload for record in new.commits] == [{"n": 1}, {"n": 3}]


def test_an_abort_is_a_record_of_the_owner_alone(files: UncertainFileIO, folder: Location) -> None:
    old, new = log(files, folder), log(files, folder)
    old.claim("old")
    record = old.append("old", "abort", {"checkpoint_id": 1})
    assert (record.number, record.type) == (2, "abort")
    assert old.commits == []
    new.claim("new")
    with pytest.raises(FencedError):
        old.append("old", "abort", {"checkpoint_id": 2})


def test_a_commit_is_not_taken_for_the_abort_with_the_same_content(
    files: UncertainFileIO, folder: Location
) -> None:
    mine = log(files, folder)
    mine.claim("a")
    files.after_publish = lose_the_answer
    with pytest.raises(StorageError):
        mine.append("a", "commit", {"checkpoint_id": 1})
    with pytest.raises(FencedError):
        mine.append("a", "abort", {"checkpoint_id": 1})
    assert [record.type for record in mine.records] == ["claim", "commit"]


def test_a_claim_sees_all_records_before_it(files: UncertainFileIO, folder: Location) -> None:
    mine, other = log(files, folder), log(files, folder)
    mine.claim("mine")
    seen: list[int] = []

    def payload() -> dict[str, int]:
        seen.append(len(other.records))
        return {"records_before": len(other.records)}

    files.before_publish = lambda: mine.append("mine", "commit", {"n": 1}) and None
    record = other.claim("other", payload)
    # The slot was taken under its hands, so the payload is made again.
    assert seen == [1, 2]
    assert (record.number, record.payload) == (3, {"records_before": 2})


def test_an_owner_can_claim_again(files: UncertainFileIO, folder: Location) -> None:
    old, new = log(files, folder), log(files, folder)
    old.claim("old")
    new.claim("new")
    old.claim("old")
    old.append("old", "commit", {"n": 1})
    with pytest.raises(FencedError, match="'old' claimed it with record 3"):
        new.append("new", "commit", {"n": 2})


def test_a_claim_between_check_and_commit_wins_the_slot(
    files: UncertainFileIO, folder: Location
) -> None:
    mine, other = log(files, folder), log(files, folder)
    mine.claim("mine")
    files.before_publish = lambda: other.claim("other") and None
    with pytest.raises(FencedError, match="'other' claimed it with record 2"):
        mine.append("mine", "commit", {"n": 1})
    assert mine.commits == []


def test_a_commit_between_check_and_claim_is_kept(files: UncertainFileIO, folder: Location) -> None:
    mine, other = log(files, folder), log(files, folder)
    mine.claim("mine")
    files.before_publish = lambda: mine.append("mine", "commit", {"n": 1}) and None
    assert other.claim("other").number == 3
    assert [record.payload for record in other.commits] == [{"n": 1}]


# -------------------------------------------------------------------- answers that got lost


def test_a_commit_whose_answer_got_lost_is_found_on_retry(
    files: UncertainFileIO, folder: Location
) -> None:
    mine = log(files, folder)
    mine.claim("a")
    files.after_publish = lose_the_answer
    with pytest.raises(StorageError, match="connection was reset"):
        mine.append("a", "commit", {"n": 1, "deep": [1, {"x": None}]})
    assert mine.append("a", "commit", {"n": 1, "deep": [1, {"x": None}]}).number == 2
    assert mine.append("a", "commit", {"n": 2}).number == 3
    assert len(files.list_folder(folder)) == 3


def test_a_store_that_retries_by_itself_and_then_says_no(
    files: UncertainFileIO, folder: Location
) -> None:
    mine = log(files, folder)
    mine.claim("a")
    files.after_publish = lambda done: False
    assert mine.append("a", "commit", {"n": 1}).number == 2
    assert len(mine.commits) == 1


def test_a_lost_commit_of_ours_is_not_taken_for_another_one(
    files: UncertainFileIO, folder: Location
) -> None:
    mine = log(files, folder)
    mine.claim("a")
    files.after_publish = lose_the_answer
    with pytest.raises(StorageError):
        mine.append("a", "commit", {"n": 1})
    # The caller gave that one up and commits something else: the first is committed all the same.
    with pytest.raises(FencedError):
        mine.append("a", "commit", {"n": 2})
    assert [record.payload for record in mine.commits] == [{"n": 1}]
    assert mine.append("a", "commit", {"n": 2}).number == 3


def test_a_lost_commit_before_a_take_over_is_fenced_or_kept_but_never_both(
    files: UncertainFileIO, folder: Location
) -> None:
    mine, other = log(files, folder), log(files, folder)
    mine.claim("a")
    files.after_publish = lose_the_answer
    with pytest.raises(StorageError):
        mine.append("a", "commit", {"n": 1})
    other.claim("b")
    # It was in before the take-over, so the retry says so and does not commit again.
    assert mine.append("a", "commit", {"n": 1}).number == 2
    other.refresh()
    assert [record.type for record in other.records] == ["claim", "commit", "claim"]


def test_a_claim_whose_answer_got_lost_is_made_again(
    files: UncertainFileIO, folder: Location
) -> None:
    mine = log(files, folder)
    files.after_publish = lose_the_answer
    with pytest.raises(StorageError):
        mine.claim("a")
    mine.claim("a")
    assert mine.append("a", "commit", {"n": 1}).number == 3


# ------------------------------------------------------------------------------- many owners


def test_many_threads_claim_and_commit_and_every_commit_is_its_holders(
    files: UncertainFileIO, folder: Location
) -> None:
    owners = 8
    barrier = threading.Barrier(owners)

    def work(owner: int) -> list[int]:
        mine = log(open_file_io(folder, fsync=False), folder)
        barrier.wait()
        committed = []
        for step in range(6):
            mine.claim(f"{owner}")
            try:
                committed.append(
                    mine.append(f"{owner}", "commit", {"owner": owner, "step": step}).number
                )
            except FencedError:
                continue
        return committed

    with ThreadPoolExecutor(owners) as pool:
        told = list(pool.map(work, range(owners)))
    seen = log(files, folder)
    seen.refresh()
    assert [record.number for record in seen.records] == list(range(1, len(seen.records) + 1))
    holder = None
    for record in seen.records:
        if record.type == "claim":
            holder = record.owner
        else:
            assert record.owner == holder
    commits = {(int(record.owner), record.number) for record in seen.commits}
    assert commits == {(owner, number) for owner in range(owners) for number in told[owner]}


# ----------------------------------------------------------------------------------- damage


GOOD: dict[str, Any] = {
    "version": 1,
    "number": 1,
    "type": "claim",
    "owner": "a",
    "at_ms": 5,
    "payload": {},
}


def test_a_record_round_trips() -> None:
    record = LogRecord(3, "commit", "日本\ud800", 5, {"a": [1, None]})
    assert LogRecord.from_bytes(record.to_bytes(), 3) == record


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff",
        b"{",
        b"[]",
        b"3",
        b"null",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        *(
            json.dumps({**GOOD, **change}).encode()
            for change in (
                {"version": 2},
                {"version": None},
                {"type": "retire"},
                {"type": ["claim"]},
                {"number": 2},
                {"number": "x"},
                {"number": None},
                {"number": []},
                {"at_ms": {}},
                {"payload": 5},
                {"payload": None},
                {"payload": ["ab", "c"]},
            )
        ),
        *(
            json.dumps({key: value for key, value in GOOD.items() if key != missing}).encode()
            for missing in GOOD
        ),
        json.dumps(GOOD).replace('"at_ms": 5', '"at_ms": NaN').encode(),
        json.dumps(GOOD).replace('"at_ms": 5', '"at_ms": 1e400').encode(),
        json.dumps(GOOD).replace('"number": 1', '"number": ' + "9" * 5000).encode(),
    ],
)
def test_damaged_records_are_format_errors(
    files: UncertainFileIO, folder: Location, raw: bytes
) -> None:
    files.write_new(folder.child("1.json"), raw)
    with pytest.raises(FormatError, match="A record of the commit log") as caught:
        log(files, folder).refresh()
    assert caught.value.context["location"] == str(folder.child("1.json"))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1, 2}, b"x"])
def test_what_is_not_json_is_refused_before_it_is_published(
    files: UncertainFileIO, folder: Location, value: object
) -> None:
    mine = log(files, folder)
    mine.claim("a")
    with pytest.raises(ConfigError, match="cannot be written"):
        mine.append("a", "commit", {"x": value})
    assert len(files.list_folder(folder)) == 1
    assert mine.append("a", "commit", {"x": 1}).number == 2


# ---------------------------------------------------------------------------------- holes


@pytest.mark.parametrize("look", ["refresh", "claim", "append"])
@pytest.mark.parametrize("known", [0, 3])
def test_a_missing_record_is_named_with_the_way_out(
    files: UncertainFileIO, folder: Location, look: str, known: int
) -> None:
    reader = log(files, folder)
    writer = log(files, folder)
    writer.claim("a")
    for number in range(2):
        writer.append("a", "commit", {"n": number})
    if known:
        reader.refresh()
        reader.claim("b")
        writer.claim("a")
    else:
        writer.append("a", "commit", {"n": 2})
    writer.append("a", "commit", {"n": 3})
    files.delete(folder.child(f"{reader.count + 1 if known else 4}.json"))
    before = {status.location.name for status in files.list_folder(folder)}
    with pytest.raises(CheckpointError, match=r"Record [45] of the commit log is missing, but la"):
        match look:
            case "claim":
                reader.claim("c")
            case "refresh":
                reader.refresh()
            case _:
                reader.refresh()
                reader.append("b", "commit", {})
    assert {status.location.name for status in files.list_folder(folder)} == before


def test_a_record_that_comes_while_one_looks_is_no_hole(folder: Location) -> None:
    class Late(UncertainFileIO):
        """Record 3 comes after the look at its slot, and record 4 before the look at its."""

        def read_each(self, locations: Sequence[Location]) -> list[bytes | None]:
            payloads = super().read_each(locations)
            names = [each.name for each in locations]
            if "3.json" in names and "4.json" in names and not raced:
                raced.append(names)
                writer.append("a", "commit", {"n": 3})
                writer.append("a", "commit", {"n": 4})
                at = names.index("4.json")
                payloads[at] = self.read_bytes(locations[at])
            return payloads

    raced: list[list[str]] = []
    files = Late(open_file_io(folder, fsync=False))
    writer = log(UncertainFileIO(open_file_io(folder, fsync=False)), folder)
    writer.claim("a")
    writer.append("a", "commit", {"n": 2})
    reader = log(files, folder)
    reader.refresh()
    assert raced and [record.number for record in reader.records] == [1, 2, 3, 4]


# --------------------------------------------------------------------------- upper bounds


class HiddenRecords(UncertainFileIO):
    """A store on which every slot is taken, and no record can be seen."""

    published = 0

    def publish_once(self, location: Location, data: bytes) -> bool:
        self.published += 1
        assert self.published < 1000, "tries without end"
        return False

    def read_each(self, locations: Sequence[Location]) -> list[bytes | None]:
        return [None] * len(locations)


def test_a_slot_that_is_taken_and_not_seen_ends_a_claim(folder: Location) -> None:
    files = HiddenRecords(open_file_io(folder, fsync=False))
    with pytest.raises(
        StorageError, match=r"slot 1 of the commit log is taken, but its record could not be read"
    ):
        log(files, folder).claim("a")
    assert files.published == 1


def test_a_slot_that_is_taken_and_not_seen_ends_a_commit(
    files: UncertainFileIO, folder: Location
) -> None:
    mine = log(files, folder)
    mine.claim("a")
    mine._file_io = HiddenRecords(files)
    with pytest.raises(StorageError, match=r"slot 2 of the commit log is taken"):
        mine.append("a", "commit", {})


class Rivals(UncertainFileIO):
    """Somebody else claims before each claim of ours."""

    def publish_once(self, location: Location, data: bytes) -> bool:
        number = int(location.name.removesuffix(".json"))
        assert number < 1000, "tries without end"
        rival = LogRecord(number, "claim", f"rival {number}", 0)
        assert self._files.publish_once(location, rival.to_bytes())
        return self._files.publish_once(location, data)


def test_a_claim_gives_up_when_others_take_every_slot(folder: Location) -> None:
    with pytest.raises(CheckpointError, match=r"other drivers took all 50 slots .* that 'a' tried"):
        log(Rivals(open_file_io(folder, fsync=False)), folder).claim("a")
