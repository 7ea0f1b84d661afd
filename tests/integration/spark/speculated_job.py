"""Runs jobs of four epochs. In the second one, a subtask runs twice at once: its first attempt is
so slow that it writes its files after the commit. Arguments: master, folder of the jobs, folder
for pipes and the event log. It writes what it saw to ``seen.json`` among the events.
"""

import json
import os
import select
import sys

from pyspark import TaskContext, cloudpickle

from dstl_core.codec.serializers import Types
from dstl_core.job.spec.operators import KeyedOperator
from dstl_core.state.backends.state_backend import EmbeddedRocksDBStateBackend, HashMapStateBackend
from dstl_core.stateful_job import StatefulJob
from tests.integration.spark import job_functions
from tests.integration.spark.job_functions import (
    OUTPUT,
    SCHEMA,
    TotalsByColumn,
    TotalsByRow,
    random_batch,
)
from tests.integration.spark.speculation import TIMEOUT_S, speculating

MASTER, JOBS, EVENTS = sys.argv[1:]
SLOW_EPOCH = 2


def pipe_of(name):
    return os.path.join(EVENTS, name)


class Slow:
    """Makes the first attempt of subtask 1 wait for the commit, if a pipe will tell of it."""

    kind = ""
    waited = False

    def wait_for_commit(self):
        context = TaskContext.get()
        if self.waited or (context.partitionId(), context.attemptNumber()) != (1, 0):
            return
        try:
            pipe = os.open(pipe_of(f"{self.kind}-committed"), os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            return
        ready, _, _ = select.select([pipe], [], [], TIMEOUT_S)
        os.close(pipe)
        if not ready:
            raise TimeoutError("the epoch is not committed")
        self.waited = True

    def close(self):
        """Called when all files of the attempt are written."""
        if self.waited:
            with open(pipe_of(f"{self.kind}-written"), "wb") as pipe:
                pipe.write(b".")


class SlowByRow(Slow, TotalsByRow):
    def process_element(self, value, ctx):
        self.wait_for_commit()
        yield from super().process_element(value, ctx)


class SlowByColumn(Slow, TotalsByColumn):
    def process_batch(self, keys, state, rows):
        self.wait_for_commit()
        return super().process_batch(keys, state, rows)


class SlowInTables(SlowByRow):
    """A function with timers, whose state is not in columns."""

    def on_timer(self, timestamp, ctx):
        return ()


KINDS = {
    "row": (SlowByRow, HashMapStateBackend()),
    "column": (SlowByColumn, HashMapStateBackend()),
    "tables": (SlowInTables, HashMapStateBackend()),
    "database": (SlowInTables, EmbeddedRocksDBStateBackend()),
}


def run_job(spark, kind):
    """Runs all epochs; returns the output of each, and what the commit says of its attempts."""
    made, backend = KINDS[kind]
    function = made()
    function.kind = kind
    operator = KeyedOperator("totals", "k", Types.STRING, function, OUTPUT)
    job = StatefulJob(spark, kind, JOBS, operator, state_backend=backend)
    epochs = []
    for number in range(1, 5):
        rows = spark.createDataFrame(random_batch(number), SCHEMA)
        if number == SLOW_EPOCH:
            os.mkfifo(pipe_of(f"{kind}-committed"))
            os.mkfifo(pipe_of(f"{kind}-written"))
            written = os.open(pipe_of(f"{kind}-written"), os.O_RDONLY | os.O_NONBLOCK)
        result = job.run(rows, number, order_by=["v"])
        if number == SLOW_EPOCH:
            with open(pipe_of(f"{kind}-committed"), "wb") as pipe:
                os.unlink(pipe.name)
                pipe.write(b".")
            ready, _, _ = select.select([written], [], [], TIMEOUT_S)
            if not ready:
                raise TimeoutError("the slow attempt has not written its files")
            os.close(written)
        again = job.run(rows, number, order_by=["v"])
        output = [sorted(map(list, each.output.collect())) for each in (result, again)]
        epochs.append({"output": output, "retries": result.facts.operators["totals"].retries})
    return {"path": job.latest_path(), "epochs": epochs}


def main():
    for module in (sys.modules[__name__], job_functions):
        cloudpickle.register_pickle_by_value(module)
    spark = speculating(MASTER, EVENTS, {"spark.sql.shuffle.partitions": "2"})
    seen = {kind: run_job(spark, kind) for kind in KINDS}
    with open(os.path.join(EVENTS, "seen.json"), "w") as file:
        json.dump(seen, file)
    spark.stop()


if __name__ == "__main__":
    main()
