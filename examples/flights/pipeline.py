"""The stateful job: for each aircraft its flights, delay, cancellations and last airport."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from dstl_core import (
    KeyedOperator,
    KeyedProcessFunction,
    StatefulJob,
    Types,
    ValueStateDescriptor,
    functions,
)
from examples.flights.events import KEY, MAX_PARALLELISM, NAME, PARALLELISM, STATES, UID

LATE_MINUTES = 120
OUTPUT = pa.schema([("tailnum", pa.string()), ("flight", pa.int64()), ("dep_delay", pa.int64())])


class FlightStatistics(KeyedProcessFunction):
    """Updates the state of an aircraft with each flight; gives the flights that are very late."""

    def open(self, runtime_context: functions.RuntimeContext) -> None:
        self._flights, self._delay, self._cancelled, self._last = (
            runtime_context.get_state(ValueStateDescriptor(name, type_))
            for name, type_ in STATES.items()
        )

    def process_element(
        self, value: functions.Row, ctx: functions.Context
    ) -> Iterator[dict[str, Any]]:
        delay = value["dep_delay"]
        self._flights.update((self._flights.value() or 0) + 1)
        self._delay.update((self._delay.value() or 0) + (delay or 0))
        self._cancelled.update((self._cancelled.value() or 0) + (delay is None))
        self._last.update(value["dest"])
        if delay is not None and delay > LATE_MINUTES:
            yield {"tailnum": value[KEY], "flight": value["flight"], "dep_delay": delay}


def flights_job(spark: SparkSession, base_path: str) -> StatefulJob:
    """The job on its state under ``base_path``."""
    operator = KeyedOperator(UID, KEY, Types.STRING, FlightStatistics(), OUTPUT)
    return StatefulJob(
        spark,
        NAME,
        base_path,
        operator,
        parallelism=PARALLELISM,
        max_parallelism=MAX_PARALLELISM,
        num_retained=2,
    )
