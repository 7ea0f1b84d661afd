"""Rows reach the subtask of their key, in order, without work that the function does not need."""

import datetime as dt
import random

import pyarrow as pa
import pytest

from dstl_core.codec.serializers import Types
from dstl_core.codec.serializers.dates import LocalDate
from dstl_core.functions import KeyedProcessFunction
from dstl_core.job.spec.fingerprint import FINGERPRINT_COLUMN, SUBTASK_COLUMN, Fingerprint
from dstl_core.job.spec.operators import KeyedOperator
from dstl_core.model.key_group import (
    assign_to_key_group,
    compute_operator_index_for_key_group,
)
from dstl_core.spark.engine.key_groups import partition_by_subtask
from dstl_core.spark.job.inputs import fingerprint_of, place
from dstl_core.spark.job.sent_rows import MESSAGE_SCHEMA, received

pytestmark = pytest.mark.spark


class Ordered(KeyedProcessFunction):
    def process_element(self, value, ctx): ...


class Unordered(Ordered):
    order_insensitive = True


class UnorderedOfOneColumn(Unordered):
    columns = ("v",)


class OrderedOfOneColumn(Ordered):
    columns = ("v",)


def numbers(bits):
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    chooser = random.Random(bits)
    return [0, 1, -1, low, high, *(chooser.randint(low, high) for _ in range(300))]


def dates():
    chooser = random.Random(1)
    days = [chooser.randrange(-300_000, 2_000_000) for _ in range(300)]
    return [dt.date(1970, 1, 1) + dt.timedelta(each) for each in days]


def as_it_is(value):
    return value


KEYS = {
    "tinyint": (Types.BYTE, numbers(8), as_it_is),
    "smallint": (Types.SHORT, numbers(16), as_it_is),
    "int": (Types.INT, numbers(32), as_it_is),
    "bigint": (Types.LONG, numbers(64), as_it_is),
    "boolean": (Types.BOOLEAN, [True, False], as_it_is),
    "date": (Types.LOCAL_DATE, dates(), lambda day: LocalDate(day.year, day.month, day.day)),
}


@pytest.mark.parametrize("column", KEYS)
def test_the_jvm_finds_the_subtask_that_flink_finds(spark, column):
    key_type, values, as_stored = KEYS[column]
    rows = spark.createDataFrame([(each,) for each in values], f"k {column}")
    for parallelism, max_parallelism in ((1, 1), (3, 128), (7, 300), (5, 32768)):
        placed = partition_by_subtask(
            rows, "k", key_type, max_parallelism=max_parallelism, parallelism=parallelism
        )
        assert "Python" not in plan_of(placed)
        sent = placed.collect()
        assert len(sent) == len(values)
        for row in sent:
            java_hash = key_type.java_hash(as_stored(row["k"]))
            group = assign_to_key_group(java_hash, max_parallelism)
            assert row[SUBTASK_COLUMN] == compute_operator_index_for_key_group(
                max_parallelism, parallelism, group
            )


def test_a_narrower_column_is_hashed_as_the_wider_key(spark):
    rows = spark.createDataFrame([(each,) for each in numbers(16)], "k smallint")
    placed = partition_by_subtask(rows, "k", Types.LONG, max_parallelism=128, parallelism=4)
    assert "Python" not in plan_of(placed)
    for row in placed.collect():
        group = assign_to_key_group(Types.LONG.java_hash(row["k"]), 128)
        assert row[SUBTASK_COLUMN] == compute_operator_index_for_key_group(128, 4, group)


def plan_of(frame):
    return frame._jdf.queryExecution().executedPlan().toString()


ROWS = [(k, v, t) for k in range(5) for v in (3, 1, 2) for t in ("b", "a")]


def placed(spark, function, order_by):
    rows = spark.createDataFrame(ROWS, "k int, v int, t string")
    operator = KeyedOperator("u", "k", "int", function)
    return rows, place(rows, operator, order_by, parallelism=2, max_parallelism=16)


def received_by_subtask(placing):
    """The subtask and the rows of each partition that has some, as tasks get them."""
    assert placing.in_messages
    parts = [
        pa.RecordBatch.from_pylist([row.asDict() for row in partition], MESSAGE_SCHEMA)
        for partition in placing.frame.rdd.glom().collect()
        if partition
    ]
    for batch in parts:
        [subtask] = set(batch.column(SUBTASK_COLUMN).to_pylist())
        yield subtask, pa.Table.from_batches(received([batch]))


def test_nothing_is_sorted_for_a_function_that_needs_no_order(spark):
    _, placing = placed(spark, Unordered(), [])
    assert "Sort" not in plan_of(placing.frame)
    rows = []
    for subtask, own in received_by_subtask(placing):
        for row in own.to_pylist():
            group = assign_to_key_group(Types.INT.java_hash(row["k"]), 16)
            assert subtask == compute_operator_index_for_key_group(16, 2, group)
            rows.append((row["k"], row["v"], row["t"]))
    assert sorted(rows) == sorted(ROWS)


@pytest.mark.parametrize("function", [Ordered(), Unordered()], ids=["ordered", "unordered"])
def test_rows_come_in_the_order_that_the_run_asks_for(spark, function):
    _, placing = placed(spark, function, ["v"])
    assert not placing.in_messages
    for rows in placing.frame.rdd.glom().collect():
        values = [row["v"] for row in rows]
        assert values == sorted(values)
        if not function.order_insensitive:
            every = [(row["v"], row["k"], row["t"]) for row in rows]
            assert every == sorted(every)


def test_an_ordered_function_gets_its_columns_and_the_fingerprint_is_that_of_all(spark):
    rows, placing = placed(spark, OrderedOfOneColumn(), [])
    assert placing.frame.columns == ["k", "v", FINGERPRINT_COLUMN, SUBTASK_COLUMN]
    hashes = placing.frame.select(FINGERPRINT_COLUMN).toArrow().column(0).combine_chunks()
    assert Fingerprint.of_column(hashes) == fingerprint_of(rows)


def test_an_unordered_function_gets_its_columns_and_the_fingerprint_is_that_of_all(spark):
    rows, placing = placed(spark, UnorderedOfOneColumn(), [])
    fingerprint = Fingerprint(0, 0)
    for _, own in received_by_subtask(placing):
        assert own.column_names == ["k", "v", FINGERPRINT_COLUMN]
        fingerprint += Fingerprint.of_column(own.column(FINGERPRINT_COLUMN).combine_chunks())
    assert fingerprint == fingerprint_of(rows)
