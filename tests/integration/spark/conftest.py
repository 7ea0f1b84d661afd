import pytest
from pyspark import cloudpickle

from tests.integration.spark import job_functions, reading, writing


@pytest.fixture(scope="module", autouse=True)
def functions_travel_by_value(request):
    """Workers cannot import test modules, so their functions are sent whole."""
    modules = (request.module, job_functions, reading, writing)
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    yield
    for module in modules:
        cloudpickle.unregister_pickle_by_value(module)


@pytest.fixture(scope="module")
def accounts(spark):
    rows = [(number % 7, float(number), number * 1000, f"n{number % 3}") for number in range(40)]
    return spark.createDataFrame(rows, "id int, amount double, ts bigint, name string")
