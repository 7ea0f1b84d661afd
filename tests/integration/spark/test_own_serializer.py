"""An own serializer in a job: another process restores what it wrote, or nothing is written."""

import json
import subprocess
import sys

import pytest

from dstl_core.errors import ConfigError
from tests.integration.spark import own_serializer
from tests.integration.spark.own_serializer import BUILT_IN, SNAPSHOT, job_of, registered, rows_of

pytestmark = pytest.mark.spark


def run_in_a_process(base, number, is_registered):
    command = [sys.executable, "-m", "tests.integration.spark.own_serializer"]
    return subprocess.run(
        [*command, str(base), str(number), is_registered], capture_output=True, text=True
    )


def expected_after(numbers):
    """Per key the last line of the last input, by plain Python."""
    cents, lines = {}, {}
    for number in numbers:
        lines = {}
        for key, value in sorted(rows_of(number), key=lambda row: row[1]):
            cents.setdefault(key, []).append(value)
            last = {value > 0: value for value in cents[key]}
            lines.setdefault(key, []).append(
                f"{sum(cents[key])} {cents[key]} {sorted(last.items())}"
            )
    return sorted([key, line] for key, found in lines.items() for line in found)


def test_another_process_restores_the_state_of_an_own_serializer(tmp_path):
    for number in (1, 2):
        done = run_in_a_process(tmp_path, number, "yes")
        assert done.returncode == 0, done.stderr
        states = json.loads(done.stdout.splitlines()[-1])
        assert sorted(states) == expected_after(range(1, number + 1))


def test_a_job_on_spark_without_the_reader_is_refused_before_it_commits_anything(spark, tmp_path):
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(own_serializer)
    try:
        job = job_of(spark, str(tmp_path), BUILT_IN)
        rows = spark.createDataFrame(rows_of(1), "k string, v long")
        with pytest.raises(ConfigError, match=rf"'{SNAPSHOT}'.* give the copy to the job"):
            job.run(rows, 1, order_by=["v"])
        assert job.latest() is None
        assert list(tmp_path.rglob("_metadata")) == []
        for number in (1, 2):
            job = job_of(spark, str(tmp_path), registered())
            rows = spark.createDataFrame(rows_of(number), "k string, v long")
            output = job.run(rows, number, order_by=["v"]).output.collect()
            shown = sorted([row.k, row.shown] for row in output)
            assert shown == expected_after(range(1, number + 1))
    finally:
        cloudpickle.unregister_pickle_by_value(own_serializer)
