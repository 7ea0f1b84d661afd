"""Keyed state becomes files of RocksDB: whatever form it had, what a dump shows stays the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot, edit_savepoint, rewrite_savepoint
from dstl_core.codec.columnar.keyed.sst_writer import FamilyTable
from dstl_core.errors import ConfigError, SavepointError
from dstl_core.model.handle import IncrementalRemoteKeyedStateHandle
from dstl_core.savepoint.compare.diff import diff_snapshots
from dstl_core.savepoint.edit.upgrade import SavepointUpgrade
from dstl_core.savepoint.migrate.declaration import Migration
from dstl_core.savepoint.migrate.migrated_savepoint import SavepointMigration
from dstl_core.savepoint.verify.verify import verify_snapshot
from dstl_core.state.backends import native_state
from tests.golden_files import CHANGED_JOBS, Fixture, as_lines, snapshot
from tests.unit.savepoint.test_rewrite import REWRITABLE, in_any_union_order, lines
from tests.unit.savepoint.test_upgrade import loaded

EVERY_KIND = {
    "a-hashmap-changelog-materialized",
    "a-hashmap-native",
    "a-rocksdb-heaptimers-checkpoint",
    "a-rocksdb-p2-max4096",
    "d-windows-hashmap",
    "e-ttl-hashmap",
    "o-hard-keys",
    "x-lsm-rocksdb-incremental",
}
FIXTURES = [
    pytest.param(fixture, marks=() if fixture.name in EVERY_KIND else pytest.mark.soak)
    for fixture in REWRITABLE
]


@pytest.mark.slow
@pytest.mark.parametrize("fixture", FIXTURES, ids=str)
def test_native_state_shows_what_its_source_shows(fixture: Fixture, tmp_path: Path) -> None:
    before = Snapshot.load(fixture.snapshot)
    rewrite_savepoint(before, tmp_path / "out", files="copy", format="native")

    after = Snapshot.load(tmp_path / "out")

    handles = [handle for operator in after.operators for handle in operator.keyed_handles]
    assert all(isinstance(handle, IncrementalRemoteKeyedStateHandle) for handle in handles)
    assert sorted(as_lines(in_any_union_order(lines(after)))) == sorted(
        as_lines(in_any_union_order(lines(before)))
    )
    assert list(verify_snapshot(after).findings) == list(verify_snapshot(before).findings)


def test_native_state_gets_other_key_groups_and_is_written_back(tmp_path: Path) -> None:
    source = Snapshot.load(snapshot("a-hashmap-canonical"))
    rewrite_savepoint(source, tmp_path / "many", format="native", max_parallelism=4096)
    many = Snapshot.load(tmp_path / "many")
    rewrite_savepoint(many, tmp_path / "back", format="canonical", max_parallelism=128)

    back = Snapshot.load(tmp_path / "back")

    assert (many["a-keyed"].form(), back["a-keyed"].form()) == ("rocksdb files", "canonical")
    assert list(diff_snapshots(source, back)) == []


NATIVE_SAVEPOINT = "a-hashmap-native"


def test_the_metadata_says_which_form_the_state_has_now(tmp_path: Path) -> None:
    flink = {
        name: Snapshot.load(snapshot(name)) for name in ("a-hashmap-canonical", NATIVE_SAVEPOINT)
    }
    canonical, native = (each.metadata.properties for each in flink.values())
    for source in flink.values():
        for form, expected in (("native", native), ("canonical", canonical)):
            out = tmp_path / f"{form}-{source.folder.name}"
            rewrite_savepoint(source, out, format=form)
            assert Snapshot.load(out).metadata.properties == expected


def test_files_of_rocksdb_are_not_written_again(tmp_path: Path) -> None:
    source = Snapshot.load(snapshot("a-rocksdb-native-incremental"))
    edit = edit_savepoint(source).with_format("native")
    edit.write(tmp_path / "out")

    [line] = [line for line in edit.plan() if "keyed_state" in line]
    assert line["keyed_state"] == "rocksdb files -> rocksdb files, copied"
    old, new = (of["a-keyed"].keyed_handles for of in (source, Snapshot.load(tmp_path / "out")))
    assert [handle.backend_id for handle in new] == [handle.backend_id for handle in old]


def test_a_form_that_does_not_exist_or_contradicts_is_refused(tmp_path: Path) -> None:
    edit = edit_savepoint(Snapshot.load(snapshot("a-hashmap-canonical")))
    with pytest.raises(ConfigError, match="expected canonical or native, got 'heap'"):
        edit.with_format("heap")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="Keyed state is written in one form"):
        edit.with_files("canonical").with_format("native")


def test_native_state_is_read_back_before_it_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = native_state.tables_of

    def without_a_file(*arguments: Any, **options: Any) -> Iterator[FamilyTable]:
        return (own for own in whole(*arguments, **options) if own.state_id != 0)

    monkeypatch.setattr(native_state, "tables_of", without_a_file)
    upgrade = SavepointUpgrade(loaded("carts"), format="native")
    with pytest.raises(SavepointError, match="What was written is not what is stored"):
        upgrade.write(tmp_path / "out")
    assert not (tmp_path / "out" / "_metadata").exists()


@pytest.mark.parametrize("job", ["carts", "orders"])
def test_an_upgrade_to_native_state_is_that_of_canonical_state(job: str, tmp_path: Path) -> None:
    for form in ("canonical", "native"):
        SavepointUpgrade(loaded(job), format=form).write(tmp_path / form)
    canonical, native = (Snapshot.load(tmp_path / form) for form in ("canonical", "native"))
    assert {operator.form() for operator in native.operators if operator.keyed_handles} == {
        "rocksdb files"
    }
    assert list(diff_snapshots(canonical, native)) == []


def test_a_migration_to_native_state_is_that_of_canonical_state(tmp_path: Path) -> None:
    declared = Migration.load(
        Path(__file__).parents[3] / "examples" / "migrate" / "pojo-class.yaml"
    )
    old, new = (Snapshot.load(CHANGED_JOBS / "pojo-class" / name) for name in ("old", "new"))
    for form in ("canonical", "native"):
        migration = SavepointMigration(declared, old, new, recompute=1.0, format=form)
        migration.write(tmp_path / form)
        assert migration.recomputed == {"accounts": 128}
    canonical, native = (Snapshot.load(tmp_path / form) for form in ("canonical", "native"))
    assert native["accounts"].form() == "rocksdb files"
    assert list(diff_snapshots(canonical, native)) == []
