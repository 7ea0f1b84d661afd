"""What a bootstrap asks of its rows. Rows of Spark and rows of this process answer it.

An engine only spreads the rows: the states, their encoding, their files and all checks of rows are
here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from dstl_core.codec.declared_type import TypeLike
from dstl_core.codec.serializers import AnySerializer
from dstl_core.errors import ConfigError
from dstl_core.model.checkpoint import DeclaredDecimals, OperatorState, OperatorSubtaskState
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.model.key_group import KeyGroupRange, compute_key_group_range_for_operator_index
from dstl_core.savepoint.bootstrap.column_runs import ColumnRuns
from dstl_core.savepoint.bootstrap.keyed_functions import KeyedFunction
from dstl_core.savepoint.bootstrap.operator_bootstrap import MakeState
from dstl_core.savepoint.write.folder import StateFiles


@dataclass(frozen=True)
class NewOperator:
    """An operator whose state is written into ``files``."""

    identifier: OperatorIdentifier
    files: StateFiles
    parallelism: int
    max_parallelism: int

    def key_groups(self, subtask: int) -> KeyGroupRange:
        return compute_key_group_range_for_operator_index(
            self.max_parallelism, self.parallelism, subtask
        )

    def state(
        self,
        subtasks: Sequence[OperatorSubtaskState],
        decimals: Mapping[str, DeclaredDecimals] | None = None,
    ) -> OperatorState:
        """The entry of the operator in ``_metadata``.

        Args:
            subtasks: The subtasks that have state, in any order.
            decimals: What columns of decimals declare, by state.
        """
        by_index = {each.index: each for each in subtasks}
        return OperatorState(
            self.identifier.operator_id,
            self.parallelism,
            self.max_parallelism,
            tuple(
                by_index.get(index, OperatorSubtaskState(index))
                for index in range(self.parallelism)
            ),
            uid=self.identifier.uid or "",
            decimals=dict(decimals or {}),
        )


class BootstrapRows(Protocol):
    """Rows from which state is built."""

    @property
    def what(self) -> str:
        """The name of the rows in errors."""
        ...

    @property
    def columns(self) -> Sequence[str]:
        """The names of the columns."""
        ...

    def on_engine(self, engine: Any) -> BootstrapRows:
        """The same rows, read by the engine of a writer if it can read them."""
        ...

    def flink_type(self, column: str, declared: TypeLike | None = None) -> AnySerializer:
        """The Flink type of a column: the declared type, in any form, or that of its own type.

        Raises:
            ConfigError: The declared type is not a type, or Flink has none for the column.
        """
        ...

    def arrow_type(self, column: str) -> pa.DataType | None:
        """The type of a column; None if it can only be written with a declared type."""
        ...

    def last_of_keys(
        self, key_column: str, key_type: AnySerializer, order_by: Sequence[str]
    ) -> BootstrapRows:
        """The last row of each key. All sortable columns that are not named break ties."""
        ...

    def subtasks(self, wanted: int | None, max_parallelism: int) -> int:
        """The number of subtasks of an operator: the wanted one, or one for each core."""
        ...

    def write_columns(
        self, columns: ColumnRuns, new: NewOperator
    ) -> Sequence[OperatorSubtaskState]:
        """Writes keyed state from columns.

        Raises:
            DuplicateKeyError: Two rows set the same state of a key.
            ConfigError: A key is null, or a column does not fit its type.
        """
        ...

    def repeated_keys(
        self, key_column: str, key_type: AnySerializer, most: int
    ) -> list[Any] | None:
        """Some keys that two or more rows have; None if the rows cannot be read again."""
        ...

    def write_function(
        self, function: KeyedFunction, order_by: Sequence[str], new: NewOperator
    ) -> Sequence[OperatorSubtaskState]:
        """Writes keyed state by a function, which gets the rows of a key in order. All sortable
        columns that are not named break ties.
        """
        ...

    def write_elements(
        self, make: MakeState, columns: Sequence[str] | None, new: NewOperator
    ) -> Sequence[OperatorSubtaskState]:
        """Writes operator state of some columns; None: of all."""
        ...


def check_column(rows: BootstrapRows, column: str) -> None:
    """Raises ConfigError: the rows have no such column."""
    if column not in rows.columns:
        raise ConfigError(
            f"There is no column {column!r}; {rows.what} has: {', '.join(rows.columns)}."
        )
