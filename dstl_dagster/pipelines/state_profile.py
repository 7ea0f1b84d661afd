"""What the values of a state look like: a histogram per numeric column, and its largest keys.

It reads the first key groups of a checkpoint. Keys are hashed to their groups, so these keys are a
fair sample of all. A state with fewer keys is read whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.errors import UNREADABLE
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_dagster import metadata as show
from dstl_dagster.charts import histogram_chart, shown

PROFILED_KEYS = 10_000
MAX_HISTOGRAMS = 8
LARGEST_KEYS = 10
_BINS = 20
_MAX_VALUE = 1e300


@dataclass(frozen=True)
class StateSample:
    """The first keys of an operator's state.

    Args:
        rows: A row per key.
        whole_groups: Key groups that were read to their end.
        keys_in_them: The keys of these groups.
        max_parallelism: All key groups.
    """

    rows: pa.Table
    whole_groups: int
    keys_in_them: int
    max_parallelism: int

    @classmethod
    def of(cls, snapshot: Snapshot, uid: str, *, columns: Sequence[str] | None = None) -> Self:
        """Reads key groups until there are ``PROFILED_KEYS`` keys, or up to twice as many.

        Args:
            snapshot: A checkpoint or savepoint.
            uid: The operator.
            columns: The columns; by default all.

        Raises:
            NotInColumnsError: The state has no columnar form.
        """
        operator = snapshot[f"uid:{uid}"]
        reader = operator.keyed() if columns is None else operator.keyed(columns=tuple(columns))
        batches: list[pa.RecordBatch] = []
        rows = whole = keys = 0
        while whole < operator.max_parallelism and rows < PROFILED_KEYS:
            # Twice as many each time: each read opens the log of changes again.
            last = min(2 * whole, operator.max_parallelism - 1)
            for batch in reader.read(KeyGroupRange(whole, last)):
                if rows >= PROFILED_KEYS:
                    break
                batches.append(batch)
                rows += batch.num_rows
            else:
                whole, keys = last + 1, rows
                continue
            break
        table = pa.Table.from_batches(batches, reader.schema)
        return cls(table, whole, keys, operator.max_parallelism)

    def count(self) -> dict[str, int]:
        """The number of keys; of a state that was not read whole, an estimate by whole groups."""
        if self.whole_groups == self.max_parallelism:
            return {"dagster/row_count": self.keys_in_them}
        if self.whole_groups == 0:
            return {}
        estimated = self.keys_in_them * self.max_parallelism / self.whole_groups
        return {"dstl/estimated_keys": round(estimated)}

    def histograms(self) -> dict[str, Any]:
        """A chart of the values of each numeric column."""
        metadata: dict[str, Any] = {"dstl/profiled_keys": self.rows.num_rows}
        for name in self._numeric:
            values = _numbers(self.rows[name])
            if len(values):
                metadata[f"dstl/histogram/{name}"] = _histogram(values, name)
        return metadata

    def largest(self) -> dict[str, Any]:
        return {"dstl/largest_keys": show.rows_table(_largest(self.rows, self._numeric))}

    @property
    def _numeric(self) -> list[str]:
        return [each.name for each in self.rows.schema if _is_number(each)][:MAX_HISTOGRAMS]


def committed_keys(commit: CompletedCheckpoint, uid: str) -> dict[str, int]:
    """The number of keys as the commit records it; nothing if it does not."""
    known = commit.facts.keys.get(uid)
    return {} if known is None else {"dagster/row_count": known.count}


def key_count(snapshot: Snapshot, commit: CompletedCheckpoint, uid: str) -> dict[str, int]:
    """The number of keys of a commit's snapshot; nothing if the state has no columnar form."""
    if counted := committed_keys(commit, uid):
        return counted
    try:
        return StateSample.of(snapshot, uid, columns=["state_key"]).count()
    except UNREADABLE:
        return {}


def _is_number(column: pa.Field) -> bool:
    kind = column.type
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return column.name != "state_key" and any(test(kind) for test in tests)


def _numbers(column: pa.ChunkedArray) -> Any:
    """The values whose differences are numbers, too: those of infinite size have no bar."""
    values = column.drop_null().cast(pa.float64(), safe=False).to_numpy()
    return values[np.abs(values) < _MAX_VALUE]


def _histogram(values: Any, name: str) -> Any:
    least, largest = values.min(), values.max()
    # Between large numbers that lie close there are fewer numbers than bars.
    edges = np.unique(np.linspace(least, largest, _BINS + 1))
    counts = [len(values)] if len(edges) < 2 else np.histogram(values, bins=edges)[0]
    return histogram_chart(
        [int(each) for each in counts],
        f"keys by {name}",
        (shown(least, ""), shown(largest, "")),
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
