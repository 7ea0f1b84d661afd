"""What is bootstrapped by columns is read back, for random schemas, keys and splits of the rows.

The functions are those that run in Spark's tasks; Spark itself is in the integration tests.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from dstl_core.codec.serializers import AnySerializer, Types
from dstl_core.codec.state_meta import KeyedBackendHeader
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState
from dstl_core.model.ids import OperatorID
from dstl_core.savepoint import Snapshot
from dstl_core.savepoint.folder import SavepointFolder
from dstl_core.savepoint.table_base import TableOptions
from dstl_core.savepoint.tables import open_table
from dstl_core.spark.column_bootstrap import (
    ColumnBootstrap,
    StateColumns,
    _EncodeRuns,
    _index_of,
    _MergeRuns,
)
from dstl_core.spark.reports import SubtaskReport
from dstl_core.spark.transformations import _state_of

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
LONGS = st.integers(-(2**63), 2**63 - 1)
INTS = st.integers(-(2**31), 2**31 - 1)
DOUBLES = st.floats(allow_nan=False)

KEYS: list[tuple[AnySerializer, pa.DataType, st.SearchStrategy[Any]]] = [
    (Types.STRING, pa.string(), TEXT),
    (Types.LONG, pa.int64(), LONGS),
    (Types.INT, pa.int32(), INTS),
    (Types.BOOLEAN, pa.bool_(), st.booleans()),
]
VALUES: list[tuple[AnySerializer, pa.DataType, st.SearchStrategy[Any]]] = [
    *KEYS,
    (Types.DOUBLE, pa.float64(), DOUBLES),
    (Types.LIST(Types.STRING), pa.list_(pa.string()), st.lists(TEXT, max_size=4)),
    (Types.LIST(Types.LONG), pa.list_(pa.int64()), st.lists(LONGS, max_size=4)),
    (
        Types.MAP(Types.STRING, Types.LONG),
        pa.map_(pa.string(), pa.int64()),
        st.dictionaries(TEXT, LONGS, max_size=3).map(lambda each: list(each.items())),
    ),
    (
        Types.ROW(Types.INT, Types.STRING),
        pa.struct([("f0", pa.int32()), ("f1", pa.string())]),
        st.fixed_dictionaries({"f0": st.none() | INTS, "f1": st.none() | TEXT}),
    ),
]


@st.composite
def tables(draw: st.DrawFn) -> tuple[AnySerializer, list[AnySerializer], pa.Table, int, int, int]:
    key_type, key_arrow, keys = draw(st.sampled_from(KEYS))
    chosen = draw(st.lists(st.sampled_from(VALUES), min_size=1, max_size=3))
    names = draw(st.lists(keys, unique=True, max_size=12))
    columns = {"k": pa.array(names, key_arrow)}
    for at, (_, arrow_type, values) in enumerate(chosen):
        own = draw(st.lists(st.none() | values, min_size=len(names), max_size=len(names)))
        columns[f"s{at}"] = pa.array(own, arrow_type)
    max_parallelism = draw(st.sampled_from([1, 2, 17, 128, 129, 300]))
    parallelism = draw(st.integers(1, min(4, max_parallelism)))
    rows_per_batch = draw(st.integers(1, 13))
    types = [each for each, _, _ in chosen]
    return key_type, types, pa.table(columns), max_parallelism, parallelism, rows_per_batch


def normalise(row: dict[str, Any]) -> dict[str, Any]:
    """Flink has no empty list or map: they are absent, as null is."""
    return {name: None if value in (None, []) else value for name, value in row.items()}


class Row(dict):  # type: ignore[type-arg]
    """What Spark's rows offer."""

    def __getattr__(self, name: str) -> Any:
        return self[name]

    def asDict(self) -> dict[str, Any]:  # Spark's name
        return dict(self)


@settings(max_examples=60)
@given(tables())
def test_what_is_bootstrapped_is_read_back(case: Any) -> None:
    key_type, types, table, max_parallelism, parallelism, rows_per_batch = case
    metas = tuple(_state_of(f"s{at}", each) for at, each in enumerate(types))
    states = tuple(StateColumns(meta, {meta.name: meta.name}, joined=True) for meta in metas)
    own = ColumnBootstrap(None, "k", key_type, states, parallelism)  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as work:
        folder = SavepointFolder(Path(work) / "sp")
        encode = _EncodeRuns(own, str(folder.folder), max_parallelism)
        index = [
            Row(row)
            for batch in table.to_batches(rows_per_batch)
            for part in encode([batch])
            for row in part.to_pylist()
        ]
        header = KeyedBackendHeader(key_type, metas)
        merge = _MergeRuns(
            str(folder.folder), header, parallelism, max_parallelism, _index_of(index)
        )
        numbers = pa.RecordBatch.from_pydict({"id": list(range(parallelism))})
        reports = [SubtaskReport.of(Row(part.to_pylist()[0])) for part in merge([numbers])]  # type: ignore[arg-type]
        subtasks = tuple(report.state for report in reports)
        operator = OperatorState(OperatorID.for_uid("op"), parallelism, max_parallelism, subtasks)
        folder.publish(CheckpointMetadata(3, 0, (operator,)), {})

        found = Snapshot.load(Path(work) / "sp").operators[0]
        expected = [normalise(row) for row in table.to_pylist()]
        expected = [
            row for row in expected if any(v is not None for k, v in row.items() if k != "k")
        ]
        if not expected:
            assert found.keyed_handles == []
            return
        reader = open_table(found, "keyed", None, TableOptions())
        rows = [
            {"k": row.pop("state_key"), **row}
            for split in reader.splits(1 << 20, 3)
            for batch in reader.read(split)
            for row in batch.to_pylist()
        ]
    assert sorted(map(repr, map(in_map_order, rows))) == sorted(
        map(repr, map(in_map_order, expected))
    )


def in_map_order(row: dict[str, Any]) -> dict[str, Any]:
    """Maps have no order."""
    return {
        name: sorted(value)
        if value and isinstance(value, list) and isinstance(value[0], tuple)
        else value
        for name, value in row.items()
    }
