"""Epochs on Spark that fail, are overtaken, or begin with a savepoint; the rules of all epochs have
their tests in ``tests/unit/local/test_job_epochs.py``.
"""

import pytest
from pyspark import cloudpickle

from dstl_core.errors import (
    NonRestoredStateError,
    RestoreError,
    UserFunctionError,
)
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.operator_transformation import OperatorTransformation
from dstl_core.savepoint.bootstrap.savepoint_writer import SavepointWriter
from tests.unit.local import test_job_epochs
from tests.unit.local.test_job_epochs import (
    Reference,
    batch,
    check_a_failed_epoch,
    check_an_overtaken_driver,
    job_on,
    random_rows,
)

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True, scope="module")
def by_value():
    cloudpickle.register_pickle_by_value(test_job_epochs)
    yield
    cloudpickle.unregister_pickle_by_value(test_job_epochs)


def state_of(spark, path):
    rows = spark.read.format("savepoint").load(path).collect()
    return {row.state_key: (row.total, row.last, row.tens) for row in rows}


def test_a_failed_epoch_leaves_no_trace_and_runs_again(spark, tmp_path):
    check_a_failed_epoch(spark, tmp_path)


def test_a_driver_that_is_overtaken_in_the_middle_leaves_nothing(spark, tmp_path):
    check_an_overtaken_driver(spark, tmp_path)


def test_start_from_a_bootstrapped_savepoint(spark, tmp_path, caplog):
    rows = random_rows(5)
    reference = Reference()
    reference.apply(rows)
    state = [(key, *values) for key, values in reference.rows().items()]
    frame = spark.createDataFrame(state, "k string, total long, last long, tens array<long>")
    path = (
        SavepointWriter.new_savepoint(spark, max_parallelism=128)
        .with_operator(
            OperatorIdentifier.for_uid("old"),
            OperatorTransformation.bootstrap_with(frame).key_by("k").transform_columns(),
        )
        .with_operator(
            OperatorIdentifier.for_uid("gone"),
            OperatorTransformation.bootstrap_with(frame).key_by("k").transform_columns(),
        )
        .write(str(tmp_path / "savepoint"))
    )
    job = job_on(spark, tmp_path / "jobs")
    with pytest.raises(NonRestoredStateError, match="takes the state of 'old', 'gone' in"):
        job.start(path)
    job.start(path, uid="old", allow_non_restored_state=True)
    assert "is left out: operators=gone savepoint=" in caplog.text
    assert [operator.uid for operator in job.snapshot().operators] == ["totals"]
    assert job.start(path, uid="old").checkpoint_id == 1
    assert state_of(spark, job.latest_path()) == reference.rows()
    more = random_rows(6)
    job.run(batch(spark, more), 1, order_by=["v"])
    reference.apply(more)
    assert state_of(spark, job.latest_path()) == reference.rows()
    other = job_on(spark, tmp_path / "jobs", name="other", max_parallelism=256)
    with pytest.raises(RestoreError, match="expected 256, got 128"):
        other.start(path, uid="old")


def test_state_of_another_type_is_refused_with_both_types(spark, tmp_path):
    frame = spark.createDataFrame([("a", "text")], "k string, total string")
    path = (
        SavepointWriter.new_savepoint(spark)
        .with_operator(
            OperatorIdentifier.for_uid("totals"),
            OperatorTransformation.bootstrap_with(frame).key_by("k").transform_columns(),
        )
        .write(str(tmp_path / "savepoint"))
    )
    job = job_on(spark, tmp_path / "jobs")
    with pytest.raises(UserFunctionError, match=r"expected VALUE of String.*got VALUE of Long"):
        job.start(path)
    assert job.latest() is None
