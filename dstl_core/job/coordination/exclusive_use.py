"""Lets one thread at a time use an object, and refuses the others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from dstl_core.errors import JobBusyError


class ExclusiveUse:
    """A guard for methods of an object that must not run at the same time, in any thread.

    A second call is refused instead of waiting. An epoch may take hours, and a caller that waits
    would then run on a state that it does not know.

    Args:
        what: Name of the object, as the first words of a message.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = threading.Lock()
        self._at_work = ""

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Runs a block that excludes all other blocks.

        Args:
            name: The calling method.

        Raises:
            JobBusyError: Another block runs.
        """
        if not self._lock.acquire(blocking=False):
            raise JobBusyError(
                f"{self._what} is busy with {self._at_work}() and refuses {name}(); call it again "
                f"when that call has returned."
            )
        try:
            self._at_work = name
            yield
        finally:
            self._lock.release()
