"""Copies in Dagster keep files of RocksDB, by reference or as they are, and write native form."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dstl_core import Snapshot, rewrite_savepoint
from dstl_core.errors import ConfigError, SnapshotExistsError
from dstl_core.savepoint.write import folder as written_folder
from dstl_dagster import DstlStorageResource, SavepointResource, build_savepoint_defs
from dstl_dagster.checks import RestoreCheck, StateCheck, VerifyCheck, build_snapshot_checks
from dstl_dagster.components.savepoint import SavepointComponent
from dstl_dagster.pipelines import build_rewrite_op
from dstl_dagster.snapshots import Migrate, Rewrite, Upgrade, snapshot_at
from tests.golden_files import CHANGED_JOBS, as_lines, snapshot
from tests.integration.dagster.small_pipeline import SPARK
from tests.unit.savepoint.test_kept_state import CHECKPOINT, copied, names_in, of_flink_1
from tests.unit.savepoint.test_migrate import EXPECTED, ROOT, contents, texts

pytestmark = pytest.mark.dagster
PAIR = "state-rename"
DECLARATION = str(ROOT / "examples" / "migrate" / f"{PAIR}.yaml")
METADATA_FILES = {"_metadata", "_dstl.json"}
FILES = [
    ("share", "canonical", "rocksdb files", METADATA_FILES),
    ("copy", "canonical", "rocksdb files", None),
    (None, "native", "rocksdb files", METADATA_FILES),
    ("canonical", "canonical", "canonical", None),
]
"""Files and format, what the form is, and the only files of the copy of a checkpoint."""


@pytest.fixture
def savepoints(tmp_path: Path) -> SavepointResource:
    return SavepointResource(storage=DstlStorageResource(base_path=str(tmp_path / "state")))


def folder_of(copy: Snapshot) -> Path:
    return Path(str(copy.folder).removeprefix("file:"))


def lines(loaded: Snapshot) -> Any:
    return as_lines(line for operator in loaded.operators for line in operator.dump())


@pytest.mark.parametrize(("files", "form", "written", "only"), FILES)
def test_an_upgrade_says_what_becomes_of_files(
    savepoints: SavepointResource,
    tmp_path: Path,
    files: Any,
    form: Any,
    written: str,
    only: set[str] | None,
) -> None:
    source = str(of_flink_1(CHECKPOINT, tmp_path))
    first = savepoints.upgrade(source, "upgraded", files=files, format=form)
    assert first["a-keyed"].form() == written
    assert lines(first) == lines(Snapshot.load(source))
    assert only in (None, names_in(folder_of(first)))
    stored = (folder_of(first) / "_metadata").stat().st_mtime_ns
    again = savepoints.upgrade(source, "upgraded", files=files, format=form)
    assert lines(again) == lines(first)
    assert (folder_of(again) / "_metadata").stat().st_mtime_ns == stored
    with pytest.raises(SnapshotExistsError):
        other: Any = "copy" if files != "copy" else "share"
        savepoints.upgrade(source, "upgraded", files=other)


def test_a_word_that_is_none_is_refused(savepoints: SavepointResource, tmp_path: Path) -> None:
    source = str(of_flink_1(CHECKPOINT, tmp_path))
    wrong: Any = "link"
    with pytest.raises(ConfigError, match="expected share, copy, canonical or None, got 'link'"):
        savepoints.rewrite(source, "out", files=wrong)
    with pytest.raises(ConfigError, match="expected share, copy, canonical or None, got 'link'"):
        savepoints.migration({"migration": 1, "operators": {}}, source, files=wrong)
    with pytest.raises(ConfigError, match="expected canonical or native, got 'link'"):
        savepoints.rewrite(source, "out", format=wrong)


@pytest.fixture
def native(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The savepoint of a job before its state got another name, in files of RocksDB."""
    monkeypatch.setattr(written_folder, "DATA_INLINE_THRESHOLD", 0)
    old = Snapshot.load(CHANGED_JOBS / PAIR / "old")
    return Path(rewrite_savepoint(old, tmp_path / "native", format="native").removeprefix("file:"))


@pytest.mark.parametrize("files", ["share", "copy"])
def test_a_migration_in_yaml_keeps_files_and_its_checks_read_them(
    savepoints: SavepointResource, native: Path, files: Any
) -> None:
    component = SavepointComponent(
        name="orders", path=str(native), migrate=Migrate(declaration=DECLARATION, files=files)
    )
    defs = component.build_defs(dg.ComponentTree.for_test().load_context)
    with dg.DagsterInstance.ephemeral() as instance:
        done = dg.materialize(
            [*(defs.assets or ()), *(defs.asset_checks or ())],
            instance=instance,
            resources={"storage": savepoints.storage},
        )
    key = dg.AssetKey(["orders", "orders_migrated"])
    checks = [each for each in done.get_asset_check_evaluations() if each.asset_key == key]
    assert [each.check_name for each in checks if not each.passed] == []
    assert "verified" in {each.check_name for each in checks}
    [event] = [e for e in done.get_asset_materialization_events() if e.asset_key == key]
    shown = event.step_materialization_data.materialization.metadata
    place = str(shown["dagster/uri"].value)
    assert ("dstl/shares_files_in" in shown) == (files == "share")
    if files == "share":
        assert str(native) in str(shown["dstl/shares_files_in"].value)
        assert not list(Path(place.removeprefix("file:")).glob("*.sst"))
    else:
        assert contents(Path(place.removeprefix("file:"))) == texts(EXPECTED[PAIR])


def test_the_copies_of_a_savepoint_have_the_form_that_its_definitions_say(
    savepoints: SavepointResource, tmp_path: Path
) -> None:
    source = of_flink_1(CHECKPOINT, tmp_path)
    defs = build_savepoint_defs(
        "orders",
        path=str(source),
        rewrite=Rewrite(rename={"a-keyed": "accounts"}, files="copy", format="native"),
        upgrade=Upgrade(files="share"),
        resources={"storage": savepoints.storage},
    )
    with dg.DagsterInstance.ephemeral() as instance:
        job = defs.resolve_implicit_global_asset_job_def()
        done = job.execute_in_process(instance=instance)
    places = {
        name: str(
            done.asset_materializations_for_node(f"orders_{name}")[0].metadata["dagster/uri"].value
        )
        for name in ("rewritten", "upgraded")
    }
    rewritten = Snapshot.load(places["rewritten"])
    upgraded = Snapshot.load(places["upgraded"], allow_roots=[str(tmp_path)])
    assert rewritten["accounts"].form() == upgraded["a-keyed"].form() == "rocksdb files"
    assert lines(upgraded) == lines(Snapshot.load(source))
    assert names_in(folder_of(upgraded)) == METADATA_FILES


def test_a_native_copy_has_timers_on_the_heap_where_the_source_has_them(
    savepoints: SavepointResource, tmp_path: Path
) -> None:
    """A job that keeps them on the heap finds none in RocksDB's files, and Flink says no word."""
    declaration = tmp_path / "kept.yaml"
    declaration.write_text("migration: 1\noperators: {}\n")
    defs = build_savepoint_defs(
        "orders",
        path=str(snapshot("a-rocksdb-heaptimers-checkpoint")),
        rewrite=Rewrite(max_parallelism=17, format="native"),
        upgrade=None,
        migrate=Migrate(declaration=str(declaration), files="copy", format="native"),
        resources={"storage": savepoints.storage},
    )
    with dg.DagsterInstance.ephemeral() as instance:
        job = defs.resolve_implicit_global_asset_job_def()
        done = job.execute_in_process(instance=instance)
    for name in ("rewritten", "migrated"):
        [copy] = done.asset_materializations_for_node(f"orders_{name}")
        written = Snapshot.load(str(copy.metadata["dagster/uri"].value))["a-keyed"]
        assert all(each.raw_keyed_state for each in written.state.subtasks)


@pytest.mark.spark
def test_files_in_other_folders_are_read_where_the_definitions_allow_or_move_them(
    savepoints: SavepointResource, tmp_path: Path
) -> None:
    source = copied(CHECKPOINT, tmp_path)
    shared = tmp_path / "shared"
    rewrite_savepoint(Snapshot.load(source), shared, rename={"a-keyed": "accounts"}, files="share")
    moved = tmp_path / "moved"
    shutil.move(source.parent, moved)
    # The folder that the handles name is gone, so it is one that is moved.
    relocate = {str(source.parent): str(moved)}
    checks = [
        StateCheck("SELECT state_key FROM {state} WHERE cnt < 0", uid="accounts"),
        RestoreCheck(snapshot_at(str(shared), relocate=relocate)),
    ]
    by_name = {"storage": savepoints.storage, "spark": SPARK}
    defs = build_savepoint_defs(
        "orders",
        path=str(shared),
        relocate=relocate,
        rewrite=Rewrite(rename={"accounts": "sums"}),
        checks=checks,
        resources=by_name,
    )
    refused = build_snapshot_checks(
        dg.AssetKey("refused"), snapshot_at(str(shared)), [VerifyCheck()]
    )
    with dg.DagsterInstance.ephemeral() as instance:
        job = defs.resolve_implicit_global_asset_job_def()
        done = job.execute_in_process(instance=instance)
        alone = dg.Definitions(asset_checks=refused, resources=by_name)
        not_allowed = alone.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=instance
        )
    passed = {each.check_name: each.passed for each in done.get_asset_check_evaluations()}
    assert len(passed) == 3 and all(passed.values())
    [verified] = not_allowed.get_asset_check_evaluations()
    assert not verified.passed
    [written] = done.asset_materializations_for_node("orders_rewritten")
    again = Snapshot.load(str(written.metadata["dagster/uri"].value))
    assert len(list(again["sums"].dump())) > 30

    resource = SavepointResource(storage=savepoints.storage, relocate=relocate)
    assert resource.read(SPARK.spark_session, str(shared), uid="accounts").count() > 10
    op = {"out": "by-op", "format": "native", "files": "copy", "relocate": relocate}

    @dg.job(resource_defs={"storage": savepoints.storage})
    def copy() -> None:
        build_rewrite_op("moved")()

    config = {"ops": {"moved": {"config": op, "inputs": {"source": {"value": str(shared)}}}}}
    assert copy.execute_in_process(run_config=config).success
    assert savepoints.verify("by-op").findings == []
    assert savepoints.load("by-op")["accounts"].form() == "rocksdb files"


def test_further_folders_are_a_list() -> None:
    problem = "option allow_roots of .*expected a list of texts, got '/data'"
    with pytest.raises(ConfigError, match=problem):
        snapshot_at("flink/chk-1", allow_roots="/data")
    with pytest.raises(ConfigError, match=problem):
        build_savepoint_defs("orders", path="flink/chk-1", allow_roots="/data")
