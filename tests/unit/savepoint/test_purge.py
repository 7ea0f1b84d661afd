"""Keys go from savepoints: what is left is the plain filter of what was there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rocksdict import AccessType, Options, Rdict

from dstl_core import OperatorIdentifier, Snapshot, edit_savepoint, rewrite_savepoint
from dstl_core.checkpoint.store.references import file_handles
from dstl_core.codec.sst.file import SstFile
from dstl_core.errors import ConfigError, SavepointError
from dstl_core.model.handle import IncrementalRemoteKeyedStateHandle, RelativeFileStateHandle
from dstl_core.savepoint.purge import purged_tables
from dstl_core.savepoint.verify.verify import verify_snapshot
from tests.command_line import is_one_sentence, run
from tests.golden_files import GOLDEN, as_lines, snapshot

__all__ = ["run"]

CHECKPOINT = "a-rocksdb-checkpoint-incremental"
EVERY_FORM = [
    (CHECKPOINT, "a-keyed"),
    ("a-hashmap-canonical", "a-keyed"),
    ("a-hashmap-native", "a-keyed"),
    ("a-hashmap-changelog-materialized", "a-keyed"),
    ("a-rocksdb-heaptimers-checkpoint", "a-keyed"),
    ("a-rocksdb-native-incremental", "a-keyed"),
    ("a-rocksdb-p2-max4096", "a-keyed"),
    ("o-rescaled-claim-rocksdb", "count"),
    ("o-ttl-maps-rocksdb", "ttl-maps"),
    ("x-lsm-rocksdb-incremental", "lsm"),
    ("x-rescaled-rocksdb-incremental", "lsm"),
]


def copied(name: str, folder: Path) -> Snapshot:
    shutil.copytree(GOLDEN / name, folder / name)
    return Snapshot.load(folder / name / snapshot(name).relative_to(GOLDEN / name))


def lines(loaded: Snapshot, operator: str) -> list[dict[str, Any]]:
    return list(loaded[operator].dump())


def text(key: Any) -> str:
    """A key as a person writes it."""
    return key if isinstance(key, str) else json.dumps(key)


def some_keys(dumped: Iterable[dict[str, Any]], every: int) -> list[Any]:
    known = {text(line["key"]): line["key"] for line in dumped if "key" in line}
    return [known[name] for name in sorted(known)[::every]]


@pytest.mark.parametrize("files", [None, "copy", "canonical"])
@pytest.mark.parametrize(("name", "operator"), EVERY_FORM)
def test_all_of_the_keys_goes_and_nothing_else(
    tmp_path: Path, name: str, operator: str, files: Any
) -> None:
    source, out = copied(name, tmp_path), tmp_path / "out"
    before = lines(source, operator)
    gone = [text(key) for key in some_keys(before, 3)]
    edit = edit_savepoint(source).with_files(files)
    known = OperatorIdentifier(source[operator].operator_id)
    edit = edit.erase_keys(known, [*gone, *gone])
    edit.write(out)

    after = Snapshot.load(out, allow_roots=[str(tmp_path)])
    left = [line for line in before if "key" not in line or text(line["key"]) not in gone]
    assert as_lines(lines(after, operator)) == as_lines(left)
    assert len(left) < len(before)
    assert verify_snapshot(after).findings == []
    assert sum(edit.purged[source[operator].label].values()) >= len(before) - len(left)
    notes = json.loads((out / "_dstl.json").read_bytes())["facts"]
    assert notes["purged"] == edit.purged


# ------------------------------------------------------------------------------- RocksDB judges


PLAIN_KEYS = ["key-1", "key-2", "key-11", "key-24"]


def as_stored(key: str) -> bytes:
    """A text as Flink stores it: the number of characters and one, then ASCII."""
    return bytes([len(key) + 1]) + key.encode()


def rows_of(
    loaded: Snapshot, operator: str, folder: Path
) -> Iterator[dict[str, list[tuple[bytes, bytes]]]]:
    """The rows of each column family of each handle, as RocksDB reads them."""
    for number, handle in enumerate(loaded[operator].keyed_handles):
        assert isinstance(handle, IncrementalRemoteKeyedStateHandle)
        place = folder / str(number)
        place.mkdir(parents=True)
        for name, stream in handle.shared + handle.private:
            (place / name).write_bytes(loaded.resolver.read(stream))
        names = Rdict.list_cf(str(place))
        families = {name: Options(raw_mode=True) for name in names}
        database = Rdict(
            str(place), Options(raw_mode=True), families, access_type=AccessType.read_only()
        )
        yield {name: list(database.get_column_family(name).items()) for name in names}
        database.close()


def test_rocksdb_opens_what_is_left(tmp_path: Path) -> None:
    source, out = copied(CHECKPOINT, tmp_path), tmp_path / "out"
    gone = PLAIN_KEYS
    rewrite_savepoint(source, out, erase_keys={"a-keyed": gone})
    after = Snapshot.load(out, allow_roots=[str(tmp_path)])

    pairs = zip(
        rows_of(source, "a-keyed", tmp_path / "old"),
        rows_of(after, "a-keyed", tmp_path / "new"),
        strict=True,
    )
    stored = list(map(as_stored, gone))
    number = 0
    for old, new in pairs:
        for family, rows in old.items():
            left = [row for row in rows if not any(key in row[0] for key in stored)]
            assert new[family] == left
            number += len(rows) - len(left)
    assert number >= len(gone)


@pytest.mark.parametrize("files", ["share", "copy"])
def test_no_file_that_is_left_has_the_bytes_of_a_key(tmp_path: Path, files: Any) -> None:
    source, out = copied(CHECKPOINT, tmp_path), tmp_path / "out"
    rewrite_savepoint(source, out, erase_keys={"a-keyed": PLAIN_KEYS}, files=files)
    after = Snapshot.load(out, allow_roots=[str(tmp_path)])
    raw = (out / "_metadata").read_bytes() + (out / "_dstl.json").read_bytes()
    for handle in after["a-keyed"].keyed_handles:
        assert isinstance(handle, IncrementalRemoteKeyedStateHandle)
        for name, stream in (*handle.shared, *handle.private, ("", handle.meta_stream)):
            data = after.resolver.read(stream)
            raw += data
            if name.endswith(".sst"):
                file = SstFile(lambda start, end, data=data: data[start:end], len(data))
                raw += b"".join(entry.key for entry in file.entries(b"", None))
                raw += b"".join(key for key, _ in file.index)
    named = {
        stream.relative_path
        for stream in file_handles(after.metadata)
        if isinstance(stream, RelativeFileStateHandle)
    }
    assert {path.name for path in out.iterdir()} == named | {"_metadata", "_dstl.json"}
    assert as_stored("key-9") in raw
    assert [key for key in PLAIN_KEYS if as_stored(key) in raw] == []


# ------------------------------------------------------------------------------- what is written


def test_only_files_that_hold_a_key_are_written_again(tmp_path: Path) -> None:
    source, out = copied(CHECKPOINT, tmp_path), tmp_path / "out"
    rewrite_savepoint(source, out, erase_keys={"a-keyed": ["key-24"]})
    after = Snapshot.load(out, allow_roots=[str(tmp_path)])

    def places(loaded: Snapshot) -> set[str]:
        return {
            str(loaded.resolver.resolve(stream).location)
            for handle in loaded["a-keyed"].keyed_handles
            if isinstance(handle, IncrementalRemoteKeyedStateHandle)
            for _, stream in handle.shared
        }

    old, new = places(source), places(after)
    assert len(old & new) > 0
    assert len(old - new) >= 1
    assert {place for place in new - old if place != "None"} <= {
        f"file:{out}/{p.name}" for p in out.iterdir()
    }


def test_a_key_that_is_not_there_changes_no_file(tmp_path: Path) -> None:
    source, out = copied(CHECKPOINT, tmp_path), tmp_path / "out"
    edit = edit_savepoint(source)
    edit = edit.erase_keys(OperatorIdentifier(source["a-keyed"].operator_id), ["nobody"])
    edit.write(out)
    assert {path.name for path in out.iterdir()} == {"_metadata", "_dstl.json"}
    assert edit.purged == {"a-keyed": {}}


def test_what_is_left_of_a_key_is_found_before_it_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = copied(CHECKPOINT, tmp_path), tmp_path / "out"
    [first, *_] = some_keys(lines(source, "a-keyed"), 1)
    monkeypatch.setattr(purged_tables, "cut_table", lambda table, gone: None)
    with pytest.raises(SavepointError, match="Entries that should have gone are still there"):
        rewrite_savepoint(source, out, erase_keys={"a-keyed": [text(first)]})
    assert not (out / "_metadata").exists()


def test_the_command_erases_the_keys_of_a_file(run: Any, tmp_path: Path) -> None:
    source, out = copied("a-hashmap-canonical", tmp_path), tmp_path / "out"
    before = lines(source, "a-keyed")
    gone = [text(key) for key in some_keys(before, 2)]
    file = tmp_path / "keys"
    file.write_text("\n".join(gone) + "\n")
    code, printed, error = run(
        "rewrite", str(source.folder), str(out), f"--erase-keys=a-keyed={file}"
    )
    assert (code, error) == (0, "")
    assert f"purge a-keyed {len(gone)} keys" in printed
    assert "none is left" in printed
    assert not any(key in printed for key in gone if len(key) > 3)
    left = [line for line in before if "key" not in line or text(line["key"]) not in gone]
    assert as_lines(lines(Snapshot.load(out), "a-keyed")) == as_lines(left)


def test_names_with_signs_are_found(run: Any, tmp_path: Path) -> None:
    source, out = copied("a-hashmap-canonical", tmp_path), tmp_path / "out"
    rewrite_savepoint(source, tmp_path / "signs", rename={"a-keyed": "a=b/c"})
    (tmp_path / "k=1").write_text("key-1\n")
    dumped = lines(source, "a-keyed")
    number = next(e["value"] for e in dumped if e.get("state") == "cnt" and e["key"] == "key-2")
    options = [f"--erase-keys=a=b/c={tmp_path / 'k=1'}", f"--where=a=b/c/cnt=value = {number}"]
    code, _, error = run("rewrite", str(tmp_path / "signs"), str(out), *options)
    assert (code, error) == (0, "")
    left = lines(Snapshot.load(out), "a=b/c")
    assert {line["value"] for line in left if line.get("state") == "cnt"} == {number}
    assert not any(line.get("key") == "key-1" for line in left)


def test_wrong_keys_get_one_sentence(run: Any, tmp_path: Path) -> None:
    path, out = str(snapshot("o-rescaled-claim-rocksdb")), str(tmp_path / "out")
    code, _, error = run("rewrite", path, out, f"--erase-keys={tmp_path / 'missing'}")
    assert (code, is_one_sentence(error)) == (2, True)
    assert "cannot be read" in error
    source = Snapshot.load(snapshot(CHECKPOINT))
    known = OperatorIdentifier(source["a-keyed"].operator_id)
    with pytest.raises(ConfigError, match="expected a key, got none"):
        edit_savepoint(source).erase_keys(known, [])


# ------------------------------------------------------------------------- conditions and expiry


@pytest.mark.parametrize("files", [None, "canonical"])
@pytest.mark.parametrize("name", [CHECKPOINT, "a-hashmap-canonical", "a-hashmap-native"])
def test_entries_stay_for_which_the_condition_is_true(
    tmp_path: Path, name: str, files: Any
) -> None:
    source, out = copied(name, tmp_path), tmp_path / "out"
    before = lines(source, "a-keyed")
    numbers = sorted(line["value"] for line in before if line.get("state") == "cnt")
    middle = numbers[len(numbers) // 2]
    rewrite_savepoint(
        source,
        out,
        where={
            ("a-keyed", "cnt"): f"value >= {middle} or key = 'nobody'",
            ("a-keyed", "names"): "value <> 'nobody'",
        },
        files=files,
    )
    after = Snapshot.load(out, allow_roots=[str(tmp_path)])
    left = [line for line in before if line.get("state") != "cnt" or line["value"] >= middle]
    assert as_lines(lines(after, "a-keyed")) == as_lines(left)
    assert 0 < len(left) < len(before)
    assert verify_snapshot(after).findings == []


def live(line: dict[str, Any], edge: int) -> dict[str, Any] | None:
    """A line without values last accessed at an edge or before it; None if nothing is left."""
    value = line.get("value")
    if "state" not in line:
        return line
    if line["kind"] == "list":
        value = [item for item in value if item["ts"] > edge]
    elif line["kind"] == "map":
        value = [[key, item] for key, item in value if item["ts"] > edge]
    elif value["ts"] <= edge:
        return None
    return line | {"value": value} if value else None


@pytest.mark.parametrize("form", ["canonical", "native"])
def test_expired_values_go(tmp_path: Path, form: Any) -> None:
    rewrite_savepoint(
        copied("e-ttl-hashmap", tmp_path), tmp_path / "source", format=form, files=None
    )
    source, out = Snapshot.load(tmp_path / "source"), tmp_path / "out"
    before = lines(source, "e-ttl")
    times = sorted(line["value"]["ts"] for line in before if line.get("state") == "cnt")
    edge = times[len(times) // 2]
    states = [("e-ttl", line["state"]) for line in before if "state" in line]
    rewrite_savepoint(source, out, drop_expired=dict.fromkeys(states, (1000, edge + 1000)))
    after = Snapshot.load(out)
    left = [shown for line in before if (shown := live(line, edge)) is not None]
    assert as_lines(lines(after, "e-ttl")) == as_lines(left)
    assert 0 < len(left) < len(before)
    assert verify_snapshot(after).findings == []
    assert after["e-ttl"].form() == source["e-ttl"].form()


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        ("value >", "expected a column"),
        ("value = 'x'", "is no value of type"),
        ("amount > 1", "there is no old column 'amount'"),
        ("value", "expected a condition"),
        ("value > 1 value", "expected an end"),
        ("value = null", "is null"),
        ("key = 'a\udcff'", "bytes that are not UTF-8"),
    ],
)
def test_a_wrong_condition_gets_one_sentence(run: Any, condition: str, problem: str) -> None:
    path = str(snapshot("a-hashmap-canonical"))
    code, _, error = run("rewrite", path, "out", "--dry-run", f"--where=a-keyed/cnt={condition}")
    assert (code, is_one_sentence(error)) == (2, True)
    assert problem in error


def test_a_state_without_a_time_to_live_is_named(run: Any) -> None:
    path = str(snapshot("a-hashmap-canonical"))
    code, _, error = run("rewrite", path, "out", "--dry-run", "--drop-expired=7d")
    assert code == 0
    assert "no time to live, not touched: a-keyed/cnt" in error
    code, _, error = run("rewrite", path, "out", "--dry-run", "--drop-expired=a-keyed/cnt=7d")
    assert (code, is_one_sentence(error)) == (2, True)


def test_values_do_not_expire_within_the_longest_time_to_live(tmp_path: Path) -> None:
    source, out = snapshot("e-ttl-hashmap"), tmp_path / "out"
    longest = {("e-ttl", "cnt"): ((1 << 63) - 1, 1 << 41)}
    rewrite_savepoint(Snapshot.load(source), out, drop_expired=longest)
    after = as_lines(lines(Snapshot.load(out), "e-ttl"))
    assert after == as_lines(lines(Snapshot.load(source), "e-ttl"))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--now=2026-11-26T00:00Z",), "--now needs --drop-expired"),
        (("--drop-expired=1h", "--drop-expired=2h"), "given twice"),
    ],
)
def test_times_that_do_not_fit_together_are_refused(
    run: Any, options: tuple[str, ...], problem: str
) -> None:
    path = str(snapshot("e-ttl-hashmap"))
    code, _, error = run("rewrite", path, "out", "--dry-run", *options)
    assert (code, is_one_sentence(error)) == (2, True)
    assert problem in error


@pytest.mark.parametrize("condition", [None, 5, b"value > 0", ["value > 0"]], ids=str)
def test_a_condition_that_is_no_text_gets_one_sentence(condition: Any) -> None:
    edit = edit_savepoint(Snapshot.load(snapshot(CHECKPOINT)))
    with pytest.raises(ConfigError, match="expected a text such as"):
        edit.keep_where(OperatorIdentifier.for_uid("a-keyed"), "cnt", condition)


def test_a_condition_may_have_thousands_of_parts(tmp_path: Path) -> None:
    source, out = Snapshot.load(snapshot("a-hashmap-canonical")), tmp_path / "out"
    parts = " and ".join(f"key <> 'key-{number}'" for number in range(1200))
    rewrite_savepoint(source, out, where={("a-keyed", "cnt"): parts})
    left = [
        line
        for line in lines(source, "a-keyed")
        if line.get("state") != "cnt" or not line["key"].startswith("key-")
    ]
    assert 0 < len(left) < len(lines(source, "a-keyed"))
    assert as_lines(lines(Snapshot.load(out), "a-keyed")) == as_lines(left)
