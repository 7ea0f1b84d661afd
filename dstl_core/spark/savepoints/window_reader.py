"""Reads the state of window operators, with the methods of Flink's ``WindowSavepointReader``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from dstl_core.codec.declared_type import SchemaLike, TypeLike
from dstl_core.codec.serializers import AnySerializer, ListSerializer
from dstl_core.codec.serializers.runtime import StreamElementSerializer
from dstl_core.errors import ConfigError, NoSuchStateError, SavepointError
from dstl_core.functions import WINDOW_CONTENTS, WindowReaderFunction
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.read.function_reader import read_windows
from dstl_core.savepoint.read.operator_catalog import StateInfo
from dstl_core.savepoint.read.table_base import WINDOWS, Split, TableOptions
from dstl_core.spark.engine.table_frames import TableSpec, frame_of, split_numbers
from dstl_core.spark.savepoints.reading import Identifier, batches_of_rows, check_type, name_of
from dstl_core.spark.savepoints.snapshot_frames import SnapshotFrames
from dstl_core.state.tables.descriptor import AggregateFunction
from dstl_core.state.windows.windowing import WindowAssigner


@dataclass(frozen=True)
class WindowSavepointReader:
    """Reads windows.

    Without a reader function, the result has a row per key and window, with the contents, the
    states of trigger, window and key, and the timers of the window.
    """

    reader: SnapshotFrames
    assigner: WindowAssigner | AnySerializer | None = None
    with_evictor: bool = False

    def evictor(self) -> WindowSavepointReader:
        """Declares that the windows have an evictor, and therefore keep their elements."""
        return WindowSavepointReader(self.reader, self.assigner, with_evictor=True)

    def reduce(
        self,
        identifier: Identifier,
        function: Callable[[Any, Any], Any] | None = None,
        reader_function: WindowReaderFunction | None = None,
        *,
        key_type: TypeLike | None = None,
        reduce_type: TypeLike | None = None,
        out_type: SchemaLike | None = None,
    ) -> DataFrame:
        """Reads windows whose elements are reduced. With an evictor, this applies the function.

        Args:
            identifier: The operator.
            function: Reduces two elements to one; needed with an evictor.
            reader_function: Called once per window.
            key_type: The declared type of the key. It is checked against the stored type.
            reduce_type: The declared type of an element.
            out_type: The rows of ``reader_function``.

        Raises:
            NoSuchStateError: The operator has no windows.
            SavepointError: A type or the kind of the windows differs. The message shows both.
        """
        kind = "list" if self.with_evictor else "reducing"
        final = _Reduce(function) if self.with_evictor else None
        return self._read(
            identifier, kind, reader_function, final, None, key_type, reduce_type, out_type
        )

    def aggregate(
        self,
        identifier: Identifier,
        function: AggregateFunction | None = None,
        reader_function: WindowReaderFunction | None = None,
        *,
        key_type: TypeLike | None = None,
        accumulator_type: TypeLike | None = None,
        out_type: SchemaLike | None = None,
    ) -> DataFrame:
        """Reads windows whose elements are aggregated. A reader function gets the result of the
        accumulator. With an evictor, ``accumulator_type`` is the type of an element. See
        ``reduce`` for the other arguments.
        """
        kind = "list" if self.with_evictor else "aggregating"
        final = _Aggregate(function) if self.with_evictor and function is not None else None
        result = None if self.with_evictor or function is None else function.get_result
        return self._read(
            identifier, kind, reader_function, final, result, key_type, accumulator_type, out_type
        )

    def process(
        self,
        identifier: Identifier,
        reader_function: WindowReaderFunction | None = None,
        *,
        key_type: TypeLike | None = None,
        state_type: TypeLike | None = None,
        out_type: SchemaLike | None = None,
    ) -> DataFrame:
        """Reads windows that keep their elements. See ``reduce`` for the arguments."""
        return self._read(
            identifier, "list", reader_function, None, None, key_type, state_type, out_type
        )

    def _read(
        self,
        identifier: Identifier,
        kind: str,
        function: WindowReaderFunction | None,
        final: Callable[[list[Any]], list[Any]] | None,
        result_of: Callable[[Any], Any] | None,
        key_type: TypeLike | None,
        declared: TypeLike | None,
        out_type: SchemaLike | None,
    ) -> DataFrame:
        reader = self.reader
        operator = reader.snapshot[name_of(identifier)]
        try:
            info = operator.state_info(WINDOW_CONTENTS)
        except NoSuchStateError as error:
            raise NoSuchStateError(
                f"Operator {operator.label!r} keeps no windows. {error.message}"
            ) from error
        self._check(info, kind, declared)
        if key_type is not None and operator.key_type is not None:
            check_type("The key", operator.key_type.serializer, key_type)
        spec = TableSpec(
            reader.place,
            name_of(identifier),
            WINDOWS,
            options=TableOptions(types=reader.types),
            split_bytes=reader.split_bytes,
        )
        if function is None:
            return frame_of(reader.spark, spec)
        if out_type is None:
            raise ConfigError("out_type is missing: the rows of a function need a schema.")
        wrapped = function if final is None else _Applied(function, final)
        return reader.frame_of_keys(spec, _ReadWindows, (wrapped, result_of), out_type)

    def _check(self, info: StateInfo, kind: str, declared: TypeLike | None) -> None:
        if info.kind != kind:
            raise SavepointError(
                f"The windows are of another kind: expected {info.kind} (from the snapshot), got "
                f"{kind}."
            )
        namespace = info.meta.namespace_serializer
        assigner = self.assigner
        wanted = assigner.window_serializer if isinstance(assigner, WindowAssigner) else assigner
        check_type("The window", namespace, wanted)
        value = info.meta.value_serializer
        if isinstance(value, ListSerializer):
            value = value.element
        has_records = isinstance(value, StreamElementSerializer)
        if has_records != self.with_evictor and kind == "list":
            how = "with" if has_records else "without"
            raise SavepointError(
                f"The windows were written {how} an evictor; read them {how} evictor()."
            )
        if isinstance(value, StreamElementSerializer):
            value = value.value
        check_type(f"State {WINDOW_CONTENTS!r}", value, declared)


@dataclass(frozen=True)
class _Reduce:
    function: Callable[[Any, Any], Any] | None

    def __call__(self, elements: list[Any]) -> list[Any]:
        if self.function is None:
            raise ConfigError("reduce with an evictor needs the reduce function.")
        result = elements[0]
        for element in elements[1:]:
            result = self.function(result, element)
        return [result]


@dataclass(frozen=True)
class _Aggregate:
    function: AggregateFunction

    def __call__(self, elements: list[Any]) -> list[Any]:
        accumulator = self.function.create_accumulator()
        for element in elements:
            accumulator = self.function.add(element, accumulator)
        return [self.function.get_result(accumulator)]


class _Applied(WindowReaderFunction):
    """A reader function whose elements are first reduced or aggregated."""

    def __init__(
        self, inner: WindowReaderFunction, final: Callable[[list[Any]], list[Any]]
    ) -> None:
        self._inner = inner
        self._final = final
        self.open = inner.open  # type: ignore[method-assign]
        self.close = inner.close  # type: ignore[method-assign]

    def read_window(self, key: Any, ctx: Any, elements: list[Any]) -> Any:
        return self._inner.read_window(key, ctx, self._final(elements))


@dataclass(frozen=True)
class _ReadWindows:
    """Runs in tasks: calls a user's function for the windows of a split."""

    spec: TableSpec
    splits: Sequence[Split]
    function: tuple[WindowReaderFunction, Callable[[Any], Any] | None]
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        function, result_of = self.function
        for number in split_numbers(batches):
            operator = self.spec.operator_of(self.spec.place.load())
            rows = read_windows(operator, KeyGroupRange(*self.splits[number]), function, result_of)
            yield from batches_of_rows(rows, self.schema)
