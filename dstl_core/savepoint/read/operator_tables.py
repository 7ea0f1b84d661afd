"""Operator state and metadata as tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from dstl_core.codec.serializers import MapSerializer
from dstl_core.errors import NoSuchStateError
from dstl_core.model.handle import OperatorStateMode
from dstl_core.savepoint.read.entry_reader import EntryReader
from dstl_core.savepoint.read.operator_catalog import StateInfo
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot
from dstl_core.savepoint.read.table_base import (
    BROADCAST,
    LIST,
    OPERATOR_KINDS,
    ROWS_PER_BATCH,
    RowWiseTable,
    SnapshotTable,
    Split,
    TableOptions,
)
from dstl_core.state.columns.arrow_values import (
    column_of_elements,
    column_of_values,
    column_type,
)


class OperatorStateTable(RowWiseTable):
    """List state: a row per element of every subtask. Union and broadcast state: one copy."""

    def __init__(
        self, operator: OperatorSnapshot, kind: str, name: str, options: TableOptions
    ) -> None:
        self._operator, self._kind, self._name = operator, kind, name
        stored = {public: kept for kept, public in OPERATOR_KINDS.items()}[kind]
        info = _operator_state_info(operator, name, stored)
        meta = info.meta
        if kind == BROADCAST:
            self._type: Any = MapSerializer(
                meta.serializer("KEY_SERIALIZER"), meta.value_serializer
            )
            columns = [
                ("map_key", column_type(self._type.key, options.types)),
                ("map_value", column_type(self._type.value, options.types)),
            ]
        else:
            self._type = meta.value_serializer
            columns = [("subtask", pa.int32())] if kind == LIST else []
            columns += [
                ("list_index", pa.int32()),
                ("list_value", column_type(self._type, options.types)),
            ]
        super().__init__(pa.schema(columns), operator.state.state_size, options)

    def splits(self, split_bytes: int, minimum: int) -> list[Split]:
        """List state: one split per subtask. Other states: one split."""
        if self._kind != LIST:
            return [(0, 0)]
        return [(index, index) for index in range(max(1, self._operator.parallelism))]

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        if self._kind == LIST:
            yield from self._list(split[0])
        else:
            for entry in EntryReader(self._operator, self._name).operator_state_entries():
                if OPERATOR_KINDS[entry.kind] == self._kind:
                    yield from self._one_copy(list(entry.value))

    def _list(self, subtask: int) -> Iterator[pa.RecordBatch]:
        for index, handle, reader in self._operator.operator_state_readers():
            for info in handle.states:
                is_it = info.name == self._name and info.mode is OperatorStateMode.SPLIT_DISTRIBUTE
                if index != subtask or not is_it:
                    continue
                raw = reader.element_bytes(info)
                for first in range(0, len(raw), ROWS_PER_BATCH):
                    part = raw[first : first + ROWS_PER_BATCH]
                    yield self.batch_of(
                        {
                            "subtask": pa.array([subtask] * len(part), pa.int32()),
                            "list_index": pa.array(range(first, first + len(part)), pa.int32()),
                            "list_value": column_of_elements(self._type, part, self._types),
                        }
                    )

    def _one_copy(self, elements: list[Any]) -> Iterator[pa.RecordBatch]:
        for first in range(0, len(elements), ROWS_PER_BATCH):
            part = elements[first : first + ROWS_PER_BATCH]
            if self._kind == BROADCAST:
                keys, values = [key for key, _ in part], [value for _, value in part]
                yield self.batch_of(
                    {
                        "map_key": column_of_values(self._type.key, keys, self._types),
                        "map_value": column_of_values(self._type.value, values, self._types),
                    }
                )
            else:
                yield self.batch_of(
                    {
                        "list_index": pa.array(range(first, first + len(part)), pa.int32()),
                        "list_value": column_of_values(self._type, part, self._types),
                    }
                )


def _operator_state_info(operator: OperatorSnapshot, name: str, kind: str) -> StateInfo:
    states = operator.operator_states
    for info in states:
        if (info.name, info.kind) == (name, kind):
            return info
    known = ", ".join(f"{info.name!r} ({OPERATOR_KINDS[info.kind]})" for info in states) or "none"
    raise NoSuchStateError(
        f"Operator {operator.label!r} has no {OPERATOR_KINDS[kind]} state {name!r}; it has: "
        f"{known}.",
        location=str(operator.snapshot.folder),
    )


@dataclass
class MetadataTable(SnapshotTable):
    """A row per operator, with the columns of Flink's ``savepoint_metadata``."""

    snapshot: Snapshot
    size: int = 0
    schema: pa.Schema = field(
        default_factory=lambda: pa.schema(
            [
                ("checkpoint-id", pa.int64()),
                ("operator-name", pa.string()),
                ("operator-uid", pa.string()),
                ("operator-uid-hash", pa.string()),
                ("operator-parallelism", pa.int32()),
                ("operator-max-parallelism", pa.int32()),
                ("operator-subtask-state-count", pa.int32()),
                ("operator-coordinator-state-size-in-bytes", pa.int64()),
                ("operator-total-size-in-bytes", pa.int64()),
            ]
        )
    )

    def splits(self, split_bytes: int, minimum: int) -> list[Split]:
        return [(0, 0)]

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        rows = []
        for operator in self.snapshot.operators:
            state = operator.state
            coordinator = state.coordinator_state.state_size if state.coordinator_state else 0
            row = (
                self.snapshot.metadata.checkpoint_id,
                operator.name or None,
                operator.uid or None,
                operator.operator_id.hex,
                operator.parallelism,
                operator.max_parallelism,
                len(state.subtasks),
                coordinator,
                state.state_size,
            )
            rows.append(dict(zip(self.schema.names, row, strict=True)))
        yield pa.RecordBatch.from_pylist(rows, schema=self.schema)
