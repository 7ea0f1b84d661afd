"""What is bootstrapped by columns is read back, for random schemas, keys and splits of the rows.

The functions are those that run in Spark's tasks; Spark itself is in the integration tests.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from datetime import UTC
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dstl_core import (
    LocalEngine,
    OperatorIdentifier,
    OperatorTransformation,
    SavepointWriter,
    Snapshot,
    edit_savepoint,
)
from dstl_core.codec.big_decimal import two_s_complement
from dstl_core.codec.serializers import AnySerializer, Types
from dstl_core.codec.state_meta import KeyedBackendHeader
from dstl_core.job.task.reports import SubtaskReport
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState
from dstl_core.model.ids import OperatorID
from dstl_core.savepoint.bootstrap.column_runs import ColumnRuns, StateColumns
from dstl_core.savepoint.bootstrap.transformations import _state_of
from dstl_core.savepoint.read.snapshot import OperatorSnapshot
from dstl_core.savepoint.read.snapshot_tables import open_table
from dstl_core.savepoint.read.table_base import TableOptions
from dstl_core.savepoint.verify.verify import verify_snapshot
from dstl_core.savepoint.write.folder import KeyedForm, SavepointFolder
from dstl_core.spark.savepoints.column_stages import _EncodeRuns, _index_of, _MergeRuns
from tests.examples import examples

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
LONGS = st.integers(-(2**63), 2**63 - 1)
INTS = st.integers(-(2**31), 2**31 - 1)
DOUBLES = st.floats()
FLOATS = st.floats(width=32)
DECIMALS = st.decimals(1 - 10**28, 10**28 - 1, allow_nan=False, places=10)

KEYS: list[tuple[AnySerializer, pa.DataType, st.SearchStrategy[Any]]] = [
    (Types.STRING, pa.string(), TEXT),
    (Types.LONG, pa.int64(), LONGS),
    (Types.INT, pa.int32(), INTS),
    (Types.BOOLEAN, pa.bool_(), st.booleans()),
    (Types.DOUBLE, pa.float64(), DOUBLES),
    (Types.SHORT, pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    (Types.BYTE, pa.int8(), st.integers(-128, 127)),
    (Types.FLOAT, pa.float32(), FLOATS),
    (Types.LOCAL_DATE, pa.date32(), st.dates()),
    (Types.LOCAL_DATE_TIME, pa.timestamp("us"), st.datetimes()),
    (Types.INSTANT, pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    (Types.BIG_DEC, pa.decimal128(38, 10), DECIMALS),
    (
        Types.TUPLE(Types.STRING, Types.LONG),
        pa.struct([("f0", pa.string()), ("f1", pa.int64())]),
        st.fixed_dictionaries({"f0": TEXT, "f1": LONGS}),
    ),
    (
        Types.ROW_DATA("STRING", "BIGINT NOT NULL"),
        pa.struct([("f0", pa.string()), ("f1", pa.int64())]),
        st.fixed_dictionaries({"f0": st.none() | TEXT, "f1": LONGS}),
    ),
]
VALUES: list[tuple[AnySerializer, pa.DataType, st.SearchStrategy[Any]]] = [
    *KEYS,
    (Types.BYTES, pa.binary(), st.binary(max_size=5)),
    (Types.LIST(Types.STRING), pa.list_(pa.string()), st.lists(TEXT, max_size=4)),
    (Types.LIST(Types.LONG), pa.list_(pa.int64()), st.lists(LONGS, max_size=4)),
    (
        Types.MAP(Types.STRING, Types.LONG),
        pa.map_(pa.string(), pa.int64()),
        st.dictionaries(TEXT, LONGS, max_size=3).map(lambda pairs: list(pairs.items())),
    ),
    (
        Types.ROW(Types.INT, Types.STRING),
        pa.struct([("f0", pa.int32()), ("f1", pa.string())]),
        st.fixed_dictionaries({"f0": st.none() | INTS, "f1": st.none() | TEXT}),
    ),
]


@st.composite
def tables(
    draw: st.DrawFn, max_parallelisms: Sequence[int] = (1, 2, 17, 128, 129, 300)
) -> tuple[AnySerializer, list[AnySerializer], pa.Table, int, int, int]:
    key_type, key_arrow, keys = draw(st.sampled_from(KEYS))
    chosen = draw(st.lists(st.sampled_from(VALUES), min_size=1, max_size=3))
    names = draw(st.lists(keys, unique_by=repr, max_size=12))
    columns = {"k": pa.array(names, key_arrow)}
    for at, (_, arrow_type, values) in enumerate(chosen):
        values_of_state = draw(
            st.lists(st.none() | values, min_size=len(names), max_size=len(names))
        )
        columns[f"s{at}"] = pa.array(values_of_state, arrow_type)
    max_parallelism = draw(st.sampled_from(max_parallelisms))
    parallelism = draw(st.integers(1, min(4, max_parallelism)))
    rows_per_batch = draw(st.integers(1, 13))
    types = [each for each, _, _ in chosen]
    return key_type, types, pa.table(columns), max_parallelism, parallelism, rows_per_batch


def normalise(row: dict[str, Any], *, are_declared: bool) -> dict[str, Any]:
    """Flink has no empty list or map: they are absent, as null is."""
    return {name: _normal(value, are_declared) for name, value in row.items()}


def _normal(value: Any, is_declared: bool) -> Any:
    """A decimal of ten places is the two's complement of its digits, unless it was declared."""
    if isinstance(value, Decimal) and not is_declared:
        sign, digits, _ = value.as_tuple()
        unscaled = (-1 if sign else 1) * int("".join(map(str, digits)))
        return {"unscaled": two_s_complement(unscaled), "scale": 10}
    return None if value in (None, []) else value


class Row(dict):  # type: ignore[type-arg]
    """What Spark's rows offer."""

    def __getattr__(self, name: str) -> Any:
        return self[name]

    def asDict(self, recursive: bool) -> dict[str, Any]:  # Spark's name
        return dict(self)


def bootstrapped(case: Any, folder: Path) -> Snapshot:
    """A savepoint of the rows, made by the functions that run in tasks."""
    key_type, types, table, max_parallelism, parallelism, rows_per_batch = case
    metas = tuple(_state_of(f"s{at}", each) for at, each in enumerate(types))
    states = tuple(StateColumns(meta, {meta.name: meta.name}, joined=True) for meta in metas)
    runs = ColumnRuns("k", key_type, states)
    target = SavepointFolder(folder)
    encode = _EncodeRuns(runs, str(target.folder), max_parallelism)
    index = [
        Row(row)
        for batch in table.to_batches(rows_per_batch)
        for part in encode([batch])
        for row in part.to_pylist()
    ]
    header = KeyedBackendHeader(key_type, metas)
    merge = _MergeRuns(
        str(target.folder), header, parallelism, max_parallelism, _index_of(index), "canonical"
    )
    numbers = pa.RecordBatch.from_pydict({"id": list(range(parallelism))})
    reports = [SubtaskReport.of(Row(part.to_pylist()[0])) for part in merge([numbers])]  # type: ignore[arg-type]
    subtasks = tuple(report.subtask_state for report in reports)
    operator = OperatorState(OperatorID.for_uid("op"), parallelism, max_parallelism, subtasks)
    target.publish(CheckpointMetadata(3, 0, (operator,)), {})
    return Snapshot.load(folder)


def rows_of(operator: OperatorSnapshot) -> list[str]:
    """One row per key, in an order of its own."""
    reader = open_table(operator, "keyed", None, TableOptions())
    return sorted(
        repr(in_map_order({"k": row.pop("state_key"), **row}))
        for split in reader.splits(1 << 20, 3)
        for batch in reader.read(split)
        for row in batch.to_pylist()
    )


def expected_rows(table: pa.Table, *, are_declared: bool = False) -> list[str]:
    every = [normalise(row, are_declared=are_declared) for row in table.to_pylist()]
    return sorted(
        repr(in_map_order(row))
        for row in every
        if any(value is not None for name, value in row.items() if name != "k")
    )


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(tables())
def test_what_is_bootstrapped_is_read_back(case: Any) -> None:
    with tempfile.TemporaryDirectory() as work:
        [operator] = bootstrapped(case, Path(work) / "sp").operators
        assert operator.keyed_handles != []
        assert rows_of(operator) == expected_rows(case[2])


@settings(max_examples=examples(40))
@given(tables(), st.sampled_from(["canonical", "native"]))
def test_the_local_engine_writes_the_same(case: Any, form: KeyedForm) -> None:
    key_type, types, table, max_parallelism, parallelism, rows_per_batch = case
    batches = table.to_batches(rows_per_batch) or table
    keyed = OperatorTransformation.bootstrap_with(batches).key_by("k", key_type)
    made = keyed.transform_columns({f"s{at}": each for at, each in enumerate(types)})
    engine = LocalEngine(threads=2)
    with tempfile.TemporaryDirectory() as work:
        writer = SavepointWriter.new_savepoint(engine, max_parallelism, parallelism)
        writer = writer.with_format(form).with_operator(OperatorIdentifier.for_uid("op"), made)
        [operator] = Snapshot.load(writer.write(Path(work) / "sp")).operators
        assert rows_of(operator) == expected_rows(table, are_declared=True)


@settings(max_examples=examples(25))
@given(tables([128]))
def test_rescaling_there_and_back_keeps_contents(case: Any) -> None:
    with tempfile.TemporaryDirectory() as work:
        snapshot = bootstrapped(case, Path(work) / "sp")
        expected = expected_rows(case[2])
        if not expected:
            return
        before = sorted(map(repr, snapshot.operators[0].dump()))
        for number, count in enumerate((4096, 17, 128)):
            edit = edit_savepoint(snapshot).with_max_parallelism(count)
            snapshot = Snapshot.load(edit.write(Path(work) / str(number)))
            assert snapshot.operators[0].max_parallelism == count
            assert rows_of(snapshot.operators[0]) == expected
            assert verify_snapshot(snapshot).findings == [], "every key is in its key group"
        assert sorted(map(repr, snapshot.operators[0].dump())) == before


def in_map_order(row: dict[str, Any]) -> dict[str, Any]:
    """Maps have no order."""
    return {
        name: sorted(value)
        if value and isinstance(value, list) and isinstance(value[0], tuple)
        else value
        for name, value in row.items()
    }
