"""Readers of Dagster read state of one's own serializer with the registry that they are given."""

from pathlib import Path

import dagster as dg
import pytest

import dstl_dagster as dstl
from dstl_core import SavepointReader, Snapshot, register
from dstl_dagster.checks import RestoreCheck, VerifyCheck, build_snapshot_checks
from dstl_dagster.sensors import build_external_checkpoint_sensor
from dstl_dagster.snapshots import Rewrite
from dstl_dagster.snapshots.snapshot_assets import migrated_asset, migrated_source, rewritten_asset
from tests.golden_files import snapshot
from tests.integration.dagster.small_pipeline import SPARK
from tests.integration.spark.own_serializer import Money, job_of, registered, rows_of
from tests.own_long import OWN, REGISTRY_NAME, with_own_class
from tests.own_long import REGISTRY as LONGS

pytestmark = [pytest.mark.dagster, pytest.mark.spark]

REGISTRY = registered()
"""No other object knows the type, and nothing registers it for all."""
NAME = f"{__name__}:REGISTRY"
ASSET = dg.AssetKey("money")


@pytest.fixture(scope="module")
def savepoint(tmp_path_factory):
    base = tmp_path_factory.mktemp("base")
    session = SPARK.spark_session
    job = job_of(session, str(base), REGISTRY)
    rows = session.createDataFrame(rows_of(1), "k string, v long")
    job.run(rows, 1, order_by=["v"])
    return job.savepoint(str(base / "savepoint"))


def passed(folder, *checks):
    """Whether each check passes, by its name."""
    with dg.DagsterInstance.ephemeral() as instance:
        job = dg.Definitions(
            asset_checks=checks,
            resources={"storage": dstl.DstlStorageResource(base_path=str(Path(folder).parent))},
        )
        done = job.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=instance, raise_on_error=False
        )
        return {each.check_name: each.passed for each in done.get_asset_check_evaluations()}


@pytest.mark.parametrize("serializers", [REGISTRY, NAME])
def test_the_check_of_a_snapshot_reads_every_value(savepoint, serializers):
    known = dstl.snapshots.snapshot_at(savepoint, serializers)
    checks = build_snapshot_checks(ASSET, known, [VerifyCheck(), RestoreCheck(known)])
    assert passed(savepoint, *checks) == {"verified": True, "restore_plan": True}


def test_the_resource_reads_values_of_the_type(savepoint, tmp_path):
    storage = dstl.DstlStorageResource(base_path=str(tmp_path))
    resource = dstl.SavepointResource(storage=storage, serializers=NAME)
    entries = resource.load(savepoint)["sums"].keyed_entries("total")
    sums: dict[str, int] = {}
    for key, amount in rows_of(1):
        sums[key] = sums.get(key, 0) + amount
    assert {each.key: each.value for each in entries} == {
        key: Money("EUR", cents) for key, cents in sums.items()
    }
    report = resource.verify(savepoint)
    assert not report.findings


def test_a_reader_without_the_registry_reads_no_value_of_the_type(savepoint):
    entries = Snapshot.load(savepoint)["sums"].entries()
    assert not [each for each in entries if each.to_line().get("state") == "total"]


# ---------------------------------------------------------- snapshots of jobs that Flink runs

CHECKPOINT = snapshot("a-hashmap-checkpoint")
NATIVE = snapshot("a-hashmap-native")


def types_of_states(metadata):
    """The operators as Dagster's event log shows them."""
    return " ".join(str(each.data["states"]) for each in metadata["dstl/operators"].records)


@pytest.mark.parametrize(("serializers", "is_known"), [(REGISTRY_NAME, True), (None, False)])
def test_the_sensor_of_external_checkpoints_shows_the_type(tmp_path, serializers, is_known):
    with_own_class(CHECKPOINT.parent, tmp_path / "job")
    sensor = build_external_checkpoint_sensor(
        ASSET, str(tmp_path / "job"), name="external", serializers=serializers
    )
    storage = dstl.DstlStorageResource(base_path=str(tmp_path))
    with dg.DagsterInstance.ephemeral() as instance:
        context = dg.build_sensor_context(instance, resources={"storage": storage})
        events = sensor(context).asset_events
    shown = " ".join(types_of_states(each.metadata) for each in events)
    assert ("cnt value Long" in shown, OWN in shown) == (is_known, not is_known)


def materialized(folder, *assets):
    with dg.DagsterInstance.ephemeral() as instance:
        done = dg.materialize(
            assets,
            instance=instance,
            resources={"storage": dstl.DstlStorageResource(base_path=str(folder))},
            raise_on_error=False,
        )
    return done


DECLARATION = {"migration": 1, "operators": {"a-keyed": {"states": {"cnt": {}}}}}


@pytest.mark.parametrize(("serializers", "is_known"), [(REGISTRY_NAME, True), (None, False)])
def test_copies_of_a_snapshot_are_written_with_the_types_of_its_source(
    tmp_path, serializers, is_known
):
    """Values of heap state have no length, so a copy in another form has to read them."""
    source = dstl.snapshots.snapshot_at(str(with_own_class(NATIVE, tmp_path / "in")), serializers)
    rewritten = rewritten_asset(
        dg.AssetSpec("rewritten"), source, op_name="rewritten", rename={"a-keyed": "b"}
    )
    migrated = migrated_asset(dg.AssetSpec("migrated"), source, DECLARATION, op_name="migrated")
    for asset in (rewritten, migrated):
        assert materialized(tmp_path, asset).success is is_known
    if is_known:
        copied = migrated_source(source, DECLARATION)
        check = VerifyCheck().definition(ASSET, copied)
        assert passed(str(tmp_path / "x"), check) == {"verified": True}


def test_a_component_gives_its_types_to_all_that_it_makes(tmp_path):
    path = str(with_own_class(NATIVE, tmp_path / "in"))
    component = dstl.SavepointComponent(
        "orders",
        path=path,
        template=path,
        rewrite=Rewrite(rename={"a-keyed": "b"}),
        checkpoints=str(tmp_path),
        serializers=REGISTRY_NAME,
    )
    definitions = component.build_defs(dg.ComponentTree.for_test().load_context)
    storage = dstl.DstlStorageResource(base_path=str(tmp_path))
    with dg.DagsterInstance.ephemeral() as instance:
        done = dg.materialize(
            [*definitions.assets, *definitions.asset_checks],
            instance=instance,
            resources={"storage": storage},
        )
    evaluations = done.get_asset_check_evaluations()
    assert {each.check_name for each in evaluations} > {"verified", "restore_plan"}
    assert all(each.passed for each in evaluations)
    shown = " ".join(
        types_of_states(event.step_materialization_data.materialization.metadata)
        for event in done.get_asset_materialization_events()
    )
    assert shown.count("cnt value Long") == 2


# ------------------------------------------------------------------------------------- Spark


def test_sources_of_spark_take_the_name_of_the_registry(tmp_path):
    session = SPARK.spark_session
    path = str(with_own_class(NATIVE, tmp_path / "in"))
    options = {"state": "cnt", "serializers": REGISTRY_NAME}
    register(session)
    rows = session.read.format("savepoint").options(**options).load(path).select("state_key")
    assert rows.count() == 36


def test_a_diff_of_spark_compares_values_of_the_type(tmp_path):
    session = SPARK.spark_session
    old, new = (str(with_own_class(NATIVE, tmp_path / each)) for each in ("old", "new"))
    with_types = SavepointReader.read(session, old, serializers=LONGS)
    assert with_types.diff(new).count() == 0
