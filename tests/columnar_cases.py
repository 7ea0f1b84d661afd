"""Random keyed state, and what the record-wise decoder says about it."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hypothesis import strategies as st

from dstl_core.codec.columnar.keyed.decoder import StateDecoder
from dstl_core.codec.columnar.keyed.sections import Section, SectionChunk, SectionChunks
from dstl_core.codec.columnar.types.type_layouts import ColumnOptions
from dstl_core.codec.composite_key import CompositeKeyCodec
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.keyed_canonical import read_state_id, write_section
from dstl_core.codec.keyed_records import KeyedRecord, RecordFormat, read_framed_record
from dstl_core.codec.serializers import (
    AnySerializer,
    ListSerializer,
    MapSerializer,
    TimerSerializer,
    TtlSerializer,
    TupleSerializer,
    Types,
    VoidNamespaceSerializer,
    serialize_to_bytes,
)
from dstl_core.codec.serializers.runtime import Timer, TtlValue
from dstl_core.codec.serializers.strings import StringSerializer
from dstl_core.codec.serializers.window_types import TimeWindow, TimeWindowSerializer
from dstl_core.codec.state_meta import KeyedStateType, StateMetaInfoSnapshot
from dstl_core.errors import FormatError

LONGS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
FLOATS = st.floats(width=32)

SIMPLE: dict[AnySerializer, st.SearchStrategy[Any]] = {
    Types.BOOLEAN: st.booleans(),
    Types.BYTE: st.integers(-128, 127),
    Types.SHORT: st.integers(-(2**15), 2**15 - 1),
    Types.INT: st.integers(-(2**31), 2**31 - 1),
    Types.LONG: LONGS,
    Types.FLOAT: FLOATS,
    Types.DOUBLE: st.floats(),
    Types.STRING: TEXTS | st.none() | st.text(st.characters(categories=["Cs", "Ll"]), max_size=3),
}
KEY_TYPES = st.one_of(
    st.sampled_from([Types.STRING, Types.LONG, Types.INT, Types.BOOLEAN]),
    st.lists(st.sampled_from(list(SIMPLE)), min_size=1, max_size=3).map(
        lambda fields: Types.TUPLE(*fields)
    ),
    st.sampled_from([Types.STRING, Types.SHORT]).map(Types.LIST),
)
VALUE_TYPES = st.recursive(
    st.sampled_from(list(SIMPLE)),
    lambda inner: st.one_of(
        inner.map(Types.LIST),
        st.builds(Types.MAP, st.sampled_from([Types.STRING, Types.INT]), inner),
        st.lists(inner, min_size=1, max_size=4).map(lambda fields: Types.TUPLE(*fields)),
        inner.map(TtlSerializer),
    ),
    max_leaves=6,
)
NAMESPACES = st.sampled_from(
    [VoidNamespaceSerializer(), TimeWindowSerializer(), Types.STRING, Types.LONG]
)


def values_of(serializer: AnySerializer) -> st.SearchStrategy[Any]:
    """Values of a type, in the form of the record-wise code."""
    match serializer:
        case ListSerializer():
            return st.lists(values_of(serializer.element), max_size=4)
        case MapSerializer():
            value = values_of(serializer.value) | st.none()
            key = values_of(serializer.key)
            return st.lists(st.tuples(key, value), max_size=4)
        case TupleSerializer():
            return st.tuples(*(values_of(field) for field in serializer.fields))
        case TtlSerializer():
            return st.builds(TtlValue, LONGS, values_of(serializer.value))
        case TimerSerializer():
            return st.builds(
                Timer, LONGS, values_of(serializer.key), values_of(serializer.namespace)
            )
        case TimeWindowSerializer():
            return st.builds(TimeWindow, LONGS, LONGS)
        case VoidNamespaceSerializer():
            return st.none()
        case _:
            return SIMPLE[serializer]


@dataclass
class Case:
    """States of one key group and their section."""

    key_group: int
    prefix_bytes: int
    key_type: AnySerializer
    states: tuple[StateMetaInfoSnapshot, ...]
    section: bytes

    @property
    def formats(self) -> list[RecordFormat]:
        return [RecordFormat(meta, self.key_type) for meta in self.states]

    @cached_property
    def decoders(self) -> list[StateDecoder]:
        return [StateDecoder(each, self.prefix_bytes, EXACT) for each in self.formats]

    def with_section(self, section: bytes) -> Case:
        """The same states with other bytes, and the same decoders."""
        other = copy(self)
        other.section = section
        return other


def stored(record_format: RecordFormat, prefix_bytes: int, key_group: int, values: Any) -> Any:
    """The stored key and value of ``(key, namespace, user key, value)``."""
    meta = record_format.meta
    if record_format.is_queue:
        element = serialize_to_bytes(meta.value_serializer, values[3])
        return key_group.to_bytes(prefix_bytes, "big") + element, b""
    key, namespace, user_key, value = values
    codec = CompositeKeyCodec(
        prefix_bytes, record_format.key_serializer, record_format.namespace_serializer
    )
    serializer = meta.value_serializer
    raw_user_key = b""
    match record_format.kind:
        case KeyedStateType.LIST:
            raw = b",".join(serialize_to_bytes(serializer.element, item) for item in value)
        case KeyedStateType.MAP:
            raw_user_key = serialize_to_bytes(serializer.key, user_key)
            raw = b"\1" if value is None else b"\0" + serialize_to_bytes(serializer.value, value)
        case _:
            raw = serialize_to_bytes(serializer, value)
    stored_key = codec.encode(
        key_group,
        serialize_to_bytes(record_format.key_serializer, key),
        serialize_to_bytes(record_format.namespace_serializer, namespace),
        raw_user_key,
    )
    return stored_key, raw


@st.composite
def metas(draw: Any, key_type: AnySerializer, name: str) -> StateMetaInfoSnapshot:
    kind = draw(st.sampled_from(["VALUE", "LIST", "MAP", "REDUCING", "AGGREGATING", "QUEUE"]))
    namespace = draw(NAMESPACES)
    if kind == "QUEUE":
        return StateMetaInfoSnapshot.priority_queue(name, TimerSerializer(key_type, namespace))
    value = draw(VALUE_TYPES)
    if kind == "LIST":
        value = Types.LIST(value)
    elif kind == "MAP":
        value = Types.MAP(draw(st.sampled_from([Types.STRING, Types.LONG])), value)
    return StateMetaInfoSnapshot.key_value(name, KeyedStateType(kind), value, namespace)


@st.composite
def rows_of(draw: Any, record_format: RecordFormat) -> list[Any]:
    meta = record_format.meta
    if record_format.is_queue:
        row = st.tuples(st.none(), st.none(), st.none(), values_of(meta.value_serializer))
        return draw(st.lists(row, max_size=6))
    user_key: st.SearchStrategy[Any] = st.none()
    value = values_of(meta.value_serializer)
    match record_format.kind:
        case KeyedStateType.LIST:
            value = st.lists(values_of(meta.value_serializer.element), min_size=1, max_size=4)
        case KeyedStateType.MAP:
            user_key = values_of(meta.value_serializer.key)
            value = values_of(meta.value_serializer.value) | st.none()
    row = st.tuples(
        values_of(record_format.key_serializer),
        values_of(record_format.namespace_serializer),
        user_key,
        value,
    )
    return draw(st.lists(row, max_size=6))


@st.composite
def cases(draw: Any) -> Case:
    """A section of several states, some of them in more than one run."""
    prefix_bytes = draw(st.sampled_from([1, 2]))
    key_group = draw(st.integers(0, 127 if prefix_bytes == 1 else 32767))
    key_type = draw(KEY_TYPES)
    count = draw(st.integers(1, 3))
    states = tuple(draw(metas(key_type, f"s{index}")) for index in range(count))
    runs = []
    for _ in range(draw(st.integers(0, 4))):
        state_id = draw(st.integers(0, count - 1))
        record_format = RecordFormat(states[state_id], key_type)
        rows = draw(rows_of(record_format))
        runs.append(
            (state_id, [stored(record_format, prefix_bytes, key_group, row) for row in rows])
        )
    section = write_section(runs) or b"\xff\xff"
    return Case(key_group, prefix_bytes, key_type, states, section)


def chunks_of(case: Case, part_bytes: int = 1 << 30) -> SectionChunks:
    """The section of a case; in parts, if it is longer than a part."""
    data, at, resumed = case.section, 0, False
    size = part_bytes
    while True:
        section = Section(case.key_group, 0, len(data) - at, at)
        part = data[at : at + size]
        unread = yield SectionChunk(part, [section], resumed)
        if unread is None:
            return
        resumed = resumed or unread > 0
        size = part_bytes if unread else 2 * size
        at += unread


def records_of(case: Case) -> Iterator[tuple[int, KeyedRecord]]:
    """The records one by one, up to the first that is damaged.

    Raises:
        FormatError: What is wrong with it.
    """
    data = DataInput(case.section)
    formats = case.formats
    while (state_id := read_state_id(data, len(formats))) is not None:
        is_last = False
        while not is_last:
            framed = read_framed_record(data, case.prefix_bytes, case.key_group)
            is_last = framed.is_last
            yield state_id, formats[state_id].decode(framed)


def expected(case: Case) -> tuple[list[list[dict[str, Any]]], FormatError | None]:
    """Per state the rows by column, and the error that ends them."""
    rows: list[list[dict[str, Any]]] = [[] for _ in case.states]
    try:
        for state_id, record in records_of(case):
            rows[state_id].append(row_of(case.formats[state_id], record))
    except FormatError as error:
        return rows, error
    return rows, None


def row_of(record_format: RecordFormat, record: KeyedRecord) -> dict[str, Any]:
    """A record as a row of ``StateDecoder``'s columns."""
    meta = record_format.meta
    if record_format.is_queue:
        timer: Timer = record.value
        row = {"timestamp": timer.timestamp, "key": (record_format.key_serializer, timer.key)}
        namespace = meta.value_serializer.namespace
        if namespace != VoidNamespaceSerializer():
            row["namespace"] = (namespace, timer.namespace)
        return {name: comparable(value) for name, value in row.items()}
    row = {"key": (record_format.key_serializer, record.key)}
    if record_format.namespace_serializer != VoidNamespaceSerializer():
        row["namespace"] = (record_format.namespace_serializer, record.namespace)
    serializer = meta.value_serializer
    if record_format.kind is KeyedStateType.MAP:
        row["user_key"] = (serializer.key, record.user_key)
        serializer = serializer.value
    row["value"] = (serializer, record.value)
    return {name: comparable(value) for name, value in row.items()}


EXACT = ColumnOptions(strings="utf16", maps="entries")
"""Columns that hold whatever Flink does."""


def column_value(serializer: AnySerializer, value: Any) -> Any:
    """A value of the record-wise code as ``to_pylist`` gives it with the options ``EXACT``."""
    if value is None:
        return None
    match serializer:
        case ListSerializer():
            return [column_value(serializer.element, item) for item in value]
        case MapSerializer():
            return [
                {
                    "key": column_value(serializer.key, key),
                    "value": column_value(serializer.value, item),
                }
                for key, item in value
            ]
        case StringSerializer():
            return value.encode("utf-16-be", "surrogatepass")
        case TupleSerializer():
            return {
                f"f{at}": column_value(field, item)
                for at, (field, item) in enumerate(zip(serializer.fields, value, strict=True))
            }
        case TtlSerializer():
            return {"v": column_value(serializer.value, value.value), "ts": value.last_access}
        case TimeWindowSerializer():
            return {"start": value.start, "end": value.end}
        case _:
            return value


def comparable(value: Any) -> Any:
    """A value, or a serializer with one, so that equal means the same bits."""
    if isinstance(value, tuple) and len(value) == 2 and hasattr(value[0], "type_name"):
        value = column_value(*value)
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else struct.pack(">d", value)
    if isinstance(value, dict):
        return {name: comparable(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [comparable(item) for item in value]
    return value
