"""Decides the number of subtasks of a new operator."""

from __future__ import annotations

from typing import Protocol

from pyspark.sql import DataFrame

from dstl_core.spark.engine.table_frames import SMALL_BYTES, parallelism_of


class HasRows(Protocol):
    """A transformation that has rows and may have a parallelism."""

    @property
    def rows(self) -> DataFrame: ...

    @property
    def parallelism(self) -> int | None: ...


def subtasks_of(transformation: HasRows, max_parallelism: int, default: int | None) -> int:
    """The transformation's own parallelism, the given one, or one subtask per core."""
    wanted = transformation.parallelism or default
    if wanted is None:
        wanted = parallelism_of(transformation.rows.sparkSession, SMALL_BYTES + 1)
    return max(1, min(wanted, max_parallelism))
