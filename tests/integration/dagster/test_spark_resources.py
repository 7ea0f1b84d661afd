"""Sessions of runs, and snapshots as DataFrames between assets."""

import os
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest
from dagster_pyspark import LazyPySparkResource, PySparkResource
from pyspark.sql import functions as F

from dstl_core import Snapshot
from dstl_core.errors import ConfigError, FormatError
from dstl_core.spark.savepoints.data_source import load_state
from dstl_dagster import (
    DstlIOManager,
    DstlSparkResource,
    DstlStorageResource,
    dstl_assets,
    run_epochs,
)
from dstl_dagster.checks import DiffCheck, StateCheck
from dstl_dagster.resources.engines import engine_of
from dstl_dagster.resources.spark_resource import is_stopped
from dstl_dagster.snapshots import savepoint_of, snapshot_at
from dstl_dagster.snapshots.snapshot_assets import (
    build_materialization_asset,
    build_savepoint_asset,
)
from tests.golden_files import PLANTED
from tests.integration.dagster.small_pipeline import (
    DAYS,
    PAYMENTS,
    SPARK,
    SPARK_CONFIG,
    epochs_of,
    expected_totals,
    rows_of,
    totals_in,
)

pytestmark = [pytest.mark.dagster, pytest.mark.spark]


def resource(**config):
    return DstlSparkResource(master="local[2]", spark_config={**SPARK_CONFIG, **config})


def test_the_sql_settings_of_one_run_do_not_reach_the_next():
    """dagster-pyspark writes them onto the session that all runs of a process share."""
    first = resource(**{"spark.sql.shuffle.partitions": "7"}).spark_session
    second = resource().spark_session
    assert first.conf.get("spark.sql.shuffle.partitions") == "7"
    assert second.conf.get("spark.sql.shuffle.partitions") == "2"
    second.range(1).createOrReplaceTempView("only_here")
    assert not first.catalog.tableExists("only_here")


def test_a_setting_that_comes_too_late_is_said(caplog):
    """A JVM that runs keeps its memory; dagster-pyspark drops the setting without a word."""
    assert resource().spark_session.range(1).count() == 1

    @dg.asset
    def too_late(spark: DstlSparkResource) -> None:
        spark.spark_session  # noqa: B018

    late = resource(**{"spark.app.name": "another name"})
    dg.materialize([too_late], resources={"spark": late})
    assert "spark.app.name=another name has no effect" in caplog.text


def test_a_stopped_session_is_replaced():
    """dagster-pyspark gives a session that is dead for ever."""
    spark = resource()
    first = spark.spark_session
    assert spark.spark_session is first and not is_stopped(first)
    first.stop()
    assert is_stopped(first)
    second = spark.spark_session
    assert second is not first and second.range(3).count() == 3


@pytest.mark.parametrize("uses_it", [False, True])
def test_a_function_of_rows_that_stops_the_session_gets_one_sentence(uses_it, storage, instance):
    def stopping(session, day):
        rows = rows_of(session, day)
        session.stop()
        return session.createDataFrame(rows) if uses_it else rows

    spark = resource()
    options = {
        "partition_key": "2026-01-01",
        "instance": instance,
        "resources": {"storage": storage, "engine": spark},
    }
    failed = dg.materialize([epochs_of(PAYMENTS, stopping)], raise_on_error=False, **options)
    failures = [event for event in failed.all_events if event.is_step_failure]
    assert len(failures) == 1  # it is not retried
    assert "has stopped the Spark session" in failures[0].event_specific_data.error.message
    assert not list(PAYMENTS.store(storage).commits())
    assert dg.materialize([epochs_of()], **options).success
    assert totals_in(storage) == expected_totals("2026-01-01")


def test_a_master_or_a_remote():
    with pytest.raises(ConfigError, match="not both"):
        DstlSparkResource(master="local[2]", remote="sc://host").spark_session  # noqa: B018


class Interrupted(BaseException):
    """Stands for the signal of a cancelled run."""


def test_a_cancelled_block_cancels_its_spark_jobs():
    spark = resource()
    session = spark.spark_session
    failures = []

    def long_job(tag_is_set):
        session.sparkContext.addJobTag("dstl/run/op")
        tag_is_set.set()
        slow = session.range(0, 4, 1, 4).select(
            F.expr("java_method('java.lang.Thread', 'sleep', 120000L)")
        )
        try:
            slow.collect()
        except Exception as error:
            failures.append(str(error))

    tag_is_set = threading.Event()
    worker = threading.Thread(target=long_job, args=(tag_is_set,))

    def cancelled():
        with spark.tagged("dstl", "run", "op") as own:
            worker.start()
            tag_is_set.wait()
            tracker = own.sparkContext.statusTracker()
            waiting = threading.Event()
            while not tracker.getActiveJobsIds():
                waiting.wait(0.05)
            raise Interrupted

    with pytest.raises(Interrupted):
        cancelled()
    worker.join(60)
    assert not worker.is_alive()
    assert len(failures) == 1 and "cancelled" in failures[0].lower()


def test_an_error_of_a_worker_leaves_a_block_as_itself(tmp_path):
    folder = tmp_path / "damaged"
    shutil.copytree(PLANTED / "canonical" / "savepoint", folder)
    for file in folder.iterdir():
        if not file.name.startswith("_"):
            file.write_bytes(file.read_bytes()[:-40] + b"\x7f" * 40)
    with (
        pytest.raises(FormatError, match="A count does not fit into the data") as raised,
        resource().tagged("dstl", "run", "damaged") as session,
    ):
        load_state(session, str(folder), uid="op").collect()
    assert "Traceback" not in str(raised.value)
    assert "Traceback" in str(raised.value.__cause__)


def test_the_spark_resources_of_dagster_run_a_pipeline(storage, instance):
    """Also what is built behind the epochs, and a check in SQL."""
    pipeline = replace(PAYMENTS, engine="pyspark", small_log_bytes=0)
    seen = []

    def rows(session, day):
        [tag] = session.sparkContext.getJobTags()
        seen.append(tag.split("/")[-1])
        return rows_of(session, day)

    @dstl_assets(pipeline=pipeline, partitions_def=DAYS)
    def epochs(
        context: dg.AssetExecutionContext, storage: DstlStorageResource, pyspark: PySparkResource
    ):
        yield from run_epochs(context, pipeline, rows, storage=storage, engine=pyspark)

    check = StateCheck("SELECT 1 FROM {state} WHERE total < largest", "totals").definition(
        pipeline.key("savepoint"), savepoint_of(pipeline)
    )
    behind = [build_materialization_asset(pipeline), build_savepoint_asset(pipeline), check]
    config = {"spark.master": "local[2]", "spark.pyspark.python": sys.executable, **SPARK_CONFIG}
    eager = PySparkResource(spark_config=config)
    lazy = LazyPySparkResource(spark_config=config)

    def run(assets, pyspark, **options):
        resources = {"storage": storage, "pyspark": pyspark, "spark": pyspark}
        done = dg.materialize(assets, resources=resources, instance=instance, **options)
        return {each.check_name: each.passed for each in done.get_asset_check_evaluations()}

    run([epochs], eager, partition_key="2026-01-01")
    run([epochs], lazy, partition_key="2026-01-02")
    assert seen == ["payments", "payments"]
    assert totals_in(storage) == expected_totals("2026-01-01", "2026-01-02")
    assert run(behind, lazy) == {"state_of_totals": True}
    assert pipeline.store(storage).require_latest().facts.kind == "materialization"
    assert totals_in(storage) == expected_totals("2026-01-01", "2026-01-02")


@pytest.mark.parametrize("wrong", ["local", PySparkResource(spark_config={})])
def test_an_engine_that_is_none_is_named(wrong):
    """Dagster starts the session of a ``PySparkResource`` when it sets it up."""
    expected = (
        r"expected a DstlSparkResource, .* PySparkResource of dagster_pyspark .*, got ('l|PyS)"
    )
    with pytest.raises(ConfigError, match=expected), engine_of(wrong):
        pass


def test_a_snapshot_between_assets_is_a_dataframe(storage, instance):
    """Finding: the default IO manager pickles, which no DataFrame survives."""

    @dg.asset(metadata={"dstl/uid": "accounts", "dstl/key_by": "id"}, io_manager_key="snapshots")
    def accounts(spark: DstlSparkResource):
        return spark.spark_session.createDataFrame([("a", 1), ("b", 2)], "id string, n long")

    @dg.asset
    def total(accounts) -> int:
        return accounts.agg(F.sum("n")).collect()[0][0]

    resources = {
        "storage": storage,
        "spark": SPARK,
        "snapshots": DstlIOManager(storage=storage, spark=SPARK),
    }
    for number in (1, 2):
        done = dg.materialize([accounts, total], resources=resources, instance=instance)
        assert done.output_for_node("total") == 3
        path = storage.savepoint(f"accounts/{number}")
        assert Snapshot.load(path)["uid:accounts"].max_parallelism == 128
    [event] = done.asset_materializations_for_node("accounts")
    assert event.metadata["dagster/uri"].value == path


def test_an_asset_that_does_not_say_what_its_columns_are(storage, instance):
    @dg.asset(io_manager_key="snapshots", metadata={"dstl/uid": "u"})
    def unclear(spark: DstlSparkResource):
        return spark.spark_session.range(1)

    done = dg.materialize(
        [unclear],
        resources={"spark": SPARK, "snapshots": DstlIOManager(storage=storage, spark=SPARK)},
        instance=instance,
        raise_on_error=False,
    )
    [failure] = [event for event in done.all_events if event.is_step_failure]
    assert "dstl/key_by" in str(failure.event_specific_data.error)


def test_the_size_of_a_difference(storage, instance):
    session = SPARK.spark_session
    manager = DstlIOManager(storage=storage, spark=SPARK)
    metadata = {"dstl/uid": "u", "dstl/key_by": "id"}
    for name, rows in {
        "old": [("a", 0.0), ("b", 1.0), ("c", 2.0), ("d", float("nan"))],
        "new": [("a", -0.0), ("b", 1.0), ("d", float("nan")), ("e", 5.0)],
    }.items():
        frame = session.createDataFrame(rows, "id string, x double")
        context = dg.build_output_context(
            asset_key=dg.AssetKey(name), definition_metadata=metadata, name=name
        )
        manager.handle_output(context, frame)
    before = snapshot_at(storage.savepoint("old/1"))
    check = DiffCheck(before, "u", max_changed_ratio=0.7).definition(
        "new", snapshot_at(storage.savepoint("new/1"))
    )
    done = dg.materialize(
        [check],
        instance=instance,
        resources={"storage": storage, "spark": SPARK},
        selection=dg.AssetSelection.checks(check),
    )
    [evaluation] = done.get_asset_check_evaluations()
    values = {name: value.value for name, value in evaluation.metadata.items()}
    assert values == {"before": 4, "added": 1, "removed": 1, "changed": 1, "changed_ratio": 0.75}
    assert not evaluation.passed and evaluation.severity is dg.AssetCheckSeverity.WARN


WHICH_PYTHON = """
import sys
from dstl_dagster import DstlSparkResource
from tests.integration.dagster.small_pipeline import SPARK_CONFIG

def python_of_worker(batches):
    import sys
    import pyarrow as pa
    for each in batches:
        yield pa.RecordBatch.from_pydict({"python": [sys.executable]})

session = DstlSparkResource(master="local[1]", spark_config=SPARK_CONFIG).spark_session
[row] = session.range(1).mapInArrow(python_of_worker, "python string").collect()
print(row["python"] == sys.executable)
"""


def test_local_workers_are_told_the_python_that_runs():
    session = resource().spark_session
    assert session.sparkContext.getConf().get("spark.pyspark.python") == sys.executable


@pytest.mark.soak  # a JVM of its own
def test_local_workers_run_the_python_that_runs(tmp_path):
    """Started by its absolute path, with another Python, or none, on the PATH."""
    kept = {name: os.environ[name] for name in ("JAVA_HOME", "HOME") if name in os.environ}
    java = shutil.which("java")
    assert java is not None
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("java", "bash", "dirname", "uname", "ps", "cat", "sed", "nohup", "rm"):
        if (program := shutil.which(name)) is not None:
            (tools / name).symlink_to(program)
    done = subprocess.run(
        [sys.executable, "-c", WHICH_PYTHON],
        env={**kept, "PATH": str(tools), "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout.split() == ["True"], done.stdout + done.stderr
