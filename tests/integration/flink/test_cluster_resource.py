"""Savepoints of a real Flink cluster, taken by its REST interface, as assets of one graph."""

import dagster as dg
import pytest

from dstl_core import Snapshot
from dstl_dagster import (
    DstlSparkResource,
    DstlStorageResource,
    FlinkClusterResource,
)
from dstl_dagster.checks import StateCheck, VerifyCheck, build_snapshot_checks
from dstl_dagster.resources import FlinkClient, FlinkClusterError
from dstl_dagster.resources.flink_resource import build_flink_savepoint_asset, trigger_id_of
from dstl_dagster.snapshots.snapshot_assets import rewritten_asset
from dstl_dagster.snapshots.sources import latest_below
from tests.integration.dagster.small_pipeline import SPARK_CONFIG
from tests.integration.flink.rest_cluster import FlinkRestCluster

pytestmark = [pytest.mark.flink, pytest.mark.dagster]

UNREACHABLE = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    started = FlinkRestCluster(tmp_path_factory.mktemp("cluster"))
    yield started
    started.close()


@pytest.fixture
def flink(cluster):
    return FlinkClusterResource(
        url=cluster.url,
        poll_interval_s=0.05,
        savepoint_timeout_s=60,
        serializers="tests.own_long:NAMED_ANEW",
    )


@pytest.fixture
def storage(tmp_path):
    return DstlStorageResource(base_path=str(tmp_path))


def counts(path, uid):
    return {
        entry.key: entry.value for entry in Snapshot.load(path)[f"uid:{uid}"].keyed_entries("count")
    }


def test_a_savepoint_is_taken_checked_rewritten_and_restored_in_one_graph(cluster, flink, storage):
    first = cluster.start("orders", "counts", max_parallelism=128, elements=95, snapshot=None)
    taken = build_flink_savepoint_asset("savepoint", job="orders", group="orders")
    [taken_key] = taken.keys
    source = latest_below("savepoint")
    rewritten_spec = dg.AssetSpec(["orders", "rewritten"], deps=[taken_key])
    rewritten = rewritten_asset(
        rewritten_spec,
        source,
        op_name="orders_rewritten",
        rename={"counts": "order-counts"},
        max_parallelism=256,
    )

    @dg.asset(key=["orders", "next_job"], deps=[rewritten_spec.key])
    def next_job(
        context: dg.AssetExecutionContext, storage: DstlStorageResource
    ) -> dg.MaterializeResult:
        event = context.instance.get_latest_materialization_event(rewritten_spec.key)
        path = str(event.asset_materialization.metadata["dagster/uri"].value)
        job_id = cluster.start(
            "next-orders", "order-counts", max_parallelism=256, elements=5, snapshot=path
        )
        return dg.MaterializeResult(metadata={"job": job_id})

    stopped = build_flink_savepoint_asset(
        "final", job="next-orders", group="orders", stop=True, deps=[next_job]
    )
    few = StateCheck("SELECT 1 FROM {state} WHERE count < 9", "counts")
    checks = build_snapshot_checks(taken_key, source, [VerifyCheck(blocking=True), few])
    with dg.DagsterInstance.ephemeral() as instance:
        done = dg.materialize(
            [taken, rewritten, next_job, stopped, *checks],
            instance=instance,
            resources={
                "storage": storage,
                "flink": flink,
                "spark": DstlSparkResource(master="local[2]", spark_config=SPARK_CONFIG),
            },
        )
    assert done.success
    paths = {
        event.asset_key: str(
            event.step_materialization_data.materialization.metadata["dagster/uri"].value
        )
        for event in done.get_asset_materialization_events()
        if "dagster/uri" in event.step_materialization_data.materialization.metadata
    }
    [event] = done.asset_materializations_for_node(taken.op.name)
    shown = [each.data["states"] for each in event.metadata["dstl/operators"].records]
    assert any("count value Cents" in each for each in shown)
    before = {f"key-{i}": 10 if i < 5 else 9 for i in range(10)}
    assert counts(paths[taken_key], "counts") == before
    assert counts(paths[rewritten_spec.key], "order-counts") == before
    after = {key: value + (int(key[-1]) < 5) for key, value in before.items()}
    assert counts(paths[stopped.key], "order-counts") == after
    evaluations = done.get_asset_check_evaluations()
    assert {each.check_name: each.passed for each in evaluations} == {
        "verified": True,
        "state_of_counts": True,
    }
    statuses = {job.name: job.status for job in flink.client.jobs()}
    assert statuses == {"orders": "RUNNING", "next-orders": "FINISHED"}
    assert flink.job("orders").job_id == first
    assert flink.checkpoints("orders")[-1].path == paths[taken_key]


def test_a_repeated_request_takes_no_second_savepoint(cluster, flink, storage):
    """A retry after a lost answer."""
    job = cluster.start("again", "counts", max_parallelism=128, elements=10, snapshot=None)
    asked = trigger_id_of("8f0b7a3c-0000-4000-8000-123456789abc", 0)
    paths = {flink.savepoint(job, storage.savepoint("again"), trigger_id=asked) for _ in range(2)}
    assert len(paths) == 1
    assert len(flink.checkpoints("again")) == 1


def test_a_native_savepoint_and_its_disposal(cluster, flink, storage):
    cluster.start("native", "counts", max_parallelism=128, elements=20, snapshot=None)
    path = flink.savepoint("native", storage.savepoint("native"), native=True)
    assert counts(path, "counts") == {f"key-{i}": 2 for i in range(10)}
    flink.dispose(path)
    with pytest.raises(FileNotFoundError):
        Snapshot.load(path)


def test_errors_are_flinks_own(cluster, flink, storage, tmp_path):
    with pytest.raises(FlinkClusterError, match=r"Expected one job 'nobody', found 0"):
        flink.savepoint("nobody", storage.savepoint("x"))
    job = cluster.start("errors", "counts", max_parallelism=128, elements=1, snapshot=None)
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(FlinkClusterError, match="The savepoint failed in Flink"):
        flink.savepoint(job, f"file:{tmp_path}/file/below")
    with pytest.raises(FlinkClusterError, match=r"Flink refused GET /jobs/0{32}/checkpoints: 404"):
        flink.client.checkpoints("0" * 32)


def test_a_cluster_that_is_away_fails_the_op_and_not_the_resource(storage):
    """Finding 5: a retry policy does not cover the set-up of resources."""
    attempts = []

    @dg.asset(retry_policy=dg.RetryPolicy(max_retries=1))
    def overview(flink: FlinkClusterResource) -> None:
        attempts.append(1)
        flink.client.overview()

    done = dg.materialize(
        [overview],
        resources={"flink": FlinkClusterResource(url=UNREACHABLE)},
        raise_on_error=False,
    )
    assert not done.success and len(attempts) == 2


def test_the_authorization_is_not_shown():
    flink = FlinkClusterResource(url=UNREACHABLE, authorization="Bearer planted-secret")
    assert "planted-secret" not in repr(flink) + str(flink)
    with pytest.raises(FlinkClusterError) as raised:
        flink.client.overview()
    assert "planted-secret" not in str(raised.value)


def test_only_http_is_spoken():
    with pytest.raises(ValueError, match="http or https"):
        FlinkClient("file:///etc/passwd")


def test_a_url_with_a_password_is_refused_and_not_repeated():
    with pytest.raises(ValueError, match=r"http://\*\*\*@flink:8081") as raised:
        FlinkClient("http://user:planted-secret@flink:8081")
    assert "planted-secret" not in str(raised.value)
