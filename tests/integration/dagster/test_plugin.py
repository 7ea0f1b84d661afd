import subprocess
import sys

import dagster as dg
import pytest
from pyspark.sql import SparkSession

import definitions
import dstl_dagster
from dstl_dagster import DstlSparkResource, DstlStorageResource

pytestmark = pytest.mark.dagster


def run_python(code):
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_importing_the_plugin_does_not_import_pyspark():
    done = run_python("import sys, dstl_dagster; print('pyspark' in sys.modules)")
    assert done.stdout.strip() == "False", done.stderr


def test_definitions_load_without_a_spark_session():
    code = (
        "import definitions, threading\n"
        "from pyspark import SparkContext\n"
        "print(SparkContext._active_spark_context, SparkContext._gateway)"
    )
    done = run_python(code)
    assert done.stdout.strip() == "None None", done.stderr


def test_definitions_are_loadable():
    dg.Definitions.validate_loadable(definitions.defs)
    keys = {key.to_user_string() for key in definitions.defs.resolve_all_asset_keys()}
    assert {"flight_events", "state/flights-by-aircraft", "rewritten_savepoint"} <= keys


def test_public_names_exist():
    for name in dstl_dagster.__all__:
        assert getattr(dstl_dagster, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        _ = dstl_dagster.nothing


def test_storage_paths(tmp_path):
    storage = DstlStorageResource(base_path=str(tmp_path))
    assert storage.jobs == f"file:{tmp_path}/jobs"
    assert storage.savepoint("a") == f"file:{tmp_path}/savepoints/a"
    remote = DstlStorageResource(base_path="s3://bucket/dstl")
    assert remote.jobs == "s3://bucket/dstl/jobs"


def test_a_stopped_session_is_replaced():
    resource = DstlSparkResource(master="local[1]", spark_config=definitions.SPARK.spark_config)
    first = resource.spark_session
    assert resource.spark_session is first
    if SparkSession.getActiveSession() is not None:
        first.stop()
    second = resource.spark_session
    assert second is not first
    assert second.range(3).count() == 3
    second.stop()
