"""Pieces of a batch that are reduced, and wait to be joined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

MOST_BYTES = 512 << 20
"""Reduced pieces that wait; with more, they are joined."""

Piece = TypeVar("Piece")


class ReducedPieces(Generic[Piece]):
    """Pieces of a batch, joined when they are many.

    Args:
        join: Makes one piece of several.
        size: The bytes of a piece.
    """

    def __init__(
        self, join: Callable[[Sequence[Piece]], Piece], size: Callable[[Piece], int]
    ) -> None:
        self._join = join
        self._size = size
        self._pieces: list[Piece] = []
        self._most = MOST_BYTES

    def add(self, piece: Piece) -> None:
        self._pieces.append(piece)
        if len(self._pieces) > 1 and sum(map(self._size, self._pieces)) > self._most:
            self._pieces = [self._join(self._pieces)]
            # Pieces of other keys do not become smaller: each join has to double what waits.
            self._most = max(MOST_BYTES, 2 * self._size(self._pieces[0]))

    def take(self) -> Piece | None:
        """Removes all pieces. Returns them as one; None without pieces."""
        pieces, self._pieces = self._pieces, []
        self._most = MOST_BYTES
        if len(pieces) > 1:
            return self._join(pieces)
        return pieces[0] if pieces else None
