"""Functions over whole columns of keyed state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import pyarrow as pa

from dstl_core.state.descriptor import ValueStateDescriptor
from dstl_core.state.functions import RichFunction

KEY_INDEX = "key_index"


class ColumnResult(NamedTuple):
    """What ``process_batch`` gives: a column for each state that may have changed, a row for each
    key (null clears it), and output rows.
    """

    state: pa.RecordBatch | pa.Table
    output: pa.RecordBatch | pa.Table | None = None


class KeyedColumnFunction(RichFunction, ABC):
    """Processes the rows of many keys at once, on Arrow columns. State is value state.

    A subtask calls it once for its rows, or several times if they are many; the rows come in the
    order that the run asks for.
    """

    states: ClassVar[Sequence[ValueStateDescriptor]]
    """The states, without defaults and times to live."""

    @abstractmethod
    def process_batch(
        self, keys: pa.Array, state: pa.RecordBatch, rows: pa.RecordBatch
    ) -> ColumnResult:
        """Gives the new state of the keys, and output.

        Args:
            keys: ``[n]`` distinct keys.
            state: ``[n]`` rows, a column for each state; null where a key has none.
            rows: ``[m]`` rows of the batch, with ``key_index``, the place of the key in ``keys``.
        """
