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
from dstl_core.savepoint.access.key_text import key_of
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
from dstl_core.spark.savepoints.reading import (
    Identifier,
    batches_of_rows,
    check_type,
    name_of,
)
from dstl_core.spark.savepoints.snapshot_frames import SnapshotFrames
from dstl_core.spark.savepoints.window_reader import WindowSavepointReader
from dstl_core.state.backends.state_backend import check_no_backend
from dstl_core.state.windows.windowing import WindowAssigner
from dstl_core.storage.location import further_roots


@dataclass(frozen=True)
class SavepointReader(SnapshotFrames):
    """Reads the state of a savepoint or checkpoint.

    ``read`` reads the metadata. Spark reads state when a query uses a DataFrame.
    """

    @classmethod
    def read(
        cls,
        spark: SparkSession,
        path: str,
        *backend: object,
        allow_roots: Sequence[str] = (),
        relocate: Mapping[str, str] | None = None,
        changelog_base: str | None = None,
        serializers: SerializerRegistry | None = None,
        types: ColumnOptions = DEFAULT_OPTIONS,
        split_bytes: int = SPLIT_BYTES,
        jars: Sequence[str] = (),
        protos: Sequence[str] = (),
        state_types: Mapping[str, str] | None = None,
        state_backend: object = None,
    ) -> SavepointReader:
        """Opens a snapshot.

        Args:
            spark: The session.
            path: The folder of the snapshot, or the ``_metadata`` in it.
            backend: Nothing. Flink's method takes a backend here, which is not needed.
            allow_roots: Further folders from which files may be read.
            relocate: Old root to new root, for files that were moved.
            changelog_base: Folder of the changelog, if it is outside the checkpoints' folder.
            serializers: The registry of types; register your own types there.
            types: Conversion of types to columns.
            split_bytes: Bytes of state that one task reads.
            jars: Jars of the job, which every worker can read: values of Kryo become JSON texts.
            protos: Descriptor sets, which every worker can read: messages become structs.
            state_types: State to a type that the files do not have: a message of ``protos``.
            state_backend: Nothing, like ``backend``.

        Raises:
            StateFileNotFoundError: There is no snapshot.
            SavepointError: The snapshot has no operators.
            ConfigError: A state backend, or another further argument, is given.
        """
        named = () if state_backend is None else (state_backend,)
        check_no_backend("SavepointReader.read", *backend, *named)
        place = SnapshotPlace(
            path,
            further_roots(allow_roots),
            dict(relocate or {}),
            changelog_base,
            serializers,
            tuple(map(str, jars)),
            tuple(map(str, protos)),
            dict(state_types or {}),
        )
        reader = cls(spark, place, types, split_bytes)
        if not reader.snapshot.operators:
            raise SavepointError(f"A savepoint has at least one operator; {path} has none.")
        return reader

    def metadata(self) -> DataFrame:
        """The operators, one per row, with the columns of Flink's ``savepoint_metadata``."""
        return frame_of(self.spark, TableSpec(self.place, kind=METADATA), self.snapshot)

    # ------------------------------------------------------------------------ operator state

    def read_list_state(
        self, identifier: Identifier, name: str, type_info: TypeLike | None = None
    ) -> DataFrame:
        """Reads list state, one element per row: ``subtask``, ``list_index``, ``list_value``.

        Args:
            identifier: The operator.
            name: The state.
            type_info: The declared type. It is checked against the stored type. Types of your own
                serializers are found in ``serializers``.

        Raises:
            NoSuchStateError: There is no such list state. The message lists the list states.
            SavepointError: The types differ. The message shows both.
        """
        return self._operator_state(identifier, name, LIST, type_info)

    def read_union_state(
        self, identifier: Identifier, name: str, type_info: TypeLike | None = None
    ) -> DataFrame:
        """Reads union state once: ``list_index``, ``list_value``. See ``read_list_state``."""
        return self._operator_state(identifier, name, UNION, type_info)

    def read_broadcast_state(
        self,
        identifier: Identifier,
        name: str,
        key_type_info: TypeLike | None = None,
        value_type_info: TypeLike | None = None,
    ) -> DataFrame:
        """Reads broadcast state once: ``map_key``, ``map_value``. See ``read_list_state``."""
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
        """Reads keyed state.

        Without a function, the result has a row per key, with a column per state (null if the key
        has none) and the timers of the user, or one state in flat form. With a function, the result
        has the rows of the function.

        Args:
            identifier: The operator.
            function: Called once per key.
            key_type: The declared type of the key. It is checked against the stored type.
            out_type: The rows of the function: DDL text, a Spark or Arrow schema, a dataclass.
            state: Without a function: the state to read, a row per value, element or entry.
            columns: Without a function: the columns to read.
            keys: Without a function: the keys to read, as values of state or of a column (e.g.
                dates). Only their key groups are read.

        Raises:
            NoSuchStateError: There is no such state. The message lists the states.
            SavepointError: The operator has no keyed state, or a type differs. The message shows
                both types.
            ConfigError: ``out_type`` is missing, or ``state``, ``columns`` or ``keys`` is given
                with a function.
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
        """Reads every timer of an operator: ``service``, ``time_domain`` (event or processing),
        ``state_key``, ``state_namespace``, ``timestamp`` in milliseconds.
        """
        return frame_of(self.spark, self._spec(identifier, TIMERS), self.snapshot)

    def window(
        self, assigner: WindowAssigner | AnySerializer | None = None
    ) -> WindowSavepointReader:
        """Starts to read window state. An assigner is checked against the window type in the
        snapshot.
        """
        return WindowSavepointReader(self, assigner)

    def diff(self, other: str) -> DataFrame:
        """Compares with the snapshot at ``other``: a row per added, removed or changed entry."""
        return diff_frame(self.spark, self.place, replace(self.place, path=other))

    def read_history(
        self, others: Sequence[str], identifier: Identifier, state: str | None = None
    ) -> DataFrame:
        """Reads keyed state of this snapshot and of others. The first columns are ``snapshot`` and
        ``checkpoint_id``.
        """
        spec = self._spec(identifier, KEYED if state is None else KEYED_FLAT, state)
        every = [replace(spec, place=replace(self.place, path=each)) for each in others]
        return history_frame(self.spark, [spec, *every])


@dataclass(frozen=True)
class _ReadKeys:
    """Runs in tasks: calls a user's function for the keys of a split."""

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
