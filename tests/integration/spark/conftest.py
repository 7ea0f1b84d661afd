import sys

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from dstl_core.spark.data_source import register
from tests.integration.spark import reading, writing


@pytest.fixture(scope="session")
def spark():
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
    yield session
    session.stop()


@pytest.fixture(scope="module", autouse=True)
def functions_travel_by_value(request):
    """Workers cannot import test modules, so their functions are sent whole."""
    modules = (request.module, reading, writing)
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    yield
    for module in modules:
        cloudpickle.unregister_pickle_by_value(module)


@pytest.fixture(scope="module")
def accounts(spark):
    rows = [(number % 7, float(number), number * 1000, f"n{number % 3}") for number in range(40)]
    return spark.createDataFrame(rows, "id int, amount double, ts bigint, name string")
