"""Batches, names and functions that are not what a job expects: it takes them whole, or says in one
sentence what is wrong, and commits nothing.
"""

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, time

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from dstl_core.codec.serializers import Types
from dstl_core.errors import ConfigError, UserFunctionError
from dstl_core.functions import ColumnResult, KeyedColumnFunction, KeyedProcessFunction
from dstl_core.job.spec.operators import KeyedOperator
from dstl_core.state.tables.descriptor import ValueStateDescriptor
from dstl_core.stateful_job import StatefulJob
from tests.unit.local.test_job_keys import (
    BATCH,
    BOTH,
    COUNT,
    OUTPUT,
    SCHEMA,
    Count,
    CountColumns,
    counts,
    maker,
)

pytestmark = pytest.mark.spark


class Ordered(Count):
    order_insensitive = False


class OrderedColumns(CountColumns):
    order_insensitive = False


@pytest.fixture
def job_of(spark, tmp_path):
    return maker(spark, tmp_path)


# ---------------------------------------------------------------------------------- batches


@BOTH
def test_names_of_columns_are_taken_as_they_are(spark, job_of, function):
    schema = T.StructType()
    for name in ("k", "a.b", "we`ird", "order by", "ключ"):
        schema = schema.add(name, "string" if name == "k" else "long")
    job = job_of(function, event_time="a.b")
    result = job.run(spark.createDataFrame([("x", 5, 3, 2, 1)] * 2, schema), 1, ["we`ird", "a.b"])
    assert counts(job) == {"x": 2}
    assert result.facts.watermarks == {"u": 4}


@pytest.mark.parametrize("function", [Ordered(), OrderedColumns()], ids=["rows", "columns"])
def test_maps_in_columns_are_no_obstacle_and_rows_that_differ_in_them_have_an_order(
    spark, job_of, function
):
    schema = "k string, s struct<m: map<string, int>>, a array<map<string, int>>, m map<int, int>"
    rows = [("a", ({"x": at},), [{"y": at}], {at: at}) for at in range(20)]
    job = job_of(function, parallelism=1)
    seen = [
        [row.seen for row in job.run(frame, number, ["k"]).output.collect()]
        for number, part in enumerate([rows, rows[::-1]])
        for frame in [spark.createDataFrame(part, schema)]
    ]
    assert seen[0] == seen[1]
    assert counts(job) == {"a": 40}


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("'a' AS k, 1 AS v, 2 AS v", "The batch has two columns 'v'"),
        ("'a' AS k, 1 AS __dstl_row_hash", "names that begin with '__dstl_' are reserved"),
        ("'a' AS k, parse_json('1') AS v", "has a column 'v' of type variant, which Spark cannot"),
        ("'a' AS k, interval 1 month AS v", "has a column 'v' of type interval month"),
        ("1 AS k", "The key column 'k' is int, and the key type of 'u' is String; cast"),
        (
            "'a' AS k, 1 AS v, 2 AS V",
            "The batch has the columns 'v' and 'V', which Spark cannot tell",
        ),
        ("'a' AS k, 1 AS __DSTL_row_hash", "names that begin with '__dstl_' are reserved"),
        ("current_date() AS k", "The key column 'k' is date, and the key type of 'u' is String"),
        ("now() AS k", "The key column 'k' is timestamp, and the key type of 'u' is String"),
        ("X'00' AS k", "The key column 'k' is binary, and the key type of 'u' is String"),
        ("1.5 AS k", "The key column 'k' is decimal(2,1), and the key type of 'u' is String"),
        ("'a' AS K", "There is no column 'k' in the input of 'u'; it has: K"),
    ],
)
def test_a_batch_that_cannot_be_applied_is_refused(spark, job_of, sql, message):
    job = job_of()
    with pytest.raises(ConfigError, match=re.escape(message)):
        job.run(spark.sql(f"SELECT {sql}"), 1)
    assert job.latest() is None


def test_columns_that_differ_in_case_are_two_where_spark_says_so(spark, job_of):
    rows = spark.sql("SELECT 'a' AS k, 1 AS v, 2 AS V")
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        assert job_of().run(rows, 1).facts.input.rows == 1
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


@pytest.mark.parametrize("kind", ["date", "string", "double"])
def test_event_time_is_a_timestamp_or_milliseconds(spark, job_of, kind):
    rows = spark.sql(f"SELECT 'a' AS k, cast(NULL AS {kind}) AS ts")
    with pytest.raises(ConfigError, match=f"'ts' is {kind}; it has to be a timestamp, or mill"):
        job_of(event_time="ts").run(rows, 1)


class Times(KeyedProcessFunction):
    """Keeps the event time of a row, and gives it when event time has passed it."""

    order_insensitive = True

    def open(self, runtime_context):
        self.n = runtime_context.get_state(COUNT)

    def process_element(self, value, ctx):
        self.n.update(ctx.timestamp())
        ctx.timer_service().register_event_time_timer(ctx.timestamp())

    def on_timer(self, timestamp, ctx):
        yield {"seen": ctx.get_current_key(), "n": timestamp}


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_event_time_has_nothing_to_do_with_the_zone_of_the_session(spark, job_of, kind):
    # 05:30 and 06:30 in UTC are both 01:30 in New York, where the clock goes back in between.
    zone = "Z" if kind == "timestamp" else ""
    times = {
        "before": ("1969-12-31 23:59:59.999999", -1),
        "first": ("2020-11-01 05:30:00.123456", 1604208600123),
        "second": ("2020-11-01 06:30:00.123456", 1604212200123),
    }
    sql = ", ".join(f"('{key}', {kind} '{text}{zone}')" for key, (text, _) in times.items())
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        job = job_of(Times(), event_time="ts")
        result = job.run(spark.sql(f"SELECT col1 AS k, col2 AS ts FROM VALUES {sql}"), 1)
        fired = {row.seen: row.n for row in result.output.collect()}
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    lines = job.snapshot()["u"].dump("n")
    assert {line["key"]: line["value"] for line in lines} == {
        key: millis for key, (_, millis) in times.items()
    }
    assert result.facts.watermarks == {"u": 1604212200122}
    assert fired == {"before": -1, "first": 1604208600123}


def test_what_is_no_batch_is_refused(spark, job_of):
    job = job_of()
    with pytest.raises(
        ConfigError, match=r"has to be a Spark DataFrame, a table .*, got a NoneType"
    ):
        job.run(None, 1)
    stream = spark.readStream.format("rate").load().selectExpr("'a' AS k", "value AS v")
    with pytest.raises(ConfigError, match="is a stream; give each of its micro-batches"):
        job.run(stream, 1)
    assert job.latest() is None


@BOTH
def test_keys_that_do_not_fit_are_refused_and_large_ones_are_not(spark, job_of, function):
    job = job_of(function, Types.INT, name="int")
    with pytest.raises(
        ConfigError, match=r"The key cannot be written: expected a column of type int32"
    ):
        job.run(spark.createDataFrame([(1 << 40, 1)], SCHEMA.replace("string", "long")), 1)
    job.run(spark.createDataFrame([(7, 1)], SCHEMA.replace("string", "long")), 1)
    assert counts(job) == {7: 1}
    large = "x" * 3_000_000
    job = job_of(function, name="large")
    for number in range(2):
        job.run(spark.createDataFrame([(large, 1), ("b", 2)], SCHEMA), number)
    assert counts(job) == {large: 2, "b": 2}


class LastColumns(KeyedColumnFunction):
    """Keeps the last row of a key, in the types of the batch."""

    states = tuple(
        ValueStateDescriptor(name, kind)
        for name, kind in {
            "dec": Types.BIG_DEC,
            "ts": Types.INSTANT,
            "row": Types.ROW(Types.LONG, Types.STRING),
            "n": Types.LONG,
        }.items()
    )

    def process_batch(self, keys, state, rows):
        last = [0] * len(keys)
        for at, key in enumerate(rows["key_index"].to_pylist()):
            last[key] = at
        own = rows.take(pa.array(last)).select(["dec", "ts", "row", "n"])
        return ColumnResult(pa.Table.from_batches([own]))


def test_columns_of_a_batch_may_be_state_as_they_are(spark, job_of):
    rows = spark.sql(
        "SELECT 'a' AS k, -1.28bd AS dec, timestamp '1969-12-31 23:59:59.999999Z' AS ts, "
        "struct(5 AS x, 'y' AS y) AS row, 7 AS n UNION ALL SELECT 'b', null, null, null, null"
    )
    job = job_of(LastColumns(), output_schema=None)
    job.run(rows, 1, "n")
    dumped = {(line["key"], line["state"]): line["value"] for line in job.snapshot()["u"].dump()}
    kept = {"dec": "-1.28", "ts": "1969-12-31T23:59:59.999999Z", "row": [5, "y"], "n": 7}
    assert dumped == {("a", name): value for name, value in kept.items()}


def test_an_order_may_be_one_column_and_has_to_be_one(spark, job_of):
    rows = spark.createDataFrame([("a", 2), ("a", 1)], "k string, time long")
    result = job_of(parallelism=1).run(rows, 1, "time")
    assert [row.n for row in result.output.collect() if "'time': 1" in row.seen] == [1]
    maps = spark.sql("SELECT 'a' AS k, map(1, 2) AS m")
    with pytest.raises(
        ConfigError, match="'m' of order_by has the type map<int,int>, which has no order"
    ):
        job_of().run(maps, 2, ["m"])


# ---------------------------------------------------------------------------------------- ids


@pytest.mark.parametrize("input_id", [None, True, 1.5, b"a", "\ud800"])
def test_ids_are_text_or_whole_numbers(spark, job_of, input_id):
    job = job_of()
    with pytest.raises(ConfigError, match="An input id is "):
        job.run(spark.createDataFrame(BATCH, SCHEMA), input_id)
    assert job.latest() is None


@pytest.mark.parametrize("input_id", ["", "a/b\n\"*?'\\ 😀\0", "x" * 20_000, 1 << 80])
def test_an_id_may_be_any_text_and_any_number(spark, job_of, input_id):
    job = job_of()
    rows = spark.createDataFrame(BATCH, SCHEMA)
    result = job.run(rows, input_id)
    assert str(result).isprintable()
    again = job_of().run(rows, input_id)
    assert again.committed_before and again.facts.input.id == input_id
    assert counts(job) == {"a": 2, "b": 1}


# ---------------------------------------------------------------------------------- functions


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (Count(lambda row, n: [row["nope"]]), "Count.process_element raised KeyError: 'nope'"),
        (
            Count(lambda row, n: [5]),
            "has to be rows, each a dictionary with a value per column, got",
        ),
        (Count(lambda row, n: [{"n": 1 << 70}]), "does not fit its schema"),
        (CountColumns(lambda state: None), "expected a ColumnResult, got a NoneType"),
        (
            CountColumns(lambda state: ColumnResult(None)),
            "expected the new state as a record batch",
        ),
        (
            CountColumns(lambda state: ColumnResult(state, [{"n": 1}])),
            "record batch or a table, go",
        ),
        (CountColumns(lambda state: ColumnResult(state.slice(1))), "expected columns out of"),
    ],
)
def test_a_function_that_gives_something_else_ends_the_epoch(spark, job_of, function, message):
    job = job_of(function)
    with pytest.raises(UserFunctionError, match=re.escape(message)) as raised:
        job.run(spark.createDataFrame(BATCH, SCHEMA), 1)
    assert "\n" not in str(raised.value)
    assert job.latest().facts.kind == "start"


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (pa.timestamp("ns"), datetime(2020, 1, 1, 0, 0, 0, 1), datetime(2020, 1, 1, 0, 0, 0, 1)),
        (pa.time64("us"), time(0, 0, 0, 1), 1000),
        (pa.null(), None, None),
        (pa.large_string(), "x", "x"),
    ],
    ids=str,
)
def test_output_is_in_types_of_spark(spark, job_of, kind, value, expected):
    job = job_of(Count(lambda row, n: [{"o": value}]), output_schema=pa.schema([("o", kind)]))
    assert [row.o for row in job.run(spark.sql("SELECT 'a' AS k"), 1).output.collect()] == [
        expected
    ]


def test_a_folder_whose_name_is_a_pattern_of_spark_is_a_name(spark, job_of):
    job = job_of(folder="a[b]{c}*?")
    job_of(folder="ab").run(spark.createDataFrame([("z",)], "k string"), 1)
    output = job.run(spark.createDataFrame([("x",), ("y",)], "k string"), 1).output
    assert sorted(row.n for row in output.collect()) == [1, 1]


def test_output_that_spark_cannot_read_is_refused_before_anything_runs(job_of):
    schema = pa.schema([("o", pa.list_(pa.duration("s")))])
    with pytest.raises(ConfigError, match="column 'o' that cannot be read back: Spark has no type"):
        job_of(output_schema=schema)


def test_a_function_that_cannot_travel_says_what_to_do(spark, job_of):
    function = Count()
    function.lock = threading.Lock()
    with pytest.raises(ConfigError, match=r"cannot be sent to the workers .*lock.*let its open"):
        job_of(function).run(spark.createDataFrame(BATCH, SCHEMA), 1)


def test_a_source_has_to_give_a_batch(spark, tmp_path, job_of):
    operator = KeyedOperator("d", "seen", Types.STRING, Count(), OUTPUT, source=lambda frames: None)
    job = job_of(downstream=[operator])
    with pytest.raises(
        ConfigError, match=r"The input of 'd' has to be a Spark DataFrame, .*, got a No"
    ):
        job.run(spark.createDataFrame(BATCH, SCHEMA), 1)
    with pytest.raises(ConfigError, match="The name 'input' is used twice"):
        StatefulJob(
            spark, "x", str(tmp_path), KeyedOperator("input", "k", Types.STRING, Count(), OUTPUT)
        )


# ---------------------------------------------------------------------------------- surroundings


def test_two_jobs_run_at_once_in_one_session(spark, job_of):
    jobs = [job_of(Count(), name="rows"), job_of(CountColumns(), name="columns")]
    rows = spark.createDataFrame(BATCH, SCHEMA)

    def run(job):
        for number in range(3):
            job.run(rows, number)
        return counts(job)

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(run, jobs)) == [{"a": 6, "b": 3}] * 2
