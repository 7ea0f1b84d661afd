"""A Spark session for assets: started on first use, replaced when it is dead."""

import sys
from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field, PrivateAttr
from pyspark.sql import SparkSession


class DstlSparkResource(dg.ConfigurableResource):
    """Holds dagster-pyspark's ``LazyPySparkResource``.

    The session starts when an asset first asks for it, is shared by all steps of a process, and
    is made anew if somebody stopped it.
    """

    master: str = Field(default="local[*]", description="Spark master, e.g. local[2].")
    app_name: str = Field(default="dstl", description="Name in the Spark UI.")
    spark_config: dict[str, str] = Field(default={}, description="Further Spark configuration.")

    _lazy: Any = PrivateAttr(default=None)

    @property
    def spark_session(self) -> SparkSession:
        """The session, alive."""
        if self._lazy is None or _is_stopped(self._lazy.spark_session):
            self._lazy = LazyPySparkResource(spark_config=self._configuration())
        session: SparkSession = self._lazy.spark_session
        return session

    def _configuration(self) -> dict[str, Any]:
        defaults = {"spark.master": self.master, "spark.app.name": self.app_name}
        if self.master.startswith("local"):
            # Local workers need the packages of this process.
            defaults["spark.pyspark.python"] = sys.executable
        return {**defaults, **self.spark_config}


def _is_stopped(session: Any) -> bool:
    if hasattr(session, "is_stopped"):  # Spark Connect
        return bool(session.is_stopped)
    return SparkSession.getActiveSession() is None
