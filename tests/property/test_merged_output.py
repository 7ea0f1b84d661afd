"""A table that takes the output of a pipeline equals a recomputation, whatever is restated.

The expected table is computed in Python from the rows of the inputs that the state stands on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from dstl_core import AggregateOperator, LocalEngine, StatefulJob, aggregates
from dstl_core.sinks import DeltaSink, ParquetSink
from tests.delta_log import rows_of_delta
from tests.examples import examples

KEYS = "abcde"
ROWS = st.lists(st.tuples(st.sampled_from(KEYS), st.integers(-9, 9)), max_size=4)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("next"), ROWS),
        st.tuples(st.just("again"), st.integers(1, 4), ROWS),
        st.sampled_from([("output", False), ("output", True), ("kept", 2), ("materialize",)]),
        st.sampled_from([("merge",), ("merge",), ("next", [("e", 1)]), ("again", 2, [])]),
    ),
    min_size=4,
    max_size=12,
)
Table = dict[str, tuple[int, int]]


def expected(inputs: dict[int, list[tuple[str, int]]]) -> Table:
    """Key to count and sum."""
    table: Table = {}
    for rows in inputs.values():
        for key, value in rows:
            count, total = table.get(key, (0, 0))
            table[key] = (count + 1, total + value)
    return table


@dataclass
class Pipeline:
    """A pipeline, and a reader that applies the changes of keys to a dictionary."""

    base: Path
    output: bool = True
    kept: int | None = None
    inputs: dict[int, list[tuple[str, int]]] = field(default_factory=dict)
    at: int | None = None
    seen: Table = field(default_factory=dict)

    @property
    def job(self) -> StatefulJob:
        states = {"count": aggregates.count(), "total": aggregates.sum("v")}
        schema = "k string, v bigint"
        operator = AggregateOperator("totals", "k", states, schema=schema, output=self.output)
        return StatefulJob(
            LocalEngine(threads=1),
            "job",
            str(self.base),
            operator,
            parallelism=2,
            num_retained=99,
            num_retained_outputs=self.kept,
        )

    def run(self, number: int, rows: list[tuple[str, int]], **options: Any) -> None:
        keys, values = [key for key, _ in rows], [value for _, value in rows]
        batch = pa.table({"k": pa.array(keys, pa.string()), "v": pa.array(values, pa.int64())})
        self.inputs = {each: self.inputs[each] for each in self.inputs if each < number}
        self.job.run(batch, number, **options)
        self.inputs[number] = rows

    def merge(self) -> None:
        sinks = DeltaSink(str(self.base / "delta")), ParquetSink(str(self.base / "t.parquet"))
        for sink in sinks:
            self.job.merge_into(sink)
        self.read_changes()
        wanted = expected(self.inputs)
        assert self.seen == wanted
        if Path(sinks[1].path).exists() or wanted:
            assert rows_of(pq.read_table(sinks[1].path)) == wanted
            assert rows_of(DeltaTable(sinks[0].path).to_pyarrow_table()) == wanted
            assert rows_of(rows_of_delta(sinks[0].path)) == wanted

    def read_changes(self) -> None:
        """Each change is what it says of the rows that this reader has."""
        changes = self.job.changes(self.at)
        self.at = changes.between.until.checkpoint_id
        before = dict(self.seen)
        if changes.whole:
            self.seen, before = {}, {}
        for row in [] if changes.rows is None else changes.rows.to_pylist():
            key, kind = row["k"], row["change"]
            assert (key in before) == (kind != "insert"), (kind, key, before)
            if kind == "delete":
                del self.seen[key]
            else:
                assert kind in ("insert", "update")
                self.seen[key] = row["count"], row["total"]


def rows_of(table: pa.Table) -> Table:
    by_key = {row["k"]: (row["count"], row["total"]) for row in table.to_pylist()}
    assert len(by_key) == table.num_rows
    return by_key


def apply(pipeline: Pipeline, step: tuple[Any, ...]) -> None:
    match step:
        case ("next", rows):
            pipeline.run(max(pipeline.inputs, default=0) + 1, rows)
        case ("again", back, rows) if pipeline.inputs:
            pipeline.run(max(1, max(pipeline.inputs) + 1 - back), rows, rewind=True)
        case ("output", on):
            pipeline.output = on
        case ("kept", count):
            pipeline.kept = count
        case ("materialize",) if pipeline.inputs:
            pipeline.job.materialize()
        case ("merge",) if pipeline.inputs and pipeline.output:
            pipeline.merge()


@settings(max_examples=examples(60), deadline=None)
@given(STEPS)
def test_a_table_behind_a_pipeline_equals_a_recomputation(steps: list[tuple[Any, ...]]) -> None:
    with TemporaryDirectory() as folder:
        pipeline = Pipeline(Path(folder))
        for step in [*steps, ("output", True), ("merge",)]:
            apply(pipeline, step)
