"""Key groups that are too large for memory, in pieces: what Flink restored, and the same again.

The limits are so small here that every key group is a large one.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dstl_core import Snapshot, verify_snapshot
from dstl_core.cli import main
from dstl_core.codec import snappy_frames
from dstl_core.codec.columnar.keyed import byte_index, spans
from dstl_core.codec.keyed_canonical import END_OF_SECTION
from dstl_core.codec.serializers import Types
from dstl_core.codec.snappy_frames import compress_frames, compressed_pieces
from dstl_core.codec.state_meta import KeyedStateType, StateMetaInfoSnapshot
from dstl_core.errors import StorageError
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from dstl_core.model.ids import OperatorID
from dstl_core.savepoint.access import column_lines
from dstl_core.savepoint.access.column_lines import MapText
from dstl_core.savepoint.compare import diff, large_maps, sides
from dstl_core.savepoint.compare.diff import KeyChanges, count_changes, diff_snapshots
from dstl_core.savepoint.edit import keyed_units, rewriting
from dstl_core.savepoint.edit.savepoint_edit import edit_savepoint
from dstl_core.savepoint.migrate.declaration import Migration
from dstl_core.savepoint.migrate.migrated_savepoint import SavepointMigration
from dstl_core.savepoint.read import entry_reader, keyed_reader, stored_columns, stored_records
from dstl_core.savepoint.verify import range_check
from dstl_core.savepoint.write import work_record
from dstl_core.savepoint.write.folder import SavepointFolder
from dstl_core.state.columns import keyed_sections
from dstl_core.state.columns.keyed_encoder import KeyedStateEncoder
from dstl_core.state.columns.keyed_sections import KeyedStream
from dstl_core.state.restore import kernel_sizes
from tests.golden_files import GOLDEN, Fixture, as_lines
from tests.unit.savepoint.test_diff import AFTER, BEFORE, EXPECTED, VALUE, by_place, write

TABLES = "x-lsm-rocksdb-incremental"
STREAMS = "a-rocksdb-canonical"
WAYS = [
    *[(TABLES, option) for option in ("", "other key groups", "uncompressed", "native")],
    *[(STREAMS, option) for option in ("other key groups", "native")],
    ("a-hashmap-native", ""),
]


@pytest.fixture(autouse=True)
def _all_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_records, "LARGE_BYTES", 100)
    monkeypatch.setattr(keyed_sections, "LARGE_SECTION_BYTES", 100)
    monkeypatch.setattr(keyed_sections, "_CHECKED_BYTES", 500)
    monkeypatch.setattr(column_lines, "_HELD_PAIRS", 2)
    monkeypatch.setattr(column_lines, "_PAIRS_AT_ONCE", 3)
    for name in ("FROM_BYTES", "LOADED_FROM_BYTES"):
        monkeypatch.setattr(kernel_sizes, name, 0)
    for module in (keyed_units, entry_reader):
        monkeypatch.setattr(module, "BYTES_AT_ONCE", 20_000)


def fixture_of(name: str) -> Fixture:
    return Fixture(GOLDEN / name)


def printed(*arguments: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main([*arguments])
    return out.getvalue()


def keyed(lines: Any) -> Any:
    return as_lines({**line, "kg": 0} for line in lines if line.get("kg") is not None)


@pytest.mark.parametrize(("name", "option"), WAYS)
def test_a_rewriting_has_all_that_flink_restored(
    name: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snappy_frames, "PIECE_BYTES", 100)
    fixture = fixture_of(name)
    edit = edit_savepoint(Snapshot.load(fixture.snapshot)).with_files("canonical")
    if option == "other key groups":
        edit = edit.with_max_parallelism(200)
    if option == "native":
        edit = edit.with_files("copy").with_format("native")
    plain = option == "uncompressed"
    out = edit.write(tmp_path / "out", keep_compression=plain, jobs=1 if option else 2)
    after = [line for operator in Snapshot.load(out).operators for line in operator.dump()]
    assert keyed(after) == keyed(fixture.truth)


def test_a_killed_run_goes_on_with_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the pieces that are whole, of files that processes share. Some are cut short, and
    written again; some are damaged, which the run says.
    """
    monkeypatch.setattr(rewriting, "RECORDED_FROM_BYTES", 0)
    edit = edit_savepoint(Snapshot.load(fixture_of(TABLES).snapshot)).with_files("canonical")
    out = tmp_path / "out"
    process = os.fork()
    if not process:
        kept, done = work_record.Entries.keep_pieces, []

        def killed(entries: Any, name: str, *rest: Any) -> None:
            kept(entries, name, *rest)
            done.append(name)
            if len(done) == 2:
                os._exit(0)

        work_record.Entries.keep_pieces = killed  # type: ignore[method-assign]
        try:
            edit.write(out, jobs=3)
        finally:
            os._exit(1)
    os.waitpid(process, 0)
    work = out / work_record.WORK_FOLDER
    begun = sorted(work.glob("*-pieces-*"))
    # Other processes were killed while they wrote theirs, of which there is no entry.
    pieces = [each for each in begun if (work / each.name.partition("-pieces-")[0]).exists()]
    assert len(pieces) > 1
    raw = pieces[0].read_bytes()
    pieces[0].write_bytes(bytes([*raw[:-1], raw[-1] ^ 1]))
    with pytest.raises(StorageError, match=r"gone or damaged: .*run the command again"):
        edit.write(out)
    pieces[1].write_bytes(pieces[1].read_bytes()[:-1])
    edit.write(out)
    after = [line for operator in Snapshot.load(out).operators for line in operator.dump()]
    assert keyed(after) == keyed(fixture_of(TABLES).truth)


@pytest.mark.parametrize("name", [TABLES, STREAMS, "a-rocksdb-checkpoint-incremental"])
def test_a_dump_has_all_that_flink_restored(name: str) -> None:
    for jobs in ("1", "2"):
        text = printed("dump", str(fixture_of(name).snapshot), "--jobs", jobs)
        assert as_lines(map(json.loads, text.splitlines())) == as_lines(fixture_of(name).truth)


def test_a_map_is_one_line_if_its_pairs_are_apart(tmp_path: Path) -> None:
    """As those of rows that were written in any order, more than are read at once."""
    numbers = range(spans.ROWS_PER_BATCH // 2)
    columns = {
        "state_key": ["a", "b", "c"] * len(numbers),
        "map_key": [f"{number:05}" for number in numbers for _ in "abc"],
        "map_value": [number for number in numbers for _ in "abc"],
    }
    write(tmp_path / "out", {"counts": columns}, max_parallelism=1)
    lines = [json.loads(line) for line in printed("dump", str(tmp_path / "out")).splitlines()]
    assert sorted(line["key"] for line in lines) == ["a", "b", "c"]
    expected = [[f"{number:05}", number] for number in numbers]
    assert all(line["value"] == expected for line in lines)


def test_pairs_of_a_large_map_are_sorted_as_those_of_a_small_one() -> None:
    """By the UTF-16 code units of the text of a key, with what lies in files."""
    keys = ['"b"', '"a"', '"\U0001f600"', '"\uffee"', '"\\t"', '"ä"', '"a "']
    text = MapText()
    for place, key in enumerate(keys):
        text.pairs.append((key, str(place)))
        text.spill_if_large()
    in_order = sorted(range(len(keys)), key=lambda at: keys[at].encode("utf-16-be"))
    assert "".join(text.pieces()) == ", ".join(f"[{keys[at]}, {at}]" for at in in_order)


@pytest.mark.parametrize("jobs", [1, 2])
def test_differences_of_large_key_groups(jobs: int, tmp_path: Path) -> None:
    one, two = write(tmp_path / "a", BEFORE), write(tmp_path / "b", AFTER)
    assert by_place(diff_snapshots(one, two, jobs=jobs)) == EXPECTED
    [old], [new] = one.operators, two.operators
    changes = {each.state: each for each in count_changes(old, new, jobs=jobs)}
    assert changes["n"] == KeyChanges("n", "value", new=1, gone=1, changed=1)
    assert changes["counts"] == KeyChanges("counts", "map", changed=1)


OLD = {f"{number:04}": number for number in range(1000)}
NEW = {**{key: value for key, value in OLD.items() if value % 10}, "0013": -1, "more": 5}
MAPS = [
    {"hot": OLD, "other": OLD, "gone": OLD, "small": {"k": 1}, "same": {"k": 1}},
    {"hot": NEW, "other": OLD, "new": NEW, "small": {"k": 2}, "same": {"k": 1}},
]


def write_maps(path: Path, maps: dict[str, dict[str, int]], **options: Any) -> Snapshot:
    """Maps by key, and a value for each of some keys: all in one key group."""
    rows = [(key, *pair) for key, own in maps.items() for pair in own.items()]
    names = ("state_key", "map_key", "map_value")
    counts = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    keys = [*maps, *(f"k{number}" for number in range(300))]
    values = {"state_key": keys, "state_value": list(range(len(keys)))}
    return write(path, {"n": values, "counts": counts}, max_parallelism=1, **options)


@pytest.fixture
def held_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Limits of a part that are small; and the rows that are held at once, one number a time."""
    monkeypatch.setattr(large_maps, "PART_BYTES", 2_000)
    monkeypatch.setattr(large_maps, "HELD_PART_BYTES", 4_000)
    monkeypatch.setattr(diff, "_ENTRIES_OF_PART", 7)
    held: list[int] = []
    original = sides.held_records

    def counted(*arguments: Any) -> Any:
        records = original(*arguments)
        held.append(sum(map(len, records)))
        return records

    monkeypatch.setattr(sides, "held_records", counted)
    return held


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_map_that_is_larger_than_memory_is_compared_in_parts(
    jobs: int, tmp_path: Path, held_rows: list[int]
) -> None:
    one, two = (write_maps(tmp_path / str(at), own) for at, own in enumerate(MAPS))
    shown: dict[str, list[Any]] = {}
    for difference in diff_snapshots(one, two, jobs=jobs):
        line = difference.to_json()
        if line["state"] != "counts":
            continue
        before, after = line.get("before"), line.get("after")
        assert len(before or ()) <= 7 and len(after or ()) <= 7
        parts = shown.setdefault(line["key"], [line["change"], {}, {}])
        assert parts[0] == line["change"]
        for known, pairs in zip(parts[1:], (before, after), strict=True):
            assert not known.keys() & dict(pairs or ()).keys()
            known.update(pairs or ())
        assert ("part" in line) == (line["key"] != "small")
    differs = {key for key in OLD.keys() | NEW.keys() if OLD.get(key) != NEW.get(key)}
    hot = ({key: own[key] for key in own if key in differs} for own in (OLD, NEW))
    assert shown == {
        "hot": ["changed", *hot],
        "gone": ["removed", OLD, {}],
        "new": ["added", {}, NEW],
        "small": ["changed", {"k": 1}, {"k": 2}],
    }
    assert 0 < max(held_rows) < 300  # a map has 1,000
    [old], [new] = one.operators, two.operators
    changes = {each.state: each for each in count_changes(old, new, jobs=jobs)}
    assert changes["counts"] == KeyChanges("counts", "map", new=1, gone=1, changed=2)


def test_a_map_of_another_type_is_compared_as_a_whole(tmp_path: Path, held_rows: list[int]) -> None:
    wide = Types.MAP(Types.STRING, Types.LONG)
    states = [VALUE, StateMetaInfoSnapshot.key_value("counts", KeyedStateType.MAP, wide)]
    one = write_maps(tmp_path / "a", {"hot": OLD})
    two = write_maps(tmp_path / "b", {"hot": OLD}, states=states)
    assert not list(diff_snapshots(one, two))


def test_a_part_of_a_map_counts_once(
    tmp_path: Path, held_rows: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    places = [tmp_path / str(at) for at in range(2)]
    for place, own in zip(places, MAPS, strict=True):
        write_maps(place, own)
    with pytest.raises(SystemExit):
        main(["diff", *map(str, places)])
    assert "op map counts: 1 added, 1 removed, 2 changed" in capsys.readouterr().out


@pytest.fixture
def held_hashes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many hashes of keys a check has held, one number for each range."""
    monkeypatch.setattr(range_check, "SMALL_BYTES", 0)
    held: list[int] = []
    original = stored_columns._count

    def counted(stored: Any, parts: Any) -> Any:
        held.append(sum(len(keys) for own in parts for keys, _ in own))
        return original(stored, parts)

    monkeypatch.setattr(stored_columns, "_count", counted)
    return held


@pytest.mark.parametrize(
    ("name", "is_in_order"),
    [(TABLES, True), (STREAMS, True), ("a-hashmap-canonical", False)],
)
def test_a_check_holds_no_hashes_of_keys_that_ascend(
    name: str, is_in_order: bool, held_hashes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Snapshot.load(fixture_of(name).snapshot)
    report = verify_snapshot(own)
    assert bool(held_hashes) != is_in_order
    monkeypatch.setattr(stored_records, "LARGE_BYTES", 1 << 30)
    assert report.to_json() == verify_snapshot(own).to_json()
    assert report.to_json()["ok"]


@pytest.mark.parametrize("keys", [[1, 2, 2, 3], [2, 1, 3, 2], [1, 2, 3]])
def test_a_key_that_comes_twice_is_found(
    keys: list[int], tmp_path: Path, held_hashes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = KeyedStateEncoder(Types.LONG, [VALUE], 1)
    raw = encoder.encode("n", pa.table({"state_key": keys, "state_value": keys})).data
    section = [memoryview(raw), END_OF_SECTION]
    stream = KeyedStream(encoder.header, encoder.key_groups, 1, [section])
    folder = SavepointFolder(tmp_path / "out")
    subtask = OperatorSubtaskState(0, managed_keyed_state=folder.add_keyed_stream(stream))
    operator = OperatorState(OperatorID.for_uid("op"), 1, 1, (subtask,), uid="op")
    folder.publish(CheckpointMetadata(3, 1, (operator,)), {})
    monkeypatch.setattr(stored_records, "LARGE_BYTES", 10)
    report = verify_snapshot(Snapshot.load(tmp_path / "out")).to_json()
    assert report["ok"] == (len({*keys}) == len(keys))
    assert bool(held_hashes) == (keys == [2, 1, 3, 2])


def test_differences_have_the_same_order_in_every_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = [
        {
            "n": {
                "state_key": [f"k{at}" for at in range(50)],
                "state_value": range(first, first + 50),
            }
        }
        for first in (0, 1)
    ]
    one, two = (write(tmp_path / str(at), own, max_parallelism=1) for at, own in enumerate(columns))
    orders = []
    for seed in (3, 4):
        monkeypatch.setattr(byte_index, "SEED", seed)
        orders.append([each.to_json()["key"] for each in diff_snapshots(one, two)])
    assert orders[0] == orders[1]
    assert len(orders[0]) == 50


FULL = "Records cannot be written to the folder for temporary files, .*; set TMPDIR to"


class Full(io.BytesIO):
    """A file on a disk that is full. Closing it fails, too: that writes what a buffer has."""

    def write(self, data: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def close(self) -> None:
        if not self.closed:
            super().close()
            raise OSError(errno.ENOSPC, "No space left on device")


TemporaryFile = tempfile.TemporaryFile


def of_a_full_disk(mode: str = "w+b", **options: Any) -> Any:
    """A temporary file of ours; one that the compiler makes in its cache is as it was."""
    if options.get("prefix") != "dstl-":
        return TemporaryFile(mode, **options)
    return Full() if "b" in mode else io.TextIOWrapper(Full())


@pytest.mark.parametrize("command", ["dump", "diff"])
def test_a_folder_for_temporary_files_that_is_full_is_named(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    places = [str(tmp_path / name) for name in ("a", "b")]
    for place, columns in zip(places, (BEFORE, AFTER), strict=True):
        write(place, columns)
    monkeypatch.setattr(tempfile, "TemporaryFile", of_a_full_disk)
    with pytest.raises(SystemExit):
        main([command, *places[: 1 + (command == "diff")], "--jobs=1"])
    assert re.search(FULL, capsys.readouterr().err)


def test_rows_of_a_key_group_that_is_divided_name_a_full_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a", BEFORE)
    monkeypatch.setattr(keyed_reader, "_LEAST_BYTES", 1)
    monkeypatch.setattr(tempfile, "TemporaryFile", of_a_full_disk)
    [operator] = Snapshot.load(tmp_path / "a").operators
    with pytest.raises(StorageError, match=FULL):
        list(operator.keyed(memory=1).read())


def test_a_migration_has_every_key(tmp_path: Path) -> None:
    source = Snapshot.load(fixture_of("a-hashmap-canonical").snapshot)
    rule = {"value": "cast(value, STRING)", "type": "string"}
    declared = {"operators": {"a-keyed": {"states": {"cnt": rule}}}}
    migration = Migration.of({"migration": 1, **declared})
    out = SavepointMigration(migration, source).write(tmp_path / "out")
    before = {line["key"]: line["value"] for line in source["a-keyed"].dump("cnt")}
    after = {line["key"]: line["value"] for line in Snapshot.load(out)["a-keyed"].dump("cnt")}
    assert before and after == {key: str(value) for key, value in before.items()}


@pytest.mark.parametrize("sizes", [(), (0,), (1, 70_000, 5), (65_536,), (65_535, 1, 1 << 20)])
def test_a_stream_in_pieces_is_the_same_stream(sizes: tuple[int, ...]) -> None:
    parts = [os.urandom(size // 2) + bytes(size - size // 2) for size in sizes]
    pieces = list(compressed_pieces(parts))
    whole = b"".join(parts)
    assert b"".join(pieces) == (compress_frames(whole) if whole else pieces[0])
    assert max(map(len, pieces)) < snappy_frames.PIECE_BYTES + (1 << 17)
