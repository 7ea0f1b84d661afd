"""State in columns that comes from a log, or from a base and a log, equals plain dictionaries.

Small limits make many batches, portions and levels of few rows. A batch of the log then has values
of a key that are set, cleared and set again.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dstl_core import KeyedOperator, LocalEngine, Snapshot, StatefulJob
from dstl_core.changelog import reader
from dstl_core.codec.serializers import Types
from dstl_core.functions import ColumnResult, KeyedColumnFunction, KeyedProcessFunction
from dstl_core.job.rows import row_buffer
from dstl_core.job.spec.operators import LocalCopies
from dstl_core.job.task import column_state, rows_in_columns
from dstl_core.state.columns import gathered_states
from dstl_core.state.tables.descriptor import ValueStateDescriptor
from tests.examples import WHOLE

SEEDS = range(40 if WHOLE else 3)
STATES = (ValueStateDescriptor("n", Types.LONG), ValueStateDescriptor("t", Types.STRING))
VALUES = {"n": [-(1 << 62), 0, 7], "t": ["", "ß", "y" * 40]}
ROWS = pa.schema(
    {"at": pa.int64(), "k": pa.string(), "state": pa.string(), "n": pa.int64(), "t": pa.string()}
)
SEEN = pa.schema({"at": pa.int64(), "n": pa.int64(), "t": pa.string()})
LIMITS = (
    (gathered_states, "MOST_WAITING_BYTES", [1, 500, 1 << 28]),
    (gathered_states, "_LEAST_ROWS", [0, 5, 1 << 17]),
    (row_buffer, "ROWS_PER_CALL", [3, 10, 1_000_000]),
    (rows_in_columns, "MOST_BYTES", [1, 200]),
    (rows_in_columns, "ROWS_IN_PYTHON", [2, 10]),
    (column_state, "LOGGED_ROWS", [2, 1 << 18]),
    (reader, "BATCH_ROWS", [7, 65_536]),
)


class RowByRow(KeyedProcessFunction):
    """Each row sets or clears one state of its key, and gives both as they were before."""

    def open(self, runtime_context: Any) -> None:
        self.states = {each.name: runtime_context.get_state(each) for each in STATES}

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield {"at": value["at"], **{name: own.value() for name, own in self.states.items()}}
        name = value["state"]
        if value[name] is None:
            self.states[name].clear()
        else:
            self.states[name].update(value[name])


class InColumns(KeyedColumnFunction):
    """The same on columns."""

    states = STATES

    def process_batch(self, keys: Any, state: Any, rows: Any) -> ColumnResult:
        now, seen = state.to_pylist(), []
        for row in rows.to_pylist():
            of_key = now[row["key_index"]]
            seen.append({"at": row["at"], **of_key})
            of_key[row["state"]] = row[row["state"]]
        return ColumnResult(
            pa.RecordBatch.from_pylist(now, state.schema), pa.RecordBatch.from_pylist(seen, SEEN)
        )


def some_rows(chooser: random.Random, first: int) -> list[dict[str, Any]]:
    rows = []
    for at in range(first, first + chooser.choice([0, 5, 60])):
        name = chooser.choice(["n", "t"])
        value = None if chooser.random() < 0.4 else chooser.choice(VALUES[name])
        rows.append({"at": at, "k": f"key {chooser.randrange(9)}", "state": name, name: value})
    return rows


@pytest.mark.parametrize("function", [RowByRow, InColumns], ids=["by row", "by column"])
@pytest.mark.parametrize("seed", SEEDS)
def test_state_from_the_log_is_that_of_all_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: Any, seed: int
) -> None:
    chooser = random.Random(seed)
    for module, name, sizes in LIMITS:
        monkeypatch.setattr(module, name, chooser.choice(sizes))
    model: dict[str, dict[str, Any]] = {}
    count = 0
    for epoch in range(5):
        job = StatefulJob(
            LocalEngine(threads=1),
            "job",
            str(tmp_path),
            KeyedOperator("u", "k", Types.STRING, function(), SEEN),
            parallelism=chooser.choice([1, 2, 3]),
            max_parallelism=4,
            local_copies=LocalCopies(max_bytes=0),
        )
        if epoch and chooser.random() < 0.3:
            job.materialize()
        rows = some_rows(chooser, count)
        expected = {}
        for row in rows:
            of_key = model.setdefault(row["k"], {"n": None, "t": None})
            expected[row["at"]] = dict(of_key)
            of_key[row["state"]] = row.get(row["state"])
        result = job.run(pa.Table.from_pylist(rows, ROWS), epoch, order_by=["at"])
        seen = {row.pop("at"): row for row in result.output.to_arrow().to_pylist()}
        assert seen == expected
        count += len(rows)
    job.materialize()
    kept = {
        row["state_key"]: {name: row[name] for name in ("n", "t")}
        for part in Snapshot.load(job.latest_path())["u"].keyed().read()
        for row in part.to_pylist()
    }
    assert kept == {key: own for key, own in model.items() if set(own.values()) != {None}}
