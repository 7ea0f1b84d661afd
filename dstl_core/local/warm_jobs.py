"""Small jobs that call the kernels of ordinary days, so that the kernels' folder holds them.

A kernel is compiled at its first call, for the types of that call. So the jobs have columns of
every type, keys of the usual types, and all that happens to state: epochs, restores, windows,
savepoints, readers.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from dstl_core import aggregates
from dstl_core.codec.columnar.kryo.section_converter import SectionConverter
from dstl_core.codec.keyed_canonical import END_OF_KEY_GROUP_MARK
from dstl_core.functions import KeyedProcessFunction
from dstl_core.job.coordination.job_on_engine import JobOnEngine
from dstl_core.job.spec.operators import AggregateOperator, KeyedOperator, LocalCopies
from dstl_core.local.local_engine import LocalEngine
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.state.tables.descriptor import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from dstl_core.windows import TumblingEventTimeWindows

ROWS = 1_000
"""Enough for a log that is replayed by kernels."""
_START = dt.datetime(2026, 1, 1)
_NUMBERS: Mapping[str, tuple[str, pa.Array]] = {
    "tiny": ("tinyint", pa.array([row % 100 for row in range(ROWS)], pa.int8())),
    "small": ("smallint", pa.array(range(ROWS), pa.int16())),
    "whole": ("int", pa.array(range(ROWS), pa.int32())),
    "large": ("bigint", pa.array(range(ROWS), pa.int64())),
    "real": ("float", pa.array(map(float, range(ROWS)), pa.float32())),
    "price": ("double", pa.array(map(float, range(ROWS)), pa.float64())),
    "amount": ("decimal(18,2)", pa.array(map(Decimal, range(ROWS)), pa.decimal128(18, 2))),
    "exact": ("decimal(38,10)", pa.array(map(Decimal, range(ROWS)), pa.decimal128(38, 10))),
}
_TIMES = [_START + dt.timedelta(seconds=row) for row in range(ROWS)]
_OTHERS: Mapping[str, tuple[str, pa.Array]] = {
    "flag": ("boolean", pa.array([row % 2 == 0 for row in range(ROWS)])),
    "item": ("string", pa.array([f"item-{row}" for row in range(ROWS)])),
    "raw": ("binary", pa.array([b"raw"] * ROWS)),
    "day": ("date", pa.array([_START.date()] * ROWS)),
    "at": ("timestamp", pa.array(_TIMES, pa.timestamp("us", "UTC"))),
    "clock": ("timestamp_ntz", pa.array(_TIMES, pa.timestamp("us"))),
}
_COLUMNS = {**_NUMBERS, **_OTHERS}
_KEYS: Mapping[str, tuple[str, pa.Array]] = {
    "texts": ("string", pa.array([f"key-{row}" for row in range(ROWS)])),
    "longs": ("bigint", pa.array(range(ROWS), pa.int64())),
    "integers": ("int", pa.array(range(ROWS), pa.int32())),
    "pairs": (
        "struct<land: string, id: bigint>",
        pa.array([{"land": "land", "id": row} for row in range(ROWS)]),
    ),
}


class _AllStates(KeyedProcessFunction):
    """A state of each kind, and a timer."""

    order_insensitive = True

    def open(self, runtime_context: Any) -> None:
        self._last = runtime_context.get_state(ValueStateDescriptor("last", "string"))
        self._total = runtime_context.get_state(ValueStateDescriptor("total", "decimal(18,2)"))
        self._items = runtime_context.get_list_state(ListStateDescriptor("items", "string"))
        self._counts = runtime_context.get_map_state(
            MapStateDescriptor("counts", "string", "bigint")
        )

    def process_element(self, value: Any, ctx: Any) -> None:
        self._last.update(value["item"])
        self._total.update((self._total.value() or Decimal(0)) + value["amount"])
        self._items.add(value["item"])
        self._counts.put(value["item"], (self._counts.get(value["item"]) or 0) + 1)
        ctx.timer_service().register_event_time_timer(1)


def steps(folder: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """What each step does in words, and the step.

    Args:
        folder: An empty folder for the files of the jobs.
    """
    for name, (key_type, keys) in _KEYS.items():
        batch = pa.table({"k": keys, **{column: own for column, (_, own) in _COLUMNS.items()}})
        columns = {"k": key_type, **{column: kind for column, (kind, _) in _COLUMNS.items()}}
        schema = ", ".join(f"{column} {kind}" for column, kind in columns.items())
        operator = AggregateOperator("states", "k", _every_aggregate(), schema=schema, output=True)
        yield f"aggregates by {name}", partial(_run, folder / name, operator, batch)
        if name != "texts":
            continue
        windows = AggregateOperator(
            "states",
            "k",
            {"n": aggregates.count(), "total": aggregates.sum("amount")},
            schema=schema,
            event_time="at",
            window=TumblingEventTimeWindows.of("1 min"),
        )
        yield "windows", partial(_run, folder / "windows", windows, batch)
        by_row = KeyedOperator("states", "k", "string", _AllStates())
        yield "functions by row", partial(_run, folder / "rows", by_row, batch)
    yield "upgrades", _convert


def _every_aggregate() -> dict[str, Any]:
    chosen: dict[str, Any] = {"n": aggregates.count(), "any": aggregates.bool_or("flag")}
    for column in _NUMBERS:
        chosen[f"sum_{column}"] = aggregates.sum(column)
        chosen[f"avg_{column}"] = aggregates.avg(column)
    for column in _COLUMNS:
        chosen[f"min_{column}"] = aggregates.min(column)
        chosen[f"by_{column}"] = aggregates.max_by(column, "at")
    return chosen


def _run(folder: Path, operator: AggregateOperator | KeyedOperator, batch: pa.Table) -> None:
    jobs = str(folder / "jobs")
    for number in range(2):
        # The second job has no copy of the state, and restores it.
        copies = LocalCopies(str(folder / f"copies-{number}"))
        job = JobOnEngine(LocalEngine(), "warm", jobs, operator, parallelism=2, local_copies=copies)
        for epoch in range(2):
            job.run(batch, f"{number}-{epoch}")
    job.materialize()
    for snapshot in (job.snapshot(), Snapshot.load(job.savepoint(str(folder / "savepoint")))):
        [states] = snapshot.operators
        for _ in states.keyed().read():
            pass


def _convert() -> None:
    """Calls the kernels of an upgrade, which are one program, with no record."""
    converter = SectionConverter([], lambda state, key, value: (key, value))
    converter.converted(END_OF_KEY_GROUP_MARK.to_bytes(2, "big"))
