"""Builds the keyed state of a subtask by a bootstrap function or by windows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dstl_core.codec.serializers import AnySerializer
from dstl_core.errors import ConfigError
from dstl_core.functions import KeyedStateBootstrapFunction
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.write.bootstrap import (
    KeyedBootstrapOperator,
    WindowBootstrapOperator,
    WindowOperation,
    rows_of,
)
from dstl_core.state.backends.function_state import StateAccess
from dstl_core.state.columns.column_fit import values_of_column
from dstl_core.state.tables.keyed_state import KeyedState


@dataclass(frozen=True)
class KeyedFunction:
    """A function of the rows of a key: tasks get this, without rows."""

    key_column: str
    key_type: AnySerializer
    function: KeyedStateBootstrapFunction | WindowOperation

    def state(
        self, key_groups: KeyGroupRange, max_parallelism: int, batches: Iterable[pa.RecordBatch]
    ) -> KeyedState:
        """The state of a subtask.

        Args:
            key_groups: The key groups of the subtask.
            max_parallelism: Number of key groups.
            batches: Its rows; those of a key in order.

        Raises:
            ConfigError: A key is null, or does not fit its type.
        """
        state = KeyedState(key_groups, max_parallelism)
        access = StateAccess(state, self.key_type)
        operator = (
            WindowBootstrapOperator(self.function, access)
            if isinstance(self.function, WindowOperation)
            else KeyedBootstrapOperator(self.function, access)
        )
        for batch in batches:
            column = batch.column(self.key_column)
            if column.null_count:
                raise ConfigError("A key is null; keyed state needs a key.")
            keys = values_of_column(self.key_type, column, "The key")
            for key, row in zip(keys, self._with_elements(batch, rows_of(batch)), strict=True):
                operator.process(key, row)
        operator.close()
        return state

    def _with_elements(self, batch: pa.RecordBatch, rows: list[Any]) -> list[Any]:
        """Rows with the elements in the form that windows store."""
        if not isinstance(self.function, WindowOperation):
            return rows
        function = self.function.function
        column, is_kept = (
            function.element,
            function.aggregate is None or function.evictor is not None,
        )
        if not isinstance(column, str) or not is_kept:
            return rows
        elements = values_of_column(function.type, batch.column(column), f"Column {column!r}")
        return [{**row, column: each} for row, each in zip(rows, elements, strict=True)]
