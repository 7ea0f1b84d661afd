"""Of RocksDB's files only those of states that change are read and written."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot, edit_savepoint, rewrite_savepoint
from dstl_core.checkpoint.store.references import file_handles
from dstl_core.codec.columnar.keyed.sst_writer import FamilyTable
from dstl_core.codec.sst.file import SstFile
from dstl_core.errors import FormatError, SavepointError
from dstl_core.model.handle import (
    IncrementalRemoteKeyedStateHandle,
    RelativeFileStateHandle,
)
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.savepoint.compare.diff import diff_snapshots
from dstl_core.savepoint.edit.upgrade import SavepointUpgrade
from dstl_core.savepoint.migrate.declaration import Migration
from dstl_core.savepoint.migrate.migrated_savepoint import SavepointMigration
from dstl_core.savepoint.verify.verify import verify_snapshot
from dstl_core.savepoint.write import folder as written_folder
from dstl_core.state.backends import native_state
from dstl_core.storage.handle_resolver import HandleResolver
from tests.counting_file_io import CountingFileIO
from tests.golden_files import CHANGED_JOBS, GOLDEN, UPGRADE_JOBS, as_lines, snapshot
from tests.unit.savepoint.test_migrate import EXPECTED, ROOT, contents, texts
from tests.unit.savepoint.test_upgrade import loaded

UID = OperatorIdentifier.for_uid
ORDERS = "bc4197a480c92c793190a9f8c0afc54c"
CHECKPOINT = "a-rocksdb-checkpoint-incremental"
METADATA_FILES = {"_metadata", "_dstl.json"}


@pytest.fixture(autouse=True)
def every_stream_is_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written_folder, "DATA_INLINE_THRESHOLD", 0)


def native(job: str, folder: Path) -> Path:
    """The savepoint of a job of Flink 1.20.5, with its keyed state in files of RocksDB."""
    rewrite_savepoint(loaded(job), folder / "native", format="native")
    return folder / "native"


def of_job(path: Path, job: str, **options: Any) -> Snapshot:
    return Snapshot.load(path, jars=[UPGRADE_JOBS / job / "job.jar"], **options)


def counting(source: Snapshot) -> tuple[Snapshot, CountingFileIO]:
    files = CountingFileIO()
    counted = Snapshot(source.file, files, HandleResolver(files, source.folder), source.registry)
    counted.kryo = source.kryo
    return counted, files


def families(loaded_snapshot: Snapshot) -> dict[str, str]:
    """The column family that each table file says it is of, by the name of the file."""
    family_of = {}
    resolver = loaded_snapshot.resolver
    for operator in loaded_snapshot.operators:
        for handle in operator.keyed_handles:
            assert isinstance(handle, IncrementalRemoteKeyedStateHandle)
            for name, stream in handle.shared + handle.private:
                if name.endswith(".sst"):
                    raw = resolver.read(stream)
                    place = resolver.resolve(stream).location
                    assert place is not None
                    file = SstFile(lambda start, end, raw=raw: raw[start:end], len(raw))
                    family_of[place.name] = file.column_family or ""
    return family_of


def files_of(path: str | Path) -> set[str]:
    return {each.name for each in Path(path).iterdir()} - METADATA_FILES


@pytest.mark.parametrize("files", ["share", "copy"])
def test_an_upgrade_reads_and_writes_the_files_of_the_states_that_it_converts(
    tmp_path: Path, files: Any
) -> None:
    path = native("orders", tmp_path)
    source, reads = counting(of_job(path, "orders"))
    before = families(source)
    reads.reads.clear()
    upgrade = SavepointUpgrade(source, files=files, format="native")
    upgrade.write(tmp_path / "out")

    after = Snapshot.load(tmp_path / "out", allow_roots=[str(path)])
    whole = Snapshot.load(SavepointUpgrade(loaded("orders")).write(tmp_path / "whole"))
    assert list(diff_snapshots(whole, after)) == []
    assert {info.name: info.meta for info in after[ORDERS].states} == {
        info.name: info.meta for info in whole[ORDERS].states
    }
    assert verify_snapshot(after).findings == []
    assert upgrade.converted == {(ORDERS, "order"): 8}
    is_written = {name: family for name, family in families(after).items() if name not in before}
    own = {RelativeFileStateHandle: set[str]()}
    for handle in file_handles(after.metadata):
        if isinstance(handle, RelativeFileStateHandle):
            own[RelativeFileStateHandle].add(handle.relative_path)
    assert files_of(tmp_path / "out") == own[RelativeFileStateHandle]
    if files == "share":
        assert {before[name] for name in reads.reads if name in before} == {"order"}
        assert {*is_written.values()} == {"order"}
        assert upgrade.shares_files_in == [f"file:{path}"]
    assert upgrade.source_size < sum(e.state.state_size for e in source.operators) or (
        files == "copy"
    )


def test_a_dropped_state_and_a_kept_one_leave_no_files(tmp_path: Path) -> None:
    source = of_job(native("orders", tmp_path), "orders")
    drop = ["byItem", "_timer_state/event_user-timers"]
    SavepointUpgrade(source, drop=drop, format="native").write(tmp_path / "out")
    SavepointUpgrade(loaded("orders"), drop=drop).write(tmp_path / "whole")
    after, whole = (Snapshot.load(tmp_path / name) for name in ("out", "whole"))
    assert list(diff_snapshots(whole, after)) == []
    assert {*families(after).values()} == {"count", "order"}


def test_an_operator_without_keyed_state_that_is_left_has_none(tmp_path: Path) -> None:
    source = of_job(native("orders", tmp_path), "orders")
    every = [info.name for info in source[ORDERS].states]
    SavepointUpgrade(source, drop=every, format="native").write(tmp_path / "out")
    assert Snapshot.load(tmp_path / "out")[ORDERS].keyed_handles == []


@pytest.mark.parametrize("job", ["carts", "times"])
def test_every_kind_of_value_is_that_of_an_upgrade_as_a_whole(job: str, tmp_path: Path) -> None:
    SavepointUpgrade(of_job(native(job, tmp_path), job), format="native").write(tmp_path / "out")
    SavepointUpgrade(loaded(job)).write(tmp_path / "whole")
    after, whole = (Snapshot.load(tmp_path / name) for name in ("out", "whole"))
    assert list(diff_snapshots(whole, after)) == []
    assert verify_snapshot(after).findings == []


def test_what_is_converted_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = of_job(native("orders", tmp_path), "orders")
    whole = native_state.tables_of

    def damaged(*arguments: Any, **options: Any) -> Iterator[FamilyTable]:
        for own in whole(*arguments, **options):
            data = bytearray(b"".join(own.table.parts))
            data[0] ^= 1
            object.__setattr__(own.table, "parts", [bytes(data)])
            yield own

    monkeypatch.setattr(native_state, "tables_of", damaged)
    with pytest.raises(SavepointError, match="What was written is not what is stored"):
        SavepointUpgrade(source, files="share", format="native").write(tmp_path / "out")
    assert files_of(tmp_path / "out") == set()


def test_a_lost_file_of_a_state_that_stays_is_named(tmp_path: Path) -> None:
    path = native("orders", tmp_path)
    lost = next(name for name, own in families(Snapshot.load(path)).items() if own == "count")
    (path / lost).unlink()
    for files in ("share", "copy"):
        with pytest.raises((SavepointError, FormatError, OSError), match=lost):
            SavepointUpgrade(
                of_job(path, "orders"),
                files=files,  # type: ignore[arg-type]
                format="native",
            ).write(tmp_path / files)
        assert not (tmp_path / files / "_metadata").exists()


# --------------------------------------------------------------------------- migrations

KEPT = {"state-rename": ["sum"], "split": ["n", "total"], "pojo-class": ["acc"], "value-to-map": []}


@pytest.mark.parametrize(
    "pair",
    [
        pytest.param(pair, marks=() if pair in KEPT else pytest.mark.soak)
        for pair in sorted(EXPECTED)
    ],
)
def test_a_migration_keeps_files_of_states_whose_bytes_stay(pair: str, tmp_path: Path) -> None:
    declared = Migration.load(ROOT / "examples" / "migrate" / f"{pair}.yaml")
    old, new = (Snapshot.load(CHANGED_JOBS / pair / each) for each in ("old", "new"))
    rewrite_savepoint(old, tmp_path / "native", format="native")
    source, reads = counting(Snapshot.load(tmp_path / "native"))
    before = families(source)
    reads.reads.clear()
    migration = SavepointMigration(
        declared, source, new, recompute=1.0, format="native", files="copy"
    )
    migration.write(tmp_path / "out")
    assert contents(tmp_path / "out") == texts(EXPECTED[pair])
    assert verify_snapshot(Snapshot.load(tmp_path / "out")).findings == []
    if pair in KEPT:
        kept = sorted(state for _, state in migration.kept if "timer" not in state)
        assert kept == KEPT[pair]
    shared = SavepointMigration(declared, source, new, format="native", files="share")
    reads.reads.clear()
    shared.write(tmp_path / "shared")
    after = Snapshot.load(tmp_path / "shared", allow_roots=[str(tmp_path / "native")])
    assert list(diff_snapshots(Snapshot.load(tmp_path / "out"), after)) == []
    if pair == "state-rename":
        assert {name for name in reads.reads if name in before} == set()
        assert shared.source_size == 0


# ----------------------------------------------------------------------- split and merge


def copied(name: str, folder: Path) -> Snapshot:
    shutil.copytree(GOLDEN / name, folder / name)
    return Snapshot.load(folder / name / snapshot(name).relative_to(GOLDEN / name))


@pytest.mark.parametrize("name", [CHECKPOINT, "a-rocksdb-native-incremental"])
def test_a_split_and_a_merge_write_no_table_file(tmp_path: Path, name: str) -> None:
    source = copied(name, tmp_path)
    moved = ["cnt", "names", "_timer_state/event_user-timers"]
    split = edit_savepoint(source).split_operator(UID("a-keyed"), UID("apart"), moved)
    split = split.with_files("share")
    assert split.source_size == 0
    split.write(tmp_path / "split")
    apart = Snapshot.load(tmp_path / "split", allow_roots=[str(tmp_path)])
    assert verify_snapshot(apart).findings == []
    assert {info.name for info in apart["apart"].states} == {*moved}
    before = {*families(source)}
    assert {*families(apart)} <= before

    merge = edit_savepoint(apart).merge_operators(UID("apart"), UID("a-keyed")).with_files("share")
    merge.write(tmp_path / "merged")
    merged = Snapshot.load(tmp_path / "merged", allow_roots=[str(tmp_path)])
    assert verify_snapshot(merged).findings == []
    assert {*families(merged)} <= before
    assert as_lines(merged["a-keyed"].dump()) == as_lines(source["a-keyed"].dump())
    assert list(diff_snapshots(source, merged)) == []


def test_states_that_cannot_be_joined_are_written(tmp_path: Path) -> None:
    """Timers of one name are put together, and another parallelism moves keys."""
    source = copied(CHECKPOINT, tmp_path)
    split = edit_savepoint(source).split_operator(UID("a-keyed"), UID("apart"), ["cnt"])
    assert split.kept_files == "share"
    split = split.with_max_parallelism(256)
    assert split.kept_files == "canonical"
    Snapshot.load(split.write(tmp_path / "out"))
