"""Every type of stored rows comes back as the same values in every library of frames."""

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from dstl_core import KeyedOperator, LocalEngine, StatefulJob, Types, ValueStateDescriptor
from dstl_core.checkpoint.store.pipeline_store import PipelineStore
from dstl_core.functions import KeyedProcessFunction
from dstl_core.job.spec.output_types import SIMPLE_TYPES
from dstl_dagster.snapshots.stored_rows import committed_output, committed_state
from tests.integration.dagster.small_pipeline import SPARK

pytestmark = [pytest.mark.dagster, pytest.mark.spark]
LIBRARIES = (
    pa.Table,
    pd.DataFrame,
    pl.DataFrame,
    pl.LazyFrame,
    duckdb.DuckDBPyRelation,
    DataFrame,
)
WIDE = 9_007_199_254_740_993
"""One more than a double can tell from its neighbour."""
NOON = datetime(2026, 1, 2, 12, 0, 0, 123456)
VALUES: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [True, False],
    pa.int8(): [-128, 127],
    pa.int16(): [-(2**15), 2**15 - 1],
    pa.int32(): [-(2**31), 2**31 - 1],
    pa.int64(): [WIDE, -(2**63)],
    pa.float32(): [0.5, float("inf")],
    pa.float64(): [0.1, -float("inf")],
    pa.string(): ["", "ä\x00\U0001f600"],
    pa.binary(): [b"", b"\x00\xff"],
    pa.date32(): [date(1970, 1, 1), date(9999, 12, 31)],
    pa.timestamp("us"): [NOON, datetime(1969, 12, 31, 23, 59, 59, 999999)],
    pa.timestamp("us", "UTC"): [NOON.replace(tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)],
    pa.decimal128(38, 18): [Decimal(f"{10**20 - 1}.{'9' * 18}"), Decimal("-0.000000000000000001")],
    pa.decimal128(10, 2): [Decimal("12345678.90"), Decimal("0.00")],
    pa.list_(pa.int64()): [[WIDE, None], []],
    pa.map_(pa.string(), pa.int64()): [[("a", WIDE)], []],
    pa.struct([("n", pa.int64()), ("d", pa.date32())]): [
        {"n": WIDE, "d": date(2026, 1, 1)},
        {"n": None, "d": None},
    ],
}
NAMES = {kind: f"c{number}" for number, kind in enumerate(VALUES)}
SCHEMA = pa.schema([("k", pa.int64()), *((NAMES[kind], kind) for kind in VALUES)])
ROWS: list[dict[str, Any]] = [
    {"k": at, **{NAMES[kind]: values[at] for kind, values in VALUES.items()}} for at in (0, 1)
] + [{"k": 2, **dict.fromkeys(NAMES.values())}]
"""Two rows of values, and one of nulls."""
STATES = {
    "bigint": WIDE,
    "int": 2**31 - 1,
    "smallint": -(2**15),
    "double": 0.1,
    "boolean": True,
    "string": "ä",
    "date": date(9999, 12, 31),
    "timestamp_ntz": NOON,
    "timestamp": NOON.replace(tzinfo=UTC),
}
"""Type to value. Decimals of functions are Java's, with a scale each, and no column of one type."""


class Gives(KeyedProcessFunction):
    """Gives the row of a number, and keeps a state of each type for the first key."""

    order_insensitive = True

    def open(self, runtime_context: Any) -> None:
        self.states = {
            kind: runtime_context.get_state(ValueStateDescriptor(kind, kind)) for kind in STATES
        }
        self.always = runtime_context.get_state(ValueStateDescriptor("always", Types.LONG))

    def process_element(self, value: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        self.always.update(1)
        if value["k"] == 0:
            for kind, kept in STATES.items():
                self.states[kind].update(kept)
        yield ROWS[value["k"]]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> PipelineStore:
    base = str(tmp_path_factory.mktemp("state"))
    operator = KeyedOperator("gives", "k", Types.LONG, Gives(), SCHEMA)
    StatefulJob(LocalEngine(threads=1), "job", base, operator).run(pa.table({"k": [0, 1, 2]}), 1)
    return PipelineStore(base, "job")


def in_arrow(frame: Any) -> pa.Table:
    """The rows of a frame, by the way to Arrow that its library gives."""
    match frame:
        case pa.Table():
            return frame
        case pd.DataFrame():
            return pa.Table.from_pandas(frame, preserve_index=False)
        case pl.DataFrame():
            return frame.to_arrow()
        case pl.LazyFrame():
            return frame.collect().to_arrow()
        case duckdb.DuckDBPyRelation():
            return pa.RecordBatchReader.from_stream(frame).read_all()
        case _:
            return frame.toArrow()


def plain(value: Any) -> Any:
    """A value without what libraries say differently: the zone object of UTC, maps as pairs."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    if isinstance(value, list):
        pairs = [tuple(each.values()) if _is_entry(each) else each for each in value]
        return [plain(each) for each in pairs]
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return value


def _is_entry(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {"key", "value"}


def rows_of(frame: Any, key: str) -> list[dict[str, Any]]:
    rows = in_arrow(frame).to_pylist()
    return [plain(row) for row in sorted(rows, key=lambda row: row[key])]


def test_all_types_of_output_are_here() -> None:
    assert set(SIMPLE_TYPES) <= set(VALUES)


@pytest.mark.parametrize("library", LIBRARIES)
def test_values_of_output_are_the_stored_ones(store: PipelineStore, library: Any) -> None:
    loaded = committed_output(store, "job", "gives", None).as_type(
        library, lambda: SPARK.spark_session
    )
    assert isinstance(loaded, library)
    assert rows_of(loaded, "k") == [plain(row) for row in ROWS]


@pytest.mark.parametrize("library", LIBRARIES)
def test_values_of_state_are_the_stored_ones(store: PipelineStore, library: Any) -> None:
    loaded = committed_state(store, "job", "gives", None).as_type(
        library, lambda: SPARK.spark_session
    )
    [first, *others] = rows_of(loaded, "state_key")
    assert {kind: first[kind] for kind in STATES} == STATES
    without = [[row[kind] for kind in STATES] for row in others]
    assert without == [[None] * len(STATES)] * 2


def test_a_bigint_of_pandas_with_nulls_keeps_its_digits(store: PipelineStore) -> None:
    frame = committed_output(store, "job", "gives", None).as_type(
        pd.DataFrame, lambda: SPARK.spark_session
    )
    column = frame.sort_values("k")[NAMES[pa.int64()]]
    assert str(column.dtype) == "int64[pyarrow]"
    assert (column.tolist()[0], column.isna().tolist()) == (WIDE, [False, False, True])
    name = NAMES[pa.int64()]
    nullable = frame[["k", name]].convert_dtypes(dtype_backend="numpy_nullable")
    assert str(nullable[name].dtype) == "Int64"
    assert nullable.sort_values("k")[name].tolist()[0] == WIDE
