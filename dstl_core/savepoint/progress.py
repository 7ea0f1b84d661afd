"""How far work on bytes has come."""

from __future__ import annotations

from collections.abc import Callable

Advance = Callable[[int], None]
"""Told of bytes that are done since the last time."""


def no_progress(done: int) -> None:
    """For those who do not want to know."""


class Portion:
    """Some bytes of the work, told of bit by bit and never beyond their size.

    Args:
        advance: Who is told.
        size: How many bytes it is in all.
    """

    def __init__(self, advance: Advance, size: int) -> None:
        self._advance = advance
        self._size = size
        self._told = 0

    def add(self, done: int) -> None:
        """Says that so many more bytes are done."""
        done = min(done, self._size - self._told)
        if done > 0:
            self._told += done
            self._advance(done)

    def reach(self, fraction: float) -> None:
        """Says that so much of it is done in all; never goes back."""
        self.add(int(self._size * fraction) - self._told)
