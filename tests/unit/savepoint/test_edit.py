"""The builder of savepoints: refusals, in-place edits, overwriting, run keys."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot, edit_savepoint, rewrite_savepoint
from dstl_core.errors import (
    ConfigError,
    NoSuchOperatorError,
    SavepointError,
    SnapshotExistsError,
)
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.savepoint.edit.savepoint_edit import SavepointEdit
from dstl_core.savepoint.verify.verify import verify_snapshot
from dstl_core.savepoint.write import folder
from tests.command_line import run
from tests.golden_files import GOLDEN, as_lines, snapshot

__all__ = ["run"]
UID = OperatorIdentifier.for_uid


def golden(name: str = "a-hashmap-canonical-files") -> Snapshot:
    return Snapshot.load(snapshot(name))


def lines(loaded: Snapshot) -> list[dict]:
    return [line for operator in loaded.operators for line in operator.dump()]


@pytest.mark.parametrize("count", [0, -1, 32769])
def test_max_parallelism_is_checked(count: int) -> None:
    with pytest.raises(ConfigError, match="32768"):
        SavepointEdit(count)


@pytest.mark.parametrize("number", [0, -1, (1 << 63) - 1])
def test_the_number_of_a_snapshot_is_checked(number: int) -> None:
    with pytest.raises(ConfigError, match=r"The checkpoint id is wrong: expected a number within"):
        edit_savepoint(golden()).with_checkpoint_id(number)


def test_another_number_writes_no_state_of_a_checkpoint(tmp_path: Path, run: Any) -> None:
    name, out = "a-rocksdb-checkpoint-incremental", tmp_path / "out"
    shutil.copytree(GOLDEN / name, tmp_path / name)
    source = tmp_path / snapshot(name).relative_to(GOLDEN)
    code, printed, error = run("rewrite", str(source), str(out), "--checkpoint-id=1000000")
    assert code == 0, error
    old, new = Snapshot.load(source).metadata, Snapshot.load(out).metadata
    assert f"checkpoint id {old.checkpoint_id} -> 1000000" in printed
    assert new.checkpoint_id == 1_000_000
    assert {path.name for path in out.iterdir()} == {"_metadata", "_dstl.json"}


def test_nothing_to_write_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SavepointError, match="at least one operator"):
        SavepointEdit().write(tmp_path / "out")


def test_an_identifier_change_that_matches_nothing_is_an_error(tmp_path: Path) -> None:
    edit = edit_savepoint(golden()).change_operator_identifier(UID("nobody"), UID("x"))
    with pytest.raises(SavepointError, match="match no operator: nobody"):
        edit.write(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_unknown_operator_cannot_be_removed() -> None:
    with pytest.raises(NoSuchOperatorError, match="a-keyed"):
        edit_savepoint(golden()).remove_operator(UID("nobody"))


def test_hashes_and_uids_are_the_same_operator(tmp_path: Path) -> None:
    by_hash = OperatorIdentifier.for_uid_hash(UID("a-keyed").operator_id.hex)
    out = (
        edit_savepoint(golden())
        .change_operator_identifier(by_hash, UID("new-uid"))
        .write(tmp_path / "out")
    )
    edited = Snapshot.load(out)
    assert edited["new-uid"].operator_id.hex == "e99dadaacdbb2ac71d935fdcc2674591"
    assert UID("a-keyed").operator_id not in {each.operator_id for each in edited.operators}


def test_changes_are_not_followed_in_chains(tmp_path: Path) -> None:
    edit = edit_savepoint(golden()).change_operator_identifier(UID("a-keyed"), UID("sink"))
    edit = edit.change_operator_identifier(UID("sink"), UID("third"))
    edited = Snapshot.load(edit.write(tmp_path / "out"))
    assert len(list(edited["sink"].dump())) == len(list(golden()["a-keyed"].dump()))
    assert list(edited["third"].dump()) == []


def test_an_edit_in_place_writes_no_state(tmp_path: Path) -> None:
    out = tmp_path / "savepoint"
    rewrite_savepoint(golden(), out)
    before = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    edit = edit_savepoint(Snapshot.load(out)).change_operator_identifier(
        UID("a-keyed"), UID("renamed")
    )
    with pytest.raises(SnapshotExistsError, match=r"already there.*mode='overwrite'"):
        edit.write(out)
    edit.write(out, "overwrite")
    after = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    assert {name for name in after if after[name] != before.get(name)} == {
        "_metadata",
        "_dstl.json",
    }
    assert as_lines({**line, "op": "a-keyed"} for line in lines(Snapshot.load(out))) == as_lines(
        lines(golden())
    )


@pytest.mark.slow
def test_files_are_known_byte_for_byte_also_after_an_edit_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "DATA_INLINE_THRESHOLD", 0)  # small state is in files, too
    out = tmp_path / "savepoint"
    rewrite_savepoint(golden(), out)
    loaded = Snapshot.load(out)
    old = OperatorIdentifier.for_uid_hash(loaded.operators[0].operator_id.hex)
    edit_savepoint(loaded).change_operator_identifier(old, UID("renamed")).write(out, "overwrite")
    report = verify_snapshot(Snapshot.load(out))
    assert report.findings == []
    assert report.digests_checked == report.files > 0
    file = Path(min(report.file_names).removeprefix("file:"))
    raw = bytearray(file.read_bytes())
    for at in range(0, len(raw), len(raw) // 20):
        raw[at] ^= 1
        file.write_bytes(raw)
        raw[at] ^= 1
        [finding] = [
            remark
            for remark in verify_snapshot(Snapshot.load(out)).findings
            if "sha256" in str(remark)
        ]
        assert finding.problem.endswith(f": file:{file}")


def test_overwrite_replaces_the_snapshot_in_one_step(tmp_path: Path) -> None:
    out = tmp_path / "out"
    rewrite_savepoint(golden(), out)
    first = {path.name for path in out.iterdir()}
    rewrite_savepoint(golden(), out, remove=["sink"], mode="overwrite")
    assert [each.uid for each in Snapshot.load(out).operators] == ["a-keyed", "src"]
    assert {path.name for path in out.iterdir()} >= first, "old files are left to gc"


def test_the_same_run_key_writes_once(tmp_path: Path) -> None:
    out = tmp_path / "out"
    edit = edit_savepoint(golden())
    edit.write(out, run_key="run-1")
    before = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    edit.write(out, run_key="run-1")
    assert {path.name: path.stat().st_mtime_ns for path in out.iterdir()} == before
    with pytest.raises(SavepointError, match="already there"):
        edit.write(out, run_key="run-2")


def test_a_run_that_died_before_the_last_step_is_finished_under_its_key(tmp_path: Path) -> None:
    out = tmp_path / "out"
    edit = edit_savepoint(golden())
    edit.write(out, run_key="run-1")
    (out / "_metadata").unlink()
    with pytest.raises(SavepointError, match="unfinished"):
        edit.write(out)
    edit.write(out, run_key="run-1")
    assert as_lines(lines(Snapshot.load(out))) == as_lines(lines(golden()))


def test_another_mode_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="error or overwrite"):
        edit_savepoint(golden()).write(tmp_path / "out", "append")  # type: ignore[arg-type]


def test_the_plan_says_what_happens_to_every_operator() -> None:
    edit = edit_savepoint(golden("a-rocksdb-native-incremental")).with_max_parallelism(256)
    edit = edit.remove_operator(UID("sink"))
    edit = edit.change_operator_identifier(UID("a-keyed"), UID("renamed"))
    by_operator = {line["operator"]: line for line in edit.plan()}
    assert by_operator["sink"]["action"] == "remove"
    keyed = by_operator["a-keyed"]
    assert (keyed["action"], keyed["new_operator"]) == ("rename", "renamed")
    assert keyed["keyed_state"] == "rocksdb files -> canonical"
    assert keyed["max_parallelism"] == [128, 256]


@pytest.mark.slow
@pytest.mark.parametrize("max_parallelism", [None, 17])
@pytest.mark.parametrize(
    "name",
    [
        "a-hashmap-canonical-files",
        "a-hashmap-native",
        "a-rocksdb-native-incremental",
        "a-rocksdb-changelog-materialized",
        "c-opstate-hashmap",
        "x-keys-hashmap",
    ],
)
def test_progress_is_told_up_to_the_end(
    tmp_path: Path, name: str, max_parallelism: int | None
) -> None:
    edit = edit_savepoint(golden(name))
    if name == "x-keys-hashmap":
        edit = edit.remove_operator(OperatorIdentifier(golden(name)["k-pojo"].operator_id))
    if name.startswith("a-"):
        edit = edit.split_operator(UID("a-keyed"), UID("apart"), ["cnt"])
    if max_parallelism is not None:
        edit = edit.with_max_parallelism(max_parallelism)
    told: list[int] = []
    edit.write(tmp_path / "out", on_progress=told.append)
    assert sum(told) == edit.source_size
    assert min(told) >= 0
    assert len(told) >= 4


@pytest.mark.parametrize("name", ["a-hashmap-canonical", "a-rocksdb-native-incremental"])
def test_rescaling_to_and_fro_keeps_every_entry(tmp_path: Path, name: str) -> None:
    source = golden(name)
    rescaled = source
    for count in (4096, 17, 128):
        edit = edit_savepoint(rescaled).with_max_parallelism(count)
        rescaled = Snapshot.load(edit.write(tmp_path / str(count)))
        assert rescaled["a-keyed"].max_parallelism == count
    assert as_lines(rescaled["a-keyed"].dump()) == as_lines(source["a-keyed"].dump())


def test_an_operator_that_is_none_is_refused() -> None:
    edit = SavepointEdit(128)
    with pytest.raises(ConfigError, match=r"such as OperatorIdentifier.for_uid.*, got 'accounts'"):
        edit.with_operator("accounts", object())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"expected a transformation, got int; end it with tran"):
        edit.with_operator(UID("accounts"), 5)  # type: ignore[arg-type]
