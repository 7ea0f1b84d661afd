"""Reports the progress of work on bytes."""

from __future__ import annotations

from collections.abc import Callable

Advance = Callable[[int], None]
"""Called with the number of bytes done since the last call."""


def no_progress(done: int) -> None:
    """Ignores progress."""


class Portion:
    """Reports part of the work in steps, never more than its size in total.

    Args:
        advance: The function to call.
        size: Total number of bytes.
    """

    def __init__(self, advance: Advance, size: int) -> None:
        self._advance = advance
        self._size = size
        self._reported = 0

    def add(self, done: int) -> None:
        """Reports this number of further bytes."""
        done = min(done, self._size - self._reported)
        if done > 0:
            self._reported += done
            self._advance(done)

    def reach(self, fraction: float) -> None:
        """Reports that this fraction of the total is done; smaller values than before are
        ignored.
        """
        self.add(int(self._size * fraction) - self._reported)
