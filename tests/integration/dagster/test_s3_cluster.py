"""The whole pipeline on a standalone cluster whose workers share nothing but a bucket.

Its five JVMs take as long as fifty other tests. ``make test`` runs the same pipeline on a bucket
beside another process (``test_s3_pipeline.py``), and Spark's workers on a bucket (``place``).
"""

import pytest

from dstl_core import Snapshot
from dstl_core.savepoint.verify.verify import verify_snapshot
from tests.integration.dagster.orders import (
    ALL_DAYS,
    CUSTOMERS,
    ORDERS,
    expected_totals,
    orders_of,
    pipeline_process,
    state_in,
)
from tests.integration.spark.standalone_cluster import HOSTS, StandaloneCluster

pytestmark = [pytest.mark.dagster, pytest.mark.spark, pytest.mark.soak]


def test_a_pipeline_runs_on_workers_that_share_only_a_bucket(s3, bucket, tmp_path, monkeypatch):
    """Backfill, output, materialization, savepoint and rewritten savepoint. The driver and each
    worker have folders of their own; credentials come from the environment of each.
    """
    driver = tmp_path / "driver"
    (driver / "tmp").mkdir(parents=True)
    base, days = f"{bucket}/dstl", ALL_DAYS[:2]
    cluster = StandaloneCluster(tmp_path, s3.environment)
    try:
        own = {**s3.environment, "TMPDIR": str(driver / "tmp")}
        with pipeline_process(base, cluster.url, own, driver / "driver.log") as process:
            assert process.answer() == {}, (driver / "driver.log").read_text()[-3000:]
            epochs = process.do("run", days=days)
            output = process.do("output")["rows"]
            behind = process.do("behind")
    finally:
        cluster.close()
    assert epochs["success"], epochs["errors"]
    assert behind["success"] and all(behind["checks"].values()), behind
    assert {host for _, _, host in output} == set(HOSTS), "both workers have run the function"
    assert len(output) == len(orders_of(days[-1]))

    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    totals = expected_totals(*days)
    last = {customer: max(t for c, t, _ in output if c == customer) for customer in totals}
    assert last == totals and len(totals) == CUSTOMERS
    for kind, uid in (("savepoint", "totals"), ("rewritten", "sums")):
        snapshot = Snapshot.load(behind["uris"]["/".join(ORDERS.key(kind).path)])
        assert str(snapshot.folder).startswith(bucket)
        assert verify_snapshot(snapshot).findings == []
        assert state_in(snapshot, uid, "total") == totals
        assert state_in(snapshot, "largest", "largest") == totals
    assert not list(tmp_path.rglob("_metadata")), "no state lies on a local disk"
