"""State is bootstrapped from Arrow and Parquet in this process, without Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from dstl_core import (
    LocalEngine,
    OperatorIdentifier,
    OperatorTransformation,
    ReducingStateDescriptor,
    SavepointWriter,
    Snapshot,
    StateTtlConfig,
    Types,
    ValueStateDescriptor,
    verify_snapshot,
    windows,
)
from dstl_core.errors import ConfigError, DuplicateKeyError
from dstl_core.functions import (
    BroadcastStateBootstrapFunction,
    KeyedStateBootstrapFunction,
    StateBootstrapFunction,
)
from dstl_core.state.tables.descriptor import ListStateDescriptor, MapStateDescriptor

FORMS = ("canonical", "native")
start_with = OperatorTransformation.bootstrap_with


def write(path: Path, transformation: Any, form: Any = "canonical", **options: Any) -> Any:
    """The operator as it is read back."""
    engine = options.pop("engine", LocalEngine(threads=2))
    writer = SavepointWriter.new_savepoint(engine, options.pop("max_parallelism", 128))
    writer = writer.with_format(form)
    out = writer.with_operator(OperatorIdentifier.for_uid("op"), transformation).write(path)
    snapshot = Snapshot.load(out)
    assert verify_snapshot(snapshot).findings == []
    return snapshot["op"]


def values(operator: Any, state: str) -> dict[Any, Any]:
    return {line["key"]: line["value"] for line in operator.dump(state)}


def numbers(count: int) -> pa.Table:
    keys, values = [f"key-{n}" for n in range(count)], [*range(count)]
    return pa.table({"k": pa.array(keys, pa.string()), "n": pa.array(values, pa.int64())})


@pytest.mark.parametrize("form", FORMS)
def test_columns_of_every_kind(tmp_path: Path, form: str) -> None:
    pojo = pa.struct([("count", pa.int32()), ("name", pa.string())])
    rows = pa.table(
        {
            "k": ["a", "b", "c"],
            "v": pa.array([1, None, None], pa.int64()),
            "l": pa.array([["x", "y"], [], None], pa.list_(pa.string())),
            "m": pa.array([[("q", 1)], [], None], pa.map_(pa.string(), pa.int64())),
            "t": pa.array([[5, 6, 5], [], [8]], pa.list_(pa.int64())),
            "p": pa.array([None, [7], None], pa.list_(pa.int64())),
            "fresh": pa.array([9, None, None], pa.int64()),
            "pojo": pa.array([{"count": 1, "name": "one"}, None, {"count": 2}], pojo),
            "r": pa.array([3, None, 4], pa.int64()),
            "d": pa.array([Decimal("-12.50"), None, None], pa.decimal128(10, 2)),
        }
    )
    ttl = ValueStateDescriptor("fresh", Types.LONG).enable_time_to_live(StateTtlConfig(1000))
    keyed = start_with(rows).key_by("k")
    operator = write(
        tmp_path / "sp",
        keyed.transform_columns(
            types={"pojo": Types.POJO("com.acme.Account", count=Types.INT, name=Types.STRING)},
            states={"fresh": ttl, "r": ReducingStateDescriptor("max", max, Types.INT)},
            event_time_timers="t",
            processing_time_timers="p",
        ),
        form,
    )

    assert values(operator, "v") == {"a": 1}
    assert values(operator, "l") == {"a": ["x", "y"]}
    assert values(operator, "m") == {"a": [["q", 1]]}
    assert values(operator, "pojo") == {
        "a": {"count": 1, "name": "one"},
        "c": {"count": 2, "name": None},
    }
    assert values(operator, "max") == {"a": 3, "c": 4}
    assert operator.state_info("max").type == "Integer"
    assert values(operator, "d") == {"a": "-12.50"}
    [fresh] = values(operator, "fresh").values()
    assert (fresh["v"], fresh["ts"] > 1_600_000_000_000) == (9, True)
    timers = [(line["kind"], line["key"], line["ts"]) for line in operator.dump() if "ts" in line]
    assert sorted(timers) == [
        ("event-timer", "a", 5),
        ("event-timer", "a", 6),
        ("event-timer", "c", 8),
        ("proc-timer", "b", 7),
    ]


SOURCES = {
    "table": lambda table, file: table,
    "batches": lambda table, file: table.to_batches(max_chunksize=300),
    "stream": lambda table, file: table.to_reader(),
    "pandas": lambda table, file: table.to_pandas(types_mapper=pd.ArrowDtype),
    "polars": lambda table, file: pl.from_arrow(table),
    "path": lambda table, file: str(file),
    "folder": lambda table, file: file.parent,
    "dataset": lambda table, file: ds.dataset(file.parent, format="parquet"),
}


@pytest.mark.parametrize("source", SOURCES)
def test_rows_come_in_every_form(tmp_path: Path, source: str) -> None:
    table, file = numbers(1000), tmp_path / "rows" / "a.parquet"
    file.parent.mkdir()
    pq.write_table(table, file, row_group_size=200)
    keyed = start_with(SOURCES[source](table, file)).key_by("k")
    operator = write(tmp_path / "sp", keyed.transform_columns())
    assert values(operator, "n") == {f"key-{n}": n for n in range(1000)}
    assert operator.parallelism == 2


def test_parquet_files_of_an_engine(tmp_path: Path) -> None:
    pq.write_table(numbers(3), tmp_path / "a.parquet")
    pq.write_table(numbers(5).slice(3), tmp_path / "b.parquet")
    files = [str(tmp_path / name) for name in ("a.parquet", "b.parquet")]
    start = OperatorTransformation.bootstrap_with_parquet(LocalEngine(threads=1), *files)
    operator = write(tmp_path / "sp", start.key_by("k").transform_columns())
    assert values(operator, "n") == {f"key-{n}": n for n in range(5)}


@pytest.mark.parametrize("options", [{}, {"on_duplicate": "last", "order_by": ["ts"]}])
@pytest.mark.parametrize("form", FORMS)
def test_rows_beyond_the_memory_wait_in_the_folder_of_the_engine(
    tmp_path: Path, form: str, options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder for temporary files that is not there shows that it is not used."""
    engine = LocalEngine(threads=2, memory="4mb", temp_folder=str(tmp_path))
    numbers = [*range(60_000)]
    columns = {"k": numbers, "text": [f"{n:032}" for n in numbers]}
    table = pa.table(columns | ({"ts": numbers} if options else {}))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    keyed = start_with(table).key_by("k").transform_columns(**options)
    operator = write(tmp_path / "sp", keyed, form, engine=engine)
    assert values(operator, "text") == {n: f"{n:032}" for n in numbers}


def test_no_rows_leave_the_states(tmp_path: Path) -> None:
    operator = write(tmp_path / "sp", start_with(numbers(0)).key_by("k").transform_columns())
    assert [(info.name, info.type) for info in operator.states] == [("n", "Long")]
    assert [*operator.dump()] == []


def test_an_operator_is_added_to_a_savepoint(tmp_path: Path) -> None:
    write(tmp_path / "first", start_with(numbers(2)).key_by("k").transform_columns())
    out = (
        SavepointWriter.from_existing_savepoint(LocalEngine(), str(tmp_path / "first"))
        .with_operator(
            OperatorIdentifier.for_uid("new"),
            start_with(numbers(3)).key_by("k").transform_columns({"n": "int"}),
        )
        .write(tmp_path / "second")
    )
    both = Snapshot.load(out)
    assert values(both["op"], "n") == {"key-0": 0, "key-1": 1}
    assert values(both["new"], "n") == {"key-0": 0, "key-1": 1, "key-2": 2}


# ------------------------------------------------------------------------------- what is wrong


@pytest.mark.parametrize("form", FORMS)
def test_a_key_twice_is_an_error(tmp_path: Path, form: str) -> None:
    rows = pa.concat_tables([numbers(300), numbers(2)])
    said = r"^State 'n' has 1 rows too many in key group \d+: a key comes more than once; keep"
    for show_keys in (False, True):
        keyed = start_with(rows).key_by("k").transform_columns(show_keys=show_keys)
        with pytest.raises(DuplicateKeyError, match=said) as raised:
            write(tmp_path / "sp", keyed, form)
        shown = raised.value.message.rpartition("Keys: ")[2]
        assert (shown == "'key-0', 'key-1'.") == show_keys
    assert not (tmp_path / "sp").exists() or [*(tmp_path / "sp").iterdir()] == []


def test_keys_of_a_stream_are_not_shown(tmp_path: Path) -> None:
    rows = pa.concat_tables([numbers(3), numbers(2)]).to_reader()
    keyed = start_with(rows).key_by("k").transform_columns(show_keys=True)
    with pytest.raises(DuplicateKeyError, match=r"keep one row per key .*\)\.$"):
        write(tmp_path / "sp", keyed)


@pytest.mark.parametrize(
    ("columns", "types", "message"),
    [
        ({"k": ["a", None], "n": [1, 2]}, {}, r"^A key is null \(row 1 of a batch of 2\); keyed"),
        ({"k": ["a"], "n": [1 << 40]}, {"n": Types.INT}, "type int32, got int64 .a value does not"),
        ({"k": ["a"], "n": ["x"]}, {"n": Types.BOOLEAN}, "^Column for state 'n' cannot be written"),
    ],
)
def test_what_does_not_fit_is_an_error_without_values(
    tmp_path: Path, columns: Any, types: Any, message: str
) -> None:
    keyed = start_with(pa.table(columns)).key_by("k").transform_columns(types)
    with pytest.raises(ConfigError, match=message) as raised:
        write(tmp_path / "sp", keyed)
    assert str(1 << 40) not in raised.value.message
    assert not (tmp_path / "sp" / "_metadata").exists()


def test_a_column_that_is_not_there() -> None:
    start = start_with(numbers(1))
    said = r"^There is no column 'x'; the input has: k, n\.$"
    for wrong in (
        lambda: start.key_by("x"),
        lambda: start.key_by("k").transform_columns(event_time_timers="x"),
        lambda: start.transform_columns(list_state={"x": None}),
    ):
        with pytest.raises(ConfigError, match=said):
            wrong()
    with pytest.raises(ConfigError, match=r"^There is no state column 'x'; the input has: n\.$"):
        start.key_by("k").transform_columns({"x": "int"})
    twice = pa.table([pa.array(["a"]), pa.array([1])], names=["k", "k"])
    with pytest.raises(ConfigError, match="has two columns 'k'; rename one of them"):
        start_with(twice)


def test_a_stream_is_read_once(tmp_path: Path) -> None:
    keyed = start_with(numbers(3).to_reader()).key_by("k").transform_columns()
    write(tmp_path / "first", keyed)
    with pytest.raises(ConfigError, match="is a stream, which was read already; give a table"):
        write(tmp_path / "second", keyed)


def test_neither_spark_nor_java_is_there() -> None:
    program = (
        "import sys; sys.modules['pyspark'] = None\n"
        "import pyarrow as pa, tempfile\n"
        "from dstl_core import LocalEngine, OperatorIdentifier, OperatorTransformation\n"
        "from dstl_core import SavepointWriter, Snapshot\n"
        "rows = pa.table({'k': ['a'], 'n': [1]})\n"
        "made = OperatorTransformation.bootstrap_with(rows).key_by('k').transform_columns()\n"
        "writer = SavepointWriter.new_savepoint(LocalEngine())\n"
        "writer = writer.with_operator(OperatorIdentifier.for_uid('op'), made)\n"
        "print(len([*Snapshot.load(writer.write(tempfile.mkdtemp() + '/sp'))['op'].dump()]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={"PATH": "", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.stdout, done.stderr) == ("1\n", "")


# -------------------------------------------------------------------- last rows, functions


def test_the_last_row_of_a_key_is_that_of_flinks_keys(tmp_path: Path) -> None:
    rows = [(0.0, 1, 5), (-0.0, 1, 6), (float("nan"), 1, 7), (-0.0, 2, 8), (float("nan"), 2, 9)]
    rows += [(1.5, 3, value) for value in range(50)] + [(2.5, None, 60), (2.5, 0, 1)]
    columns = [*zip(*rows, strict=True)]
    table = pa.table(dict(zip(("k", "ts", "n"), columns, strict=True)))
    last = start_with(table).key_by("k").transform_columns(on_duplicate="last", order_by=["ts"])
    operator = write(tmp_path / "sp", last)
    assert {repr(line["key"]): line["value"] for line in operator.dump("n")} == {
        "0.0": 5,
        "-0.0": 8,
        "'NaN'": 9,
        "1.5": 49,
        "2.5": 1,
    }
    assert [info.name for info in operator.states] == ["n"]


class Account(KeyedStateBootstrapFunction):
    uses_timers = True

    def open(self, runtime_context: Any) -> None:
        self.entries = runtime_context.get_list_state(ListStateDescriptor("entries", Types.LONG))
        self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.LONG))

    def process_element(self, value: Any, ctx: Any) -> None:
        self.entries.add(value["n"])
        self.last.update(value["n"])
        ctx.timer_service().register_event_time_timer(value["ts"])


@pytest.mark.parametrize("form", FORMS)
def test_a_function_gets_the_rows_of_a_key_in_order(tmp_path: Path, form: str) -> None:
    places = [n * 37 % 100 for n in range(100)]
    table = pa.table(
        {"k": [f"k{n % 7}" for n in places], "ts": places, "n": [10 * n for n in places]}
    )
    keyed = start_with(table).key_by("k").transform(Account(), order_by=["ts"])
    operator = write(tmp_path / "sp", keyed, form)
    expected = {f"k{k}": [10 * n for n in range(k, 100, 7)] for k in range(7)}
    assert values(operator, "entries") == expected
    assert values(operator, "last") == {key: each[-1] for key, each in expected.items()}
    timers = sorted(line["ts"] for line in operator.dump() if line["kind"] == "event-timer")
    assert timers == [*range(100)]


def test_a_function_without_rows_says_its_states(tmp_path: Path) -> None:
    table = pa.table({"k": pa.array([], pa.string()), "ts": pa.array([], pa.int64())})
    operator = write(tmp_path / "sp", start_with(table).key_by("k").transform(Account()))
    assert {"entries", "last"} <= {info.name for info in operator.states}


def test_windows_are_filled(tmp_path: Path) -> None:
    table = pa.table({"k": ["a", "a", "b"], "ts": [1, 2, 300_001], "amount": [5, 6, 7]})
    filled = (
        start_with(table)
        .key_by("k")
        .window(windows.TumblingEventTimeWindows.of(300_000), timestamp="ts")
        .reduce(lambda a, b: a + b, element="amount")
    )
    lines = [*write(tmp_path / "sp", filled).dump("window-contents")]
    assert {(line["key"], line["value"]) for line in lines} == {("a", 11), ("b", 7)}


class Lines(StateBootstrapFunction):
    def initialize_state(self, context: Any) -> None:
        store = context.operator_state_store
        self.state = store.get_list_state(ListStateDescriptor("lines", Types.LONG))

    def process_element(self, value: Any) -> None:
        self.state.add(value["n"])


class Rules(BroadcastStateBootstrapFunction):
    def process_element(self, value: Any, ctx: Any) -> None:
        rules = ctx.get_broadcast_state(MapStateDescriptor("rules", Types.STRING, Types.LONG))
        rules.put(value["k"], value["n"])


def test_operator_state(tmp_path: Path) -> None:
    columns = start_with(numbers(5)).transform_columns(
        list_state={"n": "int"}, union_state={"k": None}
    )
    operator = write(tmp_path / "columns", columns)
    assert sorted(operator.list("n")) == [0, 1, 2, 3, 4]
    assert sorted(operator.union("k")) == [f"key-{n}" for n in range(5)]
    assert operator.state_info("n").type == "Integer"
    by_function = write(tmp_path / "function", start_with(numbers(5)).transform(Lines()))
    assert sorted(by_function.list("lines")) == [0, 1, 2, 3, 4]
    broadcast = write(tmp_path / "broadcast", start_with(numbers(2)).transform(Rules()))
    assert dict(broadcast.broadcast("rules")) == {"key-0": 0, "key-1": 1}
