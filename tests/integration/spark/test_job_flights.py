"""The flights by row, by column and as declared aggregates: a plain aggregation of them."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dstl_core.codec.serializers import Types
from dstl_core.functions import ColumnResult, KeyedColumnFunction, KeyedProcessFunction
from dstl_core.job.spec.operators import KeyedOperator, LocalCopies
from dstl_core.state.backends.state_backend import EmbeddedRocksDBStateBackend, HashMapStateBackend
from dstl_core.state.tables.descriptor import ValueStateDescriptor
from dstl_core.stateful_job import StatefulJob
from examples.flights.events import KEY, ORDER_BY, STATES, aggregate, events_of, ingest
from examples.flights.pipeline import AIRCRAFT

pytestmark = pytest.mark.spark
DAYS = ["2013-11-01", "2013-11-02", "2013-11-03"]


class FlightsByRow(KeyedProcessFunction):
    def open(self, runtime_context):
        self._flights, self._delay, self._cancelled, self._last = (
            runtime_context.get_state(ValueStateDescriptor(name, type_))
            for name, type_ in STATES.items()
        )

    def process_element(self, value, ctx):
        delay = value["dep_delay"]
        self._flights.update((self._flights.value() or 0) + 1)
        self._delay.update((self._delay.value() or 0) + (delay or 0))
        self._cancelled.update((self._cancelled.value() or 0) + (delay is None))
        self._last.update(value["dest"])


class FlightsByColumn(KeyedColumnFunction):
    states = tuple(ValueStateDescriptor(name, type_) for name, type_ in STATES.items())

    def process_batch(self, keys, state, rows):
        index = rows.column("key_index").to_numpy()
        delay = rows.column("dep_delay")
        added = {
            "flights": np.ones(len(index), np.int64),
            "total_delay": pc.fill_null(delay, 0).to_numpy(),
            "cancelled": delay.is_null().cast(pa.int64()).to_numpy(),
        }
        new = []
        for name, values in added.items():
            total = pc.fill_null(state.column(name), 0).to_numpy().copy()
            np.add.at(total, index, values)
            new.append(pa.array(total))
        last = np.full(len(keys), -1, np.int64)
        last[index] = np.arange(len(index))
        new.append(rows.column("dest").take(pa.array(last)))
        return ColumnResult(pa.RecordBatch.from_arrays(new, names=list(STATES)))


def operator_of(function):
    return KeyedOperator("flights", KEY, Types.STRING, function)


@pytest.mark.parametrize(
    ("operator", "changelog", "backend"),
    [
        (operator_of(FlightsByRow()), True, HashMapStateBackend()),
        (operator_of(FlightsByRow()), False, EmbeddedRocksDBStateBackend()),
        (operator_of(FlightsByColumn()), True, HashMapStateBackend()),
        (operator_of(FlightsByColumn()), False, HashMapStateBackend()),
        (AIRCRAFT, True, HashMapStateBackend()),
    ],
)
def test_flights_in_each_form_are_a_plain_aggregation(
    spark, tmp_path, operator, changelog, backend
):
    events = tmp_path / "events"
    ingest(events)
    for day, parallelism in zip(DAYS, (2, 5, 1), strict=True):
        job = StatefulJob(
            spark,
            "flights",
            str(tmp_path),
            operator,
            parallelism=parallelism,
            changelog=changelog,
            state_backend=backend,
            local_copies=LocalCopies(str(tmp_path / "local")),
        )
        job.run(events_of(spark, events, day, day), day, order_by=ORDER_BY)
    rows = spark.read.format("savepoint").load(job.latest_path()).collect()
    by_key = {row.state_key: tuple(row[name] for name in STATES) for row in rows}
    plain = aggregate(events_of(spark, events, DAYS[0], DAYS[-1])).collect()
    assert by_key == {row[KEY]: tuple(row[name] for name in STATES) for row in plain}
