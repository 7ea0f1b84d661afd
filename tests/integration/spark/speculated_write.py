"""Writes a savepoint by columns and one by a function, each with one slow task: its first attempt
goes on once the second one has begun, so that both may write. Arguments: master, folder of the
savepoints, folder for the event log.
"""

import fcntl
import os
import select
import signal
import sys

from pyspark import TaskContext
from pyspark.sql import functions as F

from dstl_core.codec.serializers import Types
from dstl_core.functions import KeyedStateBootstrapFunction
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.operator_transformation import OperatorTransformation
from dstl_core.savepoint.bootstrap.savepoint_writer import SavepointWriter
from dstl_core.state.tables.descriptor import ValueStateDescriptor
from tests.integration.spark.speculation import TIMEOUT_S, speculating

MASTER, OUT, EVENTS = sys.argv[1:]


def meet_the_other_attempt(how):
    """Of partition 1: the first attempt waits here for the second one, which tells a pipe."""
    context = TaskContext.get()
    pipe = pipe_of(how)
    if context.partitionId() == 1 and context.attemptNumber() == 0:
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        ready, _, _ = select.select([reader], [], [], TIMEOUT_S)
        os.close(reader)
        if not ready:
            raise TimeoutError("there is no second attempt")
    elif context.partitionId() == 1:
        with open(pipe, "wb") as writer:
            writer.write(b".")


def pipe_of(how):
    return os.path.join(EVENTS, f"second-attempt-{how}")


def slow_columns(batches):
    yield from batches
    meet_the_other_attempt("columns")


def wait_for_leftovers(out):
    """Until there is more than the savepoint: two files of metadata, and one of each subtask. (By
    columns, an attempt that is given up gets no more rows, and writes or does not.)
    """
    folder = os.open(out, os.O_RDONLY)
    fcntl.fcntl(folder, fcntl.F_NOTIFY, fcntl.DN_CREATE | fcntl.DN_RENAME | fcntl.DN_MULTISHOT)
    while len(os.listdir(out)) <= 2 + 4:
        if signal.sigtimedwait([signal.SIGIO], TIMEOUT_S) is None:
            raise TimeoutError("only one attempt has written")
    os.close(folder)


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
    # How changes of a folder are told; before there are other threads, which have it blocked, too.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGIO])
    partitions = {"spark.sql.shuffle.partitions": "4", "spark.sql.adaptive.enabled": "false"}
    spark = speculating(MASTER, EVENTS, partitions)
    numbers = spark.range(0, 4000, 1, 4)
    rows = numbers.select(F.format_string("key-%d", "id").alias("k"), F.col("id").alias("n"))
    keyed = OperatorTransformation.bootstrap_with
    slow = keyed(rows.mapInArrow(slow_columns, rows.schema)).key_by("k").transform_columns()
    for how, made in (("columns", slow), ("function", keyed(rows).key_by("k").transform(Fill()))):
        out = os.path.join(OUT, how)
        os.mkfifo(pipe_of(how))
        writer = SavepointWriter.new_savepoint(spark, 128, 4)
        writer.with_operator(OperatorIdentifier.for_uid("op"), made).write(out)
        if how == "function":
            wait_for_leftovers(out)
    spark.stop()


if __name__ == "__main__":
    main()
