"""An aggregate whose definition changes between epochs never adds to state that means something
else.
"""

import re

import pytest

from dstl_core import AggregateOperator, StatefulJob, aggregates
from dstl_core.errors import ConfigError
from dstl_core.job.spec.operators import LocalCopies
from dstl_core.state.windows.windowing import TumblingEventTimeWindows

pytestmark = pytest.mark.spark
SCHEMA = "k string, v double, ts long"
ROWS = [("a", 0.5, 1), ("a", 3.0, 2), ("a", 7.0, 3), ("b", 5.0, 4)]


@pytest.fixture
def job_of(spark, tmp_path):
    def make(bounds, name="job", **options):
        operator = AggregateOperator(
            "u", "k", {"h": aggregates.histogram("v", bounds)}, schema=SCHEMA, **options
        )
        local = LocalCopies(str(tmp_path / "local"))
        return StatefulJob(
            spark, name, str(tmp_path / "jobs"), operator, local_copies=local, num_retained=9
        )

    return make


def histograms(job):
    return {line["key"]: line["value"] for line in job.snapshot()["u"].dump("h")}


def test_a_histogram_of_other_bounds_is_refused_and_that_of_equal_ones_goes_on(spark, job_of):
    rows = spark.createDataFrame(ROWS, SCHEMA)
    job_of([1, 5]).run(rows, 1)
    job = job_of([1.0, 5.0])
    job.run(rows, 2)
    expected = {"a": [2, 2, 2], "b": [0, 0, 2]}
    assert histograms(job) == expected
    wrong = re.escape(
        "The aggregate 'h' of operator 'u' was changed, and its state cannot be converted: "
        "expected a histogram with the bounds 1.0, 5.0, got a histogram with the bounds 1.0, 6.0; "
        "keep the definition, or give the new aggregate another name."
    )
    other = job_of([1, 6])
    for call in (other.run, other.persist):
        with pytest.raises(ConfigError, match=wrong):
            call(rows, 3)
    job.materialize()
    with pytest.raises(ConfigError, match=wrong):
        other.run(rows, 3)
    assert histograms(other) == expected
    other.run(rows, 1, rewind=True)
    assert histograms(other) == {"a": [1, 1, 1], "b": [0, 1, 0]}
    with pytest.raises(ConfigError, match=r"expected a histogram with the bounds 1\.0, 6\.0, got"):
        job.run(rows, 2)


def test_windows_with_a_histogram_of_other_bounds_are_refused(spark, job_of):
    rows = spark.createDataFrame(ROWS, SCHEMA)
    windows = {"window": TumblingEventTimeWindows.of(1000), "event_time": "ts"}
    job_of([1, 5], **windows).run(rows, 1)
    with pytest.raises(ConfigError, match="The aggregate 'h' of operator 'u' was changed"):
        job_of([1, 6], **windows).run(rows, 2)


def test_a_histogram_from_a_savepoint_is_known_after_its_first_epoch(spark, tmp_path, job_of):
    rows = spark.createDataFrame(ROWS, SCHEMA)
    job = job_of([1, 5])
    job.run(rows, 1)
    savepoint = job.savepoint(str(tmp_path / "savepoint"))
    started = job_of([1, 5], "started")
    started.start(savepoint)
    started.run(rows, 1)
    assert histograms(started) == {"a": [2, 2, 2], "b": [0, 0, 2]}
    with pytest.raises(ConfigError, match="The aggregate 'h' of operator 'u' was changed"):
        job_of([2, 5], "started").run(rows, 2)
