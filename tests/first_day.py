"""An ordinary day of a job, which prints the kernels that it compiled."""

FIRST_DAY = """
import sys
from decimal import Decimal
import pyarrow as pa
from numba.core import event
from dstl_core import AggregateOperator, LocalEngine, StatefulJob, aggregates

listener = event.RecordingListener()
event.register("numba:compile", listener)
day = pa.table({
    "k": ["ada", "bob"],
    "ts": pa.array([0, 1], pa.timestamp("us", "UTC")),
    "amount": pa.array([Decimal("1.25"), None], pa.decimal128(18, 2)),
    "price": [0.5, None], "item": ["tea", "ink"], "ok": [True, False],
})
states = {
    "n": aggregates.count(), "total": aggregates.sum("amount"), "first": aggregates.min("ts"),
    "last": aggregates.max("ts"), "latest": aggregates.max_by("item", "ts"),
    "top": aggregates.max("price"), "price": aggregates.sum("price"),
    "ok": aggregates.bool_or("ok"),
}
columns = "ts timestamp, amount decimal(18,2), price double, item string, ok boolean"
operator = AggregateOperator("states", "k", states, schema=f"k string, {columns}", output=True)
job = StatefulJob(LocalEngine(), "day", sys.argv[1], operator, parallelism=2)
for number in range(2):
    job.run(day, number)
compiled = {each.data["dispatcher"].py_func.__name__ for _, each in listener.buffer}
print(sorted(name for name in compiled))
"""
"""Takes the folder of the job."""
