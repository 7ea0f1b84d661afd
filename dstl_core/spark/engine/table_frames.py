"""Tables of a snapshot as DataFrames. Tasks get plain values and read one split each."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from dstl_core.codec.serializers import BUILT_IN, SerializerRegistry
from dstl_core.errors import UNREADABLE, NoSuchOperatorError, error_context
from dstl_core.job.spec.output_types import as_stored, stored_arrow_schema
from dstl_core.savepoint.connectors.position_table import PositionTable
from dstl_core.savepoint.read.operator_tables import MetadataTable
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot
from dstl_core.savepoint.read.snapshot_tables import open_table
from dstl_core.savepoint.read.table_base import (
    DEFAULT_TABLE,
    METADATA,
    OFFSETS,
    SPLIT_BYTES,
    SnapshotTable,
    Split,
    TableOptions,
)
from dstl_core.spark.engine.schema import spark_schema_of
from dstl_core.spark.engine.workers import Settled, WithProfiles
from dstl_core.storage.profiles import profile_file, use_profile_file


@dataclass(frozen=True)
class SnapshotPlace:
    """The path of a snapshot and the options to open it.

    It has no credentials: every process takes them from its environment or from ``profiles``, the
    path of a private file.
    """

    path: str
    allow_roots: tuple[str, ...] = ()
    relocate: Mapping[str, str] = field(default_factory=dict)
    changelog_base: str | None = None
    serializers: SerializerRegistry | None = None
    jars: tuple[str, ...] = ()
    protos: tuple[str, ...] = ()
    state_types: Mapping[str, str] = field(default_factory=dict)
    profiles: str = field(default_factory=profile_file, compare=False)

    def load(self) -> Snapshot:
        """Reads the metadata."""
        use_profile_file(self.profiles)
        return Snapshot.load(
            self.path,
            allow_roots=self.allow_roots,
            relocate=self.relocate,
            changelog_base=self.changelog_base,
            serializers=self.serializers or BUILT_IN,
            jars=self.jars,
            protos=self.protos,
            state_types=self.state_types,
        )


@dataclass(frozen=True)
class TableSpec:
    """A table of a snapshot. ``operator`` is an argument of ``snapshot[..]``.

    An operator of None selects the only operator that has such a table.
    """

    place: SnapshotPlace
    operator: str | None = None
    kind: str | None = None
    state: str | None = None
    options: TableOptions = DEFAULT_TABLE
    split_bytes: int = SPLIT_BYTES

    def open(self, snapshot: Snapshot | None = None) -> SnapshotTable:
        """Opens the table, in a loaded snapshot if given. It reads only metadata and headers."""
        snapshot = snapshot or self.place.load()
        if self.kind == METADATA:
            return MetadataTable(snapshot)
        if self.kind == OFFSETS:
            return PositionTable(snapshot)
        operator = self.operator_of(snapshot)
        with error_context(location=str(snapshot.folder)):
            return open_table(operator, self.kind, self.state, self.options)

    def operator_of(self, snapshot: Snapshot) -> OperatorSnapshot:
        """The operator of the table.

        Raises:
            NoSuchOperatorError: No operator or several operators match; the message lists them.
        """
        if self.operator is not None:
            return snapshot[self.operator]
        keyed = [operator for operator in snapshot.operators if operator.keyed_handles]
        if self.state is not None:
            having = [each for each in snapshot.operators if _has_state(each, self.state)]
            if len(having) == 1:
                return having[0]
            if having:
                labels = ", ".join(repr(each.label) for each in having)
                raise NoSuchOperatorError(
                    f"State {self.state!r} is in {len(having)} operators ({labels}); give "
                    f"operator.uid, or operator.uid.hash for an operator without a uid.",
                    location=str(snapshot.folder),
                )
        if len(keyed) == 1:
            return keyed[0]
        known = ", ".join(repr(operator.label) for operator in keyed) or "none"
        raise NoSuchOperatorError(
            f"The operator is not clear: {len(keyed)} have keyed state ({known}); give "
            f"operator.uid.",
            location=str(snapshot.folder),
        )

    @property
    def label(self) -> str:
        """The name of the table in errors and in Spark's plans."""
        parts = [self.operator, self.kind, self.state]
        return f"savepoint {' '.join(each for each in parts if each)}".strip()

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a split, in types that Spark has."""
        table = self.open()
        schema = stored_arrow_schema(table.schema)
        for batch in table.read(split):
            yield as_stored(batch, schema)


def _has_state(operator: OperatorSnapshot, name: str) -> bool:
    try:
        states = operator.states + operator.operator_states
    except UNREADABLE:
        return False  # only Java classes of the job could read it
    return any(each.name == name for each in states)


@dataclass(frozen=True)
class ReadSplits:
    """Runs in tasks: reads the splits with the given numbers."""

    spec: TableSpec
    splits: Sequence[Split]

    @property
    def label(self) -> str:
        return self.spec.label

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in split_numbers(batches):
            yield from self.spec.read(self.splits[number])


def split_numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def frame_of_splits(spark: SparkSession, count: int, function: Any, schema: Any) -> DataFrame:
    """Runs a function over the numbers of splits, one task per split."""
    numbers = spark.range(0, count, 1, max(1, count))
    return numbers.mapInArrow(WithProfiles(Settled(function)), schema)


def map_in_arrow(rows: DataFrame, function: Any, schema: Any) -> DataFrame:
    """``mapInArrow`` for columns of any name. Spark itself parses dots and backticks in names."""
    names = rows.columns
    if not any(set(name) & set(".`") for name in names):
        return rows.mapInArrow(WithProfiles(function), schema)
    plain = [f"c{at}" for at in range(len(names))]
    return rows.toDF(*plain).mapInArrow(WithProfiles(_Renamed(function, names)), schema)


@dataclass(frozen=True)
class _Renamed:
    """Runs in tasks: restores the names of the columns."""

    function: Any
    names: list[str]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from self.function(batch.rename_columns(self.names) for batch in batches)


def frame_of(spark: SparkSession, spec: TableSpec, snapshot: Snapshot | None = None) -> DataFrame:
    """A table as a DataFrame; ``snapshot`` is the loaded snapshot, if there is one."""
    table = spec.open(snapshot)
    few = spec.options.keys is not None  # of few key groups
    splits = table.splits(spec.split_bytes, 1 if few else parallelism_of(spark, table.size))
    return frame_of_splits(
        spark, len(splits), ReadSplits(spec, splits), spark_schema_of(table.schema)
    )


SMALL_BYTES = 1 << 20


def parallelism_of(spark: SparkSession, size: int) -> int:
    """The number of tasks for ``size`` bytes: one for few bytes, otherwise one per core.

    The session gives the number of cores (on a cluster, ``spark.default.parallelism``).
    """
    if size <= SMALL_BYTES:
        return 1
    cores = re.match(r"local\[(\d+)", spark.conf.get("spark.master", "") or "")
    told = cores[1] if cores else spark.conf.get("spark.default.parallelism", None)
    return int(told) if told else os.cpu_count() or 1
