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


class Stage:
    """One of several passes over the same work.

    Args:
        advance: The function to call.
        size: Bytes of the work that the pass counts for.
        total: Bytes that the pass itself has to do.
    """

    def __init__(self, advance: Advance, size: int, total: int) -> None:
        self._portion = Portion(advance, size)
        self._total = total
        self._done = 0

    def add(self, done: int) -> None:
        """Reports this number of further bytes of the pass."""
        self._done += done
        if self._total:
            self._portion.reach(min(1.0, self._done / self._total))

    def finish(self) -> None:
        """Reports what is left, e.g. of state that was not there to read."""
        self._portion.reach(1)


def written_and_read_back(advance: Advance, size: int) -> tuple[Stage, Callable[[int], Stage]]:
    """The two passes of a copy. The second begins when its bytes are known."""
    second = size // 2
    return Stage(advance, size - second, size), lambda total: Stage(advance, second, total)
