"""A secret of the storage appears in no plan, no event log and no error."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[3]
SECRET = "hunter2-planted-secret"  # planted to be looked for

PROGRAM = """
import os, sys, traceback
from pyspark.sql import SparkSession
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.spark.savepoints.data_source import register
from dstl_core.spark.savepoints.savepoint_reader import SavepointReader
from dstl_core.savepoint.bootstrap.savepoint_writer import SavepointWriter
from dstl_core.operator_transformation import OperatorTransformation

events, out = sys.argv[1:]
secret = os.environ["AWS_SECRET_ACCESS_KEY"]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.ui.enabled", "false").config("spark.pyspark.python", sys.executable)
    .config("spark.eventLog.enabled", "true").config("spark.eventLog.dir", "file:" + events)
    .config("spark.log.level", "INFO")
    .getOrCreate()
)
register(spark)
rows = spark.range(0, 500, 1, 2).selectExpr("concat('key-', id) AS k", "id AS n")
made = OperatorTransformation.bootstrap_with(rows).key_by("k").transform_columns()
uid = OperatorIdentifier.for_uid("op")
SavepointWriter.new_savepoint(spark, 128, 2).with_operator(uid, made).write(out)
source = spark.read.format("savepoint").load(out)
source.where("state_key = 'key-7'").explain(True)
assert source.count() == 500
reader = SavepointReader.read(spark, out).read_keyed_state(uid)
reader.explain(True)
assert reader.count() == 500

def must_fail(work):
    try:
        work()
    except Exception:
        traceback.print_exc()
    else:
        raise SystemExit("no error")

for source in ("savepoint", "state-changelog"):
    must_fail(lambda: spark.read.format(source).option("secret", secret).load(out).collect())
for name in ("fs.s3a.secret.key", "storage_options"):
    must_fail(lambda: spark.sql(
        f"CREATE TEMPORARY VIEW v USING savepoint OPTIONS (path '{out}', `{name}` '{secret}')"
    ).collect() or spark.sql("SELECT * FROM v").collect())
must_fail(lambda: SavepointReader.read(spark, "s3://no-such-bucket-of-dstl/sp"))
must_fail(lambda: spark.read.format("savepoint").load("s3://no-such-bucket-of-dstl/sp").collect())
spark.stop()
"""


def test_a_planted_secret_is_in_no_plan_event_log_or_error(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    events = tmp_path / "events"
    events.mkdir()
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_MAX_ATTEMPTS": "1",
    }
    done = subprocess.run(
        [sys.executable, program, events, tmp_path / "sp"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "BatchScan" in done.stdout or "savepoint" in done.stdout, "no plan was printed"
    assert "has no option 'secret'" in done.stderr
    assert SECRET not in done.stdout
    assert SECRET not in done.stderr
    logs = [path for path in events.rglob("*") if path.is_file()]
    assert logs
    for path in logs:
        assert SECRET.encode() not in path.read_bytes()
    for path in (tmp_path / "sp").rglob("*"):
        assert SECRET.encode() not in path.read_bytes()
