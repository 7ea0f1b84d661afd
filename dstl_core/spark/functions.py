"""Functions of jobs on Spark, beside those of ``dstl_core.state.functions``."""

from __future__ import annotations

from abc import ABC, abstractmethod

from dstl_core.state.functions import KeyedProcessFunction, Row


class ProcessFunction(KeyedProcessFunction, ABC):
    """Processes rows without a key: as ``KeyedProcessFunction``, with operator state only."""


class BroadcastFunction(ABC):
    """A function that gets rows of a second input, the same on every subtask."""

    @abstractmethod
    def process_broadcast_element(self, value: Row) -> None:
        """Takes one row of the broadcast input, before the rows of the subtask.

        What it puts into broadcast state has to depend on nothing but these rows, so that the state
        is the same everywhere.
        """
