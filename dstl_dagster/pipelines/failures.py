"""Failures of runs: which of them no retry can mend, and what they say first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from dstl_core import errors
from dstl_core.errors import (
    ConfigError,
    DstlError,
    FencedError,
    FormatError,
    InputChangedError,
    RestoreError,
    UserFunctionError,
)

_PERMANENT = (FencedError, InputChangedError, ConfigError, RestoreError, FormatError)
_RAISED = re.compile(r" raised (\w+): ")
_MAX_TRACEBACK = 4_000


@contextmanager
def no_retry_of_permanent_errors() -> Iterator[None]:
    """Turns what a retry cannot mend into a failure that Dagster does not retry.

    Its message begins with the error in one sentence; what the workers said follows after an empty
    line.
    """
    try:
        yield
    except DstlError as error:
        if not is_permanent(error):
            raise
        traceback = str(error.__cause__ or "")[-_MAX_TRACEBACK:]
        message = f"{error}\n\n{traceback}" if traceback else str(error)
        raise dg.Failure(message, allow_retries=False) from error


def is_permanent(error: DstlError) -> bool:
    """Whether the same run fails in the same way each time: types, formats, configuration.

    A function that uses state of the wrong type raises such an error, too. From a worker comes its
    text alone.
    """
    if isinstance(error, _PERMANENT):
        return True
    error_name = _RAISED.search(str(error)) if isinstance(error, UserFunctionError) else None
    kind = None if error_name is None else getattr(errors, error_name[1], None)
    return isinstance(kind, type) and issubclass(kind, _PERMANENT)
