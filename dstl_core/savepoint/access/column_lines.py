"""Formats the lines of ``dstl dump`` from columns.

The text equals that of the entries. Supported types: strings, integers, booleans, tuples and lists
of these, and time windows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from json.encoder import encode_basestring
from typing import Any

import numpy as np
import pyarrow as pa

from dstl_core.codec.columnar.keyed.decoder import (
    KEY,
    NAMESPACE,
    TIMESTAMP,
    USER_KEY,
    VALUE,
)
from dstl_core.codec.columnar.keyed.spans import SpanBatch
from dstl_core.codec.columnar.types.type_layouts import ColumnOptions
from dstl_core.codec.keyed_records import RecordFormat, part_of
from dstl_core.codec.serializers import (
    AnySerializer,
    ListSerializer,
    MapSerializer,
    TimerSerializer,
    TupleSerializer,
    VoidNamespaceSerializer,
)
from dstl_core.codec.serializers.primitives import (
    BooleanSerializer,
    ByteSerializer,
    IntSerializer,
    LongSerializer,
    ShortSerializer,
)
from dstl_core.codec.serializers.strings import StringSerializer
from dstl_core.codec.serializers.window_types import TimeWindowSerializer
from dstl_core.codec.state_meta import KeyedStateType
from dstl_core.errors import UNREADABLE
from dstl_core.model.handle import KeyedStateHandle
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.read.entries import EVENT_TIMER, PROC_TIMER
from dstl_core.savepoint.read.snapshot import OperatorSnapshot
from dstl_core.savepoint.read.stored_columns import StateDecoders, StoredRange
from dstl_core.state.backends.timers import EVENT_TIMERS, PROCESSING_TIMERS

_TYPES = ColumnOptions(maps="entries")
_NUMBERS = (LongSerializer, IntSerializer, ShortSerializer, ByteSerializer)
_NULL = "null"
Texts = list[str]


class ColumnLines:
    """The lines of one operator, or of one of its states.

    Args:
        operator: The operator to read.
        state: Only this state; None for all.
    """

    def __init__(self, operator: OperatorSnapshot, state: str | None) -> None:
        self._operator = operator
        self._only = state
        self._decoders = StateDecoders(_TYPES)

    def lines(self, handle: KeyedStateHandle, key_groups: KeyGroupRange) -> Texts | None:
        """The lines of some key groups, in the order of the entries.

        None if a type is not supported; then the caller reads the entries.
        """
        try:
            stored = StoredRange(self._operator, handle, key_groups, self._decoders)
            states = [_StateLines(self._operator.label, each) for each in stored.formats]
            if not all(state.is_plain for state in states):
                return None
            texts: dict[tuple[int, int], Texts] = {}
            groups: dict[int, int] = {}
            for batch in stored.batches():
                for key_group, own in _by_key_group(batch):
                    for at in np.unique(own.states).tolist():
                        if groups.get(at, key_group) != key_group:
                            texts[groups[at], at] = list(states[at].finish(groups[at]))
                        groups[at] = key_group
                        part = own.take(own.states == at)
                        states[at].add(stored.decoders[at].decode(part, _EVERY, check_all=True))
            for at, key_group in groups.items():
                texts[key_group, at] = list(states[at].finish(key_group))
        except UNREADABLE:
            return None
        return [
            line
            for key_group, at in sorted(texts)
            if self._only in (None, states[at].name)
            for line in texts[key_group, at]
        ]


_EVERY = frozenset((KEY, NAMESPACE, TIMESTAMP, USER_KEY, VALUE))


def _by_key_group(batch: SpanBatch) -> Iterator[tuple[int, SpanBatch]]:
    groups = batch.key_groups
    bounds = [0, *(np.flatnonzero(np.diff(groups)) + 1).tolist(), len(groups)]
    for first, last in pairwise(bounds):
        if last > first:
            yield int(groups[first]), batch.take(slice(first, last))


class _StateLines:
    """The lines of one state; it holds those of one key group in memory."""

    def __init__(self, operator: str, record_format: RecordFormat) -> None:
        meta = record_format.meta
        self.name = meta.name
        self._is_queue = record_format.is_queue
        self._is_map = record_format.kind is KeyedStateType.MAP
        value: AnySerializer = meta.value_serializer
        self._key, self._namespace = (
            record_format.key_serializer,
            record_format.namespace_serializer,
        )
        head: dict[str, Any] = {"op": operator}
        if self._is_queue:
            timer = part_of(meta, TimerSerializer)
            self._key, self._namespace = timer.key, timer.namespace
            event = meta.name.startswith(EVENT_TIMERS)
            prefix = EVENT_TIMERS if event else PROCESSING_TIMERS
            head["kind"] = EVENT_TIMER if event else PROC_TIMER
            head["service"] = meta.name.removeprefix(prefix)
        else:
            head["kind"] = meta.keyed_state_type.value.lower()
            head["state"] = meta.name
        self._head = json.dumps(head, ensure_ascii=False)[:-1]
        self._value = value
        self._rows: list[tuple[Texts, Texts, Texts]] = []
        self._maps: dict[tuple[str, str], list[tuple[str, str]]] = {}

    @property
    def is_plain(self) -> bool:
        """Whether this module supports all types of the state."""
        if not _is_plain(self._key) or not (
            isinstance(self._namespace, VoidNamespaceSerializer) or _is_plain(self._namespace)
        ):
            return False
        if self._is_queue:
            return True
        value = self._value
        if self._is_map:
            assert isinstance(value, MapSerializer)  # the value of map state
            # Pairs are sorted by the text of the key.
            return type(value.key) in _MAKERS and _is_plain(value.value)
        return _is_plain(value)

    def add(self, columns: dict[str, pa.Array]) -> None:
        """Adds records of the current key group."""
        keys = _texts(self._key, columns[KEY])
        namespaces = [_NULL] * len(keys)
        if not isinstance(self._namespace, VoidNamespaceSerializer):
            namespaces = _texts(self._namespace, columns[NAMESPACE])
        if self._is_queue:
            self._rows.append((keys, namespaces, list(map(str, columns[TIMESTAMP].to_pylist()))))
        elif self._is_map:
            value = self._value
            assert isinstance(value, MapSerializer)
            user_keys = _texts(value.key, columns[USER_KEY])
            values = _texts(value.value, columns[VALUE])
            for key, namespace, user_key, item in zip(
                keys, namespaces, user_keys, values, strict=True
            ):
                self._maps.setdefault((key, namespace), []).append((user_key, item))
        else:
            self._rows.append((keys, namespaces, _texts(self._value, columns[VALUE])))

    def finish(self, key_group: int) -> Iterator[str]:
        """Yields the lines of the current key group and closes it."""
        head = f'{self._head}, "key": '
        middle = f', "kg": {key_group}, "ns": '
        last = ', "ts": ' if self._is_queue else ', "value": '
        for rows in self._rows:
            for key, namespace, text in zip(*rows, strict=True):
                yield f"{head}{key}{middle}{namespace}{last}{text}}}\n"
        for (key, namespace), pairs in self._maps.items():
            text = ", ".join(
                f"[{user_key}, {item}]" for user_key, item in sorted(pairs, key=_order)
            )
            yield f"{head}{key}{middle}{namespace}{last}[{text}]}}\n"
        self._rows, self._maps = [], {}


# -------------------------------------------------------------------------------------- texts


def _is_plain(serializer: AnySerializer) -> bool:
    match serializer:
        case ListSerializer():
            return _is_plain(serializer.element)
        case TupleSerializer():
            return type(serializer) is TupleSerializer and all(map(_is_plain, serializer.fields))
        case _:
            return type(serializer) in _MAKERS or isinstance(serializer, TimeWindowSerializer)


def _texts(serializer: AnySerializer, column: pa.Array) -> Texts:
    """The JSON text of each value; null for None."""
    match serializer:
        case ListSerializer():
            bounds = np.asarray(column.offsets).tolist()
            items = _texts(serializer.element, column.values)
            texts = [f"[{', '.join(items[first:last])}]" for first, last in pairwise(bounds)]
        case TupleSerializer():
            parts = [_texts(each, column.field(at)) for at, each in enumerate(serializer.fields)]
            texts = [f"[{', '.join(row)}]" for row in zip(*parts, strict=True)]
        case TimeWindowSerializer():
            starts, ends = column.field("start").to_pylist(), column.field("end").to_pylist()
            texts = [f"[{start}, {end}]" for start, end in zip(starts, ends, strict=True)]
        case _:
            texts = list(map(_MAKERS[type(serializer)], column.to_pylist()))
    if column.null_count:
        missing = column.is_null().to_pylist()
        texts = [_NULL if null else text for text, null in zip(texts, missing, strict=True)]
    return texts


def _order(pair: tuple[str, str]) -> bytes:
    """Sort key like ``text_key``: the UTF-16 code units of the key's text."""
    return pair[0].encode("utf-16-be")


def _string(value: str | None) -> str:
    return _NULL if value is None else encode_basestring(value)


def _boolean(value: bool | None) -> str:
    return "true" if value else "false"


_MAKERS: dict[type[AnySerializer], Callable[[Any], str]] = {
    StringSerializer: _string,
    BooleanSerializer: _boolean,
    **dict.fromkeys(_NUMBERS, str),
}
