"""Copies that the resource writes: the same edit again finds its copy, another edit is refused."""

from __future__ import annotations

import json
from pathlib import Path

import dagster as dg
import pytest

from dstl_core import Snapshot
from dstl_core.errors import ConfigError, SavepointError, SnapshotExistsError
from dstl_core.savepoint.compare.diff import diff_snapshots
from dstl_dagster import DstlStorageResource, SavepointResource, build_savepoint_defs
from dstl_dagster.components.savepoint import SavepointComponent
from dstl_dagster.pipelines import build_rewrite_op
from dstl_dagster.snapshots import Migrate, Rewrite, Upgrade
from tests.golden_files import CHANGED_JOBS, JDK_JOBS, JDK_TYPES, UPGRADE_JOBS, as_lines, snapshot
from tests.integration.dagster.small_pipeline import LOCAL, SPARK
from tests.unit.savepoint import test_leaving_scala as in_java
from tests.unit.savepoint import test_scala_jobs as of_scala
from tests.unit.savepoint.test_job_values import lines, savepoint

pytestmark = pytest.mark.dagster
ORDERS = UPGRADE_JOBS / "orders"
JAR = str(ORDERS / "job.jar")


@pytest.fixture
def savepoints(tmp_path: Path) -> SavepointResource:
    return SavepointResource(storage=DstlStorageResource(base_path=str(tmp_path / "state")))


def written_at(copied: Snapshot) -> int:
    return Path(str(copied.folder).removeprefix("file:"), "_metadata").stat().st_mtime_ns


def test_the_same_edit_again_finds_its_copy_and_another_one_is_refused(
    savepoints: SavepointResource,
) -> None:
    source = str(snapshot("f-two-ops-hashmap"))
    first = savepoints.rewrite(source, "next", rename={"f-uid": "counts"})
    again = savepoints.rewrite(source, "next", rename={"f-uid": "counts"})
    assert written_at(again) == written_at(first)
    with pytest.raises(SnapshotExistsError, match=r"is already there: .*next.*other name \(out\)"):
        savepoints.rewrite(source, "next", rename={"f-uid": "sums"})
    assert "counts" in {each.label for each in savepoints.load("next").operators}


@pytest.mark.spark
def test_tasks_of_spark_write_a_copy(tmp_path: Path) -> None:
    source = snapshot("a-rocksdb-native-incremental")
    storage = DstlStorageResource(base_path=str(tmp_path))
    resources = {"storage": storage, "cluster": SPARK, "machine": LOCAL}
    copy = Rewrite(rename={"a-keyed": "accounts"}, engine="cluster")
    defs = build_savepoint_defs("orders", path=str(source), rewrite=copy, resources=resources)
    by_op, wrong = (build_rewrite_op(name, engine=name) for name in ("cluster", "machine"))
    config = {"inputs": {"source": {"value": str(source)}}, "config": {"out": "by-op"}}

    @dg.job(resource_defs=resources)
    def ops() -> None:
        by_op()
        wrong()

    with dg.DagsterInstance.ephemeral() as instance:
        job = defs.resolve_implicit_global_asset_job_def()
        done = job.execute_in_process(instance=instance)
        [written] = done.asset_materializations_for_node("orders_rewritten")
        run_config = {"ops": dict.fromkeys(("cluster", "machine"), config)}
        done = ops.execute_in_process(run_config, instance, raise_on_error=False)
    by_asset = Snapshot.load(str(written.metadata["dagster/uri"].value))
    again = Snapshot.load(done.output_for_node("cluster"))
    assert by_asset["accounts"].form() == again["a-keyed"].form() == "canonical"
    assert not list(diff_snapshots(Snapshot.load(source), again))
    assert done.failure_data_for_node("machine") is not None
    assert "expected the key of a resource with a session of Spark, got 'machine'" in str(
        done.failure_data_for_node("machine")
    )


def test_files_are_kept_if_the_edit_says_so(savepoints: SavepointResource) -> None:
    source = str(snapshot("a-rocksdb-native-incremental"))
    rename = {"a-keyed": "accounts"}
    first = savepoints.rewrite(source, "kept", rename=rename, files="copy")
    again = savepoints.rewrite(source, "kept", rename=rename, files="copy")
    other = savepoints.rewrite(source, "canonical", rename=rename)
    assert written_at(again) == written_at(first)
    assert (first["accounts"].form(), other["accounts"].form()) == ("rocksdb files", "canonical")
    assert savepoints.verify("kept").findings == []
    with pytest.raises(SnapshotExistsError, match=r"A snapshot is already there: .*kept"):
        savepoints.rewrite(source, "kept", rename=rename)


def test_keys_and_entries_go_and_the_same_purge_finds_its_copy(
    savepoints: SavepointResource, tmp_path: Path
) -> None:
    source, file = str(snapshot("a-rocksdb-native-incremental")), tmp_path / "keys"
    file.write_text("key-1\nkey-2\n")

    @dg.job(resource_defs={"storage": savepoints.storage})
    def forget() -> None:
        build_rewrite_op("purge")()

    config = {
        "out": "purged",
        "files": "copy",
        "erase_keys": {"a-keyed": str(file)},
        "where": {"a-keyed/cnt": "value > 3"},
    }
    run_config = {"ops": {"purge": {"config": config, "inputs": {"source": {"value": source}}}}}
    assert forget.execute_in_process(run_config=run_config).success
    left = list(savepoints.load("purged")["a-keyed"].dump())
    before = list(savepoints.load(source)["a-keyed"].dump())
    assert as_lines(left) == as_lines(
        line
        for line in before
        if line["key"] not in ("key-1", "key-2")
        and (line.get("state") != "cnt" or line["value"] > 3)
    )
    stored = written_at(savepoints.load("purged"))
    assert forget.execute_in_process(run_config=run_config).success
    assert written_at(savepoints.load("purged")) == stored
    file.write_text("key-1\n")
    with pytest.raises(SnapshotExistsError):
        savepoints.rewrite(source, "purged", files="copy", erase_keys={"a-keyed": str(file)})


def test_a_savepoint_of_flink_1_is_upgraded_once(savepoints: SavepointResource) -> None:
    source = str(savepoint(ORDERS))
    first = savepoints.upgrade(source, "upgraded", jars=[JAR])
    again = savepoints.upgrade(source, "upgraded", jars=[JAR])
    assert written_at(again) == written_at(first)
    operators = Snapshot.load(str(first.folder), jars=[JAR]).operators
    dumped = json.loads(json.dumps([line for each in operators for line in each.dump()]))
    truth = json.loads((ORDERS / "truth.json").read_bytes())["entries"]
    assert lines(dumped) == lines(truth)
    with pytest.raises(SnapshotExistsError, match="A snapshot is already there"):
        savepoints.upgrade(source, "upgraded", to="2.3", jars=[JAR])
    with pytest.raises(ConfigError, match=r"The snapshot is of Flink 2\.x already"):
        savepoints.upgrade(str(first.folder), "twice")


def path_of_upgrade(component: SavepointComponent, savepoints: SavepointResource) -> str:
    """Materializes the assets of a component; returns the path of what it has upgraded."""
    defs = component.build_defs(dg.ComponentTree.for_test().load_context)
    with dg.DagsterInstance.ephemeral() as instance:
        done = dg.materialize(
            list(defs.assets or ()), instance=instance, resources={"storage": savepoints.storage}
        )
    key = dg.AssetKey([component.name, f"{component.name}_upgraded"])
    [event] = [each for each in done.get_asset_materialization_events() if each.asset_key == key]
    return str(event.step_materialization_data.materialization.metadata["dagster/uri"].value)


def test_an_upgrade_in_yaml_is_an_asset(savepoints: SavepointResource) -> None:
    component = SavepointComponent(
        name="orders", path=str(savepoint(ORDERS)), upgrade=Upgrade(jars=[JAR])
    )
    path = path_of_upgrade(component, savepoints)
    assert Snapshot.load(path).metadata.version == 6


def test_types_of_an_upgrade_are_named_in_yaml(savepoints: SavepointResource) -> None:
    job = JDK_JOBS / "undeclared"
    jars, types = [str(job / "job.jar")], JDK_TYPES["undeclared"]
    with pytest.raises(SavepointError, match="name the type"):
        savepoints.upgrade(str(savepoint(job)), "blocked", jars=jars)
    component = SavepointComponent(
        name="lines", path=str(savepoint(job)), upgrade=Upgrade(jars=jars, types=types)
    )
    assert path_of_upgrade(component, savepoints)


def test_types_of_scala_are_those_of_the_new_job_in_yaml(savepoints: SavepointResource) -> None:
    upgrade = Upgrade(jars=[of_scala.jar("orders")], template=str(in_java.new_savepoint("orders")))
    component = SavepointComponent(
        name="orders", path=str(of_scala.savepoint("orders")), upgrade=upgrade
    )
    path = path_of_upgrade(component, savepoints)
    assert in_java.held(path, "orders") == in_java.held(in_java.new_savepoint("orders"), "orders")


def test_types_of_scala_are_named_for_the_resource(savepoints: SavepointResource) -> None:
    source, jars = str(of_scala.savepoint("orders")), [of_scala.jar("orders")]
    named = {"types": in_java.TYPES["orders"], "new_jars": [in_java.new_jar("orders")]}
    copied = savepoints.upgrade(source, "java", jars=jars, **named)
    assert in_java.held(str(copied.folder), "orders") == in_java.held(
        in_java.new_savepoint("orders"), "orders"
    )
    assert written_at(savepoints.upgrade(source, "java", jars=jars, **named)) == written_at(copied)
    with pytest.raises(SnapshotExistsError):
        template = str(in_java.new_savepoint("orders"))
        savepoints.upgrade(source, "java", jars=jars, **named, template=template)


@pytest.fixture
def declaration(tmp_path: Path) -> Path:
    """A counter and a minimum more, as in the pair agg-add."""
    rules = {"accState": {"columns": ["f0", "f1", "f2", 0, None]}}
    pair = CHANGED_JOBS / "agg-add"
    path = tmp_path / "orders-v2.yaml"
    path.write_text(
        json.dumps(
            {
                "migration": 1,
                "from": str(pair / "old"),
                "to_template": str(pair / "new"),
                "operators": {"4_group-aggregate": {"states": rules}},
            }
        )
    )
    return path


def test_a_savepoint_is_migrated_once_for_a_declaration(
    savepoints: SavepointResource, declaration: Path
) -> None:
    first = savepoints.migrate(str(declaration), "migrated")
    again = savepoints.migrate(str(declaration), "migrated")
    assert written_at(again) == written_at(first)
    declaration.write_text(declaration.read_text().replace("0, null]", "7, null]"))
    with pytest.raises(SnapshotExistsError, match="A snapshot is already there"):
        savepoints.migrate(str(declaration), "migrated")
    other = savepoints.migrate(str(declaration), "other")
    assert {line["value"][4] for line in other["4_group-aggregate"].dump()} == {7}


def test_a_migration_in_yaml_is_an_asset_with_its_plan_and_checks(
    savepoints: SavepointResource, declaration: Path
) -> None:
    component = SavepointComponent(
        name="orders",
        path=str(CHANGED_JOBS / "agg-add" / "old"),
        migrate=Migrate(declaration=str(declaration)),
    )
    defs = component.build_defs(dg.ComponentTree.for_test().load_context)
    with dg.DagsterInstance.ephemeral() as instance:
        done = dg.materialize(
            [*(defs.assets or ()), *(defs.asset_checks or ())],
            instance=instance,
            resources={"storage": savepoints.storage},
        )
    key = dg.AssetKey(["orders", "orders_migrated"])
    checks = done.get_asset_check_evaluations()
    assert {each.check_name for each in checks if each.asset_key == key and each.passed} == {
        "verified",
        "restore_plan",
    }
    [event] = [e for e in done.get_asset_materialization_events() if e.asset_key == key]
    plan = str(event.step_materialization_data.materialization.metadata["dstl/plan"].value)
    assert "f3 <- 0" in plan and "nothing is lost." in plan
