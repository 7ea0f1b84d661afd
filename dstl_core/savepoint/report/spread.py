"""How amounts are spread over subtasks or key groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True)
class Spread:
    """``skew`` is the largest share over the median of those that hold any; None if nothing is
    stored. ``empty`` is the number of shares of 0.
    """

    shares: tuple[int, ...]
    largest: int
    median: float
    skew: float | None
    empty: int

    @classmethod
    def of(cls, shares: Sequence[int]) -> Spread:
        filled = [share for share in shares if share]
        middle = float(median(filled)) if filled else 0.0
        largest = max(shares, default=0)
        skew = round(largest / middle, 2) if middle else None
        return cls(tuple(shares), largest, middle, skew, len(shares) - len(filled))

    def to_json(self, amount: str) -> dict[str, Any]:
        """The figures; ``amount`` names the shares: ``bytes`` or ``entries``."""
        return {
            amount: self.shares,
            "largest": self.largest,
            "median": self.median,
            "skew": self.skew,
            "empty": self.empty,
        }
