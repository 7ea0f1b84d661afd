"""Epochs on Spark that fail, are overtaken, or begin with a savepoint; the rules of all epochs have
their tests in ``tests/unit/local/test_job_epochs.py``.
"""

import pytest
from pyspark import cloudpickle

from dstl_core.errors import (
    FencedError,
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
    job_on,
    random_rows,
    visible_files,
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
    job = job_on(spark, tmp_path)
    job.run(batch(spark, random_rows(1)), 1, order_by=["v"])
    rows = random_rows(2)
    before = job.latest()
    files = visible_files(tmp_path)
    failing = job_on(spark, tmp_path, fail_at=rows[150][1])
    with pytest.raises(UserFunctionError, match=r"Totals\.process_element raised ValueError: no"):
        failing.run(batch(spark, rows), 2, order_by=["v"])
    assert job.latest() == before
    assert visible_files(tmp_path) == files
    # The failed driver owns the pipeline and may go on.
    reference = Reference()
    reference.apply(random_rows(1))
    reference.apply(rows)
    again = job_on(spark, tmp_path)
    again.run(batch(spark, rows), 2, order_by=["v"])
    assert state_of(spark, again.latest_path()) == reference.rows()


def test_a_driver_that_is_overtaken_in_the_middle_leaves_nothing(spark, tmp_path):
    slow, fast = job_on(spark, tmp_path), job_on(spark, tmp_path)
    slow.run(batch(spark, random_rows(1)), 1, order_by=["v"])
    rows = random_rows(2)

    class Overtaking:
        """Time passes while the slow driver's Spark job runs: the fast one takes over. The driver
        looks at the clock for the request, for the trigger, and then for each report.
        """

        calls = 0

        def now_ms(self):
            return 0

        def monotonic_ms(self):
            self.calls += 1
            if self.calls == 3:
                fast.run(batch(spark, rows), 2, order_by=["v"])
            return 0

    slow._coordinator._clock = Overtaking()
    with pytest.raises(FencedError):
        slow.run(batch(spark, rows), 2, order_by=["v"])
    reference = Reference()
    reference.apply(random_rows(1))
    reference.apply(rows)
    assert state_of(spark, fast.latest_path()) == reference.rows()
    committed = {f"chk-{each.checkpoint_id}" for each in fast.history()}
    assert {path.name for path in tmp_path.glob("*/chk-*")} <= committed


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
