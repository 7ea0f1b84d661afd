"""The Spark session that tests share: local, quiet, and reachable from this machine only."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from dstl_core.spark.savepoints.data_source import register


def local_session() -> SparkSession:
    session = (
        SparkSession.builder.master("local[2]")
        .appName("dstl tests")
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
