"""What the benchmark of epochs compares: ways to keep two sums per key from batch to batch."""

from __future__ import annotations

from abc import ABC, abstractmethod

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


class Peer(ABC):
    """What keeps state, by one way or another."""

    @abstractmethod
    def epoch(self, number: int, rows: DataFrame) -> float | None:
        """Applies a batch. Gives its seconds if it has a clock of its own."""

    @abstractmethod
    def check(self) -> tuple[int, int]:
        """The sums of both states over all keys, which have to be those of every other way."""

    def close(self) -> None:  # noqa: B027 - most have nothing to end
        """Ends what goes on between batches."""


def sums(frame: DataFrame) -> tuple[int, int]:
    """The sums of the states ``n`` and ``total`` over all keys."""
    totals = frame.agg(F.sum("n").alias("n"), F.sum("total").alias("total")).collect()[0]
    return totals["n"], totals["total"]
