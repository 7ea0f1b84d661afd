"""Random values of every type come back as they are, in every library of frames but Spark's.

``test_frame_types`` has Spark, and a fixed row of each type.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame

from dstl_core import KeyedOperator, LocalEngine, StatefulJob, Types, ValueStateDescriptor
from dstl_core.checkpoint.store.pipeline_store import PipelineStore
from dstl_core.functions import KeyedProcessFunction
from dstl_dagster.snapshots.stored_rows import committed_output, committed_state
from tests.examples import examples
from tests.integration.dagster.test_frame_types import LIBRARIES, plain, rows_of

pytestmark = pytest.mark.dagster


def whole(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def decimals(digits: int, scale: int) -> st.SearchStrategy[Decimal]:
    unscaled = st.integers(-(10**digits) + 1, 10**digits - 1)
    return unscaled.map(lambda number: Decimal(f"{number}e-{scale}"))


TIMES = st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1))
ZONED = TIMES.map(lambda moment: moment.replace(tzinfo=UTC))
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
FLOATS = st.floats(allow_nan=False)
COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "flag": (pa.bool_(), st.booleans()),
    "tiny": (pa.int8(), whole(8)),
    "small": (pa.int16(), whole(16)),
    "int": (pa.int32(), whole(32)),
    "long": (pa.int64(), whole(64)),
    "single": (pa.float32(), st.floats(allow_nan=False, width=32)),
    "double": (pa.float64(), FLOATS),
    "text": (pa.string(), TEXT),
    "bytes": (pa.binary(), st.binary(max_size=5)),
    "day": (pa.date32(), st.dates()),
    "local": (pa.timestamp("us"), TIMES),
    "moment": (pa.timestamp("us", "UTC"), ZONED),
    "price": (pa.decimal128(10, 2), decimals(10, 2)),
    "exact": (pa.decimal128(38, 18), decimals(38, 18)),
    "longs": (pa.list_(pa.int64()), st.lists(st.none() | whole(64), max_size=3)),
    "pair": (
        pa.struct([("n", pa.int64()), ("d", pa.date32())]),
        st.fixed_dictionaries({"n": st.none() | whole(64), "d": st.none() | st.dates()}),
    ),
}
SCHEMA = pa.schema([("k", pa.int64()), *((name, kind) for name, (kind, _) in COLUMNS.items())])
STATES: dict[str, st.SearchStrategy[Any]] = {
    "bigint": whole(64),
    "int": whole(32),
    "smallint": whole(16),
    "double": FLOATS,
    "boolean": st.booleans(),
    "string": TEXT,
    "date": st.dates(),
    "timestamp_ntz": TIMES,
    "timestamp": ZONED,
}
ROW = st.fixed_dictionaries({name: st.none() | values for name, (_, values) in COLUMNS.items()})
KEPT = st.fixed_dictionaries({kind: st.none() | values for kind, values in STATES.items()})


class Gives(KeyedProcessFunction):
    """Gives the row of a number, and keeps a state of each type.

    Args:
        rows: The rows, by number.
        kept: The values of states, by number.
    """

    order_insensitive = True

    def __init__(self, rows: list[dict[str, Any]], kept: list[dict[str, Any]]) -> None:
        self.rows, self.kept = rows, kept

    def open(self, runtime_context: Any) -> None:
        self.states = {
            kind: runtime_context.get_state(ValueStateDescriptor(kind, kind)) for kind in STATES
        }
        self.always = runtime_context.get_state(ValueStateDescriptor("always", Types.LONG))

    def process_element(self, value: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        number = value["k"]
        self.always.update(1)
        for kind, kept in self.kept[number].items():
            if kept is not None:
                self.states[kind].update(kept)
        yield {"k": number, **self.rows[number]}


@settings(max_examples=examples(20), deadline=None)
@given(st.lists(st.tuples(ROW, KEPT), min_size=1, max_size=4))
def test_values_of_output_and_state_are_the_stored_ones(cases: list[tuple[Any, Any]]) -> None:
    rows, kept = [row for row, _ in cases], [values for _, values in cases]
    with TemporaryDirectory() as folder:
        operator = KeyedOperator("gives", "k", Types.LONG, Gives(rows, kept), SCHEMA)
        job = StatefulJob(LocalEngine(threads=1), "job", folder, operator, parallelism=1)
        job.run(pa.table({"k": list(range(len(rows)))}), 1)
        store = PipelineStore(folder, "job")
        output = committed_output(store, "job", "gives", None)
        state = committed_state(store, "job", "gives", None)
        for library in LIBRARIES:
            if library is DataFrame:
                continue
            given_back = rows_of(output.as_type(library, _no_session), "k")
            assert given_back == [plain({"k": at, **row}) for at, row in enumerate(rows)]
            of_state = rows_of(state.as_type(library, _no_session), "state_key")
            assert [{kind: row.get(kind) for kind in STATES} for row in of_state] == kept


def _no_session() -> Any:
    raise AssertionError("only Spark's frames need a session")
