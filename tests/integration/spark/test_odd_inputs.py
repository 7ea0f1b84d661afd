"""Bootstraps of what is seldom but legal, and errors for what is not."""

import datetime as dt
import json
from decimal import Decimal

import pytest
from pyspark.errors import PySparkException

from dstl_core import Snapshot, edit_savepoint
from dstl_core.codec.serializers import Types
from dstl_core.errors import (
    ColumnValueError,
    ConfigError,
    DuplicateKeyError,
    NoSuchOperatorError,
    SavepointError,
)
from dstl_core.functions import KeyedStateBootstrapFunction, KeyedStateReaderFunction
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.spark.savepoints.data_source import register
from dstl_core.spark.savepoints.savepoint_reader import SavepointReader
from dstl_core.state.tables.descriptor import ValueStateDescriptor
from dstl_core.state.windows.windowing import TumblingEventTimeWindows
from tests.integration.spark.writing import bootstrap_with, write

pytestmark = pytest.mark.spark
UID = OperatorIdentifier.for_uid("op")


class Fill(KeyedStateBootstrapFunction):
    """Value states of some names, from the column ``n``."""

    def __init__(self, *names):
        self.names = names or ("n",)

    def open(self, runtime_context):
        self.states = [
            runtime_context.get_state(ValueStateDescriptor(name, Types.LONG)) for name in self.names
        ]

    def process_element(self, value, ctx):
        for state in self.states:
            state.update(value["n"])


def both_ways(keyed):
    return {"columns": keyed.transform_columns(), "function": keyed.transform(Fill())}


def read(spark, operator, **options):
    reader = SavepointReader.read(spark, str(operator.snapshot.folder))
    return reader.read_keyed_state(UID, **options)


KEYS = [
    ("string", ["", "a", "Zürich 😀", "x" * 2_000_000], None),
    ("boolean", [True, False], None),
    ("tinyint", [-128, 127], None),
    ("smallint", [-1, 1], None),
    ("int", [-(2**31), 2**31 - 1], None),
    ("bigint", [-(2**63), 2**63 - 1], None),
    ("float", [-0.0, 1.5], None),
    ("double", [-0.0, 0.1, float("inf")], None),
    ("decimal(10,2)", [Decimal("1.20"), Decimal("-7.00")], None),
    ("date", [dt.date(1600, 1, 1), dt.date(2026, 11, 21)], None),
    ("timestamp", [dt.datetime(1960, 1, 1), dt.datetime(2026, 1, 1, 1, 2, 3, 456789)], None),
    ("timestamp_ntz", [dt.datetime(2026, 1, 1, 1, 2, 3, 456789)], None),
    ("array<int>", [[], [1, 2]], None),
    ("struct<a:int,b:string>", [(1, "x"), (1, None)], None),
    ("struct<a:int,b:string>", [(1, "x"), (2, "")], Types.TUPLE(Types.INT, Types.STRING)),
]


@pytest.mark.parametrize(("kind", "keys", "key_type"), KEYS)
def test_keys_of_every_kind_are_the_same_by_columns_and_by_a_function(
    spark, tmp_path, kind, keys, key_type
):
    rows = spark.createDataFrame([(key, n) for n, key in enumerate(keys)], f"k {kind}, n bigint")
    dumps = {}
    for way, made in both_ways(bootstrap_with(rows).key_by("k", key_type)).items():
        operator = write(spark, tmp_path / way, "op", made)
        dumps[way] = sorted(map(str, operator.dump()))
        if kind not in ("decimal(10,2)", "timestamp"):  # columns of another type, or another zone
            read_back = {
                repr(plain(row.state_key)): row.n for row in read(spark, operator).collect()
            }
            assert read_back == {repr(plain(key)): n for n, key in enumerate(keys)}
    assert len(dumps["columns"]) == len(keys)
    assert dumps["columns"] == dumps["function"]


def plain(key):
    return tuple(key) if isinstance(key, tuple) else key


@pytest.mark.parametrize("kind", ["binary", "map<string, int>"])
def test_what_java_does_not_hash_by_value_is_no_key(spark, tmp_path, kind):
    key = b"x" if kind == "binary" else {"a": 1}
    rows = spark.createDataFrame([(key, 1)], f"k {kind}, n bigint")
    for way, made in both_ways(bootstrap_with(rows).key_by("k")).items():
        with pytest.raises(ConfigError, match="cannot be a key"):
            write(spark, tmp_path / way, "op", made)


@pytest.mark.parametrize("values", [[], [("a", None)]])
def test_a_savepoint_without_a_row_still_says_which_states_there_are(spark, tmp_path, values):
    rows = spark.createDataFrame(values, "k string, n bigint")
    for way, made in both_ways(bootstrap_with(rows).key_by("k")).items():
        operator = write(spark, tmp_path / way, "op", made)
        assert [info.name for info in operator.states] == ["n"]
        assert read(spark, operator).collect() == []
        assert read(spark, operator, state="n").collect() == []
        edit = edit_savepoint(operator.snapshot).with_max_parallelism(17)
        rescaled = Snapshot.load(edit.write(tmp_path / f"{way}-17"))["op"]
        assert [info.name for info in rescaled.states] == ["n"]


@pytest.mark.parametrize("name", ["a.b`c", "a,b/c=d 'e\" é\n", "keyed"])
def test_names_with_any_character(spark, tmp_path, name):
    rows = spark.createDataFrame([("a", 1)], "k string, n bigint")
    as_state = bootstrap_with(rows.toDF("k", name)).key_by("k").transform_columns()
    operator = write(spark, tmp_path / "state", "op", as_state)
    path = str(operator.snapshot.folder)
    assert read(spark, operator).collect() == [("a", 1)]
    assert read(spark, operator, state=name).collect() == [("a", 1)]
    source = spark.read.format("savepoint").option("kind", "keyed-flat").option("state", name)
    assert source.load(path).collect() == [("a", 1)]
    columns = json.dumps(["state_key", name])
    assert spark.read.format("savepoint").option("columns", columns).load(path).collect() == [
        ("a", 1)
    ]
    [view] = [each for each in register(spark, path) if each.endswith("_keyed")]
    assert spark.table(view).count() == 1

    for way, made in both_ways(bootstrap_with(rows.toDF(name, "n")).key_by(name)).items():
        operator = write(spark, tmp_path / way, "op", made)
        assert [(e["key"], e["value"]) for e in operator.dump()] == [("a", 1)]
    twice = bootstrap_with(rows.union(rows).toDF(name, "n")).key_by(name)
    with pytest.raises(DuplicateKeyError, match="Keys: 'a'"):
        write(spark, tmp_path / "twice", "op", twice.transform_columns(show_keys=True))
    lists = bootstrap_with(rows.toDF("k", name)).transform_columns(list_state={name: None})
    assert write(spark, tmp_path / "lists", "op", lists).list(name) == [1]


def test_a_state_with_the_name_of_the_key(spark, tmp_path):
    rows = spark.createDataFrame([("a", 1)], "k string, n bigint")
    with pytest.raises(ConfigError, match="cannot be called 'state_key'"):
        bootstrap_with(rows.toDF("k", "state_key")).key_by("k").transform_columns()
    keyed = bootstrap_with(rows).key_by("k").transform(Fill("state_key", "other"))
    operator = write(spark, tmp_path / "sp", "op", keyed)
    with pytest.raises(SavepointError, match="'state_key' of operator 'op' has the name of a"):
        read(spark, operator)
    assert read(spark, operator, state="state_key").collect() == [("a", 1)]
    assert read(spark, operator, columns=["state_key", "other"]).collect() == [("a", 1)]
    with pytest.raises(ConfigError, match="'other' is named twice"):
        read(spark, operator, columns=["other", "other"])
    assert register(spark, str(operator.snapshot.folder)) == ["metadata"]


def test_a_broadcast_key_that_comes_twice(spark, tmp_path):
    rows = spark.createDataFrame([("a", 1), ("b", 2), ("a", 3)], "k string, n bigint")
    made = bootstrap_with(rows).transform_columns(broadcast_state={"rules": ("k", "n")})
    with pytest.raises(DuplicateKeyError, match=r"'rules' gets a key more than once \(1 rows"):
        write(spark, tmp_path / "sp", "op", made)


def test_columns_that_are_not_there_are_named_with_those_that_are(spark):
    keyed = bootstrap_with(spark.createDataFrame([("a", 1)], "k string, n bigint")).key_by("k")
    for options in (
        {"event_time_timers": "zz"},
        {"on_duplicate": "last", "order_by": ["zz"]},
        {"types": {"zz": Types.INT}},
    ):
        with pytest.raises(ConfigError, match=r"'zz'; the DataFrame has: .*n"):
            keyed.transform_columns(**options)


def test_a_null_where_the_type_has_none_is_an_error_with_the_state(spark, tmp_path):
    rows = spark.createDataFrame([("a", [1, None])], "k string, l array<int>")
    made = bootstrap_with(rows).key_by("k").transform_columns()
    with pytest.raises(ColumnValueError, match="State 'l' cannot be written: Row 0"):
        write(spark, tmp_path / "sp", "op", made)


@pytest.mark.parametrize(
    ("kind", "value"),
    [("struct<a:int,b:string>", (1, "x")), ("date", dt.date(2026, 1, 1)), ("bigint", 7)],
)
def test_elements_of_windows_of_every_kind(spark, tmp_path, kind, value):
    rows = spark.createDataFrame([("a", value, 5)], f"k string, v {kind}, ts bigint")
    windows = (
        bootstrap_with(rows).key_by("k").window(TumblingEventTimeWindows.of(10), timestamp="ts")
    )
    operator = write(spark, tmp_path / "sp", "op", windows.process(element="v"))
    frame = SavepointReader.read(spark, str(operator.snapshot.folder)).window().process("op")
    [row] = frame.collect()
    assert row["window-contents"] == [value]


def test_many_partitions_and_one(spark, tmp_path):
    rows = spark.range(0, 2000, 1, 200).selectExpr("concat('k', id) AS k", "id AS n")
    many = bootstrap_with(rows).key_by("k").transform_columns()
    one = bootstrap_with(rows.coalesce(1)).key_by("k").transform(Fill())
    for name, made in (("many", many), ("one", one)):
        operator = write(spark, tmp_path / name, "op", made)
        values = {line["key"]: line["value"] for line in operator.dump()}
        assert values == {f"k{n}": n for n in range(2000)}


class Misnamed(KeyedStateReaderFunction):
    def open(self, runtime_context):
        self.n = runtime_context.get_state(ValueStateDescriptor("n", Types.LONG))

    def read_key(self, key, ctx):
        yield {"key": key, "number": self.n.value()}


def test_what_a_reader_is_asked_for_and_is_not_there(spark, tmp_path):
    rows = spark.createDataFrame([("a", 1)], "k string, n bigint")
    made = bootstrap_with(rows).key_by("k").transform_columns()
    operator = write(spark, tmp_path / "sp", "op", made)
    frame = read(spark, operator, function=Misnamed(), out_type="key string, n bigint")
    with pytest.raises(PySparkException, match="the unknown column 'number'; out_type has: key, n"):
        frame.collect()
    reader = SavepointReader.read(spark, str(operator.snapshot.folder))
    with pytest.raises(
        NoSuchOperatorError, match=r"'uid:nobody' is not in the snapshot; it has: 'op'"
    ):
        reader.read_keyed_state(OperatorIdentifier.for_uid("nobody"))
    assert read(spark, operator, keys=[]).collect() == []


def test_options_of_the_source_that_are_wrong(spark, tmp_path):
    rows = spark.createDataFrame([("a", 1)], "k string, n bigint")
    operator = write(
        spark, tmp_path / "sp", "op", bootstrap_with(rows).key_by("k").transform_columns()
    )
    for options, message in (
        ({"columns": '["state_key", "n"'}, "columns is wrong"),
        ({"columns": "state_key,zz"}, "There is no column 'zz'"),
        ({"state": "zz"}, "it has: 'n'"),
        ({"operator.uid": "zz"}, "it has: 'op'"),
        ({"kind": "zz"}, "kind is wrong"),
        ({"key.in": "a"}, "key.in is wrong"),
    ):
        with pytest.raises(PySparkException, match=message):
            spark.read.format("savepoint").options(**options).load(str(operator.snapshot.folder))
