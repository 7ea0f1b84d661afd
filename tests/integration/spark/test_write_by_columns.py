"""SavepointWriter: state by columns, read back."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from dstl_core import Snapshot
from dstl_core.codec.serializers import Types
from dstl_core.codec.serializers.pojo import Pojo
from dstl_core.errors import ConfigError, DuplicateKeyError
from dstl_core.functions import KeyedStateBootstrapFunction
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.operator_transformation import OperatorTransformation
from dstl_core.savepoint.bootstrap.savepoint_writer import SavepointWriter
from dstl_core.spark.savepoints.savepoint_reader import SavepointReader
from dstl_core.state.tables.descriptor import (
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from tests.golden_files import as_lines, snapshot
from tests.integration.spark.writing import bootstrap_with, entries, stored_timers, write

pytestmark = pytest.mark.spark


def test_columns_of_every_kind(spark, tmp_path):
    schema = (
        "k string, v bigint, l array<string>, m map<string, bigint>, t array<bigint>, "
        "p array<bigint>, fresh bigint, pojo struct<count:int, name:string>, r bigint, "
        "d decimal(10,2), row struct<a:int, b:string>"
    )
    rows = [
        ("a", 1, ["x", "y"], {"q": 1}, [5, 6], None, 9, (1, "one"), 3, None, (1, None)),
        ("b", None, [], {}, [], [7], None, None, None, None, None),
        ("c", None, None, None, [8], None, None, (2, None), 4, None, None),
    ]
    frame = spark.createDataFrame(rows, schema).withColumn(
        "d", F.expr("CASE WHEN k = 'a' THEN CAST(-12.50 AS DECIMAL(10,2)) END")
    )
    ttl = ValueStateDescriptor("fresh", Types.LONG).enable_time_to_live(StateTtlConfig(1000))
    columns = (
        bootstrap_with(frame)
        .key_by("k")
        .transform_columns(
            types={"pojo": Types.POJO("com.acme.Account", count=Types.INT, name=Types.STRING)},
            states={"fresh": ttl, "r": ReducingStateDescriptor("max", max, Types.INT)},
            event_time_timers="t",
            processing_time_timers="p",
        )
    )
    operator = write(spark, tmp_path / "sp", "op", columns)
    values = {}
    for line in operator.dump():
        if "ts" not in line:
            values.setdefault(line["state"], {})[line["key"]] = line["value"]
    stamps = {key: value["ts"] for key, value in values["fresh"].items()}
    assert stamps.keys() == {"a"}
    assert stamps["a"] > 1_600_000_000_000
    assert values == {
        "v": {"a": 1},
        "l": {"a": ["x", "y"]},
        "m": {"a": [["q", 1]]},
        "fresh": {"a": {"v": 9, "ts": stamps["a"]}},
        "pojo": {"a": {"count": 1, "name": "one"}, "c": {"count": 2, "name": None}},
        "max": {"a": 3, "c": 4},
        "d": {"a": "-12.50"},
        "row": {"a": [1, None]},
    }
    assert {(each["key"], each["ts"]) for each in entries(operator, "event-timer")} == {
        ("a", 5),
        ("a", 6),
        ("c", 8),
    }
    assert {(each["key"], each["ts"]) for each in entries(operator, "proc-timer")} == {("b", 7)}
    assert operator.state_info("max").type == "Integer"
    assert Pojo("com.acme.Account", {"count": 1, "name": "one"}) in [
        entry.value for entry in operator.keyed_entries("pojo")
    ]


def test_a_key_with_nothing_but_a_timer(spark, tmp_path):
    frame = spark.createDataFrame(
        [("a", 1, []), ("b", None, [7])], "k string, n int, t array<bigint>"
    )
    columns = bootstrap_with(frame).key_by("k").transform_columns(event_time_timers="t")
    write(spark, tmp_path / "sp", "op", columns)
    rows = SavepointReader.read(spark, str(tmp_path / "sp")).read_keyed_state("op").collect()
    by_key = {row.state_key: (row.n, row.event_time_timers) for row in rows}
    assert by_key == {"a": (1, None), "b": (None, [7])}


def test_equal_timers_are_one_timer(spark, tmp_path):
    """Within a row, and of two rows of a key in two tasks."""
    rows = [("a", [7, 7, 8]), ("b", [7]), ("a", [7, 9])] * 2
    frame = spark.createDataFrame(rows, "k string, t array<bigint>").repartition(2)
    columns = bootstrap_with(frame).key_by("k").transform_columns(event_time_timers="t")
    operator = write(spark, tmp_path / "sp", "op", columns)
    assert stored_timers(operator) == [("a", 7), ("a", 8), ("a", 9), ("b", 7)]


def test_a_template_gives_exactly_its_types(spark, tmp_path):
    """A savepoint of a SQL job: its RowData keys and accumulators, read and written again."""
    source = Snapshot.load(snapshot("h-sql-hashmap"))
    operator = next(each for each in source.operators if each.keyed_handles)
    reader = SavepointReader.read(spark, str(snapshot("h-sql-hashmap")))
    frame = reader.read_keyed_state(OperatorIdentifier(operator.operator_id))
    states = [info.name for info in operator.states if "timer" not in info.kind]
    rows = bootstrap_with(frame.select("state_key", *states)).key_by(
        "state_key", operator.key_type.serializer
    )
    again = (
        SavepointWriter.from_existing_savepoint(spark, source)
        .remove_operator(OperatorIdentifier(operator.operator_id))
        .with_operator(
            OperatorIdentifier(operator.operator_id),
            rows.transform_columns(template=operator),
        )
        .write(str(tmp_path / "sp"))
    )
    written = Snapshot.load(again)
    same = written.operator(OperatorIdentifier(operator.operator_id))
    for state in states:
        assert as_lines(same.dump(state)) == as_lines(operator.dump(state))
        assert same.state_info(state).meta == operator.state_info(state).meta


def test_list_and_union_state_by_columns(spark, tmp_path):
    frame = spark.createDataFrame([(1, "a"), (2, None), (3, "c")], "n int, s string")
    columns = bootstrap_with(frame).transform_columns(
        list_state={"n": Types.LONG}, union_state={"s": None}
    )
    operator = write(spark, tmp_path / "sp", "op", columns)
    assert sorted(operator.list("n")) == [1, 2, 3]
    assert sorted(operator.union("s")) == ["a", "c"]
    assert operator.state_info("n").type == "Long"


def test_the_last_row_of_a_key(spark, tmp_path, accounts):
    twice = bootstrap_with(accounts.select("id", "amount")).key_by("id").transform_columns()
    for form in ("canonical", "native"):
        with pytest.raises(DuplicateKeyError, match="a key comes more than once"):
            write(spark, tmp_path / form, "op", twice, form=form)
    last = (
        bootstrap_with(accounts.select("id", "amount", "ts"))
        .key_by("id")
        .transform_columns(on_duplicate="last", order_by=["ts"])
    )
    operator = write(spark, tmp_path / "b", "op", last)
    assert {line["key"]: line["value"] for line in operator.dump("amount")} == {
        key: float(max(n for n in range(40) if n % 7 == key)) for key in range(7)
    }
    assert [each.name for each in operator.states] == ["amount"]


def test_two_rows_of_a_key_may_give_it_different_states_only(spark, tmp_path):
    def written(name, rows):
        frame = spark.createDataFrame(rows, "k string, n bigint, m bigint")
        keyed = bootstrap_with(frame).key_by("k").transform_columns()
        lines = write(spark, tmp_path / name, "op", keyed).dump()
        return {(line["key"], line["state"]): line["value"] for line in lines}

    assert written("a", [("a", 1, None), ("a", None, 2)]) == {("a", "n"): 1, ("a", "m"): 2}
    with pytest.raises(DuplicateKeyError, match="State 'm' has 1 rows too many"):
        written("b", [("a", 1, 2), ("a", None, 2)])


def test_the_last_row_of_a_key_is_that_of_flinks_keys_and_one_for_all_runs(spark, tmp_path):
    rows = [(0.0, 1, 5), (-0.0, 1, 6), (float("nan"), 1, 7), (-0.0, 2, 8), (float("nan"), 2, 9)]
    ties = [(1.5, 3, value) for value in range(50)]
    frame = spark.createDataFrame(rows + ties, "k double, ts bigint, n bigint").repartition(3)
    last = bootstrap_with(frame).key_by("k").transform_columns(on_duplicate="last", order_by=["ts"])
    lines = write(spark, tmp_path / "sp", "op", last).dump("n")
    values = {repr(line["key"]): line["value"] for line in lines}
    assert values == {"0.0": 5, "-0.0": 8, "'NaN'": 9, "1.5": 49}


def test_decimals_are_written_to_their_last_digit(spark, tmp_path):
    digits = "9876543210987654321098765432.1098765432"
    frame = spark.sql(f"SELECT -1.28bd AS k, {digits}bd AS n")
    keyed = bootstrap_with(frame).key_by("k").transform_columns()
    operator = write(spark, tmp_path / "sp", "op", keyed)
    assert [(line["key"], line["value"]) for line in operator.dump("n")] == [("-1.28", digits)]
    # As BigInteger.toByteArray gives it: another form of -128 would be another key in RocksDB.
    files = [each.read_bytes() for each in (tmp_path / "sp").rglob("*") if each.is_file()]
    assert any(bytes.fromhex("00000005 80 00000002") in each for each in files)


@pytest.mark.parametrize(
    ("rows", "schema", "types", "message"),
    [
        ([(None, 1)], "k string, n bigint", {}, r"key is null \(row 0"),
        ([("a", 1 << 40)], "k string, n bigint", {"n": Types.INT}, "a value does not fit"),
        ([("a", "x")], "k string, n string", {"n": Types.BOOLEAN}, "cannot be written"),
    ],
)
def test_what_does_not_fit_is_an_error_without_values(
    spark, tmp_path, rows, schema, types, message
):
    frame = spark.createDataFrame(rows, schema)
    keyed = bootstrap_with(frame).key_by("k").transform_columns(types)
    with pytest.raises(ConfigError, match=message) as raised:
        write(spark, tmp_path / "sp", "op", keyed)
    assert str(1 << 40) not in raised.value.message
    assert not (tmp_path / "sp" / "_metadata").exists()


def test_no_file_is_left_that_the_savepoint_does_not_name(spark, tmp_path):
    frame = spark.range(5000).select(F.format_string("key-%d", "id").alias("k"), "id")
    operator = write(
        spark, tmp_path / "sp", "op", bootstrap_with(frame).key_by("k").transform_columns()
    )
    named = {each.stream.relative_path for each in operator.keyed_handles}
    assert {path.name for path in (tmp_path / "sp").iterdir()} == named | {
        "_metadata",
        "_dstl.json",
    }
    assert len(list(operator.dump())) == 5000


def test_parquet_files_are_read_by_the_tasks(spark, tmp_path):
    """Several files, a folder with a space, every kind of column; the same as by rows, and as
    without Spark.
    """
    rows = spark.range(0, 5000, 1, 3).selectExpr(
        "struct(concat('key-', id) AS f0, id AS f1) AS k",
        "id AS n",
        "IF(id % 3 = 0, NULL, transform(sequence(1, id % 4 + 1), i -> concat('e', i))) AS names",
        "map(concat('m', id % 5), id * 2.5D) AS m",
        "make_date(2026, 1, 1 + CAST(id % 28 AS INT)) AS d",
        "array(id) AS timers",
    )
    folder = str(tmp_path / "a folder")
    rows.write.option("parquet.block.size", 4096).parquet(folder)
    key = Types.TUPLE(Types.STRING, Types.LONG)
    dumps = []
    for start in (
        bootstrap_with(rows),
        OperatorTransformation.bootstrap_with_parquet(spark, folder),
        bootstrap_with(folder),
    ):
        made = start.key_by("k", key).transform_columns(event_time_timers="timers")
        operator = write(spark, tmp_path / f"sp-{len(dumps)}", "op", made)
        dumps.append(as_lines(operator.dump()))
    assert dumps[0] == dumps[1] == dumps[2]
    assert sum(dumps[0].values()) > 4 * 5000


def test_summary_files_beside_parquet_files_are_no_rows(spark, tmp_path):
    """As Dask and pyarrow leave them; ``spark.read.parquet`` lists them, too."""
    rows, folder, footers = pa.table({"k": ["a", "b"], "v": [1, 2]}), tmp_path / "files", []
    pq.write_to_dataset(rows, folder, metadata_collector=footers)
    pq.write_metadata(rows.schema, folder / "_metadata", metadata_collector=footers)
    pq.write_metadata(rows.schema, folder / "_common_metadata")
    assert len(spark.read.parquet(str(folder)).inputFiles()) == 3
    start = OperatorTransformation.bootstrap_with_parquet(spark, str(folder))
    operator = write(spark, tmp_path / "sp", "op", start.key_by("k").transform_columns())
    assert {line["key"]: line["value"] for line in operator.dump()} == {"a": 1, "b": 2}


class Keeps(KeyedStateBootstrapFunction):
    def process_element(self, value, ctx):
        raise AssertionError("no row is read")


@pytest.mark.parametrize(
    "end",
    [
        lambda start: start.key_by("k").transform_columns(),
        lambda start: start.key_by("k").transform_columns(on_duplicate="last", order_by=["n"]),
        lambda start: start.key_by("k").transform(Keeps()),
        lambda start: start.transform_columns(list_state={"n": None}),
    ],
)
def test_a_parquet_file_with_more_columns_loses_no_state(spark, tmp_path, end):
    rows = pa.table({"k": ["a"], "n": [1]})
    pq.write_table(rows, tmp_path / "a.parquet")
    pq.write_table(rows.append_column("more", [[2]]), tmp_path / "b.parquet")
    start = OperatorTransformation.bootstrap_with_parquet(
        spark, str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")
    )
    with pytest.raises(ConfigError, match=r"a\.parquet, got also 'more' in .*b\.parquet; write"):
        write(spark, tmp_path / "savepoint", "op", end(start))


def test_parquet_files_have_no_columns_of_their_folders(spark, tmp_path):
    rows = spark.createDataFrame([("a", 1, "x"), ("b", 2, "y")], "k string, n bigint, part string")
    rows.write.partitionBy("part").parquet(str(tmp_path / "parts"))
    made = OperatorTransformation.bootstrap_with_parquet(spark, str(tmp_path / "parts"))
    with pytest.raises(ConfigError, match="Column 'part' is not in the Parquet file"):
        write(spark, tmp_path / "sp", "op", made.key_by("k").transform_columns())
    assert not (tmp_path / "sp" / "_metadata").exists()


@pytest.mark.parametrize("kind", ["INT96", "TIMESTAMP_MICROS"])
def test_times_of_parquet_files_are_those_that_spark_reads(spark, tmp_path, kind):
    days = ["0001-01-03", "1600-02-29", "1969-12-31", "2020-11-01", "9999-12-30"]
    times = ", ".join(f"'{day} 05:30:00.123456Z'" for day in days)
    rows = spark.sql(f"SELECT explode(array({times})) AS k").selectExpr(
        "k", "cast(k AS timestamp) AS t", "array(cast(k AS timestamp)) AS l", "date(k) AS d"
    )
    files = str(tmp_path / "rows")

    def by_files():
        keyed = OperatorTransformation.bootstrap_with_parquet(spark, files).key_by("k")
        return write(spark, tmp_path / "sp", "op", keyed.transform_columns(), mode="overwrite")

    spark.conf.set("spark.sql.parquet.outputTimestampType", kind)
    try:
        rows.write.parquet(files)
        values = {(line["state"], line["key"]): line["value"] for line in by_files().dump()}
        spark.conf.set("spark.sql.parquet.datetimeRebaseModeInWrite", "LEGACY")
        rows.write.parquet(files, mode="overwrite")
        with pytest.raises(ConfigError, match=r"Column 't' .* Spark 2's calendar"):
            by_files()
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
        spark.conf.unset("spark.sql.parquet.datetimeRebaseModeInWrite")
    for day in days:
        key, text = f"{day} 05:30:00.123456Z", f"{day}T05:30:00.123456Z"
        assert [values[state, key] for state in "tld"] == [text, [text], day]
