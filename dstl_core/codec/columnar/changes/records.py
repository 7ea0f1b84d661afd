"""Converts the change records of one state to columns.

Columns: ``operation`` (Flink's name) and, for key-value state, ``key``, ``namespace`` unless it is
void, ``value`` and ``merged``. ``value`` has the type of the state: a value, a list or a map. For
``ADD_ELEMENT`` to a list it holds the one element, for ``ADD_OR_UPDATE_ELEMENT`` the one pair, for
``REMOVE_ELEMENT`` the user key with a null. ``merged`` holds the namespaces that ``MERGE_NS``
merges into ``namespace``. A queue has only ``value``: a list of timers.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dstl_core.codec.change_payload import StateChangeOperation as Operation
from dstl_core.codec.columnar.changes.change_spans import HEAD_BYTES
from dstl_core.codec.columnar.kernels import instructions as i
from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.keyed.decoder import (
    KEY,
    NAMESPACE,
    OPTION_ERRORS,
    USER_KEY,
    VALUE,
    SpanProgram,
    state_options,
)
from dstl_core.codec.columnar.keyed.spans import SpanBatch
from dstl_core.codec.columnar.types.layouts import (
    Fixed,
    Layout,
    MapOf,
    Nullable,
    Repeated,
    Struct,
)
from dstl_core.codec.columnar.types.output_columns import ArrowAllocator
from dstl_core.codec.columnar.types.type_layouts import (
    DEFAULT_OPTIONS,
    ColumnOptions,
    bounded_layout,
    layout_of,
)
from dstl_core.codec.keyed_records import RecordFormat, part_of
from dstl_core.codec.serializers import (
    ListSerializer,
    MapSerializer,
    TimerSerializer,
)
from dstl_core.codec.state_meta import KeyedStateType
from dstl_core.errors import ColumnValueError, FormatError

OPERATION, MERGED = "operation", "merged"
TIMESTAMP = "timestamp"
_ITEM, _AGAIN = "item", "target namespace"
_ONE_ITEM = (Operation.ADD_ELEMENT, Operation.ADD_OR_UPDATE_ELEMENT, Operation.REMOVE_ELEMENT)
Columns = dict[str, pa.Array]


class ChangeRecords:
    """The change records of one state.

    Args:
        record_format: The state and the type of its keys.
        options: Representation of types as columns.

    Raises:
        NotInColumnsError: A type has no columnar form.
    """

    def __init__(
        self, record_format: RecordFormat, options: ColumnOptions = DEFAULT_OPTIONS
    ) -> None:
        self._format = record_format
        self._options = options
        self._decoders: dict[Operation, SpanProgram] = {}
        self.columns: dict[str, pa.DataType] = {OPERATION: pa.string()}
        scope = {} if record_format.is_queue else dict(self._scope())
        for name, layout in scope.items():
            if not pa.types.is_null(layout.arrow_type):
                self.columns[name] = layout.arrow_type
        self.columns[VALUE] = self._whole().arrow_type
        if NAMESPACE in self.columns:
            self.columns[MERGED] = pa.list_(scope[NAMESPACE].field(_ITEM))

    def _scope(self) -> list[tuple[str, Layout]]:
        return [
            (KEY, layout_of(self._format.key_serializer, self._options)),
            (NAMESPACE, layout_of(self._format.namespace_serializer, self._options)),
        ]

    def _timer(self) -> Layout:
        timer: TimerSerializer = part_of(self._format.meta, TimerSerializer)
        return Struct(
            [
                (TIMESTAMP, Fixed(pa.int64(), i.FLIP8, 8)),
                (KEY, layout_of(timer.key, self._options)),
                (NAMESPACE, layout_of(timer.namespace, self._options)),
            ]
        )

    def _element(self) -> Layout:
        return layout_of(part_of(self._format.meta, ListSerializer).element, self._options)

    def _whole(self) -> Layout:
        """The layout of a whole value in the changelog, where lists and maps have counts."""
        meta, options = self._format.meta, state_options(self._format, self._options)
        if self._format.is_queue:
            return Repeated(self._timer(), 1)
        match self._format.kind:
            case KeyedStateType.LIST:
                element = part_of(meta, ListSerializer).element
                return Repeated(self._element(), max(1, element.length))
            case KeyedStateType.MAP:
                serializer: MapSerializer = part_of(meta, MapSerializer)
                key = layout_of(serializer.key, options)
                value = Nullable(layout_of(serializer.value, options))
                return MapOf(key, value, as_map=options.maps == "map")
            case _:
                return bounded_layout(meta.value_serializer, options)

    def _roots(self, operation: Operation) -> list[tuple[str, Layout]]:
        """The parts of a change after its state id.

        Raises:
            FormatError: The state does not have this operation.
        """
        kind = self._format.kind
        if self._format.is_queue:
            match operation:
                case Operation.ADD_ELEMENT:
                    return [(VALUE, self._whole())]
                case Operation.REMOVE_ELEMENT:
                    return [(_ITEM, self._timer())]
            raise self._unknown(operation)
        scope = self._scope()
        match operation:
            case Operation.CLEAR:
                return scope
            case Operation.MERGE_NS:
                (_, again), (_, merged) = self._scope()[1], self._scope()[1]
                return [*scope, (_AGAIN, again), (MERGED, Repeated(merged, 1))]
            case Operation.SET | Operation.SET_INTERNAL if kind is not KeyedStateType.MAP:
                return [*scope, (VALUE, self._whole())]
            case Operation.ADD if kind in (KeyedStateType.LIST, KeyedStateType.MAP):
                return [*scope, (VALUE, self._whole())]
            case Operation.ADD_ELEMENT if kind is KeyedStateType.LIST:
                return [*scope, (_ITEM, self._element())]
        if kind is KeyedStateType.MAP and operation in _ONE_ITEM:
            serializer: MapSerializer = part_of(self._format.meta, MapSerializer)
            scope.append((USER_KEY, layout_of(serializer.key, self._options)))
            if operation is not Operation.REMOVE_ELEMENT:
                scope.append((_ITEM, bounded_layout(serializer.value, self._options)))
            return scope
        raise self._unknown(operation)

    def _unknown(self, operation: Operation) -> FormatError:
        return FormatError(
            f"The changelog holds an operation that state {self._format.meta.name!r} does not have",
            got=operation.name,
        )

    def decode(self, operation: Operation, batch: SpanBatch) -> Columns:
        """Decodes changes of one operation into columns.

        Args:
            operation: Operation of all changes.
            batch: The bytes after the state id as values of spans (``change_spans``).

        Raises:
            FormatError: The bytes are damaged, or the state does not have the operation.
            ColumnValueError: A column cannot hold a value with these options.
        """
        program = self._decoders.get(operation)
        if program is None:
            roots = self._roots(operation)
            program = SpanProgram(roots, scan.VALUE_START, ArrowAllocator())
            self._decoders[operation] = program
        rows = len(batch)
        decoded, failure = program.run(batch, set(program.names), rows)
        if failure is not None:
            self._refuse(operation, failure.code, batch, failure.row, failure.address)
        columns: Columns = {OPERATION: pa.array([operation.name] * rows, pa.string())}
        if _AGAIN in decoded and not decoded[_AGAIN].equals(decoded[NAMESPACE]):
            raise FormatError(
                f"A merge of state {self._format.meta.name!r} contradicts itself",
                field=_AGAIN,
            )
        for name, arrow_type in self.columns.items():
            if name == VALUE and (_ITEM in decoded or USER_KEY in decoded):
                columns[VALUE] = self._one_item(decoded, rows)
            elif name != OPERATION:
                columns[name] = decoded[name] if name in decoded else pa.nulls(rows, arrow_type)
        return columns

    def _one_item(self, decoded: Columns, rows: int) -> pa.Array:
        arrow_type = self.columns[VALUE]
        offsets = pa.py_buffer(np.arange(rows + 1, dtype=np.int32))
        item = decoded.get(_ITEM)
        if USER_KEY in decoded:
            entry = arrow_type.field(0).type if pa.types.is_list(arrow_type) else None
            fields = (
                list(entry)
                if entry is not None
                else [
                    arrow_type.key_field,
                    arrow_type.item_field,
                ]
            )
            if item is None:
                item = pa.nulls(rows, fields[1].type)
            if decoded[USER_KEY].null_count and entry is None:
                raise ColumnValueError(
                    f"State {self._format.meta.name!r} {OPTION_ERRORS[i.NULL_KEY]}."
                )
            item = pa.StructArray.from_arrays([decoded[USER_KEY], item], fields=fields)
        return pa.Array.from_buffers(arrow_type, rows, [None, offsets], 0, 0, [item])

    def _refuse(
        self, operation: Operation, code: int, batch: SpanBatch, row: int, address: int
    ) -> None:
        offset = address - int(batch.spans[row, scan.VALUE_START]) + HEAD_BYTES
        name, key_group = self._format.meta.name, int(batch.key_groups[row])
        problem = OPTION_ERRORS.get(code)
        if problem is not None:
            raise ColumnValueError(
                f"A change of state {name!r} {problem} (key group {key_group}, byte {offset})."
            )
        raise FormatError(
            f"A change of state {name!r} is damaged ({operation.name}, key group {key_group})",
            offset=offset,
        )
