"""Converts users' columns to the columns of the change-set kernels, without a copy if possible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dstl_core.codec.columnar.changes.sets import ChangeColumns, Int32s
from dstl_core.codec.columnar.types.input import NO_FIT
from dstl_core.errors import ChangelogError, ConfigError
from dstl_core.model.key_group import KeyGroupRange

KeyGroupColumn: TypeAlias = (
    "npt.NDArray[Any] | pa.Array[Any] | pa.ChunkedArray[Any] | Sequence[int]"
)
"""Integers of any width."""

ValueColumn: TypeAlias = (
    "npt.NDArray[np.uint8] | pa.Array[Any] | pa.ChunkedArray[Any] | Sequence[bytes]"
)
"""Arrow binary of any kind, a matrix of bytes (one row per value), or a list of bytes."""


def change_columns(
    key_groups: KeyGroupColumn, values: ValueColumn, key_group_range: KeyGroupRange
) -> list[ChangeColumns]:
    """The changes in order, one part for each chunk of the values.

    Raises:
        ConfigError: The columns differ in length, contain nulls, or have another type.
        ChangelogError: A key group lies outside the range. The message has the row.
    """
    groups = _key_groups(key_groups, key_group_range)
    parts = []
    start = 0
    for offsets, data in _values(values):
        stop = start + len(offsets) - 1
        parts.append(ChangeColumns(groups[start:stop], offsets, data))
        start = stop
    if start != len(groups):
        raise ConfigError(
            f"The columns of a batch differ in length: {len(groups)} key groups, {start} values."
        )
    return parts


def _key_groups(column: KeyGroupColumn, key_group_range: KeyGroupRange) -> Int32s:
    if isinstance(column, pa.Array | pa.ChunkedArray):
        if column.null_count:
            raise ConfigError(f"A batch has {column.null_count} null key groups; expected none.")
        groups = column.to_numpy()
    else:
        groups = np.asarray(column)
    if groups.ndim == 1 and not len(groups):
        return np.empty(0, np.int32)
    if groups.ndim != 1 or groups.dtype.kind not in "iu":
        raise ConfigError(
            f"The key groups must be a column of integers, got {groups.ndim} dimensions of "
            f"{groups.dtype}."
        )
    first, last = key_group_range.start_key_group, key_group_range.end_key_group
    if int(groups.min()) < first or int(groups.max()) > last:
        row = int(np.argmax((groups < first) | (groups > last)))
        raise ChangelogError(
            f"A change is outside its writer's key groups: expected {key_group_range}, got "
            f"{groups[row]} in row {row} of the batch; no change of the batch was appended.",
            row=row,
        )
    return np.ascontiguousarray(groups, np.int32)


def _values(
    column: ValueColumn,
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]]:
    """Offsets and data of each chunk."""
    if isinstance(column, pa.ChunkedArray):
        for chunk in column.chunks:
            yield from _values(chunk)
    elif isinstance(column, pa.Array):
        yield _arrow(column)
    elif isinstance(column, np.ndarray):
        if column.ndim != 2 or column.dtype != np.uint8:
            raise ConfigError(
                f"A NumPy column of values must be a matrix of uint8 with one row per value, got "
                f"{column.ndim} dimensions of {column.dtype}; use an Arrow binary column for "
                f"values of different lengths."
            )
        rows, width = column.shape
        yield np.arange(rows + 1, dtype=np.int64) * width, np.ascontiguousarray(column).reshape(-1)
    else:
        try:
            # Checked first, because a conversion to binary would encode text.
            kind = pa.infer_type(column)
            yield _arrow(pa.array(column, pa.large_binary() if pa.types.is_binary(kind) else kind))
        except (*NO_FIT, TypeError) as error:
            raise ConfigError(f"The values of a batch are not bytes ({error}).") from error


def _arrow(array: pa.Array[Any]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    if array.null_count:
        raise ConfigError(f"A batch has {array.null_count} null values; expected none.")
    if not len(array):
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    kind: Any = array.type
    if pa.types.is_fixed_size_binary(kind):
        width = int(kind.byte_width)
        start = array.offset * width
        data = _bytes(array.buffers()[1])[start : start + len(array) * width]
        return np.arange(len(array) + 1, dtype=np.int64) * width, data
    if pa.types.is_binary_view(kind):
        array = array.cast(pa.large_binary())
        kind = array.type
    if pa.types.is_binary(kind):
        dtype: np.dtype[Any] = np.dtype(np.int32)
    elif pa.types.is_large_binary(kind):
        dtype = np.dtype(np.int64)
    else:
        raise ConfigError(f"The values of a batch must be binary, got {kind}.")
    _, offset_buffer, data_buffer = array.buffers()
    offsets = np.frombuffer(
        memoryview(offset_buffer), dtype, len(array) + 1, array.offset * dtype.itemsize
    )
    return offsets.astype(np.int64, copy=False), _bytes(data_buffer)


def _bytes(buffer: pa.Buffer | None) -> npt.NDArray[np.uint8]:
    if buffer is None:
        return np.empty(0, np.uint8)
    return np.frombuffer(memoryview(buffer), np.uint8)
