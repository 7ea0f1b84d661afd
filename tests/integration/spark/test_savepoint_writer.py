"""SavepointWriter on real Spark: every kind of state, by functions and by columns, read back."""

from pathlib import Path

import pytest
from pyspark.sql import functions as F

from dstl_core.codec.serializers import Types
from dstl_core.codec.serializers.pojo import Pojo
from dstl_core.codec.serializers.windows import TimeWindow
from dstl_core.errors import ConfigError, DuplicateKeyError, SavepointError, UserFunctionError
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.savepoint import Snapshot
from dstl_core.savepoint.functions import (
    BroadcastStateBootstrapFunction,
    KeyedStateBootstrapFunction,
    StateBootstrapFunction,
)
from dstl_core.savepoint.verify import verify_snapshot
from dstl_core.spark import OperatorTransformation, SavepointReader, SavepointWriter
from dstl_core.state.descriptor import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from dstl_core.state.triggers import CountTrigger, PurgingTrigger
from dstl_core.state.windowing import (
    EventTimeSessionWindows,
    GlobalWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from tests.golden_files import as_lines, snapshot

pytestmark = pytest.mark.spark
UID = OperatorIdentifier.for_uid
bootstrap_with = OperatorTransformation.bootstrap_with


def write(spark, path, uid, transformation, **options):
    writer = SavepointWriter.new_savepoint(spark, options.pop("max_parallelism", 128), 2)
    out = writer.with_operator(UID(uid), transformation).write(str(path), **options)
    found = Snapshot.load(out)
    assert verify_snapshot(found).findings == []
    return found[uid]


def entries(operator, kind, state=None):
    return [
        line
        for line in operator.dump()
        if line["kind"] == kind and state in (None, line.get("state"))
    ]


@pytest.fixture(scope="module")
def accounts(spark):
    rows = [(number % 7, float(number), number * 1000, f"n{number % 3}") for number in range(40)]
    return spark.createDataFrame(rows, "id int, amount double, ts bigint, name string")


# ------------------------------------------------------------------------------ functions


class Numbers(StateBootstrapFunction):
    def initialize_state(self, context):
        store = context.operator_state_store
        self.state = store.get_list_state(ListStateDescriptor("state", Types.INT))
        self.union = store.get_union_list_state(ListStateDescriptor("union", Types.STRING))

    def process_element(self, value):
        self.state.add(value["n"])
        self.union.add(str(value["n"]))


def test_list_and_union_state_by_a_function(spark, tmp_path):
    frame = spark.createDataFrame([(1,), (2,), (3,)], "n int")
    for parallelism in (1, 3):
        rows = bootstrap_with(frame).set_parallelism(parallelism).transform(Numbers())
        operator = write(spark, tmp_path / str(parallelism), "op", rows)
        assert sorted(operator.list("state")) == [1, 2, 3]
        assert sorted(operator.union("union")) == ["1", "2", "3"]
        assert operator.parallelism == parallelism


RATES = MapStateDescriptor("currency-rates", Types.STRING, Types.DOUBLE)


class Rates(BroadcastStateBootstrapFunction):
    def process_element(self, value, ctx):
        ctx.get_broadcast_state(RATES).put(value["currency"], value["rate"])


def test_broadcast_state(spark, tmp_path):
    frame = spark.createDataFrame([("USD", 1.0), ("EUR", 1.3)], "currency string, rate double")
    by_function = write(spark, tmp_path / "f", "op", bootstrap_with(frame).transform(Rates()))
    columns = bootstrap_with(frame).transform_columns(
        broadcast_state={"currency-rates": ("currency", "rate")}
    )
    by_columns = write(spark, tmp_path / "c", "op", columns)
    for operator in (by_function, by_columns):
        assert dict(operator.broadcast("currency-rates")) == {"USD": 1.0, "EUR": 1.3}


class AccountBootstrapper(KeyedStateBootstrapFunction):
    uses_timers = True

    def open(self, runtime_context):
        total = ValueStateDescriptor("total", Types.DOUBLE)
        self.total = runtime_context.get_state(total)
        self.names = runtime_context.get_list_state(ListStateDescriptor("names", Types.STRING))
        self.by_name = runtime_context.get_map_state(
            MapStateDescriptor("by-name", Types.STRING, Types.LONG)
        )
        self.most = runtime_context.get_reducing_state(
            ReducingStateDescriptor("most", max, Types.DOUBLE)
        )
        self.mean = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("mean", Mean(), Types.TUPLE(Types.DOUBLE, Types.LONG))
        )
        ttl = ValueStateDescriptor("fresh", Types.LONG)
        self.fresh = runtime_context.get_state(ttl.enable_time_to_live(StateTtlConfig(60_000)))

    def process_element(self, value, ctx):
        self.total.update(value["amount"])
        self.names.add(value["name"])
        self.by_name.put(value["name"], value["ts"])
        self.most.add(value["amount"])
        self.mean.add(value["amount"])
        self.fresh.update(value["ts"])
        ctx.timer_service().register_event_time_timer(value["ts"])
        ctx.timer_service().register_processing_time_timer(1)
        assert ctx.get_current_key() == value["id"]


class Mean:
    def create_accumulator(self):
        return (0.0, 0)

    def add(self, value, accumulator):
        return (accumulator[0] + value, accumulator[1] + 1)

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, a, b):
        return (a[0] + b[0], a[1] + b[1])


def test_every_kind_of_keyed_state_by_a_function(spark, tmp_path, accounts):
    rows = bootstrap_with(accounts).key_by("id").transform(AccountBootstrapper(), order_by=["ts"])
    operator = write(spark, tmp_path / "sp", "op", rows)
    own = {key: [n for n in range(40) if n % 7 == key] for key in range(7)}

    def values(kind, state):
        return {line["key"]: line["value"] for line in entries(operator, kind, state)}

    assert values("value", "total") == {key: float(max(ns)) for key, ns in own.items()}
    assert values("list", "names") == {key: [f"n{n % 3}" for n in ns] for key, ns in own.items()}
    latest = {key: {f"n{n % 3}": n * 1000 for n in ns} for key, ns in own.items()}
    assert values("map", "by-name") == {
        key: [[name, ts] for name, ts in sorted(pairs.items())] for key, pairs in latest.items()
    }
    assert values("reducing", "most") == {key: float(max(ns)) for key, ns in own.items()}
    assert values("aggregating", "mean") == {
        key: [float(sum(ns)), len(ns)] for key, ns in own.items()
    }
    assert {key: v["v"] for key, v in values("value", "fresh").items()} == {
        key: max(ns) * 1000 for key, ns in own.items()
    }
    timers = {}
    for line in entries(operator, "event-timer"):
        timers.setdefault(line["key"], set()).add(line["ts"])
    assert timers == {key: {n * 1000 for n in ns} for key, ns in own.items()}
    assert {line["ts"] for line in entries(operator, "proc-timer")} == {1}


class Bad(KeyedStateBootstrapFunction):
    def process_element(self, value, ctx):
        raise ValueError("mine")


def test_an_error_of_a_function_names_it_and_publishes_nothing(spark, tmp_path, accounts):
    with pytest.raises(UserFunctionError, match=r"Bad.process_element raised ValueError: mine"):
        write(spark, tmp_path / "sp", "op", bootstrap_with(accounts).key_by("id").transform(Bad()))
    assert not (tmp_path / "sp" / "_metadata").exists()


# --------------------------------------------------------------------------------- windows


def contents(operator):
    return {
        (line["key"], tuple(line["ns"])): line["value"] for line in operator.dump("window-contents")
    }


def window_timers(operator):
    return {
        (line["key"], tuple(line["ns"]), line["ts"]) for line in entries(operator, "event-timer")
    }


def add(a, b):
    return a + b


def test_tumbling_windows_with_reduce_and_the_same_by_columns(spark, tmp_path, accounts):
    assigner = TumblingEventTimeWindows.of(5000)
    windows = bootstrap_with(accounts).key_by("id").window(assigner, timestamp="ts")
    reduced = write(spark, tmp_path / "f", "op", windows.reduce(add, element="amount"))
    expected = {}
    for n in range(40):
        start = n * 1000 // 5000 * 5000
        place = (n % 7, (start, start + 5000))
        expected[place] = expected.get(place, 0.0) + n
    assert contents(reduced) == expected
    timers = {(key, window, window[1] - 1) for key, window in expected}
    assert window_timers(reduced) == timers
    start = F.floor(F.col("ts") / 5000).cast("bigint") * 5000
    grouped = accounts.groupBy(
        "id", F.struct(start.alias("start"), (start + 5000).alias("end")).alias("w")
    ).agg(F.sum("amount").alias("total"))
    by_columns = (
        bootstrap_with(grouped)
        .key_by("id")
        .window(assigner, timestamp="unused")
        .transform_columns("w", "total", kind="reducing")
    )
    other = write(spark, tmp_path / "c", "op", by_columns)
    assert contents(other) == expected
    assert window_timers(other) == timers


def test_sliding_windows_with_aggregate(spark, tmp_path, accounts):
    windows = (
        bootstrap_with(accounts)
        .key_by("id")
        .window(SlidingEventTimeWindows.of(10_000, 5000), timestamp="ts")
        .aggregate(Mean(), Types.TUPLE(Types.DOUBLE, Types.LONG), element="amount")
    )
    operator = write(spark, tmp_path / "sp", "op", windows)
    expected = {}
    for n in range(40):
        last = n * 1000 // 5000 * 5000
        for start in (last, last - 5000):
            total, count = expected.get((n % 7, (start, start + 10_000)), (0.0, 0))
            expected[n % 7, (start, start + 10_000)] = (total + n, count + 1)
    assert contents(operator) == {place: list(value) for place, value in expected.items()}


def test_sessions_merge(spark, tmp_path):
    frame = spark.createDataFrame(
        [("a", 0), ("a", 3000), ("a", 20_000), ("a", 1500), ("a", 25_000), ("b", 7)],
        "k string, ts bigint",
    )
    windows = (
        bootstrap_with(frame)
        .key_by("k")
        .window(EventTimeSessionWindows.with_gap(2000), timestamp="ts")
        .reduce(add, element="ts")
    )
    operator = write(spark, tmp_path / "sp", "op", windows)
    found = {
        (each.key, tuple(each.window)): (each.states["window-contents"], each.event_time_timers)
        for each in operator.window_entries()
    }
    assert found == {
        ("a", (0, 5000)): (4500, [4999]),
        ("a", (20_000, 22_000)): (20_000, [21_999]),
        ("a", (25_000, 27_000)): (25_000, [26_999]),
        ("b", (7, 2007)): (7, [2006]),
    }


def test_count_windows_purge_when_they_fire(spark, tmp_path):
    frame = spark.createDataFrame([("a", n) for n in range(7)], "k string, n bigint")
    windows = (
        bootstrap_with(frame)
        .key_by("k")
        .window(GlobalWindows.create(), timestamp="n")
        .trigger(PurgingTrigger.of(CountTrigger.of(3)))
        .reduce(add, element="n", order_by=["n"])
    )
    operator = write(spark, tmp_path / "sp", "op", windows)
    assert [line["value"] for line in operator.dump("window-contents")] == [6]
    assert [line["value"] for line in operator.dump("count")] == [1]


def test_windows_with_an_evictor_keep_elements_and_times(spark, tmp_path):
    frame = spark.createDataFrame([("a", 1, 10), ("a", 2, 20)], "k string, n bigint, ts bigint")
    windows = (
        bootstrap_with(frame)
        .key_by("k")
        .window(TumblingEventTimeWindows.of(1000), timestamp="ts")
        .evictor()
        .process(element="n", order_by=["ts"])
    )
    operator = write(spark, tmp_path / "sp", "op", windows)
    [line] = operator.dump("window-contents")
    assert line["value"] == [{"value": 1, "ts": 10}, {"value": 2, "ts": 20}]
    assert line["ns"] == list(TimeWindow(0, 1000))


# --------------------------------------------------------------------------------- columns


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
        each.value for each in operator.keyed_entries("pojo")
    ]


def test_a_key_with_nothing_but_a_timer(spark, tmp_path):
    frame = spark.createDataFrame(
        [("a", 1, []), ("b", None, [7])], "k string, n int, t array<bigint>"
    )
    columns = bootstrap_with(frame).key_by("k").transform_columns(event_time_timers="t")
    write(spark, tmp_path / "sp", "op", columns)
    rows = SavepointReader.read(spark, str(tmp_path / "sp")).read_keyed_state("op").collect()
    found = {row.state_key: (row.n, row.event_time_timers) for row in rows}
    assert found == {"a": (1, None), "b": (None, [7])}


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
    found = Snapshot.load(again)
    same = found.operator(OperatorIdentifier(operator.operator_id))
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
    with pytest.raises(DuplicateKeyError, match="a key comes more than once"):
        write(
            spark,
            tmp_path / "a",
            "op",
            bootstrap_with(accounts.select("id", "amount")).key_by("id").transform_columns(),
        )
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


# ------------------------------------------------------------------ modes, run keys, edits


def test_modes_and_run_keys(spark, tmp_path):
    def rows(number):
        frame = spark.createDataFrame([("a", number)], "k string, n bigint")
        return bootstrap_with(frame).key_by("k").transform_columns()

    def value():
        return next(iter(Snapshot.load(tmp_path / "sp")["op"].dump()))["value"]

    write(spark, tmp_path / "sp", "op", rows(1), run_key="r1")
    write(spark, tmp_path / "sp", "op", rows(2), run_key="r1")
    assert value() == 1, "the same run does nothing the second time"
    with pytest.raises(SavepointError, match="already there"):
        write(spark, tmp_path / "sp", "op", rows(3))
    write(spark, tmp_path / "sp", "op", rows(4), mode="overwrite")
    assert value() == 4


def test_an_operator_is_added_to_an_existing_savepoint(spark, tmp_path):
    source = Snapshot.load(snapshot("a-hashmap-canonical-files"))
    frame = spark.createDataFrame([("a", 1)], "k string, n bigint")
    out = (
        SavepointWriter.from_existing_savepoint(spark, str(source.folder))
        .with_operator(UID("new"), bootstrap_with(frame).key_by("k").transform_columns())
        .change_operator_identifier(UID("a-keyed"), UID("renamed"))
        .write(str(tmp_path / "out"))
    )
    found = Snapshot.load(out)
    assert [line["value"] for line in found["new"].dump()] == [1]
    assert found["new"].max_parallelism == 128
    for old, new in zip(
        source["a-keyed"].keyed_handles, found["renamed"].keyed_handles, strict=True
    ):
        assert source.resolver.read(old.stream) == found.resolver.read(new.stream)


def test_a_value_is_fixed_in_one_pipeline(spark, tmp_path):
    """Query, fix and write: negative counts become 0, everything else stays."""
    source = Snapshot.load(snapshot("a-hashmap-canonical"))
    operator = source["a-keyed"]
    frame = SavepointReader.read(spark, str(source.folder)).read_keyed_state("a-keyed")
    fixed = frame.withColumn("red", F.greatest(F.col("red"), F.lit(0)))
    rows = bootstrap_with(fixed).key_by("state_key")
    out = (
        SavepointWriter.from_existing_savepoint(spark, source)
        .remove_operator(UID("a-keyed"))
        .with_operator(
            UID("a-keyed"),
            rows.transform_columns(
                template=operator,
                event_time_timers="event_time_timers",
                processing_time_timers="processing_time_timers",
            ),
        )
        .write(str(tmp_path / "out"))
    )

    def normal(line):
        return line | {"value": max(line["value"], 0)} if line.get("state") == "red" else line

    found = Snapshot.load(out)["a-keyed"]
    assert as_lines(found.dump()) == as_lines(map(normal, operator.dump()))
    assert Path(out.removeprefix("file:")).is_dir()


def test_two_snapshots_as_a_difference_and_as_a_history(spark, tmp_path):
    paths = []
    for number, rows in enumerate([[("a", 1), ("b", 2)], [("a", 1), ("b", 3), ("c", 4)]]):
        frame = spark.createDataFrame(rows, "k string, n bigint")
        paths.append(str(tmp_path / str(number)))
        write(spark, paths[-1], "op", bootstrap_with(frame).key_by("k").transform_columns())
    reader = SavepointReader.read(spark, paths[0])
    rows = reader.diff(paths[1]).collect()
    assert {(row.change, row.op, row.key, row.before, row.after) for row in rows} == {
        ("changed", "op", '"b"', "2", "3"),
        ("added", "op", '"c"', None, "4"),
    }
    history = reader.read_history(paths[1:], "op").collect()
    assert {(row.snapshot, row.state_key, row.n) for row in history} == {
        (paths[0], "a", 1),
        (paths[0], "b", 2),
        (paths[1], "a", 1),
        (paths[1], "b", 3),
        (paths[1], "c", 4),
    }
