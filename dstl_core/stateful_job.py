"""The job of users, on an engine or on a session of Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dstl_core.extras import extra_named
from dstl_core.job.coordination.job_on_engine import JobOnEngine


@dataclass(repr=False)
class StatefulJob(JobOnEngine):
    """A pipeline with state between its runs: ``JobOnEngine``, which also takes a Spark session.

    Args:
        engine: The engine, or a session of Spark, classic or Spark Connect.
    """

    engine: Any

    def __post_init__(self) -> None:
        if not hasattr(self.engine, "runner"):
            with extra_named("A job whose engine is a session of Spark"):
                from dstl_core.spark.job.spark_engine import SparkEngine

            self.engine = SparkEngine(self.engine)
        super().__post_init__()
