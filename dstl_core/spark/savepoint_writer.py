"""Savepoints from DataFrames, by the names of Flink's State Processor API.

SavepointWriter.new_savepoint(spark, max_parallelism=128)
    .with_operator(
        OperatorIdentifier.for_uid("accounts"),
        OperatorTransformation.bootstrap_with(df).key_by("id").transform_columns(),
    )
    .write(path)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from dstl_core.codec.serializers import AnySerializer, ListSerializer, serialize_to_bytes
from dstl_core.codec.state_meta import KeyedStateType, StateMetaInfoSnapshot
from dstl_core.errors import ConfigError, DuplicateKeyError, SavepointError
from dstl_core.model.checkpoint import (
    CheckpointMetadata,
    OperatorState,
    OperatorSubtaskState,
)
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.model.key_group import (
    assign_to_key_group,
    check_max_parallelism,
    compute_key_group_range_for_operator_index,
)
from dstl_core.savepoint.rewrite import SavepointFolder
from dstl_core.spark.errors import errors_of_workers
from dstl_core.spark.key_groups import SUBTASK_COLUMN, partition_by_subtask
from dstl_core.spark.reports import REPORT_SCHEMA, SubtaskReport, encode_state
from dstl_core.spark.schema import flink_type_of_column, spark_schema_of
from dstl_core.spark.subtask import split_by_subtask
from dstl_core.state.keyed_state import KeyedState
from dstl_core.state.table import join_elements
from dstl_core.storage.location import Location

MAX_KEYS_SHOWN = 5


@dataclass(frozen=True)
class ColumnBootstrap:
    """A DataFrame column per state: one row per key."""

    rows: DataFrame
    key_column: str
    key_type: AnySerializer
    states: tuple[StateMetaInfoSnapshot, ...]
    show_keys: bool


@dataclass(frozen=True)
class KeyedBootstrap:
    """Rows with their key; the step after ``key_by``."""

    rows: DataFrame
    key_column: str
    key_type: AnySerializer

    def transform_columns(
        self,
        types: Mapping[str, AnySerializer] | None = None,
        *,
        show_keys: bool = False,
    ) -> ColumnBootstrap:
        """Every other column becomes a state of its name: an array list state, else value state.
        A null, or an empty array, is "no state".

        Args:
            types: Flink types of columns that the Spark schema does not tell, e.g.
                ``{"count": Types.LONG}``. For list state the type of the list.
            show_keys: Whether an error may show keys.
        """
        given = dict(types or {})
        names = [name for name in self.rows.columns if name != self.key_column]
        unknown = sorted(set(given) - set(names))
        if unknown:
            raise ConfigError(
                f"There is no state column {unknown[0]!r}; the DataFrame has: {', '.join(names)}."
            )
        if not names:
            raise ConfigError(f"There is no column beside the key {self.key_column!r}.")
        states = tuple(
            _state_of(name, given.get(name) or flink_type_of_column(self.rows.schema, name))
            for name in names
        )
        return ColumnBootstrap(self.rows, self.key_column, self.key_type, states, show_keys)


def _state_of(name: str, value_type: AnySerializer) -> StateMetaInfoSnapshot:
    is_list = isinstance(value_type, ListSerializer)
    kind = KeyedStateType.LIST if is_list else KeyedStateType.VALUE
    return StateMetaInfoSnapshot.key_value(name, kind, value_type)


@dataclass(frozen=True)
class OneInputTransformation:
    """Rows that state is made of; the step after ``bootstrap_with``."""

    rows: DataFrame

    def key_by(self, column: str, key_type: AnySerializer | None = None) -> KeyedBootstrap:
        """Keys the rows by a column; its Flink type follows from its Spark type by default."""
        found = flink_type_of_column(self.rows.schema, column)
        return KeyedBootstrap(self.rows, column, key_type or found)


class OperatorTransformation:
    """Entry to bootstrapping."""

    @staticmethod
    def bootstrap_with(rows: DataFrame) -> OneInputTransformation:
        """Starts from the rows of a DataFrame."""
        return OneInputTransformation(rows)


@dataclass
class SavepointWriter:
    """Writes a new savepoint. Nothing is visible before the last file is in place."""

    spark: SparkSession
    max_parallelism: int
    parallelism: int
    operators: dict[OperatorIdentifier, ColumnBootstrap] = field(default_factory=dict)

    @classmethod
    def new_savepoint(
        cls, spark: SparkSession, *, max_parallelism: int = 128, parallelism: int | None = None
    ) -> SavepointWriter:
        """An empty savepoint.

        Args:
            spark: Session to run on.
            max_parallelism: Key groups, 1..32768.
            parallelism: Subtasks, each written by one task; Spark's shuffle partitions by default.
        """
        check_max_parallelism(max_parallelism)
        wanted = parallelism or int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
        return cls(spark, max_parallelism, min(wanted, max_parallelism))

    def with_operator(
        self, identifier: OperatorIdentifier, transformation: ColumnBootstrap
    ) -> SavepointWriter:
        """Adds an operator.

        Raises:
            SavepointError: It is there already.
        """
        if identifier in self.operators:
            known = next(each for each in self.operators if each == identifier)
            raise SavepointError(
                f"The savepoint already contains {known}; all operators must be unique."
            )
        return SavepointWriter(
            self.spark,
            self.max_parallelism,
            self.parallelism,
            {**self.operators, identifier: transformation},
        )

    def write(self, path: str) -> str:
        """Writes the savepoint and returns its path.

        Raises:
            SavepointError: There is nothing to write, or a snapshot is there already.
            DuplicateKeyError: Two rows have the same key.
        """
        if not self.operators:
            raise SavepointError("A savepoint needs at least one operator; use with_operator.")
        target = SavepointFolder(path)
        operators = tuple(
            self._write_operator(target.folder, identifier, transformation)
            for identifier, transformation in self.operators.items()
        )
        return target.publish(
            CheckpointMetadata(3, 0, operators), {"kind": "bootstrapped savepoint"}
        )

    def _write_operator(
        self, folder: Location, identifier: OperatorIdentifier, bootstrap: ColumnBootstrap
    ) -> OperatorState:
        placed = partition_by_subtask(
            bootstrap.rows,
            bootstrap.key_column,
            bootstrap.key_type,
            max_parallelism=self.max_parallelism,
            parallelism=self.parallelism,
        ).sortWithinPartitions(SUBTASK_COLUMN)
        encoder = _ColumnEncoder(
            str(folder),
            bootstrap.key_column,
            bootstrap.key_type,
            bootstrap.states,
            self.parallelism,
            self.max_parallelism,
            bootstrap.show_keys,
        )
        with errors_of_workers():
            reports = placed.mapInArrow(encoder, spark_schema_of(REPORT_SCHEMA)).collect()
        states = sorted(
            (SubtaskReport.of(row).subtask_state for row in reports), key=lambda each: each.index
        )
        return OperatorState(
            identifier.operator_id,
            self.parallelism,
            self.max_parallelism,
            tuple(states),
            uid=identifier.uid or "",
        )


@dataclass(frozen=True)
class _ColumnEncoder:
    """Runs in a task: the rows of a subtask become its canonical state file."""

    folder: str
    key_column: str
    key_type: AnySerializer
    states: tuple[StateMetaInfoSnapshot, ...]
    parallelism: int
    max_parallelism: int
    show_keys: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for subtask, own in split_by_subtask(batches):
            handle = SavepointFolder(self.folder).add_keyed_state(self._encode(subtask, own))
            state = OperatorSubtaskState(subtask, managed_keyed_state=handle)
            yield SubtaskReport("", subtask, encode_state(state)).to_batch()

    def _encode(self, subtask: int, batches: Iterable[pa.RecordBatch]) -> KeyedState:
        key_groups = compute_key_group_range_for_operator_index(
            self.max_parallelism, self.parallelism, subtask
        )
        state = KeyedState(key_groups, self.max_parallelism)
        tables = [state.table(meta, self.key_type) for meta in self.states]
        seen: set[bytes] = set()
        for batch in batches:
            keys = batch.column(self.key_column).to_pylist()
            scopes = [serialize_to_bytes(self.key_type, key) + b"\0" for key in keys]
            groups = [
                assign_to_key_group(self.key_type.java_hash(key), self.max_parallelism)
                for key in keys
            ]
            self._check_unique(scopes, groups, keys, seen)
            for meta, table in zip(self.states, tables, strict=True):
                values = batch.column(meta.name).to_pylist()
                for scope, group, value in zip(scopes, groups, values, strict=True):
                    stored = _stored(meta, value)
                    if stored is not None:
                        table.group(group)[scope] = stored
        return state

    def _check_unique(
        self, scopes: list[bytes], groups: list[int], keys: list[Any], seen: set[bytes]
    ) -> None:
        repeated: list[int] = []
        for index, scope in enumerate(scopes):
            if scope in seen:
                repeated.append(index)
            seen.add(scope)
        if repeated:
            first = repeated[:MAX_KEYS_SHOWN]
            shown = [repr(keys[i]) if self.show_keys else f"key group {groups[i]}" for i in first]
            raise DuplicateKeyError(
                f"Several rows have the same key: expected one row per key, got {len(repeated)} "
                f"more ({', '.join(shown)}); aggregate the rows first."
            )


def _stored(meta: StateMetaInfoSnapshot, value: Any) -> bytes | None:
    if value is None:
        return None
    serializer = meta.value_serializer
    if meta.keyed_state_type is KeyedStateType.LIST and isinstance(serializer, ListSerializer):
        elements = [serialize_to_bytes(serializer.element, item) for item in value]
        return join_elements(elements) if elements else None
    return serialize_to_bytes(serializer, value)
