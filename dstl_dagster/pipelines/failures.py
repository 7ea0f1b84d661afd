"""Failures of runs: which of them no retry can mend, and what they say first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from dstl_core.errors import DstlError, is_permanent

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
