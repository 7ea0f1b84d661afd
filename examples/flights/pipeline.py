"""The stateful job: for each aircraft its flights, delay, cancellations and last airport."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from dstl_core.codec.serializers import AnySerializer, Types
from dstl_core.spark import KeyedOperator, StatefulJob
from dstl_core.state import ValueStateDescriptor
from dstl_core.state.functions import Context, KeyedProcessFunction, Row, RuntimeContext
from examples.flights.events import KEY

UID = "flights-by-aircraft"
NAME = "flights"
PARALLELISM = 2
MAX_PARALLELISM = 128
STATES: dict[str, AnySerializer] = {
    "flights": Types.LONG,
    "total_delay": Types.LONG,
    "cancelled": Types.LONG,
    "last_airport": Types.STRING,
}
LATE_MINUTES = 120
OUTPUT = pa.schema([("tailnum", pa.string()), ("flight", pa.int64()), ("dep_delay", pa.int64())])


class FlightStatistics(KeyedProcessFunction):
    """Updates the state of an aircraft with each flight; gives the flights that are very late.

    Args:
        fail_after: For the demo's planned failure: raises after so many rows of a subtask.
    """

    def __init__(self, fail_after: int | None = None) -> None:
        self._fail_after = fail_after
        self._rows = 0

    def open(self, runtime_context: RuntimeContext) -> None:
        self._flights, self._delay, self._cancelled, self._last = (
            runtime_context.get_state(ValueStateDescriptor(name, type_))
            for name, type_ in STATES.items()
        )

    def process_element(self, value: Row, ctx: Context) -> Iterator[dict[str, Any]]:
        self._rows += 1
        if self._fail_after is not None and self._rows > self._fail_after:
            raise RuntimeError(f"planned failure after {self._fail_after} rows")
        delay = value["dep_delay"]
        self._flights.update((self._flights.value() or 0) + 1)
        self._delay.update((self._delay.value() or 0) + (delay or 0))
        self._cancelled.update((self._cancelled.value() or 0) + (delay is None))
        self._last.update(value["dest"])
        if delay is not None and delay > LATE_MINUTES:
            yield {"tailnum": value[KEY], "flight": value["flight"], "dep_delay": delay}


def flights_job(
    spark: SparkSession, base_path: str, *, fail_after: int | None = None
) -> StatefulJob:
    """The job on its state under ``base_path``."""
    operator = KeyedOperator(UID, KEY, Types.STRING, FlightStatistics(fail_after), OUTPUT)
    return StatefulJob(
        spark,
        NAME,
        base_path,
        operator,
        parallelism=PARALLELISM,
        max_parallelism=MAX_PARALLELISM,
        num_retained=2,
    )
