"""Real Flink restores what SavepointWriter made of DataFrames, goes on, and we read it back."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from dstl_core import LocalEngine, Snapshot, edit_savepoint
from dstl_core.codec.serializers import Types
from dstl_core.functions import KeyedStateBootstrapFunction
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.operator_transformation import OperatorTransformation
from dstl_core.savepoint.bootstrap.savepoint_writer import SavepointWriter
from dstl_core.savepoint.bootstrap.state_bootstrap import ColumnBootstrap
from dstl_core.savepoint.bootstrap.transformations import OneInputStateTransformation
from dstl_core.savepoint.write.folder import KeyedForm
from dstl_core.state.tables.descriptor import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from tests.integration.flink.checker import Entry, FlinkChecker, Operator, State, TimerService
from tests.integration.flink.model import texts
from tests.integration.spark.conftest import functions_travel_by_value

__all__ = ["functions_travel_by_value"]
pytestmark = [pytest.mark.flink, pytest.mark.spark]

UID = OperatorIdentifier.for_uid
BACKENDS = ("hashmap", "rocksdb")
bootstrap_with = OperatorTransformation.bootstrap_with
PAIR = Types.TUPLE(Types.LONG, Types.LONG)
STATES = [
    State("v", "value", "long"),
    State("l", "list", "string"),
    State("m", "map", "long", map_key="string"),
    State("r", "reducing", "long"),
    State("a", "aggregating", "tuple<long,long>"),
    State("fresh", "value", "long", ttl_ms=1 << 40),
    State("fresh-list", "list", "string", ttl_ms=1 << 40),
    State("fresh-map", "map", "long", map_key="string", ttl_ms=1 << 40),
]
KEYED = Operator("keyed", "string", STATES, timers=[TimerService()])
TTL = StateTtlConfig(1 << 40)


class Sum:
    def create_accumulator(self) -> Any:
        return (0, 0)

    def add(self, value: Any, accumulator: Any) -> Any:
        return (accumulator[0] + value, accumulator[1] + 1)

    def get_result(self, accumulator: Any) -> Any:
        return accumulator[0]

    def merge(self, a: Any, b: Any) -> Any:
        return (a[0] + b[0], a[1] + b[1])


VALUE = ValueStateDescriptor("v", Types.LONG)
LIST = ListStateDescriptor("l", Types.STRING)
MAP = MapStateDescriptor("m", Types.STRING, Types.LONG)
REDUCING = ReducingStateDescriptor("r", max, Types.LONG)
AGGREGATING = AggregatingStateDescriptor("a", Sum(), PAIR)
FRESH = ValueStateDescriptor("fresh", Types.LONG).enable_time_to_live(TTL)
FRESH_LIST = ListStateDescriptor("fresh-list", Types.STRING).enable_time_to_live(TTL)
FRESH_MAP = MapStateDescriptor("fresh-map", Types.STRING, Types.LONG).enable_time_to_live(TTL)


class Fill(KeyedStateBootstrapFunction):
    uses_timers = True

    def open(self, runtime_context: Any) -> None:
        context = runtime_context
        self.v, self.l = context.get_state(VALUE), context.get_list_state(LIST)
        self.m, self.r = context.get_map_state(MAP), context.get_reducing_state(REDUCING)
        self.a, self.f = context.get_aggregating_state(AGGREGATING), context.get_state(FRESH)
        self.fl, self.fm = context.get_list_state(FRESH_LIST), context.get_map_state(FRESH_MAP)

    def process_element(self, value: Any, ctx: Any) -> None:
        number = value["n"]
        self.v.update(number)
        self.l.add(f"e{number}")
        self.m.put(f"u{number % 3}", number)
        self.r.add(number)
        self.a.add(number)
        self.f.update(number)
        self.fl.add(f"f{number}")
        self.fm.put("x", number)
        ctx.timer_service().register_event_time_timer(1000 + number)
        ctx.timer_service().register_processing_time_timer(4102444800000)


def expected_lines() -> list[Entry]:
    """What Fill leaves of 200 rows over 50 keys, computed by hand."""
    entries: list[Entry] = []
    for key in range(50):
        numbers = [key, key + 50, key + 100, key + 150]
        common: Entry = {"op": "keyed", "key": f"key-{key}", "ns": None}
        pairs = sorted({f"u{n % 3}": n for n in numbers}.items())
        plain = {"state": "v", "kind": "value", "value": numbers[-1]}
        entries += [
            common | plain,
            common | {"kind": "list", "state": "l", "value": [f"e{n}" for n in numbers]},
            common | {"kind": "map", "state": "m", "value": [list(pair) for pair in pairs]},
            common | {"kind": "reducing", "state": "r", "value": numbers[-1]},
            common | {"kind": "aggregating", "state": "a", "value": [sum(numbers), 4]},
        ]
        timers: Entry = {"op": "keyed", "key": f"key-{key}", "ns": None, "service": "user-timers"}
        entries += [timers | {"kind": "event-timer", "ts": 1000 + n} for n in numbers]
        entries.append(timers | {"kind": "proc-timer", "ts": 4102444800000})
    return entries


def without_ttl(entries: list[Entry]) -> list[Entry]:
    return [each for each in entries if not str(each.get("state", "")).startswith("fresh")]


def fresh(entries: list[Entry]) -> dict[str, dict[str, Any]]:
    """The values of the states with a time to live, without their times."""
    by_state: dict[str, dict[str, Any]] = {}
    for entry in entries:
        if str(entry.get("state", "")).startswith("fresh"):
            by_state.setdefault(entry["state"], {})[entry["key"]] = _plain(entry["value"])
    return by_state


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return value["v"]
    return [
        _plain(item) if not isinstance(item, list) else [item[0], _plain(item[1])] for item in value
    ]


def columns_without_spark() -> pa.Table:
    """The columns of the same state, computed by hand."""
    ns = [[*range(key, 200, 50)] for key in range(50)]
    last = [each[-1] for each in ns]
    text_lists, pairs = pa.list_(pa.string()), pa.map_(pa.string(), pa.int64())
    sums = pa.struct([("s", pa.int64()), ("c", pa.int64())])
    return pa.table(
        {
            "k": [f"key-{key}" for key in range(50)],
            "v": last,
            "l": pa.array([[f"e{n}" for n in each] for each in ns], text_lists),
            "m": pa.array([[(f"u{n % 3}", n) for n in each[1:]] for each in ns], pairs),
            "r": last,
            "a": pa.array([{"s": sum(each), "c": 4} for each in ns], sums),
            "fresh": last,
            "fresh-list": pa.array([[f"f{n}" for n in each] for each in ns], text_lists),
            "fresh-map": pa.array([[("x", n)] for n in last], pairs),
            "timers": [[1000 + n for n in each] for each in ns],
            "proc": [[4102444800000]] * 50,
        }
    )


@pytest.fixture(scope="module", params=["function", "columns", "local", "local function"])
def bootstrapped(request: Any, spark: Any, tmp_path_factory: Any) -> dict[str, str]:
    """The same state, by a function and by columns, on both engines, in both forms."""
    rows = [(f"key-{number % 50}", number) for number in range(200)]
    out = tmp_path_factory.mktemp("bootstrap")
    if request.param.startswith("local"):
        local = SavepointWriter.new_savepoint(LocalEngine(), 128, 2)
        if request.param == "local":
            made_here: Any = in_columns(bootstrap_with(columns_without_spark()))
        else:
            keys, numbers_of_keys = zip(*rows, strict=True)
            table = pa.table({"k": keys, "n": numbers_of_keys})
            made_here = bootstrap_with(table).key_by("k").transform(Fill(), order_by=["n"])
        return in_both_forms(local.with_operator(UID("keyed"), made_here), out)
    frame = spark.createDataFrame(rows, "k string, n bigint")
    writer = SavepointWriter.new_savepoint(spark, 128, 2)
    if request.param == "function":
        made = bootstrap_with(frame).key_by("k").transform(Fill(), order_by=["n"])
        return in_both_forms(writer.with_operator(UID("keyed"), made), out)
    numbers = F.array_sort(F.collect_list("n"))
    grouped = frame.groupBy("k").agg(numbers.alias("ns"))
    last = F.element_at("ns", -1)
    pairs = F.expr(
        "map_from_entries(transform(slice(reverse(ns), 1, 3), n -> struct(concat('u', n % 3), n)))"
    )
    columns = grouped.select(
        "k",
        last.alias("v"),
        F.expr("transform(ns, n -> concat('e', n))").alias("l"),
        pairs.alias("m"),
        last.alias("r"),
        F.struct(
            F.expr("aggregate(ns, 0L, (a, n) -> a + n)").alias("s"),
            F.lit(4).cast("bigint").alias("c"),
        ).alias("a"),
        last.alias("fresh"),
        F.expr("transform(ns, n -> concat('f', n))").alias("fresh-list"),
        F.create_map(F.lit("x"), last).alias("fresh-map"),
        F.expr("transform(ns, n -> 1000 + n)").alias("timers"),
        F.array(F.lit(4102444800000)).alias("proc"),
    )
    made_of_columns = in_columns(bootstrap_with(columns))
    return in_both_forms(writer.with_operator(UID("keyed"), made_of_columns), out)


def in_columns(start: OneInputStateTransformation) -> ColumnBootstrap:
    return start.key_by("k").transform_columns(
        states={
            "r": REDUCING,
            "a": AGGREGATING,
            "fresh": FRESH,
            "fresh-list": FRESH_LIST,
            "fresh-map": FRESH_MAP,
        },
        event_time_timers="timers",
        processing_time_timers="proc",
    )


def in_both_forms(writer: SavepointWriter, folder: Path) -> dict[str, str]:
    return {
        "canonical": writer.write(folder / "canonical"),
        "native": writer.with_format("native").write(folder / "native"),
    }


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_every_kind_of_keyed_state_restores_and_timers_fire(
    flink: FlinkChecker,
    bootstrapped: dict[str, str],
    tmp_path: Path,
    backend: str,
    parallelism: int,
) -> None:
    is_native = backend == "rocksdb" and parallelism == 3
    restored = flink.restore(
        bootstrapped["native" if is_native else "canonical"],
        [KEYED],
        backend=backend,
        parallelism=parallelism,
        updates=[{"op": "keyed", "key": "key-0", "state": "v", "do": "update", "value": -7}],
        watermark=1100,
        savepoint_to=tmp_path,
    )

    assert texts(without_ttl(restored.entries), "kg") == texts(expected_lines())
    assert fresh(restored.entries) == {
        "fresh": {f"key-{key}": key + 150 for key in range(50)},
        "fresh-list": {f"key-{key}": [f"f{n}" for n in range(key, 200, 50)] for key in range(50)},
        "fresh-map": {f"key-{key}": [["x", key + 150]] for key in range(50)},
    }
    assert {each["ts"] for each in restored.fired} == set(range(1000, 1101))
    assert restored.savepoint is not None
    after = Snapshot.load(restored.savepoint)["keyed"]
    values = {line["key"]: line["value"] for line in after.dump("v")}
    assert values == {f"key-{key}": key + 150 for key in range(50)} | {"key-0": -7}
    left = {line["ts"] for line in after.dump() if line["kind"] == "event-timer"}
    assert left == set(range(1101, 1200))


@pytest.mark.parametrize(("claim", "parallelism"), [("NO_CLAIM", 2), ("CLAIM", 3)])
def test_a_job_goes_on_from_native_state_that_was_bootstrapped(
    flink: FlinkChecker,
    bootstrapped: dict[str, str],
    tmp_path: Path,
    claim: str,
    parallelism: int,
) -> None:
    """Its checkpoints are incremental, and subsume what it was restored from."""
    check_it_goes_on(flink, bootstrapped, tmp_path, claim, parallelism)


@pytest.mark.soak
@pytest.mark.parametrize(("claim", "parallelism"), [("NO_CLAIM", 3), ("CLAIM", 2)])
def test_a_job_of_another_release_goes_on_from_it(
    release: FlinkChecker,
    bootstrapped: dict[str, str],
    tmp_path: Path,
    claim: str,
    parallelism: int,
) -> None:
    check_it_goes_on(release, bootstrapped, tmp_path, claim, parallelism)


def check_it_goes_on(
    flink: FlinkChecker,
    bootstrapped: dict[str, str],
    tmp_path: Path,
    claim: str,
    parallelism: int,
) -> None:
    source = shutil.copytree(bootstrapped["native"].removeprefix("file:"), tmp_path / "native")
    new: Entry = {"op": "keyed", "key": "a new one", "state": "v", "do": "update", "value": -7}
    restored = flink.restore(
        source,
        [KEYED],
        backend="rocksdb",
        parallelism=parallelism,
        updates=[new],
        checkpoints=3,
        savepoint_to=tmp_path / "savepoints",
        claim_mode=claim,
        settings={"state.backend.rocksdb.use-ingest-db-restore-mode": "true"},
    )
    assert texts(without_ttl(restored.entries), "kg") == texts(expected_lines())
    assert (source / "_metadata").exists() == (claim == "NO_CLAIM")
    added = {"op": "keyed", "key": "a new one", "ns": None, "state": "v", "kind": "value"}
    expected = [*expected_lines(), {**added, "value": -7}]
    for place in (restored.savepoint, restored.checkpoints[-1]):
        again = flink.restore(place, [KEYED], backend="rocksdb")
        assert texts(without_ttl(again.entries), "kg") == texts(expected)
        assert fresh(again.entries) == fresh(restored.entries)


@pytest.mark.parametrize("backend", BACKENDS)
def test_equal_timers_fire_once(
    flink: FlinkChecker, spark: Any, tmp_path: Path, backend: str
) -> None:
    frame = spark.createDataFrame(
        [("a", [5, 5, 6]), ("b", [5]), ("a", [5])], "k string, t array<bigint>"
    )
    made = bootstrap_with(frame).key_by("k").transform_columns(event_time_timers="t")
    writer = SavepointWriter.new_savepoint(spark, 128, 2).with_operator(UID("keyed"), made)
    path = writer.write(str(tmp_path / "sp"))

    only = Operator("keyed", "string", STATES[:1], timers=[TimerService()])
    restored = flink.restore(path, [only], backend=backend, parallelism=2, watermark=10)

    assert sorted((each["key"], each["ts"]) for each in restored.fired) == [
        ("a", 5),
        ("a", 6),
        ("b", 5),
    ]


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_overdue_timer_of_the_clock_fires_at_once(
    flink: FlinkChecker, spark: Any, tmp_path: Path, backend: str
) -> None:
    """None fires while state is bootstrapped; those of the future stay."""
    frame = spark.createDataFrame(
        [("late", [1000, 4102444800000]), ("early", [4102444800000])], "k string, at array<bigint>"
    )
    made = bootstrap_with(frame).key_by("k").transform_columns(processing_time_timers="at")
    writer = SavepointWriter.new_savepoint(spark, 128, 2).with_operator(UID("keyed"), made)
    path = writer.write(str(tmp_path / "sp"))
    held = [(line["key"], line["ts"]) for line in Snapshot.load(path)["keyed"].dump()]
    assert sorted(held) == [("early", 4102444800000), ("late", 1000), ("late", 4102444800000)]

    restored = flink.restore(
        path,
        [Operator("keyed", "string", STATES[:1], timers=[TimerService()])],
        backend=backend,
        parallelism=2,
        fires=1,
        savepoint_to=tmp_path / "after",
    )

    assert [(e["kind"], e["key"], e["ts"]) for e in restored.fired] == [
        ("proc-timer", "late", 1000)
    ]
    assert restored.savepoint is not None
    left = [(line["key"], line["ts"]) for line in Snapshot.load(restored.savepoint)["keyed"].dump()]
    assert sorted(left) == [("early", 4102444800000), ("late", 4102444800000)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_bootstrap_without_a_row_restores(
    flink: FlinkChecker, spark: Any, tmp_path: Path, backend: str
) -> None:
    frame = spark.createDataFrame([], "k string, v bigint, l array<string>")
    made = bootstrap_with(frame).key_by("k").transform_columns()
    form: KeyedForm = "native" if backend == "rocksdb" else "canonical"
    writer = SavepointWriter.new_savepoint(spark, 128, 2).with_operator(UID("keyed"), made)
    ours = writer.with_format(form).write(str(tmp_path / "sp"))
    edit = edit_savepoint(Snapshot.load(ours)).with_format(form).with_max_parallelism(64)
    rescaled = edit.write(tmp_path / "64")
    job = Operator("keyed", "string", STATES[:2])
    updates = [{"op": "keyed", "key": "a", "state": "v", "do": "update", "value": 1}]

    for path in (ours, rescaled):
        restored = flink.restore(
            path,
            [job],
            backend=backend,
            parallelism=3,
            updates=updates,
            savepoint_to=tmp_path / "after",
        )
        assert restored.entries == []
        assert restored.savepoint is not None
        assert [line["key"] for line in Snapshot.load(restored.savepoint)["keyed"].dump()] == ["a"]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_list_union_and_broadcast_state_restore(
    flink: FlinkChecker,
    spark: Any,
    tmp_path: Path,
    parallelism: int,
) -> None:
    frame = spark.createDataFrame([(n, f"s{n}") for n in range(20)], "n bigint, s string")
    lists = (
        bootstrap_with(frame)
        .set_parallelism(2)
        .transform_columns(list_state={"n": None}, union_state={"s": None})
    )
    rules = bootstrap_with(frame).transform_columns(broadcast_state={"rules": ("s", "n")})
    out = (
        SavepointWriter.new_savepoint(spark, 128)
        .with_operator(UID("lists"), lists)
        .with_operator(UID("rules"), rules)
        .write(str(tmp_path / "sp"))
    )
    operators = [
        Operator(
            "lists",
            operator_states=[State("n", "op-list", "long"), State("s", "op-union", "string")],
        ),
        Operator(
            "rules", operator_states=[State("rules", "op-broadcast", "long", map_key="string")]
        ),
    ]

    entries = flink.restore(out, operators, parallelism=parallelism).entries

    elements = [v for each in entries if each["kind"] == "op-list" for v in each["value"]]
    assert sorted(elements) == list(range(20))
    [union] = [each for each in entries if each["kind"] == "op-union"]
    assert sorted(union["value"]) == sorted(f"s{n}" for n in range(20))
    [broadcast] = [each for each in entries if each["kind"] == "op-broadcast"]
    assert dict(broadcast["value"]) == {f"s{n}": n for n in range(20)}


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_operator_is_bootstrapped_beside_those_of_a_running_job(
    flink: FlinkChecker,
    spark: Any,
    tmp_path: Path,
    backend: str,
) -> None:
    old = Operator("old", "string", [State("n", "value", "long")])
    updates = [
        {"op": "old", "key": f"k{n}", "state": "n", "do": "update", "value": n} for n in range(30)
    ]
    source = flink.restore(None, [old], backend=backend, updates=updates, savepoint_to=tmp_path)
    assert source.savepoint is not None
    frame = spark.createDataFrame([(n, str(n)) for n in range(30)], "k int, s string")
    out = (
        SavepointWriter.from_existing_savepoint(spark, source.savepoint)
        .with_operator(UID("new"), bootstrap_with(frame).key_by("k").transform_columns())
        .change_operator_identifier(UID("old"), UID("renamed"))
        .with_max_parallelism(512)
        .write(str(tmp_path / "out"))
    )
    job = [
        Operator("renamed", "string", [State("n", "value", "long")], max_parallelism=512),
        Operator("new", "int", [State("s", "value", "string")], max_parallelism=512),
    ]

    entries = flink.restore(out, job, backend=backend, parallelism=3).entries

    assert {e["key"]: e["value"] for e in entries if e["op"] == "renamed"} == {
        f"k{n}": n for n in range(30)
    }
    assert {e["key"]: e["value"] for e in entries if e["op"] == "new"} == {
        n: str(n) for n in range(30)
    }
