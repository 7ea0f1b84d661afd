"""Builds the state of a new operator from rows: from their columns, or by functions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import pyarrow as pa

from dstl_core.codec.serializers import (
    AnySerializer,
    ListSerializer,
    MapSerializer,
    TupleSerializer,
)
from dstl_core.codec.serializers.structs import RowSerializer
from dstl_core.errors import ConfigError, DuplicateKeyError
from dstl_core.model.checkpoint import KEY_DECIMALS, DeclaredDecimals, OperatorState
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.savepoint.bootstrap.bootstrap_rows import BootstrapRows, NewOperator
from dstl_core.savepoint.bootstrap.column_runs import ColumnRuns
from dstl_core.savepoint.bootstrap.keyed_functions import KeyedFunction
from dstl_core.savepoint.bootstrap.operator_bootstrap import MakeState
from dstl_core.savepoint.write.folder import StateFiles
from dstl_core.state.columns.state_columns import LIST_VALUE_COLUMN, VALUE_COLUMN

MAX_KEYS_SHOWN = 5


@dataclass(frozen=True)
class Bootstrap(ABC):
    """Builds the state of one operator from rows."""

    rows: BootstrapRows
    parallelism: int | None

    def on_engine(self, engine: Any) -> Self:
        """The same by the engine of a writer."""
        return replace(self, rows=self.rows.on_engine(engine))

    def write_operator(
        self,
        identifier: OperatorIdentifier,
        files: StateFiles,
        max_parallelism: int,
        parallelism: int | None = None,
    ) -> OperatorState:
        """Writes the state files; returns their entry in ``_metadata``.

        Raises:
            DuplicateKeyError: Two rows have the same key.
            ConfigError: A key is null, a column does not fit its type, or key groups are given of
                another number of key groups.
        """
        number = self.rows.subtasks(self.parallelism or parallelism, max_parallelism)
        return self._written(NewOperator(identifier, files, number, max_parallelism))

    @abstractmethod
    def _written(self, new: NewOperator) -> OperatorState:
        """Writes the state of an operator, and gives its entry."""


@dataclass(frozen=True)
class ColumnBootstrap(Bootstrap):
    """Builds a state from each column; each row is a key, or a key and window."""

    runs: ColumnRuns
    show_keys: bool = False

    def _written(self, new: NewOperator) -> OperatorState:
        groups = self.runs.key_groups
        if groups is not None and groups.total != new.max_parallelism:
            raise ConfigError(
                f"Key groups of column {groups.name!r} cannot be written: they are of "
                f"max parallelism {groups.total}, and the savepoint has "
                f"{new.max_parallelism}; write it with the max parallelism of the template."
            )
        try:
            subtasks = self.rows.write_columns(self.runs, new)
        except DuplicateKeyError as error:
            keys = self._repeated_keys()
            if keys is None:
                raise
            shown = ", ".join(sorted(map(repr, keys)))
            raise DuplicateKeyError(f"{error.message} Keys: {shown}.") from error
        return new.state(subtasks, self._decimals())

    def _repeated_keys(self) -> list[Any] | None:
        if not self.show_keys:
            return None
        return self.rows.repeated_keys(self.runs.key_column, self.runs.key_type, MAX_KEYS_SHOWN)

    def _decimals(self) -> dict[str, DeclaredDecimals]:
        """What the columns of decimals declare, by the state that they become."""
        decimals: dict[str, DeclaredDecimals] = {}
        of_key = _declared(self.rows.arrow_type(self.runs.key_column), self.runs.key_type)
        if of_key is not None:
            decimals[KEY_DECIMALS] = of_key
        for state in self.runs.states:
            values = [VALUE_COLUMN, LIST_VALUE_COLUMN, state.meta.name]
            column = next((state.columns[each] for each in values if each in state.columns), None)
            kind = None if column is None else self.rows.arrow_type(column)
            declared = _declared(kind, state.meta.value_serializer)
            if declared is not None:
                decimals[state.meta.name] = declared
        return decimals


@dataclass(frozen=True)
class KeyedFunctionBootstrap(Bootstrap):
    """Passes the rows of a key, in order, to a bootstrap function or a window operation."""

    keyed: KeyedFunction
    order_by: Sequence[str]

    def _written(self, new: NewOperator) -> OperatorState:
        return new.state(self.rows.write_function(self.keyed, self.order_by, new))


@dataclass(frozen=True)
class OperatorStateBootstrap(Bootstrap):
    """Builds list, union or broadcast state from rows."""

    make: MakeState
    columns: tuple[str, ...] | None = None
    """The columns that are read; None: all."""

    def _written(self, new: NewOperator) -> OperatorState:
        return new.state(self.rows.write_elements(self.make, self.columns, new))


def _declared(kind: pa.DataType | None, stored: AnySerializer) -> DeclaredDecimals | None:
    """What a type of rows declares of decimals, by the fields of the stored type."""
    if kind is None:
        return None
    if pa.types.is_decimal(kind):
        return kind.precision, kind.scale
    if pa.types.is_list(kind) and isinstance(stored, ListSerializer):
        return _declared(kind.value_type, stored.element)
    if pa.types.is_map(kind) and isinstance(stored, MapSerializer):
        parts = {
            "key": _declared(kind.key_type, stored.key),
            "value": _declared(kind.item_type, stored.value),
        }
        return {name: each for name, each in parts.items() if each is not None} or None
    if not pa.types.is_struct(kind) or kind.num_fields != len(stored.nested):
        return None
    is_row = isinstance(stored, RowSerializer | TupleSerializer)
    fields = {
        f"f{at}" if is_row else part.name: _declared(part.type, inner)
        for at, (part, inner) in enumerate(zip(kind, stored.nested, strict=True))
    }
    return {name: each for name, each in fields.items() if each is not None} or None
