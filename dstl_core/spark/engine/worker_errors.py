"""Errors of ours that were raised in a Spark task, brought back to the driver as themselves."""

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
    """Raises the error that a task of ours raised, with Spark's report of it as the cause.

    Spark hands over only the text of a traceback; its last line has class and message.
    """
    try:
        yield
    except PySparkException as error:
        found = _LINE.findall(str(error))
        kind = getattr(errors, found[-1][0], None) if found else None
        if isinstance(kind, type) and issubclass(kind, DstlError):
            # Those that are Python's own errors, too, have a __new__ of their own.
            raised = kind.__new__(kind)
            DstlError.__init__(raised, found[-1][1])
            raise raised from error
        raise
