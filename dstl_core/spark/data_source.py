"""``spark.read.format("savepoint")``: keyed state of a snapshot as a DataFrame.

Options: ``path`` (or ``load(path)``); the operator as ``operator.uid``, ``operator.uid.hash`` or
``operator.name`` (not needed if one operator has keyed state); ``state`` (``keyed`` for one row per
key, or the name of one state; default ``keyed``); ``columns`` (comma-separated); ``split.bytes``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from dstl_core.errors import ConfigError, NoSuchOperatorError
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.keyed_reader import (
    KEYED,
    KeyedStateReader,
)
from dstl_core.savepoint.keyed_reader import (
    ReadOptions as KeyedReadOptions,
)
from dstl_core.savepoint.snapshot import OperatorSnapshot, Snapshot
from dstl_core.spark.schema import spark_schema_of

DEFAULT_SPLIT_BYTES = 32 << 20
_OPERATOR_OPTIONS = {"operator.uid": "uid", "operator.uid.hash": "hash", "operator.name": "name"}
_KNOWN_OPTIONS = {"path", "state", "columns", "split.bytes", *_OPERATOR_OPTIONS}


def register(spark: SparkSession) -> None:
    """Makes ``format("savepoint")`` known to a session."""
    spark.dataSource.register(SavepointDataSource)


@dataclass(frozen=True)
class ReadOptions:
    """The options of one read, checked. Plain values, so that they travel to the tasks."""

    path: str
    operator: str | None
    state: str
    columns: tuple[str, ...] | None
    split_bytes: int

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ReadOptions:
        """Raises ConfigError naming the option that is wrong."""
        given = {name.lower(): value for name, value in options.items()}
        unknown = sorted(set(given) - _KNOWN_OPTIONS)
        if unknown:
            raise ConfigError(
                f"The savepoint source has no option {unknown[0]!r}; it has: "
                f"{', '.join(sorted(_KNOWN_OPTIONS))}."
            )
        if "path" not in given:
            raise ConfigError("The savepoint source needs a path: use load(path).")
        named = [
            f"{form}:{given[option]}"
            for option, form in _OPERATOR_OPTIONS.items()
            if option in given
        ]
        if len(named) > 1:
            raise ConfigError(f"Give one of {', '.join(_OPERATOR_OPTIONS)}, not several.")
        columns = given.get("columns")
        split = given.get("split.bytes", str(DEFAULT_SPLIT_BYTES))
        if not split.isdigit() or int(split) == 0:
            raise ConfigError(f"split.bytes is wrong: expected a number of bytes, got {split!r}.")
        return cls(
            given["path"],
            named[0] if named else None,
            given.get("state", KEYED),
            tuple(name.strip() for name in columns.split(",")) if columns else None,
            int(split),
        )

    def reader(self) -> tuple[OperatorSnapshot, KeyedStateReader]:
        """Opens the snapshot; only its metadata and headers are read."""
        snapshot = Snapshot.load(self.path)
        operator = self._operator(snapshot)
        return operator, KeyedStateReader(
            operator, self.state, KeyedReadOptions(columns=self.columns)
        )

    def _operator(self, snapshot: Snapshot) -> OperatorSnapshot:
        if self.operator is not None:
            return snapshot[self.operator]
        keyed = [operator for operator in snapshot.operators if operator.keyed_handles]
        if len(keyed) == 1:
            return keyed[0]
        known = ", ".join(repr(operator.label) for operator in keyed) or "none"
        raise NoSuchOperatorError(
            f"The operator is not clear: {len(keyed)} have keyed state ({known}); give "
            f"operator.uid.",
            location=str(snapshot.folder),
        )


@dataclass
class KeyGroupSplit(InputPartition):
    """The key groups that one Spark task reads."""

    start_key_group: int
    end_key_group: int


class SavepointDataSource(DataSource):
    """The Python data source ``savepoint``. Batch, read-only."""

    @classmethod
    def name(cls) -> str:
        return "savepoint"

    def schema(self) -> StructType:
        _, reader = ReadOptions.of(self.options).reader()
        return spark_schema_of(reader.schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        return SavepointSourceReader(ReadOptions.of(self.options))


class SavepointSourceReader(DataSourceReader):
    """Plans one task per range of key groups, sized by bytes; a task yields Arrow batches."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[Any]:
        operator, _ = self._options.reader()
        size = sum(handle.state_size for handle in operator.keyed_handles)
        wanted = max(operator.parallelism, -(-size // self._options.split_bytes))
        return [
            KeyGroupSplit(split.start_key_group, split.end_key_group)
            for split in operator.key_group_splits(min(wanted, operator.max_parallelism))
        ]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        _, reader = self._options.reader()
        yield from reader.read(KeyGroupRange(partition.start_key_group, partition.end_key_group))
