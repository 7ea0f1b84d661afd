"""What a job does not read does not identify a batch, on Spark as on the local engine."""

import re

import pyarrow as pa
import pytest

from dstl_core import LocalEngine, StatefulJob
from dstl_core.errors import ConfigError, InputChangedError
from dstl_core.job.spec.operators import LocalCopies
from tests.changed_batches import ROWS, SEEN, UNSEEN, sums

pytestmark = pytest.mark.spark


def job_on(engine, base):
    copies = LocalCopies(str(base / "local"))
    return StatefulJob(engine, "job", str(base / "jobs"), sums(), local_copies=copies)


def test_changes_that_a_job_does_not_see_and_others(spark, tmp_path):
    running = job_on(spark, tmp_path)
    here = running.run(ROWS, 1).facts.input
    for change, rows in UNSEEN.items():
        assert running.run(rows, 1).committed_before, change
    for difference, rows in SEEN.items():
        with pytest.raises(InputChangedError, match=f"columns: {re.escape(difference)}; give"):
            running.run(rows, 1)
    assert len(running.history()) == 2
    local = job_on(LocalEngine(threads=2), tmp_path / "local")
    assert local.run(ROWS, 1).facts.input == here


@pytest.mark.parametrize(
    ("value", "refused"),
    [
        ("st_geomfromwkb(X'0101000000000000000000F03F0000000000000040')", "geometry(0)"),
        ("parse_json('1')", "variant"),
        ("interval 1 month", "interval month"),
    ],
)
def test_a_column_of_a_type_that_tasks_lack_does_no_harm_if_nobody_reads_it(
    spark, tmp_path, value, refused
):
    running = job_on(spark, tmp_path)
    rows = spark.createDataFrame(ROWS)
    wide = rows.selectExpr("*", f"{value} AS place")
    running.run(wide, 1)
    assert running.run(rows, 1).committed_before
    named = rows.selectExpr("k", "price", f"{value} AS v")
    with pytest.raises(ConfigError, match=f"a column 'v' of type {re.escape(refused)}, which"):
        running.run(named, 2)


def test_names_with_signs_are_chosen_by_name(spark, tmp_path):
    names = ["a.b", "c`d", "e f"]
    more = pa.table({name: ["x"] * 4 for name in names})
    rows = spark.createDataFrame(ROWS).selectExpr("*", "'x' AS `a.b`", "'y' AS `c``d`")
    running = job_on(spark, tmp_path)
    running.run(rows, 1)
    assert running.run(ROWS.append_column("a.b", more["a.b"]), 1).committed_before
