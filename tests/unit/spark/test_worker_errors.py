"""Errors of tasks come back as what they were, those of Python's own kinds, too."""

import pytest
from pyspark.errors import PySparkException

from dstl_core import errors
from dstl_core.errors import DstlError
from dstl_core.spark.engine.worker_errors import errors_of_workers

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
