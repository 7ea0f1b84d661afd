"""States of messages as structs in columns.

The kernels keep a message as its bytes, whoever wrote it. One Python call a value makes the struct.
State without messages is not slowed down.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from dstl_core.codec.columnar.keyed.decoder import value_layout
from dstl_core.codec.columnar.types.layouts import Opaque
from dstl_core.codec.columnar.types.type_layouts import ColumnOptions
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.keyed_records import RecordFormat, part_of, read_delimited
from dstl_core.codec.kryo.kryo_objects import Dialect
from dstl_core.codec.kryo.kryo_serializer import ReadableKryoSerializer
from dstl_core.codec.kryo.message_body import MessageBody
from dstl_core.codec.protobuf.message_states import MessageStates
from dstl_core.codec.serializers import (
    AnySerializer,
    ListSerializer,
    MapSerializer,
    deserialize_exactly,
)
from dstl_core.codec.serializers.base import JsonValue, OpaqueValue
from dstl_core.codec.state_meta import KeyedStateType
from dstl_core.errors import FormatError
from dstl_core.savepoint.columns.declared_decimals import with_inside
from dstl_core.savepoint.columns.message_columns import MessageColumns

_Texts = Callable[[bytes], list[JsonValue]]


@dataclass(frozen=True)
class MessagesOfState:
    """What makes the structs of one state.

    Args:
        columns: The structs.
        text: The text form of the message in some bytes.
        every: The text forms of the messages in the bytes of a whole list, where nothing but their
            type tells where one ends.
    """

    columns: MessageColumns
    text: Callable[[bytes], JsonValue]
    every: _Texts | None = None

    def type_of(self, stored: pa.DataType) -> pa.DataType:
        """The type of a column, of which the bytes become structs."""
        if pa.types.is_binary(stored):
            return self.columns.type if self.every is None else pa.list_(self.columns.type)
        if pa.types.is_list(stored):
            return pa.list_(stored.value_field.with_type(self.type_of(stored.value_type)))
        if pa.types.is_map(stored):
            return pa.map_(
                stored.key_field, stored.item_field.with_type(self.type_of(stored.item_type))
            )
        return stored

    def key_type(self, stored: pa.DataType) -> pa.DataType:
        return stored

    def keys(self, stored: pa.Array) -> pa.Array:
        return stored

    def column(self, stored: pa.Array) -> pa.Array:
        """The structs of a column.

        Raises:
            FormatError: Bytes are no such message.
        """
        made = self.type_of(stored.type)
        if pa.types.is_list(stored.type):
            return with_inside(stored, made, self.column(stored.values))
        if pa.types.is_map(stored.type):
            parts = (stored.keys, self.column(stored.items))
            kinds = (made.key_field, made.item_field)
            return with_inside(stored, made, pa.StructArray.from_arrays(parts, fields=kinds))
        if not pa.types.is_binary(stored.type):
            return stored
        values = stored.to_pylist()
        if self.every is None:
            return self.columns.array([None if raw is None else self.text(raw) for raw in values])
        lists = [None if raw is None else self.every(raw) for raw in values]
        flat = self.columns.array([text for texts in lists if texts for text in texts])
        ends = [0]
        for texts in lists:
            ends.append(ends[-1] + len(texts or ()))
        nulls = pa.array([texts is None for texts in lists])
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), flat, made, mask=nulls)


def messages_of_state(
    record_format: RecordFormat, declared: MessageStates | None, options: ColumnOptions
) -> MessagesOfState | None:
    """What makes the structs of a state; None if its values are no messages that are known."""
    meta = record_format.meta
    is_list = record_format.kind is KeyedStateType.LIST
    if declared is not None and (reader := declared.reader(meta.name)) is not None:
        layout = value_layout(record_format, options)
        columns = MessageColumns(declared.messages, declared.types[meta.name])
        if not isinstance(layout, Opaque):
            return MessagesOfState(columns, reader.of)
        if is_list:
            return None  # only the job's serializer knows where an element ends
        return MessagesOfState(columns, lambda raw: reader.of(OpaqueValue("", raw)))
    return _of_kryo(_element_of(record_format), is_list=is_list)


def _element_of(record_format: RecordFormat) -> AnySerializer:
    element: AnySerializer = record_format.meta.value_serializer
    if record_format.kind is KeyedStateType.LIST:
        element = part_of(record_format.meta, ListSerializer).element
    elif record_format.kind is KeyedStateType.MAP:
        element = part_of(record_format.meta, MapSerializer).value
    return element


def _of_kryo(stored: AnySerializer, *, is_list: bool) -> MessagesOfState | None:
    """Messages in Kryo of Flink 1.x; chill does not go with that of Flink 2.x."""
    if not isinstance(stored, ReadableKryoSerializer):
        return None
    if stored.classes.dialect is not Dialect.KRYO_2:
        return None
    try:
        body = stored.classes.layouts.body(stored.java_class)
    except FormatError:
        return None
    if not isinstance(body, MessageBody):
        return None

    def text(raw: bytes) -> JsonValue:
        return stored.to_text(deserialize_exactly(stored, raw))

    def every(raw: bytes) -> list[JsonValue]:
        return [stored.to_text(each) for each in read_delimited(DataInput(raw), stored)]

    columns = MessageColumns(body.messages, body.message)
    return MessagesOfState(columns, text, every if is_list else None)
