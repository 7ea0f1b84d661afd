"""Raises errors of Spark tasks on the driver with their own class."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from dstl_core import errors
from dstl_core.errors import DstlError

_LINE = re.compile(r"^dstl_core\.errors\.(\w+): (.+)$", re.MULTILINE)


@contextmanager
def errors_of_workers() -> Iterator[None]:
    """Raises the ``DstlError`` that a task raised, with Spark's error as its cause.

    Spark passes on only the text of a traceback. Its last line has the class and the message.
    """
    try:
        yield
    except PySparkException as error:
        found = _LINE.findall(str(error))
        kind = getattr(errors, found[-1][0], None) if found else None
        if isinstance(kind, type) and issubclass(kind, DstlError):
            # Classes that also derive from errors of Python have another __new__.
            raised = kind.__new__(kind)
            DstlError.__init__(raised, found[-1][1])
            raise raised from error
        raise
