"""The flights by column: the state that the demo's function by row has, and a plain aggregation."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import cloudpickle

from dstl_core.codec.serializers import Types
from dstl_core.functions import ColumnResult, KeyedColumnFunction
from dstl_core.spark.job.stateful_job import StatefulJob
from dstl_core.spark.task.operators import KeyedOperator, LocalCopies
from dstl_core.state.backends.state_backend import EmbeddedRocksDBStateBackend, HashMapStateBackend
from dstl_core.state.tables.descriptor import ValueStateDescriptor
from examples.flights import pipeline
from examples.flights.events import KEY, ORDER_BY, aggregate, events_of, ingest
from examples.flights.pipeline import STATES, FlightStatistics

pytestmark = pytest.mark.spark
DAYS = ["2013-11-01", "2013-11-02", "2013-11-03"]


@pytest.fixture(autouse=True, scope="module")
def by_value():
    cloudpickle.register_pickle_by_value(pipeline)
    yield
    cloudpickle.unregister_pickle_by_value(pipeline)


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


@pytest.mark.parametrize(
    ("function", "changelog", "backend"),
    [
        (FlightStatistics(), True, HashMapStateBackend()),
        (FlightStatistics(), False, EmbeddedRocksDBStateBackend()),
        (FlightsByColumn(), True, HashMapStateBackend()),
        (FlightsByColumn(), False, HashMapStateBackend()),
    ],
)
def test_flights_by_row_and_by_column_are_a_plain_aggregation(
    spark, tmp_path, function, changelog, backend
):
    events = tmp_path / "events"
    ingest(events)
    operator = KeyedOperator("flights", KEY, Types.STRING, function)
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
    found = {row.state_key: tuple(row[name] for name in STATES) for row in rows}
    plain = aggregate(events_of(spark, events, DAYS[0], DAYS[-1])).collect()
    assert found == {row[KEY]: tuple(row[name] for name in STATES) for row in plain}
