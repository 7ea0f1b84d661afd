"""Odd rows of a bootstrap without Spark: what they become, and one sentence of what is wrong."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from dstl_core import (
    LocalEngine,
    OperatorTransformation,
    SavepointWriter,
    StateTtlConfig,
    Types,
    windows,
)
from dstl_core.errors import ColumnValueError, ConfigError, FormatError, StorageError
from dstl_core.job.rows.joined_batches import TASK_BYTES
from dstl_core.job.spec.output_types import as_stored, stored_arrow_schema
from dstl_core.local.local_rows import LocalRows
from dstl_core.state.tables.descriptor import ListStateDescriptor, MapStateDescriptor
from tests.command_line import is_one_sentence
from tests.unit.local.test_local_bootstrap import Account, values, write

start_with = OperatorTransformation.bootstrap_with
LISTS = pa.list_(pa.int64())
MAPS = pa.map_(pa.string(), pa.int64())
TTL = StateTtlConfig(1000)
ROWS = pa.table({"k": ["a", "b"], "n": [1, 2]})


def keyed(**columns: Any) -> Any:
    return start_with(pa.table(columns)).key_by("k")


def with_hidden(kind: pa.DataType, elements: pa.Array) -> pa.Array:
    """A null with two elements, and a list or map of the third one."""
    offsets = pa.array([0, 2, 3], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(kind, 2, [pa.py_buffer(b"\x02"), offsets], children=[elements])


@pytest.mark.parametrize("form", ["canonical", "native"])
def test_elements_behind_a_null_are_none(tmp_path: Path, form: str) -> None:
    numbers = pa.array([1, 2, 3])
    entries = pa.StructArray.from_arrays(
        [pa.array(["x", "y", "z"]), numbers], fields=[MAPS.key_field, MAPS.item_field]
    )
    rows = keyed(
        k=["a", "b"], l=with_hidden(LISTS, numbers), m=with_hidden(MAPS, entries),
        fresh=with_hidden(MAPS, entries), t=with_hidden(LISTS, numbers),
    )  # fmt: skip
    fresh = MapStateDescriptor("fresh", Types.STRING, Types.LONG).enable_time_to_live(TTL)
    states = rows.transform_columns(states={"fresh": fresh}, event_time_timers="t")
    operator = write(tmp_path / "sp", states, form)
    assert values(operator, "l") == {"b": [3]}
    assert values(operator, "m") == {"b": [["z", 3]]}
    assert [*values(operator, "fresh")] == ["b"]
    timers = [(line["key"], line["ts"]) for line in operator.dump() if "ts" in line]
    assert timers == [("b", 3)]


VIEWS = pa.list_view(pa.int64())
MICROS = pa.time64("us")
PARTS = [
    (VIEWS, [[1, 2], None, [3], []], [[1, 2], None, [3], []]),
    (pa.large_list_view(pa.int64()), [[1], None, [3]], [[1], None, [3]]),
    (pa.list_(VIEWS), [[[1]], None, [[2], None]], [[[1]], None, [[2], None]]),
    (pa.list_(MICROS), [[5], None, [6, None]], [[5000], None, [6000, None]]),
    (pa.list_(pa.time32("s"), 1), [[dt.time(0, 0, 1)], None], [[10**9], None]),
    (pa.map_(pa.string(), MICROS), [None, [("x", 5)]], [None, [("x", 5000)]]),
    (pa.struct([("t", MICROS), ("l", VIEWS)]), [None, {"t": 5, "l": [1]}],
     [None, {"t": 5000, "l": [1]}]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "column_values", "expected"), PARTS)
def test_times_and_views_within_other_types(kind: Any, column_values: Any, expected: Any) -> None:
    """Arrow's cast gives them another unit, or offsets beyond their memory."""
    column = pa.array(column_values, kind)
    for first in range(len(column_values)):
        rows = pa.table({"v": pa.chunked_array([column.slice(first), column])})
        stored = as_stored(rows, stored_arrow_schema(rows.schema)).column("v")
        stored.validate(full=True)
        assert stored.to_pylist() == expected[first:] + expected


def test_an_index_of_pandas_is_a_state_if_it_has_a_name(tmp_path: Path) -> None:
    frame = pd.DataFrame({"k": ["a", "b", "c"], "n": [1, 2, 3]})
    left = write(tmp_path / "left", start_with(frame[frame.n > 1]).key_by("k").transform_columns())
    assert [info.name for info in left.states] == ["n"]
    named = start_with(frame.set_index("k")).key_by("k").transform_columns()
    assert values(write(tmp_path / "named", named), "n") == {"a": 1, "b": 2, "c": 3}


DAYS = windows.TumblingEventTimeWindows.of(86_400_000)
WINDOWS = pa.struct([("end", pa.int64()), ("start", pa.int64())])


def in_windows(column: pa.Array) -> Any:
    rows = keyed(k=["a", "b"], w=column, c=[1, 2])
    tumbling = windows.TumblingEventTimeWindows.of(10)
    return rows.window(tumbling, timestamp="w").transform_columns("w", "c")


def test_the_fields_of_a_window_have_names(tmp_path: Path) -> None:
    column = pa.array([{"start": 0, "end": 10}, {"start": 10, "end": 20}], WINDOWS)
    operator = write(tmp_path / "sp", in_windows(column))
    assert sorted(line["ts"] for line in operator.dump() if "ts" in line) == [9, 19]


# ----------------------------------------------------------------------------- what is wrong


def last_by(column: pa.Array) -> Any:
    return keyed(k=["a", "b"], o=column).transform_columns(on_duplicate="last", order_by=["o"])


def in_order_of(column: pa.Array) -> Any:
    rows = keyed(k=["a", "b"], ts=[1, 2], n=[1, 2], o=column)
    return rows.transform(Account(), order_by=["o"])


def with_timers(column: pa.Array) -> Any:
    return keyed(k=["a", "b"], t=column).transform_columns(event_time_timers="t")


def with_ttl(descriptor: Any, column: Any) -> Any:
    fresh = descriptor.enable_time_to_live(TTL)
    return keyed(k=["a", "b"], n=column).transform_columns(states={"n": fresh})


MOMENTS = pa.array([[0], [1]], pa.list_(pa.timestamp("us")))
ENTRIES = pa.array([[{"key": "x", "value": 1}], []])
WRONG = {
    "last by lists": (lambda: last_by(pa.array([[1], [2]])), "has lists, which only Spark sorts"),
    "last by maps": (lambda: last_by(pa.array([[], []], MAPS)), "which has no order; order by"),
    "order by lists within": (
        lambda: in_order_of(pa.array([{"x": [1]}, {"x": [2]}])),
        "column 'o' of order_by has lists",
    ),
    "moments as timers": (lambda: with_timers(MOMENTS), "expected milliseconds as whole numbers"),
    "a null timer": (lambda: with_timers(pa.array([[1, None], []])), "it holds a null"),
    "numbers as lists": (
        lambda: with_ttl(ListStateDescriptor("n", Types.LONG), [1, 2]),
        "^Column for state 'n' cannot be written: expected a column of type list",
    ),
    "entries as maps": (
        lambda: with_ttl(MapStateDescriptor("n", Types.STRING, Types.LONG), ENTRIES),
        "^Column for state 'n' cannot be written: expected a column of type map",
    ),
    "no window": (lambda: in_windows(pa.array([{"start": 0, "end": 9}, None], WINDOWS)), "a null"),
    "half a window": (lambda: in_windows(pa.array([{"start": 0}, {}], WINDOWS)), "a null"),
    "numbers as windows": (lambda: in_windows(pa.array([0, 10])), "no such cast"),
    "a Series of polars": (lambda: start_with(pl.Series("k", ["a"])), "cannot be read as rows"),
    "a column": (lambda: start_with(pa.chunked_array([[1]])), "cannot be read as rows of Arrow"),
    "a lazy frame": (lambda: start_with(pl.LazyFrame({"k": ["a"]})), "got a LazyFrame"),
    "mixed values": (
        lambda: start_with(pd.DataFrame({"k": ["a", 1]})),
        "Conversion failed for column k with type object: Expected bytes",
    ),
    "a name twice": (
        lambda: start_with(pd.DataFrame([["a", 1]], columns=["k", "k"])),
        "Duplicate column names found",
    ),
    "batches of two kinds": (
        lambda: start_with([*ROWS.to_batches(), *ROWS.rename_columns(["k", "m"]).to_batches()]),
        "expected k string, n int64, got k string, m int64 in batch 1; give",
    ),
    "windows in no column": (
        lambda: (
            start_with(ROWS).key_by("k").window(DAYS, timestamp="n").transform_columns("x", "n")
        ),
        "There is no column 'x'; the input has: k, n",
    ),
    "windows of no kind": (
        lambda: (
            start_with(ROWS).key_by("k").window(DAYS, timestamp="n")
            .transform_columns("n", "n", kind="sum")
        ),
        "expected reducing, aggregating, list, got 'sum'",
    ),
    "a broadcast without values": (
        lambda: start_with(ROWS).transform_columns(broadcast_state={"b": "k"}),  # type: ignore[dict-item]
        "expected the columns of keys and of values",
    ),
    "nothing": (lambda: start_with(None), "got a NoneType"),
    "rows of Python": (lambda: start_with([{"k": "a"}]), "got a list"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_said_in_one_sentence(tmp_path: Path, wrong: str) -> None:
    make, message = WRONG[wrong]
    with pytest.raises((ConfigError, ColumnValueError), match=message) as error:
        write(tmp_path / "sp", make())
    assert is_one_sentence(f"dstl: {error.value}\n")


def test_a_file_with_more_columns_loses_no_state(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    pq.write_table(ROWS, tmp_path / "rows" / "a.parquet")
    pq.write_table(ROWS.append_column("more", [[1, 2]]), tmp_path / "rows" / "b.parquet")
    with pytest.raises(ConfigError, match=r"a\.parquet, got also 'more' in .*b\.parquet; write"):
        write(tmp_path / "sp", start_with(tmp_path / "rows").key_by("k").transform_columns())


@pytest.mark.parametrize("form", ["table", "stream", "dataset", "file", "files with a dictionary"])
def test_rows_with_large_values_come_in_batches_of_bounded_size(tmp_path: Path, form: str) -> None:
    texts = pa.array([f"{at:05}" * 2_000 for at in range(100)])
    large = pa.table({"n": range(10_000), "t": texts.take(pa.array([*range(100)] * 100))})
    file = tmp_path / "large.parquet"
    pq.write_table(large, file, use_dictionary=form != "file", row_group_size=4_000)
    rows: Any = {
        "table": large, "stream": large.to_reader(), "dataset": ds.dataset(file, format="parquet")
    }.get(form, str(file))  # fmt: skip
    batches = [*LocalRows.of(rows).rows.batches()]
    assert max(batch.nbytes for batch in batches) <= TASK_BYTES
    numbers = [batch.column("n").to_numpy() for batch in batches]
    assert np.array_equal(np.concatenate(numbers), np.arange(10_000))


@pytest.mark.parametrize("kind", [pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
@pytest.mark.parametrize("is_stream", [True, False])
def test_bytes_that_rows_share_do_not_make_batches_of_one_row(
    kind: pa.DataType, is_stream: bool
) -> None:
    """Each part of a batch refers to all of the dictionary, or of what is behind a view."""
    texts = pa.array([f"{at:05}" * 2_000 for at in range(4_000)]).cast(kind)
    large = pa.table({"n": range(4_000), "t": texts})
    batches = [*LocalRows.of(large.to_reader() if is_stream else large).rows.batches()]
    assert max(batch.nbytes for batch in batches) <= TASK_BYTES
    assert sum(batch.nbytes for batch in batches) > len(batches) * TASK_BYTES // 8
    numbers = [batch.column("n").to_numpy() for batch in batches]
    assert np.array_equal(np.concatenate(numbers), np.arange(4_000))


def test_a_large_value_does_not_divide_the_rows_of_other_row_groups(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64()), ("t", pa.string())])
    with pq.ParquetWriter(tmp_path / "rows.parquet", schema) as writer:
        for texts in (["x"] * 10_000, ["x"] * 10_000, ["x" * 3_000_000], ["x"] * 10_000):
            writer.write_table(pa.table({"n": [0] * len(texts), "t": texts}, schema))
    batches = LocalRows.of(tmp_path / "rows.parquet").rows.batches()
    assert [batch.num_rows for batch in batches] == [20_000, 1, 10_000]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    keys = [f"{at:040}" for at in range(50_000)]
    pq.write_table(pa.table({"k": keys, "n": keys}), path, use_dictionary=False)
    data = bytearray(path.read_bytes())
    data[4:4000] = bytes(3996)
    path.write_bytes(data)
    with pytest.raises(FormatError, match=r"The Parquet file is damaged .*a\.parquet"):
        write(tmp_path / "sp", start_with(str(path)).key_by("k").transform_columns())


def test_a_dataset_with_other_types_than_its_schema(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "a.parquet")
    pq.write_table(pa.table({"k": ["c"], "n": ["text"]}), tmp_path / "b.parquet")
    rows = start_with(ds.dataset(tmp_path, format="parquet")).key_by("k").transform_columns()
    with pytest.raises(ConfigError, match=r"is a dataset that cannot be read .*; mend its files"):
        write(tmp_path / "sp", rows)


def test_a_dataset_whose_file_is_gone_is_not_called_damaged(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "a.parquet")
    rows = start_with(ds.dataset(tmp_path, format="parquet")).key_by("k").transform_columns()
    (tmp_path / "a.parquet").unlink()
    with pytest.raises(StorageError, match=r"its file system did not read .*a\.parquet.*; look at"):
        write(tmp_path / "sp", rows)


def test_the_class_of_an_engine_reads_no_files(tmp_path: Path) -> None:
    for engine in (LocalEngine, "local"):
        with pytest.raises(ConfigError, match=r"^The engine of bootstrap_with_parquet is wrong: "):
            OperatorTransformation.bootstrap_with_parquet(engine, str(tmp_path))


@pytest.mark.parametrize("number", [0, -3, "2", 1.5])
def test_a_parallelism_that_is_none(number: Any) -> None:
    for name in ("parallelism", "max_parallelism"):
        with pytest.raises(ConfigError, match=f"arallelism .*: {number!r}"):
            SavepointWriter.new_savepoint(LocalEngine(), **{name: number})
    with pytest.raises(ConfigError, match=f"not within bounds: {number!r}; give a whole number"):
        start_with(ROWS).set_parallelism(number)
