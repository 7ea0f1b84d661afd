"""Pipelines that an earlier version has committed go on."""

import json
import shutil
from pathlib import Path

import pytest

from dstl_core.codec.serializers import Types
from dstl_core.job.spec.operators import KeyedOperator, LocalCopies
from dstl_core.stateful_job import StatefulJob
from dstl_core.storage.location import Location
from tests.golden_files import PIPELINE
from tests.integration.spark.job_functions import OUTPUT, SCHEMA, TotalsByRow, plain

pytestmark = pytest.mark.spark

EXPECTED = json.loads((PIPELINE / "pipeline.json").read_bytes())
NEXT_DAY = [("bob", 2, "l"), ("fay", 6, None)]


@pytest.fixture
def base(tmp_path):
    """The pipeline at another place than where it was made."""
    return shutil.copytree(PIPELINE, tmp_path / "moved")


def job_at(spark, base):
    operator = KeyedOperator("totals", "k", Types.STRING, TotalsByRow(), OUTPUT)
    return StatefulJob(
        spark,
        EXPECTED["name"],
        str(base),
        operator,
        max_parallelism=EXPECTED["max_parallelism"],
        num_retained=EXPECTED["num_retained"],
        local_copies=LocalCopies(str(base / "local")),
    )


def batch(spark, rows):
    return spark.createDataFrame([tuple(row) for row in rows], SCHEMA)


def state_of(spark, path):
    rows = spark.read.format("savepoint").load(path).collect()
    return {row.state_key: [row.total, row.last] for row in rows}


def commits_of(job):
    return [{"kind": each.facts.kind, "data_version": each.data_version} for each in job.history()]


def test_what_was_committed_is_there(spark, base):
    job = job_at(spark, base)
    assert commits_of(job) == EXPECTED["commits"]
    assert state_of(spark, job.latest_path()) == EXPECTED["state"]


def test_committed_inputs_run_nothing_and_give_what_was_stored(spark, base):
    job = job_at(spark, base)
    for epoch_input in EXPECTED["inputs"]:
        result = job.run(batch(spark, epoch_input["rows"]), epoch_input["id"], order_by=["v"])
        assert result.committed_before
        assert result.checkpoint.checkpoint_id == epoch_input["checkpoint_id"]
        assert sorted(map(list, result.output.collect())) == epoch_input["output"]
    assert commits_of(job) == EXPECTED["commits"]


def test_the_next_epochs_go_on_from_its_state(spark, base):
    days = [each["rows"] for each in EXPECTED["inputs"]]
    result = job_at(spark, base).run(batch(spark, NEXT_DAY), "2026-01-05", order_by=["v"])
    assert result.checkpoint.parent == EXPECTED["inputs"][-1]["checkpoint_id"]
    assert sorted(map(tuple, result.output.collect())) == [("bob", 36), ("fay", 6)]
    job = job_at(spark, base)
    again = job.run(batch(spark, [("ann", 5, "m")]), "2026-01-06", order_by=["v"])
    assert again.checkpoint.parent == result.checkpoint.checkpoint_id
    expected = plain([*days, NEXT_DAY, [("ann", 5, "m")]])
    assert {key: tuple(row) for key, row in state_of(spark, job.latest_path()).items()} == expected


def test_it_is_read_after_the_index_of_its_log_came(spark, base):
    job = job_at(spark, base)
    job.run(batch(spark, NEXT_DAY), "2026-01-05", order_by=["v"])
    log = Path(Location.parse(job.path).path, "_dstl", "log")
    head = json.loads((log / "index" / "head.json").read_bytes())
    assert head["count"] >= EXPECTED["records"]
    commits = commits_of(job)
    assert commits[:-1] == EXPECTED["commits"]
    for epoch_input in EXPECTED["inputs"]:
        result = job_at(spark, base).run(
            batch(spark, epoch_input["rows"]), epoch_input["id"], order_by=["v"]
        )
        assert result.committed_before
        assert sorted(map(list, result.output.collect())) == epoch_input["output"]
    # The index is derived: without it everything is as before.
    shutil.rmtree(log / "index")
    assert commits_of(job_at(spark, base)) == commits


def test_it_goes_back_to_before_a_committed_input(spark, base):
    [first, second, third, _] = [each["rows"] for each in EXPECTED["inputs"]]
    job = job_at(spark, base)
    job.run(batch(spark, NEXT_DAY), "2026-01-04", order_by=["v"], rewind=True)
    expected = plain([first, second, third, NEXT_DAY])
    assert {key: tuple(row) for key, row in state_of(spark, job.latest_path()).items()} == expected
