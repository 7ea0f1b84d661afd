"""Errors of tasks come back as what they were, those of Python's own kinds, too."""

import re
import sys
import traceback

import pytest
from pyspark.errors import PySparkException

from dstl_core import errors
from dstl_core.errors import DstlError
from dstl_core.spark.engine.worker_errors import errors_of_workers, short_traceback

KINDS = [
    kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, DstlError)
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_of_ours_comes_back_as_itself(kind):
    text = f"Traceback\n  File x\ndstl_core.errors.{kind.__name__}: There is no file.\n"
    with pytest.raises(kind, match=r"There is no file\.") as raised, errors_of_workers():
        raise PySparkException(text)
    assert type(raised.value) is kind
    assert isinstance(raised.value.__cause__, PySparkException)


def test_other_errors_stay_as_they_are():
    with pytest.raises(PySparkException), errors_of_workers():
        raise PySparkException("Traceback\nValueError: no\n")


def test_workers_without_dstl_are_told_which_python_has_it():
    text = "Traceback\n  File x\nModuleNotFoundError: No module named 'dstl_core'\n"
    said = f"has no package dstl_core; .* PYSPARK_PYTHON={re.escape(sys.executable)} before"
    with pytest.raises(errors.ConfigError, match=said), errors_of_workers():
        raise PySparkException(text)
    with pytest.raises(PySparkException), errors_of_workers():
        raise PySparkException(text.replace("dstl_core", "mine"))


def fails(thing):
    raise errors.ConfigError(f"Nothing is {thing}.")


def fails_late(thing):
    yield 1
    fails(thing)


@pytest.mark.parametrize("method", [fails, fails_late])
@pytest.mark.parametrize("simplified", [True, False])
def test_a_source_hides_its_frames_if_spark_hides_its_own(method, simplified, monkeypatch):
    monkeypatch.delenv("SPARK_SIMPLIFIED_TRACEBACK", raising=False)
    if simplified:
        monkeypatch.setenv("SPARK_SIMPLIFIED_TRACEBACK", "1")
    with pytest.raises(errors.ConfigError, match=r"Nothing is right\.") as raised:
        list(short_traceback(method)("right"))
    shown = "".join(traceback.format_exception(raised.value))
    assert (", in fails\n" in shown) is not simplified
