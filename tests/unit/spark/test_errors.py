"""Errors of tasks come back to the driver as what they were."""

import pytest
from pyspark.errors import PythonException

from dstl_core.errors import FormatError, StateFileNotFoundError, StorageError
from dstl_core.spark.errors import errors_of_workers


@pytest.mark.parametrize("kind", [StorageError, StateFileNotFoundError, FormatError])
def test_an_error_of_a_task_is_raised_as_itself(kind):
    text = f"Traceback\n  File\ndstl_core.errors.{kind.__name__}: It is not there.\n"
    with pytest.raises(kind, match="It is not there") as caught, errors_of_workers():
        raise PythonException(message=text)
    assert isinstance(caught.value.__cause__, PythonException)


def test_other_errors_of_tasks_stay_as_they_are():
    with pytest.raises(PythonException), errors_of_workers():
        raise PythonException(message="Traceback\nValueError: no\n")
