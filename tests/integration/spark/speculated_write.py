"""Writes a savepoint by columns and one by a function, each with one slow task: its first attempt
goes on once the second one has begun, so that both may write. Arguments: master, folder of the
savepoints, folder for the event log.
"""

import os
import sys
import time

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from dstl_core.codec.serializers import Types
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.savepoint.functions import KeyedStateBootstrapFunction
from dstl_core.spark import OperatorTransformation, SavepointWriter
from dstl_core.state.descriptor import ValueStateDescriptor

MASTER, OUT, EVENTS = sys.argv[1:]
TIMEOUT_S = 60


def wait_until(condition, what):
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.01)  # between looks at what another process does


def meet_the_other_attempt(how):
    """Of partition 1: the first attempt waits here for the second one."""
    context = TaskContext.get()
    marker = os.path.join(EVENTS, f"second-attempt-{how}")
    if context.partitionId() == 1 and context.attemptNumber() == 0:
        wait_until(lambda: os.path.exists(marker), "there is no second attempt")
    elif context.partitionId() == 1:
        open(marker, "w").close()


def slow_columns(batches):
    yield from batches
    meet_the_other_attempt("columns")


def wait_for_leftovers(out):
    """Until there is more than the savepoint: two files of metadata, and one of each subtask. (By
    columns, an attempt that is given up gets no more rows, and writes or does not.)
    """
    wait_until(lambda: len(os.listdir(out)) > 2 + 4, "only one attempt has written")


class Fill(KeyedStateBootstrapFunction):
    def open(self, runtime_context):
        self.n = runtime_context.get_state(ValueStateDescriptor("n", Types.LONG))
        self.seen = 0

    def process_element(self, value, ctx):
        self.n.update(value["n"])
        self.seen += 1
        if self.seen == 100:
            meet_the_other_attempt("function")


def main():
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.log.level": "OFF",
        "spark.executor.memory": "600m",
        "spark.cores.max": "2",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.pyspark.python": sys.executable,
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.minTaskRuntime": "2s",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.5",
        "spark.speculation.efficiency.enabled": "false",
        # A killed attempt ends its work, as one does whose host is only slow to hear of it.
        "spark.python.task.killTimeout": f"{TIMEOUT_S}s",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.adaptive.enabled": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.dir": f"file:{EVENTS}",
    }
    builder = SparkSession.builder.master(MASTER)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    numbers = spark.range(0, 4000, 1, 4)
    rows = numbers.select(F.format_string("key-%d", "id").alias("k"), F.col("id").alias("n"))
    keyed = OperatorTransformation.bootstrap_with
    slow = keyed(rows.mapInArrow(slow_columns, rows.schema)).key_by("k").transform_columns()
    for how, made in (("columns", slow), ("function", keyed(rows).key_by("k").transform(Fill()))):
        out = os.path.join(OUT, how)
        writer = SavepointWriter.new_savepoint(spark, 128, 4)
        writer.with_operator(OperatorIdentifier.for_uid("op"), made).write(out)
        if how == "function":
            wait_for_leftovers(out)
    spark.stop()


if __name__ == "__main__":
    main()
