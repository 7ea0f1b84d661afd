"""The change records of one state of a checkpoint's changelog, as Arrow columns.

    reader = Snapshot.load(path)["uid"].changes("count")
    reader.schema
    for batch in reader.read():                       # in the order of replay
        ...

Columns: ``subtask``, ``sequence_number`` (of the change set, counted from 0 in each handle),
``key_group``, ``operation``, and the columns of ``ChangeRecords``: ``state_key``, ``state_window``
or ``state_namespace``, ``state_value``, ``merged``. Memory is bounded by the batches of the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa

from dstl_core.changelog.reader import BATCH_BYTES, BATCH_ROWS, StateChangelogHandleReader
from dstl_core.codec.change_payload import MetadataChange, read_change
from dstl_core.codec.columnar.changes.change_spans import ChangeSpans, change_spans
from dstl_core.codec.columnar.changes.records import MERGED, OPERATION, ChangeRecords
from dstl_core.codec.columnar.keyed.decoder import KEY, NAMESPACE, VALUE
from dstl_core.codec.columnar.types.type_layouts import DEFAULT_OPTIONS, ColumnOptions
from dstl_core.codec.keyed_records import RecordFormat
from dstl_core.codec.state_meta import StateMetaInfoSnapshot
from dstl_core.errors import (
    FormatError,
    NotInColumnsError,
    RestoreError,
    SavepointError,
    error_context,
)
from dstl_core.model.handle import ChangelogStateBackendHandle, ChangelogStateHandle
from dstl_core.savepoint.read.operator_catalog import OperatorCatalog
from dstl_core.state.columns.state_columns import (
    KEY_COLUMN,
    KEY_GROUP_COLUMN,
    VALUE_COLUMN,
    namespace_column,
)
from dstl_core.state.tables.keyed_state import types_of

SUBTASK_COLUMN = "subtask"
SEQUENCE_NUMBER_COLUMN = "sequence_number"


class StateChangeReader:
    """Reads the changes of one state.

    Args:
        operator: The operator with the changelog.
        state: The name of a keyed state, or of a timer service.
        types: Conversion of types to columns.

    Raises:
        NoSuchStateError: There is no such state.
        SavepointError: The type of the state has no columns, or the type of the key is unknown.
    """

    def __init__(
        self, operator: OperatorCatalog, state: str, types: ColumnOptions = DEFAULT_OPTIONS
    ) -> None:
        self._operator = operator
        self._meta = operator.state_info(state).meta.as_key_value()
        key_type = operator.key_type
        if key_type is None:
            raise SavepointError(
                f"Operator {operator.label!r} has no keyed state.",
                location=str(operator.snapshot.folder),
            )
        try:
            self._records = ChangeRecords(RecordFormat(self._meta, key_type.serializer), types)
        except NotInColumnsError as error:
            raise SavepointError(
                f"The changes of state {state!r} cannot be columns: values of type "
                f"{error.type_name} have no columnar form."
            ) from error
        self._names = _names_of(self._meta)
        fields = [(self._names[name], kind) for name, kind in self._records.columns.items()]
        self.schema = pa.schema(
            [
                (SUBTASK_COLUMN, pa.int32()),
                (SEQUENCE_NUMBER_COLUMN, pa.int64()),
                (KEY_GROUP_COLUMN, pa.int32()),
                *fields,
            ]
        )

    def read(
        self, batch_rows: int = BATCH_ROWS, batch_bytes: int = BATCH_BYTES
    ) -> Iterator[pa.RecordBatch]:
        """Yields the changes in replay order, subtask by subtask.

        Raises:
            FormatError: The log is damaged.
            ColumnValueError: A column cannot hold a value; the message names the option.
        """
        snapshot = self._operator.snapshot
        reader = StateChangelogHandleReader(lru_cache(maxsize=1)(snapshot.resolver.read_segment))
        for subtask in self._operator.state.subtasks:
            handle = subtask.managed_keyed_state
            if not isinstance(handle, ChangelogStateBackendHandle):
                continue
            ids: dict[int, bool] = {}
            sets = 0
            for log in handle.non_materialized:
                with error_context(location=str(snapshot.folder), operator=self._operator.label):
                    for batch in reader.read_batches(
                        log, batch_rows=batch_rows, batch_bytes=batch_bytes
                    ):
                        changes = self._batch(batch, ids, subtask.index, sets)
                        if changes is not None:
                            yield changes
                sets += _count_sets(log)

    def _batch(
        self, batch: pa.RecordBatch, ids: dict[int, bool], subtask: int, first_set: int
    ) -> pa.RecordBatch | None:
        """The changes of this state. ``ids`` maps ids of the log to whether they are this
        state's.
        """
        parts: list[dict[str, pa.Array]] = []
        rows: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
        for part in change_spans(batch):
            if not isinstance(part, ChangeSpans):
                change = read_change(part, self._operator.snapshot.registry)
                if isinstance(change, MetadataChange):
                    ids[change.state_id] = self._is_own(change.state)
                continue
            for operation, state_id, changes in part.by_operation():
                if state_id not in ids:
                    raise FormatError(
                        "A change belongs to a state that its log has not described",
                        field="state id",
                        expected=f"one of {sorted(ids)}",
                        got=state_id,
                    )
                if ids[state_id]:
                    parts.append(self._records.decode(operation, changes.batch))
                    rows.append(changes.rows)
        if not parts:
            return None
        places = np.concatenate(rows)
        order = np.argsort(places, kind="stable")
        taken = pa.array(places[order])
        numbers = batch.column("sequence_number").take(taken)
        columns = {
            SUBTASK_COLUMN: pa.array(np.full(len(places), subtask, np.int32)),
            SEQUENCE_NUMBER_COLUMN: pa.array(numbers.to_numpy() + first_set),
            KEY_GROUP_COLUMN: batch.column("key_group").take(taken),
        }
        for name in self._records.columns:
            every = pa.concat_arrays([part[name] for part in parts])
            columns[self._names[name]] = every.take(pa.array(order))
        return pa.RecordBatch.from_arrays(
            [columns[name] for name in self.schema.names], schema=self.schema
        )

    def _is_own(self, meta: StateMetaInfoSnapshot) -> bool:
        if meta.name != self._meta.name or meta.is_queue != self._meta.is_queue:
            return False
        if types_of(meta.as_key_value()) != types_of(self._meta):
            raise RestoreError(f"State {meta.name!r} changes its type within the changelog.")
        return True


def _names_of(meta: StateMetaInfoSnapshot) -> dict[str, str]:
    """The names of the columns of a state's changes, by their names in ``ChangeRecords``."""
    return {
        OPERATION: OPERATION,
        KEY: KEY_COLUMN,
        NAMESPACE: namespace_column(meta),
        VALUE: VALUE_COLUMN,
        MERGED: MERGED,
    }


def _count_sets(log: ChangelogStateHandle) -> int:
    handles = getattr(log, "handles_and_offsets", None)
    return 1 if handles is None else len(handles)
