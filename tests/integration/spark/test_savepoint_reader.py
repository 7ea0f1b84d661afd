"""SavepointReader on real Spark, over savepoints that real Flink wrote."""

import json

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from dstl_core.codec.serializers import BUILT_IN, Types, TypeSerializer
from dstl_core.codec.serializers.windows import GlobalWindowSerializer
from dstl_core.errors import (
    ConfigError,
    NoSuchOperatorError,
    NoSuchStateError,
    SavepointError,
    StateFileNotFoundError,
)
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.savepoint import Snapshot
from dstl_core.savepoint.changes import change_lines
from dstl_core.savepoint.functions import (
    KeyedStateBootstrapFunction,
    KeyedStateReaderFunction,
    StateBootstrapFunction,
    WindowReaderFunction,
)
from dstl_core.spark import (
    OperatorTransformation,
    SavepointReader,
    SavepointWriter,
    register,
)
from dstl_core.spark.errors import errors_of_workers
from dstl_core.state.descriptor import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from dstl_core.state.windowing import (
    EventTimeSessionWindows,
    GlobalWindows,
    TumblingEventTimeWindows,
)
from tests.golden_files import GOLDEN, Fixture, snapshot
from tests.integration.flink.checker import State
from tests.integration.flink.writing import write_savepoint

pytestmark = pytest.mark.spark
UID = OperatorIdentifier.for_uid
PAIR = Types.TUPLE(Types.LONG, Types.LONG)
CLICK = Types.TUPLE(Types.STRING, Types.LONG, Types.LONG)


def open_reader(spark, name):
    return SavepointReader.read(spark, str(snapshot(name)))


def truth(name, op, kind, state=None):
    return [
        each
        for each in Fixture(GOLDEN / name).truth
        if each["op"] == op and each["kind"] == kind and state in (None, each.get("state"))
    ]


# ------------------------------------------------------------------------- operator state


def test_list_state_is_every_element_of_every_subtask(spark):
    reader = open_reader(spark, "c-opstate-hashmap")
    for state, type_info in (("txt", Types.STRING), ("buf", Types.LONG)):
        rows = reader.read_list_state(UID("c-list"), state, type_info).collect()
        expected = {
            each["subtask"]: each["value"]
            for each in truth("c-opstate-hashmap", "c-list", "op-list", state)
        }
        found = {}
        for row in sorted(rows, key=lambda row: (row.subtask, row.list_index)):
            found.setdefault(row.subtask, []).append(row.list_value)
        assert found == expected


def test_union_state_is_one_copy(spark):
    reader = open_reader(spark, "c-opstate-hashmap")
    rows = reader.read_union_state("c-list", "offs").collect()
    [entry] = truth("c-opstate-hashmap", "c-list", "op-union", "offs")
    assert sorted(list(row.list_value) for row in rows) == sorted(entry["value"])


def test_broadcast_state_is_one_copy_of_the_map(spark):
    reader = open_reader(spark, "c-opstate-hashmap")
    rows = reader.read_broadcast_state("c-broadcast", "rules", Types.STRING, Types.LONG).collect()
    [entry] = truth("c-opstate-hashmap", "c-broadcast", "op-broadcast", "rules")
    assert {row.map_key: row.map_value for row in rows} == dict(entry["value"])


def test_a_declared_type_that_differs_is_an_error_that_shows_both(spark):
    reader = open_reader(spark, "c-opstate-hashmap")
    with pytest.raises(SavepointError, match=r"expected Long .from the snapshot., got String"):
        reader.read_list_state("c-list", "buf", Types.STRING)
    with pytest.raises(SavepointError, match=r"expected String .*, got Long"):
        reader.read_broadcast_state("c-broadcast", "rules", Types.LONG, Types.LONG)


def test_a_wrong_name_lists_the_right_ones(spark):
    reader = open_reader(spark, "c-opstate-hashmap")
    with pytest.raises(NoSuchStateError, match=r"no list state 'txtt'; it has: .*'txt' .list."):
        reader.read_list_state("c-list", "txtt")
    with pytest.raises(NoSuchStateError, match="no broadcast state 'buf'"):
        reader.read_broadcast_state("c-list", "buf")
    with pytest.raises(NoSuchOperatorError, match="c-broadcast"):
        reader.read_list_state("nobody", "txt")


def test_operators_by_uid_hash_and_name(spark):
    reader = open_reader(spark, "c-opstate-hashmap")
    by_hash = OperatorIdentifier.for_uid_hash(UID("c-list").operator_id.hex)
    names = [UID("c-list"), by_hash, "uid:c-list", f"hash:{by_hash}"]
    counts = {reader.read_list_state(each, "buf").count() for each in names}
    assert counts == {50}


def test_a_missing_snapshot_is_an_error_at_once(spark, tmp_path):
    with pytest.raises(StateFileNotFoundError, match="There is no snapshot"):
        SavepointReader.read(spark, str(tmp_path))


class Fahrenheit(TypeSerializer):
    """A type of the user's own: an int that is stored as a short text."""

    snapshot_class = "com.acme.FahrenheitSerializerSnapshot"
    type_name = "Fahrenheit"
    arrow_type = pa.int32()

    def serialize(self, value, out):
        out.write_utf(f"{value}F")

    def deserialize(self, data):
        return int(data.read_utf("degrees").removesuffix("F"))

    def __eq__(self, other):
        return type(other).__name__ == "Fahrenheit"

    def __hash__(self):
        return 1


class Degrees(StateBootstrapFunction):
    def initialize_state(self, context):
        store = context.operator_state_store
        self.all = store.get_list_state(ListStateDescriptor("all", Fahrenheit()))
        self.union = store.get_union_list_state(ListStateDescriptor("union", Fahrenheit()))

    def process_element(self, value):
        self.all.add(value["n"])
        self.union.add(value["n"])


class Latest(KeyedStateBootstrapFunction):
    def open(self, runtime_context):
        self.state = runtime_context.get_state(ValueStateDescriptor("latest", Fahrenheit()))

    def process_element(self, value, ctx):
        self.state.update(value["n"])


class ReadLatest(KeyedStateReaderFunction):
    def open(self, runtime_context):
        self.state = runtime_context.get_state(ValueStateDescriptor("latest", Fahrenheit()))

    def read_key(self, key, ctx):
        yield key, self.state.value()


def test_a_serializer_of_your_own(spark, tmp_path):
    frame = spark.createDataFrame([("a", 451), ("b", -40)], "k string, n int")
    rows = OperatorTransformation.bootstrap_with(frame)
    path = (
        SavepointWriter.new_savepoint(spark)
        .with_operator(UID("degrees"), rows.transform(Degrees()))
        .with_operator(UID("latest"), rows.key_by("k").transform(Latest()))
        .write(str(tmp_path / "sp"))
    )
    registry = BUILT_IN.copy()
    registry.register(Fahrenheit.snapshot_class, lambda data, version, context: Fahrenheit())
    reader = SavepointReader.read(spark, path, serializers=registry)
    for found in (
        reader.read_list_state("degrees", "all", Fahrenheit()),
        reader.read_union_state("degrees", "union"),
    ):
        assert sorted(row.list_value for row in found.collect()) == [-40, 451]
    keyed = reader.read_keyed_state("latest", ReadLatest(), out_type="k string, n int")
    assert {row.k: row.n for row in keyed.collect()} == {"a": 451, "b": -40}
    with pytest.raises(SavepointError, match=r"expected Fahrenheit .*, got Long"):
        reader.read_list_state("degrees", "all", Types.LONG)
    unknown = SavepointReader.read(spark, path)
    with pytest.raises(SavepointError, match="FahrenheitSerializerSnapshot"):
        unknown.read_list_state("degrees", "all")


# ---------------------------------------------------------------------------- keyed state


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
        for each in truth(name, "a-keyed", kind):
            expected.setdefault(each["key"], []).append(each["ts"])
        found = {row.state_key: sorted(row[column]) for row in rows if row[column]}
        assert found == {key: sorted(times) for key, times in expected.items()}


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


class Average:
    def create_accumulator(self):
        return (0, 0)

    def add(self, value, accumulator):
        return (accumulator[0] + value, accumulator[1] + 1)

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, a, b):
        return (a[0] + b[0], a[1] + b[1])


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
    found = {row.key: row for row in rows}

    def values(kind, state):
        plain = lambda v: v["v"] if isinstance(v, dict) else v  # noqa: E731
        return {each["key"]: each["value"] for each in truth(name, uid, kind, state)}, plain

    expected, plain = values("value", "cnt")
    assert {k: r.cnt for k, r in found.items() if r.cnt is not None} == {
        k: plain(v) for k, v in expected.items()
    }
    expected, plain = values("list", "names")
    assert {k: r.names for k, r in found.items() if r.names} == {
        k: [plain(e) for e in v] for k, v in expected.items()
    }
    expected, plain = values("map", "m")
    assert {k: r.m for k, r in found.items() if r.m} == {
        k: {uk: plain(e) for uk, e in v} for k, v in expected.items()
    }
    expected, plain = values("aggregating", "agg")
    assert {k: r.agg for k, r in found.items() if r.agg is not None} == {
        k: plain(v)[0] / plain(v)[1] for k, v in expected.items()
    }
    timers = {}
    for each in truth(name, uid, "event-timer"):
        timers.setdefault(each["key"], []).append(each["ts"])
    assert {k: r.timers for k, r in found.items() if r.timers} == {
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


# --------------------------------------------------------------------------------- windows

WINDOWS = "d-windows-hashmap"


def by_window(op, kind, state):
    def window(each):
        return tuple(each["ns"]) if isinstance(each["ns"], list) else each["ns"]

    return {(each["key"], window(each)): each["value"] for each in truth(WINDOWS, op, kind, state)}


def timers_by_window(op):
    found = {}
    for each in truth(WINDOWS, op, "event-timer"):
        found.setdefault((each["key"], tuple(each["ns"])), []).append(each["ts"])
    return found


class ClickReader(WindowReaderFunction):
    def read_window(self, key, ctx, elements):
        window = ctx.window()
        yield (
            key,
            window.start,
            window.end,
            len(elements),
            json.dumps(elements[0]),
            sorted(ctx.registered_event_time_timers()),
        )


CLICKS = "key string, start bigint, end bigint, n int, first string, timers array<bigint>"
TUMBLING = TumblingEventTimeWindows.of(60_000)


@pytest.mark.parametrize(
    ("op", "method", "kind", "options"),
    [
        ("d-tumble-agg", "aggregate", "aggregating", {"accumulator_type": PAIR}),
        ("d-tumble-reduce", "reduce", "reducing", {"reduce_type": CLICK}),
        ("d-sliding", "reduce", "reducing", {}),
        ("d-process", "process", "list", {"state_type": CLICK}),
    ],
)
def test_windows_with_their_own_timers(spark, op, method, kind, options):
    windows = open_reader(spark, WINDOWS).window(TUMBLING)
    frame = getattr(windows, method)(
        op, reader_function=ClickReader(), out_type=CLICKS, key_type=Types.STRING, **options
    )
    rows = frame.collect()
    contents = by_window(op, kind, "window-contents")
    assert {(row.key, (row.start, row.end)) for row in rows} == set(contents)
    for row in rows:
        value = contents[row.key, (row.start, row.end)]
        assert json.loads(row.first) == (value[0] if kind == "list" else value)
        assert row.n == (len(value) if kind == "list" else 1)
    expected = timers_by_window(op)
    assert {(r.key, (r.start, r.end)): r.timers for r in rows} == {
        place: sorted(expected.get(place, [])) for place in contents
    }


def test_aggregated_windows_give_the_result_of_the_accumulator(spark):
    rows = (
        open_reader(spark, WINDOWS)
        .window(TUMBLING)
        .aggregate("d-tumble-agg", Average(), ClickReader(), out_type=CLICKS)
        .collect()
    )
    contents = by_window("d-tumble-agg", "aggregating", "window-contents")
    assert {(r.key, (r.start, r.end)): json.loads(r.first) for r in rows} == {
        place: value[0] / value[1] for place, value in contents.items()
    }


def test_evictors_keep_elements_and_the_function_is_applied_here(spark):
    reader = open_reader(spark, WINDOWS).window(TUMBLING)
    rows = (
        reader.evictor()
        .reduce("d-evictor", lambda a, b: (a[0], a[1] + b[1], b[2]), ClickReader(), out_type=CLICKS)
        .collect()
    )
    contents = by_window("d-evictor", "list", "window-contents")
    sums = {place: sum(e["value"][1] for e in value) for place, value in contents.items()}
    assert {(r.key, (r.start, r.end)): json.loads(r.first)[1] for r in rows} == sums
    with pytest.raises(SavepointError, match="with an evictor; read them with evictor"):
        reader.process("d-evictor", ClickReader(), out_type=CLICKS)


class TriggerReader(WindowReaderFunction):
    def read_window(self, key, ctx, elements):
        count = ctx.trigger_state(ReducingStateDescriptor("count", sum, Types.LONG)).get()
        window = ctx.window()
        yield key, str(window if isinstance(window, str) else tuple(window)), count


@pytest.mark.parametrize("op", ["d-count-trigger", "d-count-window"])
def test_state_of_the_trigger(spark, op):
    reader = open_reader(spark, WINDOWS)
    rows = (
        reader.window()
        .reduce(op, None, TriggerReader(), out_type="key string, window string, n bigint")
        .collect()
    )
    counts = by_window(op, "reducing", "count")
    assert {(r.key, r.window): r.n for r in rows if r.n is not None} == {
        (key, str(window)): value for (key, window), value in counts.items()
    }


class StateReader(WindowReaderFunction):
    def read_window(self, key, ctx, elements):
        per_window = ctx.window_state(ValueStateDescriptor("per-window", Types.LONG)).value()
        per_key = ctx.global_state(ValueStateDescriptor("per-key", Types.LONG)).value()
        yield key, ctx.window().start, per_window, per_key


def test_state_per_window_and_per_key(spark):
    rows = (
        open_reader(spark, WINDOWS)
        .window(TUMBLING)
        .process(
            "d-window-state", StateReader(), out_type="key string, s bigint, w bigint, k bigint"
        )
        .collect()
    )
    per_window = by_window("d-window-state", "value", "per-window")
    per_key = {
        key: value for (key, _), value in by_window("d-window-state", "value", "per-key").items()
    }
    starts = {(key, window[0]): value for (key, window), value in per_window.items()}
    assert any(r.w is not None for r in rows)
    assert {(r.key, r.s): r.w for r in rows} == {
        (r.key, r.s): starts.get((r.key, r.s)) for r in rows
    }
    assert {r.key: r.k for r in rows} == {r.key: per_key.get(r.key) for r in rows}


def test_sessions_are_read_under_the_merged_window(spark):
    reader = open_reader(spark, WINDOWS).window(EventTimeSessionWindows.with_gap(10_000))
    rows = reader.aggregate("d-session").collect()
    merged = by_window("d-session", "list", "merging-window-set")
    contents = by_window("d-session", "aggregating", "window-contents")
    expected = {
        (key, tuple(actual)): contents[key, tuple(kept)]
        for (key, _), pairs in merged.items()
        for actual, kept in pairs
    }
    found = {
        (r.state_key, (r.state_window.start, r.state_window.end)): list(r["window-contents"])
        for r in rows
    }
    assert found == expected
    timers = timers_by_window("d-session")
    assert {
        (r.state_key, (r.state_window.start, r.state_window.end)): r.event_time_timers for r in rows
    } == {place: sorted(timers[place]) for place in expected}


def test_windows_of_another_kind_are_refused(spark):
    reader = open_reader(spark, WINDOWS)
    with pytest.raises(SavepointError, match=r"of another kind: expected aggregating .*, got red"):
        reader.window(TUMBLING).reduce("d-tumble-agg")
    with pytest.raises(SavepointError, match="window has another type: expected GlobalWindow"):
        reader.window(TUMBLING).reduce("d-count-window")
    with pytest.raises(NoSuchStateError, match="keeps no windows"):
        open_reader(spark, "a-hashmap-canonical").window().reduce("a-keyed")
    rows = reader.window(GlobalWindows.create()).reduce("d-count-window").collect()
    assert {row.state_window for row in rows} == {"global"}
    assert reader.window(GlobalWindowSerializer()).reduce("d-count-window").count() == len(rows)


# -------------------------------------------------------------------- source, SQL, filters


def test_metadata_has_the_columns_of_flink(spark):
    rows = open_reader(spark, "a-hashmap-canonical").metadata().collect()
    by_uid = {row["operator-uid"]: row for row in rows}
    keyed = Snapshot.load(snapshot("a-hashmap-canonical"))["a-keyed"]
    assert by_uid["a-keyed"]["operator-uid-hash"] == keyed.operator_id.hex
    assert by_uid["a-keyed"]["operator-total-size-in-bytes"] == keyed.state.state_size
    assert by_uid["a-keyed"]["operator-max-parallelism"] == 128


def test_views_have_the_names_of_flinks_catalog(spark):
    path = str(snapshot("a-hashmap-canonical"))
    names = register(spark, path)
    try:
        assert {"metadata", "uid_a_keyed_keyed", "uid_a_keyed_m_keyed_flat"} <= set(names)
        [row] = spark.sql("SELECT sum(cnt) AS s, count(*) AS n FROM uid_a_keyed_keyed").collect()
        counts = truth("a-hashmap-canonical", "a-keyed", "value", "cnt")
        assert row.s == sum(each["value"] for each in counts)
        flat = spark.sql("SELECT state_key, map_key, map_value FROM uid_a_keyed_m_keyed_flat")
        maps = truth("a-hashmap-canonical", "a-keyed", "map", "m")
        assert flat.count() == sum(len(each["value"]) for each in maps)
        assert spark.sql("SELECT * FROM metadata").count() == 3
    finally:
        for name in names:
            spark.catalog.dropTempView(name)


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        ("state_key = 'key-4'", {"key-4"}),
        ("state_key IN ('key-4', 'key-24', 'nobody')", {"key-4", "key-24"}),
        ("state_key = 'key-4' AND cnt > 0", {"key-4"}),
        ("state_key >= 'key-3' AND state_key < 'key-4'", None),
        ("state_key = 'key-4' OR state_key = 'key-24'", {"key-4", "key-24"}),
        ("state_key = 'key-4' AND state_key = 'key-24'", set()),
        ("state_key = 'nobody'", set()),
    ],
)
def test_filters_on_the_key(spark, condition, wanted):
    frame = spark.read.format("savepoint").load(str(snapshot("a-hashmap-canonical")))
    everything = {row.state_key for row in frame.collect()}
    found = {row.state_key for row in frame.filter(condition).collect()}
    expected = {key for key in everything if "key-3" <= key < "key-4"} if wanted is None else wanted
    assert found == expected
    assert wanted is None or wanted <= everything


def test_a_key_reads_its_key_group_only(spark, tmp_path):
    """Damage in every other key group is not met."""

    updates = [
        {"key": f"{number:0200}", "state": "n", "do": "update", "value": number}
        for number in range(2000)
    ]
    path = write_savepoint(tmp_path / "sp", "op", "string", [State("n", "value", "long")], updates)
    [file] = [each for each in path.iterdir() if not each.name.startswith("_")]
    handle = Snapshot.load(path)["op"].keyed_handles[0]
    wanted = f"{7:0200}"
    row = spark.read.format("savepoint").load(str(path)).filter(F.col("state_key") == wanted)
    kg = next(line["kg"] for line in Snapshot.load(path)["op"].dump() if line["key"] == wanted)
    data = bytearray(file.read_bytes())
    placed = sorted((offset, group) for group, offset in handle.offsets.items())
    for (start, group), (end, _) in zip(placed, [*placed[1:], (len(data), None)], strict=True):
        if group != kg:
            data[start:end] = b"\x01" * (end - start)
    file.write_bytes(data)
    assert [each.n for each in row.collect()] == [7]
    assert [
        each.n
        for each in spark.read.format("savepoint").option("key", wanted).load(str(path)).collect()
    ] == [7]
    with pytest.raises(PySparkException):
        spark.read.format("savepoint").load(str(path)).collect()


@pytest.mark.parametrize(
    "options",
    [{"fs.s3a.secret.key": "hunter2-xyz"}, {"storage.options": "{'secret': 'hunter2-xyz'}"}],
)
def test_a_secret_in_options_is_refused_and_not_repeated(spark, options):
    path = str(snapshot("a-hashmap-canonical"))
    with pytest.raises(PySparkException) as raised:
        spark.read.format("savepoint").options(**options).load(path).collect()
    assert "has no option" in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_the_changelog_as_rows(spark):
    path = str(snapshot("a-hashmap-changelog-multi"))
    base = str(GOLDEN / "a-hashmap-changelog-multi" / "dstl")
    frame = spark.read.format("state-changelog").option("changelog.base", base).load(path)
    rows = frame.collect()
    operator = Snapshot.load(path, changelog_base=base)["a-keyed"]
    expected = list(change_lines(operator, None))
    assert len(rows) == len(expected)
    assert [(r.kg, r.state, r.operation, json.loads(r.value or "null")) for r in rows] == [
        (line["kg"], line["state"], line["operation"], line["value"]) for line in expected
    ]
    since = frame.sparkSession.read.format("state-changelog").option("changelog.base", base)
    assert since.option("since", path).load(path).count() == 0
