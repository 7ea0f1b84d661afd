"""Compares two snapshots, and reads several snapshots, as DataFrames."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dstl_core.errors import ConfigError
from dstl_core.savepoint.compare.diff import diff_snapshots
from dstl_core.spark.engine.schema import spark_schema_of
from dstl_core.spark.engine.table_frames import SnapshotPlace, TableSpec, frame_of, frame_of_splits

_ROWS = 10_000
_TEXTS = ("key", "ns", "before", "after")
DIFF_SCHEMA = pa.schema(
    [(name, pa.string()) for name in ("change", "op", "kind", "state", *_TEXTS)]
    + [("ts", pa.int64()), ("part", pa.int64())]
)


@dataclass(frozen=True)
class _Diff:
    """Runs in a task: yields the differences of two snapshots."""

    before: SnapshotPlace
    after: SnapshotPlace

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            rows: list[dict[str, Any]] = []
            for difference in diff_snapshots(self.before.load(), self.after.load()):
                rows.append(_row(difference.to_json()))
                if len(rows) == _ROWS:
                    yield pa.RecordBatch.from_pylist(rows, schema=DIFF_SCHEMA)
                    rows = []
            if rows:
                yield pa.RecordBatch.from_pylist(rows, schema=DIFF_SCHEMA)


def _row(line: dict[str, Any]) -> dict[str, Any]:
    texts = {name: json.dumps(line[name]) for name in _TEXTS if line.get(name) is not None}
    state = line.get("state", line.get("service"))
    plain = {name: line.get(name) for name in ("change", "op", "kind", "ts", "part")}
    return plain | {"state": state} | texts


def diff_frame(spark: SparkSession, before: SnapshotPlace, after: SnapshotPlace) -> DataFrame:
    """The added, removed and changed entries of two snapshots. One task compares them.

    Columns: ``change``, ``op``, ``kind``, ``state``, the key, the namespace and both values as
    JSON, the time of a timer, and the number of the part of a map that is too large to be held.
    """
    return frame_of_splits(spark, 1, _Diff(before, after), spark_schema_of(DIFF_SCHEMA))


def history_frame(spark: SparkSession, specs: Sequence[TableSpec]) -> DataFrame:
    """Reads the same table from several snapshots. The first columns are ``snapshot`` (its path)
    and ``checkpoint_id``. A column that a snapshot lacks is null.

    Raises:
        ConfigError: There is no snapshot.
    """
    if not specs:
        raise ConfigError("A history needs at least one snapshot.")
    frames = []
    for spec in specs:
        checkpoint_id = spec.place.load().metadata.checkpoint_id
        frame = frame_of(spark, spec)
        frames.append(
            frame.select(
                F.lit(spec.place.path).alias("snapshot"),
                F.lit(checkpoint_id).cast("bigint").alias("checkpoint_id"),
                *frame.columns,
            )
        )
    return reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), frames)
