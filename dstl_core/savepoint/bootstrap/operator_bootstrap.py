"""Functions of rows that give the operator state of a subtask."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dstl_core.codec.operator_state import (
    OperatorStream,
    broadcast_state_meta,
    list_state_meta,
    write_operator_stream,
)
from dstl_core.codec.serializers import AnySerializer
from dstl_core.errors import DuplicateKeyError
from dstl_core.functions import BroadcastStateBootstrapFunction, StateBootstrapFunction
from dstl_core.model.handle import OperatorStateMode
from dstl_core.savepoint.write.bootstrap import (
    rows_of,
    run_broadcast_bootstrap,
    run_state_bootstrap,
)
from dstl_core.state.columns.column_fit import elements_of_column

MakeState = Callable[[Iterable[pa.RecordBatch]], OperatorStream | None]
"""Gives the operator state of a subtask from its rows."""


@dataclass(frozen=True)
class RunFunction:
    """Builds list and union state by a function."""

    function: StateBootstrapFunction

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> OperatorStream | None:
        return run_state_bootstrap(
            self.function, (row for each in batches for row in rows_of(each))
        )


@dataclass(frozen=True)
class RunBroadcast:
    """Builds broadcast state by a function."""

    function: BroadcastStateBootstrapFunction

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> OperatorStream | None:
        rows = (row for each in batches for row in rows_of(each))
        return run_broadcast_bootstrap(self.function, rows)


@dataclass(frozen=True)
class FromColumns:
    """Builds list and broadcast states from columns."""

    lists: tuple[tuple[str, AnySerializer, OperatorStateMode], ...]
    broadcasts: tuple[Any, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> OperatorStream:
        elements: dict[str, list[bytes]] = {name: [] for name, _, _ in self.lists}
        pairs: dict[str, dict[bytes, bytes]] = {each[0]: {} for each in self.broadcasts}
        for batch in batches:
            for name, serializer, _ in self.lists:
                column = batch.column(name).drop_null()
                elements[name] += elements_of_column(serializer, column, f"State {name!r}")
            for name, (key, key_type), (value, value_type) in self.broadcasts:
                keys = elements_of_column(key_type, batch.column(key), f"Keys of {name!r}")
                values = elements_of_column(value_type, batch.column(value), f"Values of {name!r}")
                known = pairs[name]
                before = len(known)
                known.update(zip(keys, values, strict=True))
                if len(known) != before + len(keys):
                    raise DuplicateKeyError(
                        f"Broadcast state {name!r} gets a key more than once "
                        f"({before + len(keys) - len(known)} rows too many); keep one row per key."
                    )
        return write_operator_stream(
            [
                (list_state_meta(name, mode, serializer), elements[name])
                for name, serializer, mode in self.lists
            ],
            [
                (broadcast_state_meta(name, key_type, value_type), list(pairs[name].items()))
                for name, (_, key_type), (_, value_type) in self.broadcasts
            ],
        )
