"""``SavepointReader``: Flink's API for reading snapshots, with DataFrames as results.

reader = SavepointReader.read(spark, path)
reader.read_list_state(OperatorIdentifier.for_uid("my-uid"), "list-state", Types.INT)
reader.read_keyed_state(OperatorIdentifier.for_uid("my-uid"), ReaderFunction(), out_type="..")
reader.window(TumblingEventTimeWindows.of(60_000)).aggregate("click-window", ..)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from dstl_core.codec.columnar.types.type_layouts import DEFAULT_OPTIONS, ColumnOptions
from dstl_core.codec.declared_type import SchemaLike, TypeLike
from dstl_core.codec.serializers import AnySerializer, SerializerRegistry
from dstl_core.codec.state_meta import KEY_SERIALIZER
from dstl_core.errors import ConfigError, SavepointError
from dstl_core.functions import KeyedStateReaderFunction
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.read.function_reader import read_keys
from dstl_core.savepoint.read.keyed_reader import KEYED
from dstl_core.savepoint.read.table_base import (
    BROADCAST,
    KEYED_FLAT,
    LIST,
    METADATA,
    SPLIT_BYTES,
    TIMERS,
    UNION,
    Split,
    TableOptions,
)
from dstl_core.spark.engine.table_frames import (
    SnapshotPlace,
    TableSpec,
    frame_of,
    split_numbers,
)
from dstl_core.spark.savepoints.comparisons import diff_frame, history_frame
from dstl_core.spark.savepoints.reading import Identifier, batches_of_rows, check_type, name_of
from dstl_core.spark.savepoints.snapshot_frames import SnapshotFrames
from dstl_core.spark.savepoints.source_options import key_of
from dstl_core.spark.savepoints.window_reader import WindowSavepointReader
from dstl_core.state.windows.windowing import WindowAssigner


@dataclass(frozen=True)
class SavepointReader(SnapshotFrames):
    """Reads the state of a savepoint or checkpoint. Its metadata is read at once, state when a
    DataFrame is used.
    """

    @classmethod
    def read(
        cls,
        spark: SparkSession,
        path: str,
        *,
        allow_roots: Sequence[str] = (),
        relocate: Mapping[str, str] | None = None,
        changelog_base: str | None = None,
        serializers: SerializerRegistry | None = None,
        types: ColumnOptions = DEFAULT_OPTIONS,
        split_bytes: int = SPLIT_BYTES,
    ) -> SavepointReader:
        """Opens a snapshot.

        Args:
            spark: Session to run on.
            path: Its folder, or the ``_metadata`` in it.
            allow_roots: Further folders that its handles may name.
            relocate: Old root to new root, for files that were moved.
            changelog_base: Where the changelog lies, if that is elsewhere.
            serializers: Where types of your own are registered.
            types: How types become columns.
            split_bytes: Bytes of state that one task reads.

        Raises:
            StateFileNotFoundError: There is no snapshot.
            SavepointError: It has no operators.
        """
        place = SnapshotPlace(
            path, tuple(allow_roots), dict(relocate or {}), changelog_base, serializers
        )
        reader = cls(spark, place, types, split_bytes)
        if not reader.snapshot.operators:
            raise SavepointError(f"A savepoint has at least one operator; {path} has none.")
        return reader

    def metadata(self) -> DataFrame:
        """A row per operator, with the columns of Flink's ``savepoint_metadata``."""
        return frame_of(self.spark, TableSpec(self.place, kind=METADATA), self.snapshot)

    # ------------------------------------------------------------------------ operator state

    def read_list_state(
        self, identifier: Identifier, name: str, type_info: TypeLike | None = None
    ) -> DataFrame:
        """List state: columns ``subtask``, ``list_index``, ``list_value``, a row per element.

        Args:
            identifier: The operator.
            name: The state.
            type_info: The declared type, checked against the stored one if given; the type of your
                own serializer is found in ``serializers``.

        Raises:
            NoSuchStateError: There is no such list state; lists those that there are.
            SavepointError: The types differ; shows both.
        """
        return self._operator_state(identifier, name, LIST, type_info)

    def read_union_state(
        self, identifier: Identifier, name: str, type_info: TypeLike | None = None
    ) -> DataFrame:
        """Union state, one copy: columns ``list_index``, ``list_value``. As ``read_list_state``."""
        return self._operator_state(identifier, name, UNION, type_info)

    def read_broadcast_state(
        self,
        identifier: Identifier,
        name: str,
        key_type_info: TypeLike | None = None,
        value_type_info: TypeLike | None = None,
    ) -> DataFrame:
        """Broadcast state, one copy: columns ``map_key``, ``map_value``. As ``read_list_state``."""
        return self._operator_state(identifier, name, BROADCAST, value_type_info, key_type_info)

    def _operator_state(
        self,
        identifier: Identifier,
        name: str,
        kind: str,
        declared: TypeLike | None,
        declared_key: TypeLike | None = None,
    ) -> DataFrame:
        spec = self._spec(identifier, kind, name)
        frame = frame_of(self.spark, spec, self.snapshot)
        info = self.snapshot[name_of(identifier)].state_info(name, f"op-{kind}")
        check_type(f"State {name!r}", info.meta.value_serializer, declared)
        if declared_key is not None:
            check_type(f"Key of state {name!r}", info.meta.serializer(KEY_SERIALIZER), declared_key)
        return frame

    def _spec(
        self,
        identifier: Identifier,
        kind: str,
        state: str | None = None,
        columns: Sequence[str] | None = None,
        keys: Sequence[Any] | None = None,
    ) -> TableSpec:
        options = TableOptions(
            None if columns is None else tuple(columns),
            None if keys is None else tuple(keys),
            types=self.types,
        )
        return TableSpec(self.place, name_of(identifier), kind, state, options, self.split_bytes)

    # --------------------------------------------------------------------------- keyed state

    def read_keyed_state(
        self,
        identifier: Identifier,
        function: KeyedStateReaderFunction | None = None,
        *,
        key_type: TypeLike | None = None,
        out_type: SchemaLike | None = None,
        state: str | None = None,
        columns: Sequence[str] | None = None,
        keys: Sequence[Any] | None = None,
    ) -> DataFrame:
        """Keyed state.

        Without a function: a row per key with a column per state (null where it is absent) and the
        user's timers, or one state in flat form. With one: the rows that it gives.

        Args:
            identifier: The operator.
            function: Called once per key.
            key_type: The declared type of the key, checked if given.
            out_type: The rows of the function: DDL text, a Spark or Arrow schema, a dataclass.
            state: Without a function: only this state, a row per value, element or entry.
            columns: Without a function: only these columns.
            keys: Without a function: only these keys, as state has them or as a column would
                (dates, for one); only their key groups are read.

        Raises:
            NoSuchStateError: There is no such state; lists those that there are.
            SavepointError: The operator has no keyed state, or another type; shows both.
            ConfigError: A function and what is for reading without one, or no ``out_type``.
        """
        if function is not None and not (state is columns is keys is None):
            raise ConfigError(
                "state, columns and keys are for reading without a function; a function reads what "
                "it registers, of every key: filter its rows."
            )
        operator = self.snapshot[name_of(identifier)]
        stored = operator.key_type
        if stored is None:
            raise SavepointError(f"Operator {operator.label!r} has no keyed state.")
        if key_type is not None:
            check_type("The key", stored.serializer, key_type)
        kind = KEYED if state is None else KEYED_FLAT
        wanted = None if keys is None else [key_of(stored.serializer, each) for each in keys]
        spec = self._spec(identifier, kind, state, columns, wanted)
        if function is None:
            return frame_of(self.spark, spec, self.snapshot)
        if out_type is None:
            raise ConfigError(
                "out_type is missing: the rows of a function need a schema, e.g. "
                "'key int, value int, times array<bigint>'."
            )
        return self.frame_of_keys(spec, _ReadKeys, function, out_type)

    def read_timers(self, identifier: Identifier) -> DataFrame:
        """Every timer of an operator: ``service``, ``time_domain`` (event or processing),
        ``state_key``, ``state_namespace``, ``timestamp`` in milliseconds.
        """
        return frame_of(self.spark, self._spec(identifier, TIMERS), self.snapshot)

    def window(
        self, assigner: WindowAssigner | AnySerializer | None = None
    ) -> WindowSavepointReader:
        """Reads window state. The type of the windows is in the snapshot; an assigner is checked
        against it.
        """
        return WindowSavepointReader(self, assigner)

    def diff(self, other: str) -> DataFrame:
        """What differs in the snapshot at ``other``: a row per added, removed or changed entry."""
        return diff_frame(self.spark, self.place, replace(self.place, path=other))

    def read_history(
        self, others: Sequence[str], identifier: Identifier, state: str | None = None
    ) -> DataFrame:
        """Keyed state of this snapshot and of others, with columns ``snapshot`` and
        ``checkpoint_id`` in front.
        """
        own = self._spec(identifier, KEYED if state is None else KEYED_FLAT, state)
        every = [replace(own, place=replace(self.place, path=each)) for each in others]
        return history_frame(self.spark, [own, *every])


@dataclass(frozen=True)
class _ReadKeys:
    """Runs in tasks: a user's function over the keys of a split."""

    spec: TableSpec
    splits: Sequence[Split]
    function: KeyedStateReaderFunction
    schema: pa.Schema

    @property
    def label(self) -> str:
        return f"{self.spec.label} {type(self.function).__name__}"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in split_numbers(batches):
            operator = self.spec.operator_of(self.spec.place.load())
            rows = read_keys(operator, KeyGroupRange(*self.splits[number]), self.function)
            yield from batches_of_rows(rows, self.schema)
