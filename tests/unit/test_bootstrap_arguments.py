"""A bootstrap says at once that its rows or its engine are of another kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from dstl_core import (
    LocalEngine,
    OperatorIdentifier,
    OperatorTransformation,
    SavepointWriter,
    Snapshot,
    Types,
)
from dstl_core.errors import ConfigError
from dstl_core.functions import KeyedStateBootstrapFunction
from dstl_core.state.windows.windowing import GlobalWindows, TumblingEventTimeWindows


@pytest.mark.parametrize(("rows", "got"), [(None, "NoneType"), ([("a", 1)], "list")])
def test_a_bootstrap_starts_from_a_table(rows: Any, got: str) -> None:
    said = (
        r"^The input of a bootstrap without Spark has to be a table or a stream of Arrow "
        rf"\(pyarrow, pandas, polars, DuckDB\), or paths of Parquet files, got a {got}\.$"
    )
    with pytest.raises(ConfigError, match=said):
        OperatorTransformation.bootstrap_with(rows)


@pytest.mark.parametrize("engine", [None, "local[2]", LocalEngine])
def test_a_writer_takes_a_session_or_an_engine(engine: Any) -> None:
    said = r"expected a SparkSession, as getOrCreate\(\) returns it, or a LocalEngine\(\), got"
    with pytest.raises(ConfigError, match=f"^The engine of a SavepointWriter is wrong: {said}"):
        SavepointWriter.new_savepoint(engine)


ROWS = pa.table({"k": ["a"], "n": [1], "w": [{"start": 0, "end": 10}]})
EVERY_SECOND = TumblingEventTimeWindows.of(1_000)


class Keeps(KeyedStateBootstrapFunction):
    def process_element(self, value: Any, ctx: Any) -> None:
        raise AssertionError("no row is read")


def start() -> Any:
    return OperatorTransformation.bootstrap_with(ROWS)


def keyed(**options: Any) -> Any:
    return start().key_by("k").transform_columns(**options)


def windows(**options: Any) -> Any:
    return start().key_by("k").window(EVERY_SECOND, **{"timestamp": "n", **options})


def writer() -> SavepointWriter:
    return SavepointWriter.new_savepoint(LocalEngine())


UID = OperatorIdentifier.for_uid("u")
WRONG: dict[str, Any] = {
    r"types is wrong: expected a mapping by name, .*, got \['n'\]": lambda: keyed(types=["n"]),
    r"types is wrong: expected a mapping by name, .*, got 'n'": lambda: keyed(types="n"),
    r"states is wrong: expected a mapping by name, .*, got \['n'\]": lambda: keyed(states=["n"]),
    r"states\['n'\] is wrong: expected a descriptor as in .*, got 'value'": (
        lambda: keyed(states={"n": "value"})
    ),
    r"states\['n'\] is wrong: expected a descriptor as in .*, got a LongSerializer": (
        lambda: keyed(states={"n": Types.LONG})
    ),
    r"template is wrong: expected an operator of a snapshot, .*, got 'savepoints/last'": (
        lambda: keyed(template="savepoints/last")
    ),
    r"order_by is wrong: expected a list of columns, e.g. \['ts'\], got 'n'": (
        lambda: keyed(on_duplicate="last", order_by="n")
    ),
    r"order_by needs on_duplicate='last'": lambda: keyed(order_by=["n"]),
    r"event_time_timers is wrong: expected the name of a column, got \['n'\]": (
        lambda: keyed(event_time_timers=["n"])
    ),
    r"options is wrong: expected ColumnOptions\(..\), got 'exact'": lambda: keyed(options="exact"),
    r"show_keys is wrong: expected True or False, got 'no'": lambda: keyed(show_keys="no"),
    r"The function of transform is wrong: expected an object .*, got <class '.*Keeps'>": (
        lambda: start().key_by("k").transform(Keeps)
    ),
    r"order_by is wrong: expected a list of columns, .*, got 5": (
        lambda: start().key_by("k").transform(Keeps(), order_by=5)
    ),
    r"The function of transform is wrong: expected an object .*, got a function": (
        lambda: start().transform(lambda row: row)
    ),
    r"list_state is wrong: expected a mapping by name, .*, got \['n'\]": (
        lambda: start().transform_columns(list_state=["n"])
    ),
    r"Broadcast state 'b' is wrong: expected the columns .*, got 5": (
        lambda: start().transform_columns(broadcast_state={"b": 5})
    ),
    r"State 'n' is in list_state and in union_state": (
        lambda: start().transform_columns(list_state={"n": None}, union_state={"n": None})
    ),
    r"types has 'n', which is no column of a broadcast state": (
        lambda: start().transform_columns(list_state={"n": None}, types={"n": "int"})
    ),
    r"The assigner of window is wrong: expected an assigner .*, got 'tumbling'": (
        lambda: start().key_by("k").window("tumbling")
    ),
    r"timestamp is wrong: expected a column, or a function of a row, got 5": (
        lambda: windows(timestamp=5).process(element="n")
    ),
    r"There is no column 'zz'; the input has: k, n, w": (
        lambda: windows().process(Types.LONG, element="zz")
    ),
    r"The function of reduce is wrong: expected a function of two elements, got None": (
        lambda: windows().reduce(None, element="n")
    ),
    r"The function of aggregate is wrong: expected an object .*, got a builtin_function": (
        lambda: windows().aggregate(max, Types.LONG, element="n")
    ),
    r"The kind of windows is wrong: expected reducing, aggregating, list, got None": (
        lambda: windows().transform_columns("w", "n", kind=None)
    ),
    r"The state of u is wrong: expected a transformation, got KeyedStateTransformation": (
        lambda: writer().with_operator(UID, start().key_by("k"))
    ),
    r"An operator uid has to be text, got 5": lambda: OperatorIdentifier.for_uid(cast(str, 5)),
    r"The input of a bootstrap .*, got a type": (
        lambda: OperatorTransformation.bootstrap_with(pa.Table)
    ),
}


@pytest.mark.parametrize("said", WRONG)
def test_a_wrong_argument_is_one_sentence(said: str) -> None:
    with pytest.raises(ConfigError, match=f"^{said}"):
        WRONG[said]()


def test_the_timestamp_of_a_row_is_a_whole_number() -> None:
    windowed = start().key_by("n").window(EVERY_SECOND, timestamp="k")
    whole = windowed.process(element="n")
    said = r"^The timestamp of a row is wrong: expected milliseconds as a whole number, got 'a'"
    with pytest.raises(ConfigError, match=said):
        writer().with_operator(UID, whole).write("memory://bootstrap/timestamps")


@pytest.mark.parametrize(
    "order_by",
    [{"n": 0}.keys(), np.array(["n"]), (name for name in ["n"])],
    ids=["keys", "array", "generator"],
)
def test_columns_may_come_in_any_form_that_has_an_order(order_by: Any) -> None:
    made = keyed(on_duplicate="last", order_by=order_by, show_keys=np.True_, types={})
    assert [state.meta.name for state in made.runs.states] == ["w"]


def test_windows_that_need_no_timestamp_take_rows_without_one(tmp_path: Path) -> None:
    rows = pa.table({"k": ["a"], "at": pa.array([None], pa.int64())})
    by_key = OperatorTransformation.bootstrap_with(rows).key_by("k")
    whole = by_key.window(GlobalWindows(), timestamp="at").process(element="k")
    writer().with_operator(UID, whole).write(tmp_path / "global")
    assert Snapshot.load(tmp_path / "global").operators[0].keyed_handles
    whole = by_key.window(EVERY_SECOND, timestamp="at").process(element="k")
    with pytest.raises(ConfigError, match=r"^A row has no timestamp, which windows in event time"):
        writer().with_operator(UID, whole).write(tmp_path / "event time")


def test_a_number_of_processes_is_no_text(tmp_path: Path) -> None:
    edit = writer().with_operator(UID, keyed(types={"w": Types.TUPLE(Types.LONG, Types.LONG)}))
    with pytest.raises(ConfigError, match=r"expected 1 or more, got '2'\.$"):
        edit.write(tmp_path / "savepoint", jobs=cast(int, "2"))
