"""SavepointReader: keyed state, with and without a function."""

import pytest

from dstl_core.codec.serializers import Types
from dstl_core.errors import (
    ConfigError,
    SavepointError,
)
from dstl_core.functions import KeyedStateReaderFunction
from dstl_core.spark.engine.worker_errors import errors_of_workers
from dstl_core.spark.savepoints.savepoint_reader import SavepointReader
from dstl_core.state.tables.descriptor import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from tests.golden_files import snapshot
from tests.integration.spark.reading import PAIR, Average, open_reader, truth

pytestmark = pytest.mark.spark


def test_a_row_per_key_with_timers(spark):
    rows = open_reader(spark, "a-hashmap-canonical").read_keyed_state("a-keyed").collect()
    name = "a-hashmap-canonical"
    counts = {each["key"]: each["value"] for each in truth(name, "a-keyed", "value", "cnt")}
    assert {row.state_key: row.cnt for row in rows if row.cnt is not None} == counts
    for kind, column in (
        ("event-timer", "event_time_timers"),
        ("proc-timer", "processing_time_timers"),
    ):
        expected = {}
        for timer in truth(name, "a-keyed", kind):
            expected.setdefault(timer["key"], []).append(timer["ts"])
        times_by_key = {row.state_key: sorted(row[column]) for row in rows if row[column]}
        assert times_by_key == {key: sorted(times) for key, times in expected.items()}


def test_timers_are_rows(spark):
    name = "a-hashmap-canonical"
    timers = open_reader(spark, name).read_timers("a-keyed").collect()
    domains = {"event-timer": "event", "proc-timer": "processing"}
    expected = [
        (timer["service"], domains[kind], timer["key"], timer["ts"])
        for kind in domains
        for timer in truth(name, "a-keyed", kind)
    ]
    assert {domain for _, domain, *_ in expected} == set(domains.values())
    assert sorted(
        (row.service, row.time_domain, row.state_key, row.timestamp) for row in timers
    ) == sorted(expected)


class Everything(KeyedStateReaderFunction):
    def open(self, runtime_context):
        self.cnt = runtime_context.get_state(ValueStateDescriptor("cnt", Types.LONG))
        self.names = runtime_context.get_list_state(ListStateDescriptor("names", Types.STRING))
        self.m = runtime_context.get_map_state(MapStateDescriptor("m", Types.STRING, Types.LONG))
        self.red = runtime_context.get_reducing_state(
            ReducingStateDescriptor("red", max, Types.LONG)
        )
        self.agg = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("agg", Average(), PAIR)
        )

    def read_key(self, key, ctx):
        yield {
            "key": key,
            "cnt": self.cnt.value(),
            "names": self.names.get(),
            "m": sorted(self.m.items()),
            "red": self.red.get(),
            "agg": self.agg.get(),
            "timers": sorted(ctx.registered_event_time_timers()),
            "proc": sorted(ctx.registered_processing_time_timers()),
        }


OUT = (
    "key string, cnt bigint, names array<string>, m map<string, bigint>, red bigint, agg double, "
    "timers array<bigint>, proc array<bigint>"
)


@pytest.mark.parametrize(
    "name",
    [
        "a-hashmap-canonical",
        "a-rocksdb-native-incremental",
        "a-hashmap-changelog-materialized",
        "e-ttl-hashmap",
    ],
)
def test_a_reader_function_sees_every_kind_of_state(spark, name):
    uid = "e-ttl" if name == "e-ttl-hashmap" else "a-keyed"
    rows = open_reader(spark, name).read_keyed_state(uid, Everything(), out_type=OUT).collect()
    by_key = {row.key: row for row in rows}

    def values(kind, state):
        plain = lambda v: v["v"] if isinstance(v, dict) else v  # noqa: E731
        return {each["key"]: each["value"] for each in truth(name, uid, kind, state)}, plain

    expected, plain = values("value", "cnt")
    assert {k: r.cnt for k, r in by_key.items() if r.cnt is not None} == {
        k: plain(v) for k, v in expected.items()
    }
    expected, plain = values("list", "names")
    assert {k: r.names for k, r in by_key.items() if r.names} == {
        k: [plain(e) for e in v] for k, v in expected.items()
    }
    expected, plain = values("map", "m")
    assert {k: r.m for k, r in by_key.items() if r.m} == {
        k: {uk: plain(e) for uk, e in v} for k, v in expected.items()
    }
    expected, plain = values("aggregating", "agg")
    assert {k: r.agg for k, r in by_key.items() if r.agg is not None} == {
        k: plain(v)[0] / plain(v)[1] for k, v in expected.items()
    }
    timers = {}
    for timer in truth(name, uid, "event-timer"):
        timers.setdefault(timer["key"], []).append(timer["ts"])
    assert {k: r.timers for k, r in by_key.items() if r.timers} == {
        k: sorted(v) for k, v in timers.items()
    }


class Wrong(KeyedStateReaderFunction):
    def __init__(self, how):
        self.how = how

    def open(self, runtime_context):
        self.context = runtime_context
        if self.how == "name":
            runtime_context.get_state(ValueStateDescriptor("count", Types.LONG))
        if self.how == "type":
            runtime_context.get_state(ValueStateDescriptor("cnt", Types.STRING))
        if self.how == "kind":
            runtime_context.get_list_state(ListStateDescriptor("cnt", Types.LONG))
        runtime_context.get_state(ValueStateDescriptor("cnt", Types.LONG))

    def read_key(self, key, ctx):
        if self.how == "late":
            self.context.get_list_state(ListStateDescriptor("names", Types.STRING))
        raise ValueError("mine")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("name", "There is no state 'count'; there are: 'agg', 'cnt', 'm', 'names', 'red'"),
        ("type", "expected value of Long|expected VALUE of Long"),
        ("kind", "has another type: expected VALUE of Long .*, got LIST of List<Long>"),
        ("late", "'names' was not registered in open; registered are: 'cnt'"),
        ("own", "The function Wrong.read_key raised ValueError: mine"),
    ],
)
def test_mistakes_of_a_reader_function_are_explained(spark, how, message):
    frame = open_reader(spark, "a-hashmap-canonical").read_keyed_state(
        "a-keyed", Wrong(how), out_type="a int"
    )
    with pytest.raises(Exception, match=message), errors_of_workers():
        frame.collect()


def test_functions_need_a_schema_and_the_key_its_type(spark):
    reader = open_reader(spark, "a-hashmap-canonical")
    with pytest.raises(ConfigError, match="out_type is missing"):
        reader.read_keyed_state("a-keyed", Wrong("own"))
    with pytest.raises(SavepointError, match="The key has another type: expected String"):
        reader.read_keyed_state("a-keyed", key_type=Types.LONG)
    with pytest.raises(SavepointError, match="'sink' has no keyed state"):
        reader.read_keyed_state("sink")


def test_timers_that_rocksdb_leaves_on_the_heap(spark):
    """Raw keyed state of the checkpoint, queues of the savepoint: the same columns."""
    reads = []
    for form in ("checkpoint", "canonical"):
        path = str(snapshot(f"a-rocksdb-heaptimers-{form}"))
        rows = SavepointReader.read(spark, path).read_keyed_state("a-keyed").collect()
        reads.append(
            sorted((row.state_key, row.cnt, sorted(row.event_time_timers), row.red) for row in rows)
        )
    assert reads[0] == reads[1]
    assert sum(len(times) for _, _, times, _ in reads[0]) > 100
