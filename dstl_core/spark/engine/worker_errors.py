"""Errors of Spark tasks: raised on the driver with their own class, and with short tracebacks."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from pyspark.errors import PySparkException

from dstl_core import errors
from dstl_core.errors import ConfigError, DstlError

_SIMPLIFIED = "SPARK_SIMPLIFIED_TRACEBACK"
"""Set in the workers unless ``spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled`` is
false.
"""
_P = ParamSpec("_P")
_R = TypeVar("_R")
_MISSING = re.compile(r"^ModuleNotFoundError: No module named '(dstl_core)", re.MULTILINE)
_LINE = re.compile(r"^dstl_core\.errors\.(\w+): (.+)$", re.MULTILINE)


@contextmanager
def errors_of_workers() -> Iterator[None]:
    """Raises the ``DstlError`` that a task raised, with Spark's error as its cause.

    Spark passes on only the text of a traceback. Its last line has the class and the message.
    """
    try:
        yield
    except PySparkException as error:
        raised_in_workers = _LINE.findall(str(error))
        kind = getattr(errors, raised_in_workers[-1][0], None) if raised_in_workers else None
        if isinstance(kind, type) and issubclass(kind, DstlError):
            # Classes that also derive from errors of Python have another __new__.
            raised = kind.__new__(kind)
            DstlError.__init__(raised, raised_in_workers[-1][1])
            raise raised from error
        missing = _MISSING.search(str(error))
        if missing is not None:
            raise ConfigError(
                f"The Python of Spark's workers has no package {missing[1]}; install dstl-core "
                f"there, or select this Python with the environment variable "
                f"PYSPARK_PYTHON={sys.executable} before the session is started."
            ) from error
        raise


def short_traceback(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """Lets a method of a data source raise each ``DstlError`` without the frames inside of dstl.

    Spark puts the traceback of the worker before the message. What is wrong with a path or an
    option stands in the message, so the frames only hide it. Without Spark's simplified tracebacks,
    all frames stay.
    """
    if inspect.isgeneratorfunction(method):

        @wraps(method)
        def generate(*args: Any, **options: Any) -> Any:
            try:
                yield from method(*args, **options)
            except DstlError as error:
                if _SIMPLIFIED not in os.environ:
                    raise
                raise error.with_traceback(None) from None

        return generate

    @wraps(method)
    def call(*args: _P.args, **options: _P.kwargs) -> _R:
        try:
            return method(*args, **options)
        except DstlError as error:
            if _SIMPLIFIED not in os.environ:
                raise
            raise error.with_traceback(None) from None

    return call
