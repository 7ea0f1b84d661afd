"""``spark.read.format("savepoint")``: every kind of state of a snapshot as a DataFrame.

See ``docs/how-to/query.md`` for the options. Credentials are never options.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import datasource as ds
from pyspark.sql.types import StructType

from dstl_core.codec.serializers import BUILT_IN, SerializerRegistry, Types
from dstl_core.savepoint.read.keyed_reader import KEYED
from dstl_core.savepoint.read.table_base import METADATA, OFFSETS
from dstl_core.spark.engine.schema import spark_schema_of
from dstl_core.spark.engine.table_frames import SMALL_BYTES, SnapshotPlace, TableSpec, frame_of
from dstl_core.spark.engine.worker_errors import errors_of_workers, short_traceback
from dstl_core.spark.engine.workers import settle, settled
from dstl_core.spark.savepoints.changelog_source import StateChangelogDataSource
from dstl_core.spark.savepoints.read_only_source import (
    ReadOnlySource,
    check_names,
    columns_asked_for,
)
from dstl_core.spark.savepoints.source_options import spec_of
from dstl_core.spark.savepoints.views import create_views
from dstl_core.state.columns.state_columns import KEY_COLUMN
from dstl_core.storage.location import further_roots
from dstl_core.storage.profiles import profile_file, use_profile_file

FILTER_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@dataclass
class SplitPartition(ds.InputPartition):
    """The part that one Spark task reads: key groups or a subtask."""

    first: int
    last: int


class SavepointDataSource(ReadOnlySource):
    """The Python data source ``savepoint``. It is read-only and batch-only. The options ``key`` and
    ``key.in`` select keys.
    """

    @classmethod
    def name(cls) -> str:
        return "savepoint"

    @short_traceback
    def schema(self) -> StructType:
        use_profile_file(self.profiles)
        spec = spec_of(self.options)
        schema = spark_schema_of(spec.open().schema)
        check_names(schema.names, spec.label)
        settle()
        return schema

    @short_traceback
    def reader(self, schema: StructType) -> ds.DataSourceReader:
        use_profile_file(self.profiles)
        return SavepointSourceReader(*_asked_for(spec_of(self.options), schema))


def _asked_for(spec: TableSpec, schema: StructType) -> tuple[TableSpec, list[str] | None]:
    """The table with the columns of ``.schema(..)``, in their order."""
    columns = columns_asked_for(schema, spark_schema_of(spec.open().schema), spec.label)
    if columns is None:
        return spec, None
    return replace(spec, options=replace(spec.options, columns=columns)), list(columns)


class SavepointSourceReader(ds.DataSourceReader):
    """Plans one task per split of bounded size. Each task yields Arrow batches."""

    def __init__(self, spec: TableSpec, columns: list[str] | None = None) -> None:
        self._spec = spec
        self._columns = columns

    @short_traceback
    def partitions(self) -> list[Any]:
        table = self._spec.open()
        few = self._spec.options.keys is not None or table.size <= SMALL_BYTES
        # There is no session here; on a cluster, split.bytes decides.
        splits = table.splits(self._spec.split_bytes, 1 if few else os.cpu_count() or 1)
        settle()
        return [SplitPartition(first, last) for first, last in splits]

    @short_traceback
    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        rows = self._spec.read((partition.first, partition.last))
        if self._columns is not None:
            rows = (batch.select(self._columns) for batch in rows)
        yield from settled(rows)


class PushdownSavepointDataSource(SavepointDataSource):
    """``SavepointDataSource`` with filters on the key pushed down. Needs ``FILTER_PUSHDOWN``."""

    @short_traceback
    def reader(self, schema: StructType) -> ds.DataSourceReader:
        use_profile_file(self.profiles)
        return PushdownReader(*_asked_for(spec_of(self.options), schema))


_RANGES = {
    ds.GreaterThan: "greater",
    ds.GreaterThanOrEqual: "greater_equal",
    ds.LessThan: "less",
    ds.LessThanOrEqual: "less_equal",
}
_EXACT_TYPES = (Types.STRING, Types.BOOLEAN, Types.BYTE, Types.SHORT, Types.INT, Types.LONG)


class PushdownReader(SavepointSourceReader):
    """Uses filters on the key: equality selects key groups to read, ranges select rows to send.

    Spark applies every filter again, so a pushed filter only has to keep all matching rows.
    """

    def __init__(self, spec: TableSpec, columns: list[str] | None = None) -> None:
        super().__init__(spec, columns)
        self._ranges: list[tuple[str, Any]] = []

    @short_traceback
    def pushFilters(self, filters: list[ds.Filter]) -> Iterable[ds.Filter]:  # Spark's name
        spec = self._spec
        snapshot = spec.place.load()
        key_type = None if spec.kind in (METADATA, OFFSETS) else spec.operator_of(snapshot).key_type
        # Values of other types may be equal in Spark and different in Flink, or the reverse.
        if key_type is not None and key_type.serializer in _EXACT_TYPES and self._has_key_filter():
            self._take(filters)
        return filters

    def _has_key_filter(self) -> bool:
        return self._spec.kind in (None, KEYED, "keyed-flat")

    def _take(self, filters: list[ds.Filter]) -> None:
        keys: set[Any] | None = None
        for pushed in filters:
            if getattr(pushed, "attribute", None) != (KEY_COLUMN,):
                continue
            values: set[Any] | None = None
            if isinstance(pushed, ds.EqualTo | ds.EqualNullSafe):
                values = {pushed.value}
            elif isinstance(pushed, ds.In):
                values = set(pushed.value)
            elif type(pushed) in _RANGES:
                self._ranges.append((_RANGES[type(pushed)], pushed.value))  # type: ignore[attr-defined]  # ranges have one
            if values is not None:
                values.discard(None)
                keys = values if keys is None else keys & values
        if keys is not None and self._spec.options.keys is None:
            options = replace(self._spec.options, keys=tuple(sorted(keys)))
            self._spec = replace(self._spec, options=options)

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        for batch in super().read(partition):
            if not self._ranges or KEY_COLUMN not in batch.schema.names:
                yield batch
                continue
            mask = None
            for comparison, value in self._ranges:
                matches = pc.call_function(comparison, [batch.column(KEY_COLUMN), pa.scalar(value)])
                mask = matches if mask is None else pc.and_(mask, matches)
            yield batch.filter(mask)


PUSHES_PER_QUERY = hasattr(ds.DataSourceReader, "pushLimit")
"""Whether this Spark keeps pushed filters with their query. Up to 4.3.0 it keeps them with the
DataFrame (``PythonDataSourceV2.setReadInfo``) and applies them to the next query over it, too.
"""


def register(
    spark: SparkSession,
    path: str | None = None,
    *,
    push_filters: bool = PUSHES_PER_QUERY,
    **options: str,
) -> list[str]:
    """Registers ``format("savepoint")`` and ``format("state-changelog")`` with a session.

    Args:
        spark: The session.
        path: A snapshot. Its tables become temporary views with the names of Flink's state catalog:
            ``metadata``, ``uid_<uid>_keyed``, ``uid_<uid>_<state>_keyed_flat``, ...
        push_filters: Whether filters on keys limit what is read. On Spark up to 4.3.0, use it only
            for DataFrames and views that a single query uses, once: a second query over the same
            DataFrame would get too few rows.
        **options: Options for reading the views.

    Returns:
        The names of the views.
    """
    source = SavepointDataSource
    if push_filters:
        spark.conf.set(FILTER_PUSHDOWN, "true")
        source = PushdownSavepointDataSource
    for kind in (source, StateChangelogDataSource):
        # Spark makes sources in other processes, which get only the class and the options.
        source_class = type(kind.__name__, (kind,), {"profiles": profile_file()})
        try:
            spark.dataSource.register(source_class)
        except AnalysisException as error:
            if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise
            # Spark uses the active session, which may be another one. Creating a DataFrame
            # activates this one.
            spark.createDataFrame([], "nothing int")
            spark.dataSource.register(source_class)
    return [] if path is None else create_views(spark, path, options)


def load_state(
    spark: SparkSession,
    path: str,
    *,
    uid: str | None = None,
    state: str | None = None,
    serializers: SerializerRegistry = BUILT_IN,
    allow_roots: Sequence[str] = (),
    relocate: Mapping[str, str] | None = None,
) -> DataFrame:
    """Registers the source and reads keyed state: a column per state, or one state in flat form.

    Args:
        spark: The session.
        path: The snapshot.
        uid: Uid of the operator; not needed if only one operator has keyed state.
        state: The only state to read.
        serializers: The registry of types. Options of Spark are texts, so with one of your own
            the tasks get it instead of the source.
        allow_roots: Further folders from which files may be read.
        relocate: Old root to new root, for files that were moved.

    Raises:
        DstlError: What is wrong with an argument, as itself and not in an error of Spark.
    """
    if serializers is not BUILT_IN or allow_roots or relocate:
        place = SnapshotPlace(
            path, further_roots(allow_roots), dict(relocate or {}), serializers=serializers
        )
        return frame_of(spark, TableSpec(place, None if uid is None else f"uid:{uid}", None, state))
    register(spark)
    reader = spark.read.format("savepoint")
    if uid is not None:
        reader = reader.option("operator.uid", uid)
    if state is not None:
        reader = reader.option("state", state)
    with errors_of_workers():
        return reader.load(path)
