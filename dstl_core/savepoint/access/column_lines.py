"""Formats the lines of ``dstl dump`` from columns.

The text equals that of the entries. Supported types: strings, numbers, booleans, tuples, lists and
POJOs of these, and time windows.
"""

from __future__ import annotations

import heapq
import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, repeat
from json.encoder import encode_basestring
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
from dstl_core.codec.serializers.pojo import PojoSerializer
from dstl_core.codec.serializers.primitives import (
    BooleanSerializer,
    ByteSerializer,
    DoubleSerializer,
    FloatSerializer,
    IntSerializer,
    LongSerializer,
    ShortSerializer,
    float_text,
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
from dstl_core.temporary_files import in_temporary_files

_TYPES = ColumnOptions(maps="entries")
_PLAIN = (
    StringSerializer,
    BooleanSerializer,
    LongSerializer,
    IntSerializer,
    ShortSerializer,
    ByteSerializer,
    DoubleSerializer,
    FloatSerializer,
)
_NULL = "null"
_FIRST_PRINTED = 0x20
_SHORT_BYTES = 512 << 20
"""Texts of more bytes together need larger offsets."""
_NO_BYTES = np.empty(0, np.uint8)
_MISSING = pa.scalar(None, pa.string())
Texts = list[str]
_HELD_PAIRS = 1 << 18
"""Pairs of one map in memory; more are sorted in files."""
_PAIRS_AT_ONCE = 1 << 12
Pair = tuple[str, str]


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
        """The text of some key groups, in the order of the entries, in parts of several lines.

        None if a type is not supported; then the caller reads the entries.
        """
        try:
            stored, states = self._open(handle, key_groups)
            if not all(state.is_plain for state in states):
                return None
            texts: dict[tuple[int, int], Texts] = {}
            for batch in stored.batches():
                for key_group, of_group in _by_key_group(batch):
                    for at, part in of_group.by_state():
                        columns = stored.decoders[at].decode(part, _EVERY, check_all=True)
                        parts = texts.setdefault((key_group, at), [])
                        parts += states[at].add(key_group, columns)
            for at, state in enumerate(states):
                for key_group, parts in state.maps():
                    texts[key_group, at] += parts
        except UNREADABLE:
            return None
        return [
            text
            for key_group, at in sorted(texts)
            if self._only in (None, states[at].name)
            for text in texts[key_group, at]
        ]

    def pieces(self, handle: KeyedStateHandle, key_groups: KeyGroupRange) -> Iterator[str] | None:
        """As ``lines``, for key groups that are too large to be held: a piece at a time. None, too,
        if the pairs of a map are not together.

        Raises:
            FormatError: While it is read: the state is damaged.
        """
        try:
            stored, states = self._open(handle, key_groups)
            if not all(state.is_plain for state in states) or not stored.has_maps_together():
                return None
        except UNREADABLE:
            return None
        return self._pieces(handle, key_groups)

    def _pieces(self, handle: KeyedStateHandle, key_groups: KeyGroupRange) -> Iterator[str]:
        for key_group in key_groups:
            stored, states = self._open(handle, KeyGroupRange(key_group, key_group))
            for at, batch in stored.batches_by_state():
                state = states[at]
                if self._only not in (None, state.name):
                    continue
                if len(batch):
                    columns = stored.decoders[at].decode(batch, _EVERY, check_all=True)
                    yield from state.add(key_group, columns)
                yield from state.whole_maps(is_last=not len(batch))

    def _open(
        self, handle: KeyedStateHandle, key_groups: KeyGroupRange
    ) -> tuple[StoredRange, list[_StateLines]]:
        stored = StoredRange(self._operator, handle, key_groups, self._decoders)
        return stored, [_StateLines(self._operator.label, each) for each in stored.formats]


_EVERY = frozenset((KEY, NAMESPACE, TIMESTAMP, USER_KEY, VALUE))


def _by_key_group(batch: SpanBatch) -> Iterator[tuple[int, SpanBatch]]:
    groups = batch.key_groups
    bounds = [0, *(np.flatnonzero(np.diff(groups)) + 1).tolist(), len(groups)]
    for first, last in pairwise(bounds):
        if last > first:
            yield int(groups[first]), batch.take(slice(first, last))


class _StateLines:
    """The lines of one state. The maps that are not whole are in memory, or in files."""

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
        self._head = f'{json.dumps(head, ensure_ascii=False)[:-1]}, "key": '
        self._value = value
        self._maps: dict[tuple[int, str, str], MapText] = {}

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
            return type(value.key) in _PLAIN and _is_plain(value.value)
        return _is_plain(value)

    def add(self, key_group: int, columns: dict[str, pa.Array]) -> Texts:
        """The lines of records of a key group. Those of maps come once they are whole."""
        keys = _texts(self._key, columns[KEY])
        namespaces: pa.Array | str = _NULL
        if not isinstance(self._namespace, VoidNamespaceSerializer):
            namespaces = _texts(self._namespace, columns[NAMESPACE])
        middle = f', "kg": {key_group}, "ns": '
        if self._is_map:
            self._add_pairs(key_group, keys, namespaces, columns)
            return []
        if self._is_queue:
            last, values = ', "ts": ', columns[TIMESTAMP].cast(pa.string())
        else:
            last, values = ', "value": ', _texts(self._value, columns[VALUE])
        return [_text_of(self._head, keys, middle, namespaces, last, values, "}\n")]

    def _add_pairs(
        self,
        key_group: int,
        keys: pa.Array,
        namespaces: pa.Array | str,
        columns: dict[str, pa.Array],
    ) -> None:
        value = self._value
        assert isinstance(value, MapSerializer)  # the value of map state
        user_keys = _listed(_texts(value.key, columns[USER_KEY]))
        values = _listed(_texts(value.value, columns[VALUE]))
        spaces = repeat(_NULL) if isinstance(namespaces, str) else _listed(namespaces)
        pairs = zip(user_keys, values, strict=True)
        for key, namespace, pair in zip(_listed(keys), spaces, pairs, strict=False):
            text = self._maps.get((key_group, key, namespace))
            if text is None:
                text = self._maps[key_group, key, namespace] = MapText()
            text.pairs.append(pair)

    def maps(self) -> Iterator[tuple[int, Texts]]:
        """The lines of all maps, with their key groups."""
        for scope, text in self._maps.items():
            yield scope[0], ["".join(self._map_line(scope, text))]
        self._maps = {}

    def whole_maps(self, *, is_last: bool) -> Iterator[str]:
        """The lines of maps, in pieces: of all but the last one, which may have more pairs, unless
        these were the last. What is large of that one goes to files.
        """
        while len(self._maps) > (not is_last):
            scope = next(iter(self._maps))
            yield from self._map_line(scope, self._maps.pop(scope))
        for text in self._maps.values():
            text.spill_if_large()

    def _map_line(self, scope: tuple[int, str, str], text: MapText) -> Iterator[str]:
        key_group, key, namespace = scope
        yield f'{self._head}{key}, "kg": {key_group}, "ns": {namespace}, "value": ['
        yield from text.pieces()
        yield "]}\n"


# --------------------------------------------------------------------------------------- maps


class MapText:
    """The text of one map, whatever it weighs: its pairs by the text of their keys. They are texts
    of keys and values, as JSON.
    """

    def __init__(self) -> None:
        self.pairs: list[Pair] = []
        self._files: list[IO[str]] = []

    def spill_if_large(self) -> None:
        """Moves the pairs to a file, sorted, if they are many."""
        if len(self.pairs) < _HELD_PAIRS:
            return
        file = tempfile.TemporaryFile(  # noqa: SIM115  # see pieces
            "w+", prefix="dstl-", encoding="utf-8", newline="\n"
        )
        # JSON has neither a tab nor a line break that is not escaped.
        with in_temporary_files():
            file.writelines(f"{key}\t{value}\n" for key, value in sorted(self.pairs, key=_order))
            file.flush()
        self._files.append(file)
        self.pairs = []

    def pieces(self) -> Iterator[str]:
        """The pairs in order, some at a time. It is called once."""
        runs: list[Iterable[Pair]] = [sorted(self.pairs, key=_order)]
        for file in self._files:
            file.seek(0)
            runs.append(map(_pair, file))
        part: list[str] = []
        separator = ""
        for key, value in heapq.merge(*runs, key=_order) if self._files else runs[0]:
            part.append(f"[{key}, {value}]")
            if len(part) == _PAIRS_AT_ONCE:
                yield separator + ", ".join(part)
                part, separator = [], ", "
        if part:
            yield separator + ", ".join(part)
        for file in self._files:
            file.close()


def _pair(line: str) -> Pair:
    key, _, value = line.rstrip("\n").partition("\t")
    return key, value


def _order(pair: Pair) -> bytes:
    """Sort key like ``text_key``: the UTF-16 code units of the key's text."""
    return pair[0].encode("utf-16-be")


# -------------------------------------------------------------------------------------- texts


def _is_plain(serializer: AnySerializer) -> bool:
    match serializer:
        case ListSerializer():
            return _is_plain(serializer.element)
        case TupleSerializer():
            return type(serializer) is TupleSerializer and all(map(_is_plain, serializer.fields))
        case PojoSerializer(fields=fields, registered=(), others=()):
            kinds = [kind for _, _, kind in fields]
            plain = [kind is not None and _is_plain(kind) for kind in kinds]
            return type(serializer) is PojoSerializer and all(plain)
        case _:
            return type(serializer) in _PLAIN or isinstance(serializer, TimeWindowSerializer)


def _texts(serializer: AnySerializer, column: pa.Array) -> pa.Array:
    """The JSON text of each value; null for None."""
    match serializer:
        case ListSerializer():
            items = _texts(serializer.element, column.values).fill_null(_NULL)
            lists = pa.ListArray.from_arrays(column.offsets, items)
            texts = _joined("[", pc.binary_join(lists, ", "), "]")
        case TupleSerializer():
            texts = _parts([("", kind) for kind in serializer.fields], column, "[]")
        case PojoSerializer():
            named = [
                (f"{json.dumps(name, ensure_ascii=False)}: ", kind)
                for name, _, kind in serializer.fields
                if kind is not None
            ]
            texts = _parts(named, column, "{}")
        case TimeWindowSerializer():
            starts, ends = (column.field(name).cast(pa.string()) for name in ("start", "end"))
            texts = _joined("[", starts, ", ", ends, "]")
        case StringSerializer():
            return _quoted(column)
        case DoubleSerializer() | FloatSerializer():
            values = column.fill_null(0.0).to_pylist()
            texts = pa.array([json.dumps(float_text(own)) for own in values], pa.string())
        case _:
            return column.cast(pa.string())
    return pc.if_else(column.is_valid(), texts, _MISSING) if column.null_count else texts


def _parts(parts: Sequence[tuple[str, AnySerializer]], column: pa.Array, marks: str) -> pa.Array:
    """The text of the fields of a struct, each with what stands before it."""
    texts: list[pa.Array | str] = [marks[0]]
    for at, (before, kind) in enumerate(parts):
        field = _texts(kind, column.field(at)).fill_null(_NULL)
        texts += [f", {before}" if at else before, field]
    if not parts:
        return pa.array([marks] * len(column), pa.string())
    return _joined(*texts, marks[1])


def _listed(texts: pa.Array) -> Texts:
    listed: Texts = texts.fill_null(_NULL).to_pylist()
    return listed


def _quoted(column: pa.Array) -> pa.Array:
    """Texts as JSON strings."""
    data = column.buffers()[2]
    raw = np.frombuffer(data, np.uint8) if data is not None and len(data) else _NO_BYTES
    if (raw < _FIRST_PRINTED).any():  # Arrow leaves no gap between texts, but may at the ends
        return pa.array(
            [None if own is None else encode_basestring(own) for own in column.to_pylist()],
            pa.string(),
        )
    for mark in ("\\", '"'):
        if (raw == ord(mark)).any():
            column = pc.replace_substring(column, mark, f"\\{mark}")
    return _joined('"', column, '"')


def _joined(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _text_of(*parts: pa.Array | str) -> str:
    """All rows of some parts one after the other, as one text."""
    if sum(part.nbytes for part in parts if not isinstance(part, str)) > _SHORT_BYTES:
        wide = pa.large_string()
        parts = tuple(
            pa.scalar(part, wide) if isinstance(part, str) else part.cast(wide) for part in parts
        )
    empty = pa.scalar("", parts[0].type if not isinstance(parts[0], str) else pa.string())
    rows = pc.binary_join_element_wise(
        *parts, empty, null_handling="replace", null_replacement=_NULL
    )
    offsets = np.frombuffer(
        rows.buffers()[1], np.int64 if pa.types.is_large_string(rows.type) else np.int32
    )
    first, last = int(offsets[rows.offset]), int(offsets[rows.offset + len(rows)])
    return str(memoryview(rows.buffers()[2])[first:last], "utf-8")
