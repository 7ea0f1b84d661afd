"""The Spark session that tests share: local, quiet, and reachable from this machine only."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from dstl_core.spark.savepoints.data_source import register

NAME = "dstl tests"


def end_session_of_tests() -> None:
    """Ends the session of this process if it is the one below."""
    _end_session(of_tests=True)


def _end_session(*, of_tests: bool) -> None:
    session = SparkSession.getActiveSession()
    if session is not None and (session.sparkContext.appName == NAME) == of_tests:
        session.stop()


def local_session() -> SparkSession:
    _end_session(of_tests=False)
    session = (
        SparkSession.builder.master("local[2]")
        .appName(NAME)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.pyspark.python", sys.executable)
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    register(session)
    return session
