"""Encodes columns as change records for ``FsStateChangelogWriter.append_batch``: the inverse of
``StateChangeReader``.

    encoder = StateChangeEncoder(Types.STRING, meta, state_id=0, max_parallelism=128)
    writer.append_meta(encoder.description)           # once, before the first change
    writer.append_batch(*encoder.encode(batch))
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dstl_core.codec.change_payload import metadata_change
from dstl_core.codec.columnar.changes.records import OPERATION, ChangeRecords
from dstl_core.codec.columnar.keyed.key_group_columns import key_groups_of
from dstl_core.codec.columnar.types.type_layouts import DEFAULT_OPTIONS, ColumnOptions
from dstl_core.codec.keyed_records import RecordFormat
from dstl_core.codec.serializers import AnySerializer
from dstl_core.codec.state_meta import StateMetaInfoSnapshot
from dstl_core.errors import ColumnValueError
from dstl_core.savepoint.read.change_reader import change_names
from dstl_core.state.columns.state_columns import (
    KEY_COLUMN,
    KEY_GROUP_COLUMN,
    VALUE_COLUMN,
    is_queue,
)


class StateChangeEncoder:
    """Writes the changes of one state.

    Args:
        key_type: Type of the keys.
        meta: The state.
        state_id: Id of the state in the log; ids of a log count from 0.
        max_parallelism: Number of key groups of the operator.
        types: Representation of types as columns.

    Raises:
        NotInColumnsError: A type has no columnar form.
    """

    def __init__(
        self,
        key_type: AnySerializer,
        meta: StateMetaInfoSnapshot,
        state_id: int,
        max_parallelism: int,
        types: ColumnOptions = DEFAULT_OPTIONS,
    ) -> None:
        self._key_type = key_type
        self._meta = meta
        self._state_id = state_id
        self._max_parallelism = max_parallelism
        self._types = types
        self._records = ChangeRecords(RecordFormat(meta, key_type), types)
        self._names = change_names(meta)

    @property
    def description(self) -> bytes:
        """The metadata change that must precede the first change of the state."""
        return metadata_change(self._state_id, self._meta)

    def encode(
        self, batch: pa.RecordBatch | Mapping[str, pa.Array]
    ) -> tuple[npt.NDArray[np.int32], pa.Array]:
        """Encodes changes, in the order of the rows; returns key groups and bytes.

        Args:
            batch: The columns of ``StateChangeReader``: ``operation`` and the columns that it
                needs. ``key_group`` is computed from the keys if it is missing; a queue requires
                it.

        Raises:
            ColumnValueError: A column is missing, or holds a value that its type does not allow.
            ConfigError: A key is null, or its Java hash is not known.
            FormatError: The state does not have an operation.
        """
        columns_by_name = (
            dict(zip(batch.schema.names, batch.columns, strict=True))
            if isinstance(batch, pa.RecordBatch)
            else dict(batch)
        )
        if OPERATION not in columns_by_name:
            raise ColumnValueError(f"Column {OPERATION!r} is missing.")
        columns = {
            name: columns_by_name[public].cast(self._records.columns[name])
            for name, public in self._names.items()
            if name in self._records.columns and public in columns_by_name
        }
        rows = len(columns_by_name[OPERATION])
        return self._key_groups(columns_by_name), self._records.encode(
            self._state_id, columns, rows
        )

    def _key_groups(self, columns: Mapping[str, pa.Array]) -> npt.NDArray[np.int32]:
        groups = columns.get(KEY_GROUP_COLUMN)
        if groups is not None:
            return np.ascontiguousarray(groups.cast(pa.int32()).to_numpy(zero_copy_only=False))
        keys = columns.get(KEY_COLUMN)
        if is_queue(self._meta) and VALUE_COLUMN in columns:
            raise ColumnValueError(
                f"The changes of queue {self._meta.name!r} need a column {KEY_GROUP_COLUMN!r}."
            )
        if keys is None:
            raise ColumnValueError(f"Column {KEY_COLUMN!r} is missing.")
        return key_groups_of(keys, self._key_type, self._max_parallelism, self._types)
