"""An opened snapshot, and the rows of users' functions as DataFrames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from dstl_core.cached_property import cached_property
from dstl_core.codec.columnar.types.declared_schema import schema_of
from dstl_core.codec.columnar.types.type_layouts import DEFAULT_OPTIONS, ColumnOptions
from dstl_core.codec.declared_type import SchemaLike
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.savepoint.read.table_base import SPLIT_BYTES
from dstl_core.spark.engine.schema import spark_schema_of
from dstl_core.spark.engine.table_frames import (
    SnapshotPlace,
    TableSpec,
    frame_of_splits,
    parallelism_of,
)


@dataclass(frozen=True)
class SnapshotFrames:
    """A snapshot, the session that reads it, and the conversion of its types to columns."""

    spark: SparkSession
    place: SnapshotPlace
    types: ColumnOptions = DEFAULT_OPTIONS
    split_bytes: int = SPLIT_BYTES

    @cached_property
    def snapshot(self) -> Snapshot:
        """The snapshot as a catalog that needs no Spark."""
        return self.place.load()

    def frame_of_keys(
        self, spec: TableSpec, reader: Any, function: Any, out_type: SchemaLike
    ) -> DataFrame:
        """Runs a reader over key-group splits; its rows become a DataFrame."""
        schema = schema_of(out_type, "out_type")
        operator = spec.operator_of(self.snapshot)
        size = sum(handle.state_size for handle in operator.keyed_handles)
        wanted = max(parallelism_of(self.spark, size), -(-size // self.split_bytes), 1)
        splits = [
            (key_group_split.start_key_group, key_group_split.end_key_group)
            for key_group_split in operator.key_group_splits(min(wanted, operator.max_parallelism))
        ]
        task = reader(spec, splits, function, schema)
        return frame_of_splits(self.spark, len(splits), task, spark_schema_of(schema))
