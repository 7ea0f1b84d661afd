"""The latest row of a key is one of its rows, whatever batches the rows come in.

Expected rows are the largest or smallest of all rows of a key, compared in Python.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dstl_core import AggregateOperator, LocalEngine, StatefulJob, aggregates, windows
from dstl_core.errors import ConfigError
from tests.examples import examples

SCHEMA = pa.schema(
    {
        "k": pa.string(),
        "status": pa.string(),
        "amount": pa.decimal128(9, 2),
        "rate": pa.float64(),
        "ts": pa.int64(),
        "lsn": pa.int32(),
    }
)
FIELDS, ORDER = ["status", "amount", "rate"], ["ts", "lsn"]
AGGREGATES = {
    "last_row": aggregates.last_row(FIELDS, ORDER),
    "first_row": aggregates.first_row(FIELDS, ORDER),
    "last": aggregates.last("amount", ORDER),
    "max_by": aggregates.max_by("status", ORDER),
    "min_by": aggregates.min_by("rate", ORDER),
}
ROW = st.fixed_dictionaries(
    {
        "k": st.sampled_from("ab"),
        "status": st.none() | st.sampled_from(["new", "paid"]),
        "amount": st.none() | st.sampled_from([Decimal("1.50"), Decimal("-2.00")]),
        "rate": st.none() | st.sampled_from([0.5, float("inf")]),
        "ts": st.none() | st.integers(1, 3),
        "lsn": st.none() | st.integers(-1, 2),
    }
)
BATCHES = st.lists(st.lists(ROW, max_size=5), min_size=1, max_size=4)


def ranked(row: dict[str, Any], names: list[str]) -> tuple[tuple[bool, Any], ...]:
    """Compares rows by columns; null is the smallest."""
    return tuple((row[name] is not None, row[name] or 0) for name in names)


def expected(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The output of a key; None without a row that counts."""
    counting = [row for row in rows if row["ts"] is not None]
    if not counting:
        return None

    def best(column: str | None, largest: bool, present: bool = False) -> Any:
        names = [*ORDER, *(FIELDS if column is None else [column])]
        chosen = [row for row in counting if not present or row[str(column)] is not None]
        if not chosen:
            return None
        row = (max if largest else min)(chosen, key=lambda candidate: ranked(candidate, names))
        return {name: row[name] for name in FIELDS} if column is None else row[column]

    return {
        "last_row": best(None, True),
        "first_row": best(None, False),
        "last": best("amount", True, present=True),
        "max_by": best("status", True),
        "min_by": best("rate", False),
    }


def job_in(folder: str, **options: Any) -> StatefulJob:
    operator = AggregateOperator("t", "k", AGGREGATES, schema=SCHEMA, output=True, **options)
    return StatefulJob(LocalEngine(threads=1), "job", folder, operator, parallelism=1)


@settings(max_examples=examples(50), deadline=None)
@given(BATCHES)
def test_a_row_is_kept_as_a_whole_however_rows_come(batches: list[list[dict[str, Any]]]) -> None:
    with TemporaryDirectory() as folder:
        latest: dict[str, Any] = {}
        for number, rows in enumerate(batches):
            result = job_in(folder).run(pa.Table.from_pylist(rows, SCHEMA), number)
            latest |= {row.pop("k"): row for row in pa.table(result.output).to_pylist()}
        every = [row for rows in batches for row in rows]
        wanted = {key: expected([row for row in every if row["k"] == key]) for key in "ab"}
        assert latest == {key: row for key, row in wanted.items() if row is not None}


def test_a_window_keeps_a_row_as_a_whole(tmp_path: Path) -> None:
    tumbling = windows.TumblingEventTimeWindows.of("10 ms")
    job = job_in(str(tmp_path), window=tumbling, event_time="ts")
    for number, (status, ts, lsn) in enumerate((("paid", 5, 2), ("new", 5, 1), ("late", 25, 1))):
        row = {"k": "a", "status": status, "amount": Decimal(lsn), "ts": ts, "lsn": lsn}
        result = job.run(pa.Table.from_pylist([row], SCHEMA), number)
    [fired] = pa.table(result.output).to_pylist()
    assert (fired["window_start"], fired["last_row"]) == (
        0,
        {"status": "paid", "amount": Decimal("2.00"), "rate": None},
    )


def test_a_field_and_the_order_have_states_of_their_own() -> None:
    aggregates.last_row(["order_2"], "ts")
    for field, order in (("order", ["ts"]), ("order_2", ["ts", "lsn"])):
        with pytest.raises(ConfigError, match=f"the state of '{field}' would have the name of tha"):
            aggregates.last_row([field], order)
