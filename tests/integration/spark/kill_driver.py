"""A driver that is killed: ``python -m tests.integration.spark.kill_driver BASE MASTER GATE``.

Takes one JSON command a line and answers with one JSON line. While there are pipes ``entered`` and
``leave`` in the folder ``GATE``, its tasks tell the one that they are there, and wait for the
other.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from dstl_core.codec.serializers import Types
from dstl_core.errors import FencedError
from dstl_core.job.spec.operators import KeyedOperator, LocalCopies
from dstl_core.spark.savepoints.data_source import register
from dstl_core.stateful_job import StatefulJob
from tests.integration.spark import job_functions
from tests.integration.spark.job_functions import OUTPUT, SCHEMA, TotalsByRow, random_batch


class TotalsAtGate(TotalsByRow):
    """Sums that begin when somebody lets them."""

    def __init__(self, gate):
        self._gate = Path(gate)

    def open(self, runtime_context):
        super().open(runtime_context)
        if self._gate.is_dir():
            (self._gate / "entered").write_bytes(b".")
            (self._gate / "leave").open("rb").close()  # waits for the other end


def session(master):
    spark = (
        SparkSession.builder.master(master)
        .appName("killed")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.pyspark.python", sys.executable)
        .config("spark.executor.extraJavaOptions", os.environ["SPARK_DAEMON_JAVA_OPTS"])
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    register(spark)
    cloudpickle.register_pickle_by_value(job_functions)
    return spark


def _say(answer):
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main():
    base, master, gate = sys.argv[1:]
    spark = session(master)
    operator = KeyedOperator("totals", "k", Types.STRING, TotalsAtGate(gate), OUTPUT)
    job = StatefulJob(
        spark, "killed", base, operator, num_retained=2, local_copies=LocalCopies(f"{base}/local")
    )
    _say("ready")
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "run":
            rows = spark.createDataFrame(random_batch(command["input"]), SCHEMA)
            try:
                result = job.run(rows, command["input"], order_by=["v"])
                answer = [[row.k, row.total] for row in result.output.collect()]
            except FencedError:
                answer = "fenced"
        else:
            stored = spark.read.format("savepoint").load(job.latest_path()).collect()
            answer = [[row.state_key, row.total, row.last] for row in stored]
        _say(answer)
    spark.stop()


if __name__ == "__main__":
    main()
