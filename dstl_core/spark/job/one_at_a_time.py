"""Lets one thread at a time work with an object, and refuses the others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from dstl_core.errors import JobBusyError


class OneAtATime:
    """A guard around the methods of an object that must not run at once, in any thread.

    A second call is refused, and does not wait: an epoch may take hours, and a caller that waits
    for it would run on top of state that it has not seen.

    Args:
        what: The object, as the first words of a message.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = threading.Lock()
        self._at_work = ""

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Runs a block as the only one.

        Args:
            name: The method that asks.

        Raises:
            JobBusyError: Another one is at work.
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
