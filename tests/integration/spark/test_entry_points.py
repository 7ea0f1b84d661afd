"""Spark's entry points that state cannot serve say what to use instead; a first job in Spark's own
types."""

from __future__ import annotations

import datetime as dt
import io
from contextlib import redirect_stdout
from decimal import Decimal

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import types as T

from dstl_core import (
    KeyedOperator,
    OperatorIdentifier,
    OperatorTransformation,
    SavepointReader,
    SavepointWriter,
    Snapshot,
    StatefulJob,
    ValueStateDescriptor,
    register,
)
from dstl_core.functions import KeyedProcessFunction
from tests.golden_files import snapshot

pytestmark = pytest.mark.spark
CANONICAL = str(snapshot("a-hashmap-canonical"))


@pytest.fixture
def reader(spark):
    register(spark)
    return lambda **options: spark.read.format("savepoint").options(**options)


def keyed(reader):
    return reader(**{"operator.uid": "a-keyed"})


def said(action):
    with pytest.raises(PySparkException) as caught:
        action()
    return str(caught.value)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_writing_with_a_data_frame(reader, mode, tmp_path):
    rows = keyed(reader).load(CANONICAL)
    text = said(lambda: rows.write.format("savepoint").mode(mode).save(str(tmp_path / "out")))
    assert "use SavepointWriter and OperatorTransformation.bootstrap_with(df)" in text
    assert not (tmp_path / "out").exists()


def test_a_table_of_a_catalog(spark, reader):
    options = f"OPTIONS (`operator.uid` 'a-keyed', path '{CANONICAL}')"
    text = said(lambda: spark.sql(f"CREATE TABLE no_table USING savepoint {options}"))
    assert "use CREATE TEMP VIEW name USING savepoint" in text
    spark.sql(f"CREATE OR REPLACE TEMP VIEW state_of_keys USING savepoint {options}")
    assert spark.table("state_of_keys").count() == keyed(reader).load(CANONICAL).count()
    spark.catalog.dropTempView("state_of_keys")


def test_streams(spark, reader, tmp_path):
    def read():
        rows = spark.readStream.format("savepoint").option("operator.uid", "a-keyed")
        rows.load(CANONICAL).writeStream.format("noop").start().awaitTermination()

    assert "a snapshot does not change; use spark.read" in said(read)

    def write():
        rows = spark.readStream.format("rate").load()
        stream = rows.writeStream.format("savepoint")
        stream.option("checkpointLocation", str(tmp_path / "own")).start(
            str(tmp_path / "out")
        ).awaitTermination()

    assert "foreachBatch(job.foreach_batch())" in said(write)


def test_a_schema_chooses_columns_and_their_order(reader):
    every = keyed(reader).load(CANONICAL)
    chosen = keyed(reader).schema("cnt bigint, state_key string").load(CANONICAL)
    assert chosen.columns == ["cnt", "state_key"]
    expected = {(row.cnt, row.state_key) for row in every.collect()}
    assert {tuple(row) for row in chosen.collect()} == expected
    same = keyed(reader).schema(every.schema).load(CANONICAL)
    assert same.count() == len(expected)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ("state_key string, cnt int", "gives column 'cnt' the type int, but savepoint uid:a-keyed"),
        ("state_key string, count bigint", "names a column 'count' that savepoint uid:a-keyed"),
    ],
)
def test_a_wrong_schema_is_one_sentence(reader, schema, expected):
    text = said(lambda: keyed(reader).schema(schema).load(CANONICAL).collect())
    assert expected in text


def test_a_plan_names_operator_and_state(spark):
    rows = SavepointReader.read(spark, CANONICAL).read_keyed_state("a-keyed", state="names")
    plan = io.StringIO()
    with redirect_stdout(plan):
        rows.explain()
    assert "a-keyed keyed-flat names" in plan.getvalue()


# ----------------------------------------------------------------------- states and their names


def bootstrapped(spark, path, **states):
    """A savepoint with an operator per name, which has the given states."""
    writer = SavepointWriter.new_savepoint(spark, max_parallelism=4)
    for uid, names in states.items():
        rows = spark.createDataFrame(
            [("a", *range(len(names)))], f"k string, {', '.join(f'`{n}` long' for n in names)}"
        )
        keyed_rows = OperatorTransformation.bootstrap_with(rows).key_by("k")
        writer = writer.with_operator(
            OperatorIdentifier.for_uid(uid), keyed_rows.transform_columns()
        )
    return writer.write(str(path))


def test_a_state_of_several_operators(spark, reader, tmp_path):
    path = bootstrapped(spark, tmp_path / "two", one=["n", "own"], other=["n"])
    text = said(lambda: reader(state="n").load(path).collect())
    assert "State 'n' is in 2 operators ('one', 'other'); give operator.uid" in text
    assert reader(state="own").load(path).collect()[0].state_value == 1


def test_states_whose_names_differ_in_case_only(spark, reader, tmp_path):
    before = spark.conf.get("spark.sql.caseSensitive")
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        path = bootstrapped(spark, tmp_path / "case", op=["cnt", "Cnt"])
    finally:
        spark.conf.set("spark.sql.caseSensitive", before)
    text = said(lambda: reader().load(path))
    assert "The columns 'cnt' and 'Cnt' of savepoint" in text or (
        "The columns 'Cnt' and 'cnt' of savepoint" in text
    )
    assert reader(columns="state_key,Cnt").load(path).collect()[0].Cnt == 1
    assert reader(state="cnt").load(path).collect()[0].state_value == 0


# ------------------------------------------------------------------- a first job, in Spark's types


class Seen(KeyedProcessFunction):
    """Keeps the last moment and the sum of each day."""

    def open(self, runtime_context):
        self.last = runtime_context.get_state(ValueStateDescriptor("last", "timestamp"))
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Decimal))

    def process_element(self, value, ctx):
        before = self.last.value()
        self.last.update(value["ts"])
        self.total.update((self.total.value() or Decimal(0)) + value["amount"])
        yield {"day": ctx.get_current_key(), "before": before, "total": self.total.value()}


def test_a_job_with_types_as_spark_users_write_them(spark, tmp_path):
    output = T.StructType(
        [
            T.StructField("day", T.DateType()),
            T.StructField("before", T.TimestampType()),
            T.StructField("total", T.DecimalType(12, 2)),
        ]
    )
    operator = KeyedOperator("days", "day", "date", Seen(), output)
    day, noon = dt.date(2026, 1, 2), dt.datetime(2026, 1, 2, 12, tzinfo=dt.UTC)
    rows = [(day, noon, Decimal("1.10")), (day, noon + dt.timedelta(hours=1), Decimal("2.20"))]
    frame = spark.createDataFrame(rows, "day date, ts timestamp, amount decimal(10, 2)")
    with StatefulJob(spark, "days", str(tmp_path), operator, parallelism=1) as job:
        result = job.run(frame, input_id=1, order_by=["ts"])
        ordered = [tuple(row) for row in result.output.orderBy("total").collect()]
        path = job.latest_path()
    assert [(each[0], each[2]) for each in ordered] == [
        (day, Decimal("1.10")),
        (day, Decimal("3.30")),
    ]
    stored = {line["key"]: line["value"] for line in Snapshot.load(path)["days"].dump("total")}
    assert stored == {"2026-01-02": "3.30"}
