"""How rows come to Python workers, and what stays in them, in Spark itself."""

import gc

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from dstl_core.job.task import held_state
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.operator_transformation import OperatorTransformation
from dstl_core.savepoint.bootstrap.savepoint_writer import SavepointWriter
from dstl_core.spark.engine.workers import (
    MAX_BYTES,
    MAX_RECORDS,
    SENT_ROWS,
    UNLIMITED,
    uncounted_bytes,
)
from dstl_core.spark.savepoints.savepoint_reader import SavepointReader

pytestmark = pytest.mark.spark


@pytest.fixture
def settings(spark):
    """The session's own limits, put back afterwards."""
    yield spark.conf
    spark.conf.unset(MAX_BYTES)
    spark.conf.unset(MAX_RECORDS)


def sizes(rows):
    """The number of rows of each batch that comes to a task."""

    def count(batches):
        for batch in batches:
            yield pa.record_batch({"rows": pa.array([batch.num_rows], pa.int64())})

    return [each.rows for each in rows.coalesce(1).mapInArrow(count, "rows long").collect()]


def test_rows_of_unknown_size_come_a_few_at_a_time(spark, settings):
    rows = spark.range(2500).select(F.col("id").cast("string").alias("text"))
    with uncounted_bytes(rows):
        assert settings.get(MAX_BYTES) == str(UNLIMITED)
        assert sizes(rows) == [SENT_ROWS, SENT_ROWS, 500]
    assert settings.get(MAX_BYTES, None) is None
    assert settings.get(MAX_RECORDS, None) is None
    assert sizes(rows) == [2500]


def test_rows_of_known_size_come_as_the_session_says(spark, settings):
    settings.set(MAX_RECORDS, "2000")
    rows = spark.range(2500)
    with uncounted_bytes(rows):
        assert sizes(rows) == [2000, 500]
    assert settings.get(MAX_RECORDS) == "2000"


def test_fewer_rows_than_usual_stay_fewer(spark, settings):
    settings.set(MAX_RECORDS, "700")
    rows = spark.range(1000).select(F.array("id").alias("list"))
    with uncounted_bytes(rows):
        assert sizes(rows) == [700, 300]
    assert settings.get(MAX_RECORDS) == "700"


def test_the_limit_of_a_session_holds(spark, settings):
    settings.set(MAX_BYTES, "10000")
    rows = spark.range(100).select(F.lit("x" * 4000).alias("text"))
    with uncounted_bytes(rows):
        assert settings.get(MAX_BYTES) == "10000"
        assert max(sizes(rows)) <= 4
    assert settings.get(MAX_BYTES) == "10000"


def test_limits_come_back_after_an_error(spark, settings):
    rows = spark.range(10).select(F.col("id").cast("string").alias("text"))
    with pytest.raises(RuntimeError, match="stop"), uncounted_bytes(rows):
        raise RuntimeError("stop")
    assert settings.get(MAX_BYTES, None) is None
    assert settings.get(MAX_RECORDS, None) is None


def forget_state(spark):
    """Jobs of other tests have left state in workers, which do not settle then. Spark takes the
    worker that has rested longest, so each comes to its turn.
    """

    def forget(batches):
        for batch in batches:
            held_state.HELD.clear()
            yield batch

    spark.range(16, numPartitions=16).mapInArrow(forget, "id long").collect()


def test_workers_that_have_read_state_keep_what_they_loaded_from_the_collector(spark, tmp_path):
    forget_state(spark)
    rows = spark.range(100).select(F.col("id").cast("string").alias("k"), F.col("id").alias("v"))
    uid = OperatorIdentifier.for_uid("numbers")
    state = OperatorTransformation.bootstrap_with(rows).key_by("k").transform_columns()
    path = str(tmp_path / "savepoint")
    SavepointWriter.new_savepoint(spark).with_operator(uid, state).write(path)
    assert SavepointReader.read(spark, path).read_keyed_state(uid).count() == 100

    def heap(batches):
        for _ in batches:
            counts = [gc.get_freeze_count(), len(gc.get_objects())]
            yield pa.record_batch({"frozen": [counts[0]], "alive": [counts[1]]})

    [row] = spark.range(1).coalesce(1).mapInArrow(heap, "frozen long, alive long").collect()
    assert row.frozen > 50_000
    assert row.alive < row.frozen / 2
