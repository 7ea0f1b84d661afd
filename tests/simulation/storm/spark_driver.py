"""A driver as users have it: a ``StatefulJob`` on a Spark session of its own.

It applies input after input until it is killed; its Java process ends with it. Nothing of Spark is
struck by itself here: ``tests/integration/spark/test_job_kills.py`` kills executors and workers.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from random import Random
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.job.coordination.tasks import JobTasks
from dstl_core.stateful_job import StatefulJob
from tests.simulation.storm import pipeline
from tests.simulation.storm.driver import Driver
from tests.simulation.storm.pipeline import (
    MAX_PARALLELISM,
    NAME,
    NUM_RETAINED,
    OPERATOR,
    PARALLELISM,
    rows_of,
)

IS_STRUCK = True
SCHEMA = "key long, value long, input long"


def _session() -> SparkSession:
    builder: Any = SparkSession.builder
    session: SparkSession = (
        builder.master("local[1]")
        .appName("storm")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.pyspark.python", sys.executable)
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    return session


class OnSpark:
    """A job as users have it."""

    def __init__(self, spark: SparkSession, base: str, seed: int) -> None:
        self._spark, self._seed = spark, seed
        # Without output: it is the state that is compared.
        operator = replace(OPERATOR, output_schema=None)
        self._job = StatefulJob(
            spark, NAME, base, operator, PARALLELISM, MAX_PARALLELISM, NUM_RETAINED
        )

    @property
    def tasks(self) -> JobTasks:
        return self._job._tasks

    def apply(self, number: int) -> CompletedCheckpoint:
        rows = self._spark.createDataFrame(rows_of(self._seed, number), SCHEMA)
        return self._job.run(rows, number, order_by=["value"]).checkpoint


def run(base: str, seed: int, random: Random) -> None:
    cloudpickle.register_pickle_by_value(pipeline)
    spark = _session()
    Driver(base, lambda: OnSpark(spark, base, seed), random, epoch_s=5).run()
