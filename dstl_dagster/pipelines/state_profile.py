"""What the values of a state look like: a histogram per numeric column, and its largest keys.

It reads the first keys of a checkpoint in the order of key groups. Keys are hashed to their groups,
so these keys are a fair sample of all. The time does not grow with the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.errors import DstlError
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_dagster import metadata as show
from dstl_dagster.charts import histogram_chart, shown

PROFILED_KEYS = 10_000
MAX_HISTOGRAMS = 8
LARGEST_KEYS = 10
_BINS = 20


def state_profile(snapshot: Snapshot, uid: str, *, show_keys: bool) -> dict[str, Any]:
    """The histograms of an operator's state and, where keys may be shown, its largest keys.

    Args:
        snapshot: The checkpoint.
        uid: The operator.
        show_keys: Whether the result may hold keys.
    """
    try:
        rows = _sample(snapshot, uid)
    except DstlError as error:
        # State that has no columns, e.g. of a serializer that only Java knows.
        return {"dstl/profile": f"none: {type(error).__name__}"}
    if not rows.num_rows:
        return {}
    found: dict[str, Any] = {"dstl/profiled_keys": rows.num_rows}
    numeric = [each.name for each in rows.schema if _is_number(each)][:MAX_HISTOGRAMS]
    for name in numeric:
        values = _numbers(rows[name])
        if len(values):
            found[f"dstl/histogram/{name}"] = _histogram(values, name)
    if show_keys:
        found["dstl/largest_keys"] = show.rows_table(_largest(rows, numeric))
    return found


def _sample(snapshot: Snapshot, uid: str) -> pa.Table:
    """The rows of the first key groups, with about ``PROFILED_KEYS`` keys."""
    operator = snapshot[f"uid:{uid}"]
    reader = operator.keyed()
    batches: list[pa.RecordBatch] = []
    rows = 0
    for group in range(operator.max_parallelism):
        for batch in reader.read(KeyGroupRange(group, group)):
            batches.append(batch.slice(0, PROFILED_KEYS - rows))
            rows += batches[-1].num_rows
            if rows >= PROFILED_KEYS:
                return pa.Table.from_batches(batches, reader.schema)
    return pa.Table.from_batches(batches, reader.schema)


def _is_number(column: pa.Field) -> bool:
    kind = column.type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return is_number and column.name != "state_key"


def _numbers(column: pa.ChunkedArray) -> Any:
    values = column.drop_null().cast(pa.float64(), safe=False).to_numpy()
    return values[np.isfinite(values)]


def _histogram(values: Any, name: str) -> Any:
    counts, edges = np.histogram(values, bins=_BINS)
    return histogram_chart(
        [int(each) for each in counts],
        f"keys by {name}",
        (shown(edges[0], ""), shown(edges[-1], "")),
    )


def _largest(rows: pa.Table, numeric: Sequence[str]) -> list[dict[str, Any]]:
    """The keys with the most bytes of state, with their numbers; of equal keys those with the
    largest first number.
    """
    sizes = np.zeros(rows.num_rows)
    for name in rows.column_names:
        if name != "state_key":
            sizes += _sizes(rows[name])
    first = [rows[name].cast(pa.float64(), safe=False).fill_null(0) for name in numeric[:1]]
    by = [*(-each.to_numpy() for each in first), -sizes]
    order = np.lexsort(by)[:LARGEST_KEYS]
    largest = rows.select(["state_key", *numeric]).take(pa.array(order)).to_pylist()
    return [{**row, "bytes": int(sizes[at])} for row, at in zip(largest, order, strict=True)]


def _sizes(column: pa.ChunkedArray) -> Any:
    """Bytes of each value of a column. Elements of lists and maps count as the mean of all."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return pc.fill_null(pc.binary_length(column), 0).to_numpy().astype(float)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        parts = [np.diff(chunk.offsets.to_numpy()) for chunk in column.chunks]
        lengths = np.concatenate(parts).astype(float)
        return lengths * (column.nbytes / max(lengths.sum(), 1))
    return np.full(len(column), column.nbytes / max(len(column), 1))
