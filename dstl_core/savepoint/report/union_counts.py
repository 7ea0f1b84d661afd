"""Counts the equal elements of a union state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b

_DIGEST_BYTES = 16
_MAX_DISTINCT = 1_000_000
"""Digests in memory. Of more different elements, their number is not known."""


class UnionCounts:
    """The equal elements of one union state, which are those with the same bytes.

    Args:
        parallelism: Subtasks of the operator.
    """

    def __init__(self, parallelism: int) -> None:
        self._parallelism = parallelism
        self._subtasks = 0
        self._known: set[bytes] | None = set()
        self._in_every: dict[bytes, int] = {}
        """Copies that every subtask so far has of an element, if it has any."""

    def add_subtask(self, elements: Sequence[bytes]) -> None:
        """Counts the elements that one subtask stored."""
        stored = Counter(blake2b(raw, digest_size=_DIGEST_BYTES).digest() for raw in elements)
        if self._known is not None:
            self._known |= stored.keys()
            if len(self._known) > _MAX_DISTINCT:
                self._known = None
        before = self._in_every if self._subtasks else stored
        self._in_every = {raw: min(before[raw], stored[raw]) for raw in before.keys() & stored}
        self._subtasks += 1

    @property
    def distinct(self) -> int | None:
        """Number of different elements; None if there are too many to count."""
        return None if self._known is None else len(self._known)

    @property
    def copies(self) -> int:
        """How often every subtask has the element that it has most often; 0 if there is none that
        all subtasks have.

        A subtask that stores what it has got in a restore has all elements of the state before.
        With two copies or more in every subtask, the state has multiplied.
        """
        if self._subtasks < self._parallelism:
            return 0
        return max(self._in_every.values(), default=0)
