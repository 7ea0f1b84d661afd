"""Which entries of a state stay: those for which a condition is true, or that are not expired."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.keyed.decoder import KEY, TIMESTAMP, USER_KEY, VALUE, StateDecoder
from dstl_core.codec.columnar.keyed.spans import SpanBatch
from dstl_core.codec.columnar.keyed.sst_rows import TableSource
from dstl_core.codec.columnar.types.addresses import address_of
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.keyed_records import RecordFormat, part_of
from dstl_core.codec.serializers import (
    AnySerializer,
    ListSerializer,
    MapSerializer,
    Types,
)
from dstl_core.codec.serializers.runtime import TtlSerializer
from dstl_core.codec.state_meta import KeyedStateType, StateMetaInfoSnapshot
from dstl_core.errors import ConfigError, NotInColumnsError
from dstl_core.savepoint.expressions.condition import Condition, mask_of
from dstl_core.savepoint.expressions.sql_cast import OPTIONS
from dstl_core.savepoint.expressions.typed_values import Values, kind_of
from dstl_core.savepoint.expressions.value_conversion import Conversion
from dstl_core.savepoint.read.entries import Expiry
from dstl_core.state.columns.state_columns import is_kind

Mask = npt.NDArray[np.bool_]


@dataclass
class Rule:
    """What stays of one state.

    Args:
        where: The place of the rule, for messages.
        condition: What is true of an entry that stays; None for all.
        expiry: When values expire; None for never.
    """

    where: str
    condition: Condition | None = None
    expiry: Expiry | None = None
    _decoder: StateDecoder | None = field(default=None, init=False, repr=False)

    def kept(
        self,
        meta: StateMetaInfoSnapshot,
        key_type: AnySerializer,
        prefix_bytes: int,
        batch: SpanBatch,
    ) -> tuple[SpanBatch, int]:
        """The records that stay, and how many entries go: elements of a list count one by one.

        Raises:
            ConfigError: A name or a type of the condition is wrong.
            ColumnValueError: A value has no columnar form.
        """
        decoder = self._opened(meta, key_type, prefix_bytes)
        columns = decoder.decode(batch, decoder.columns.keys())
        if not is_kind(meta, KeyedStateType.LIST):
            mask = self._mask(meta, key_type, columns, columns.get(VALUE), len(batch))
            return (batch, 0) if mask.all() else (batch.take(mask), int((~mask).sum()))
        lists = columns[VALUE]
        counts = np.diff(np.asarray(lists.offsets)).astype(np.int64)
        rows = pa.array(np.repeat(np.arange(len(batch)), counts))
        own = {name: column.take(rows) for name, column in columns.items() if name != VALUE}
        elements = lists.flatten()
        mask = self._mask(meta, key_type, own, elements, len(elements))
        if mask.all():
            return batch, 0
        return _shorter_lists(meta, batch, counts, mask), int((~mask).sum())

    def _opened(
        self, meta: StateMetaInfoSnapshot, key_type: AnySerializer, prefix_bytes: int
    ) -> StateDecoder:
        if self._decoder is None:
            record_format = RecordFormat(meta.as_key_value(), key_type)
            self._decoder = StateDecoder(record_format, prefix_bytes, OPTIONS)
        return self._decoder

    def check(self, meta: StateMetaInfoSnapshot, key_type: AnySerializer) -> None:
        """Tries the rule on no entry, which finds every wrong name and type.

        Raises:
            ConfigError: A name or a type is wrong, or values have no columnar form.
        """
        try:
            types = self._opened(meta, key_type, 1).columns
            self._decoder = None  # its number of key groups is not known yet
        except NotInColumnsError as error:
            raise ConfigError(
                f"{self.where} cannot be asked of state {meta.name!r}: its type has no columns."
            ) from error
        columns = {name: pa.array([], kind) for name, kind in types.items()}
        values = columns.get(VALUE)
        is_list = is_kind(meta, KeyedStateType.LIST)
        own = values.flatten() if is_list and values is not None else values
        self._mask(meta, key_type, columns, own, 0)

    def _mask(
        self,
        meta: StateMetaInfoSnapshot,
        key_type: AnySerializer,
        columns: Mapping[str, pa.Array],
        values: pa.Array | None,
        rows: int,
    ) -> Mask:
        mask = np.ones(rows, np.bool_)
        value_type = None if values is None else value_type_of(meta)
        if self.expiry is not None and values is not None:
            times = np.asarray(values.field("ts"))
            mask &= (times > self.expiry.live_after) | np.asarray(values.is_null())
        if self.condition is not None:
            scope = _scope(meta, key_type, columns)
            own = value_type or Types.LONG
            conversion = Conversion(self.where, own, own)
            if values is not None and value_type is not None:
                scope = conversion.scope(Values(values, kind_of(value_type)), scope)
            truth = mask_of(self.condition, conversion, scope, rows)
            mask &= np.asarray(truth.fill_null(False))
        return mask


def value_type_of(meta: StateMetaInfoSnapshot) -> AnySerializer:
    """The type of a value, an element of a list, or a value of a map."""
    own: AnySerializer
    if is_kind(meta, KeyedStateType.LIST):
        own = part_of(meta, ListSerializer).element
        return own
    if is_kind(meta, KeyedStateType.MAP):
        own = part_of(meta, MapSerializer).value
        return own
    return meta.value_serializer


def has_ttl(meta: StateMetaInfoSnapshot) -> bool:
    """Whether values of a state have the time of their last access."""
    return not meta.is_queue and isinstance(value_type_of(meta.as_key_value()), TtlSerializer)


def _scope(
    meta: StateMetaInfoSnapshot, key_type: AnySerializer, columns: Mapping[str, pa.Array]
) -> dict[str, Values]:
    scope = {"key": Values(columns[KEY], kind_of(key_type))}
    if USER_KEY in columns:
        own = part_of(meta, MapSerializer).key
        scope["map_key"] = Values(columns[USER_KEY], kind_of(own))
    if TIMESTAMP in columns:
        scope["timestamp"] = Values(columns[TIMESTAMP], kind_of(Types.LONG))
    return scope


def _shorter_lists(
    meta: StateMetaInfoSnapshot, batch: SpanBatch, counts: Any, mask: Mask
) -> SpanBatch:
    """Lists without some elements; those without any element go."""
    bounds = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=bounds[1:])
    kept = np.diff(np.concatenate([[0], np.cumsum(mask)])[bounds])
    spans = batch.spans.copy()
    buffers: list[Any] = [batch.source]
    element = part_of(meta, ListSerializer).element
    for row in np.flatnonzero((kept > 0) & (kept < counts)).tolist():
        start, end = int(spans[row, scan.VALUE_START]), int(spans[row, scan.VALUE_END])
        own = mask[bounds[row] : bounds[row + 1]]
        raw = b",".join(
            item for item, stays in zip(_elements(element, start, end), own, strict=True) if stays
        )
        data = np.frombuffer(raw + bytes(8), np.uint8)
        buffers.append(data)
        spans[row, scan.VALUE_START] = address_of(data)
        spans[row, scan.VALUE_END] = address_of(data) + len(raw)
    return SpanBatch(np.ascontiguousarray(spans[kept > 0]), TableSource(buffers))


def _elements(element: AnySerializer, start: int, end: int) -> Iterator[bytes]:
    raw = ctypes.string_at(start, end - start)
    data = DataInput(raw)
    while data.position < len(raw):
        first = data.position
        element.deserialize(data)
        yield raw[first : data.position]
        if data.remaining:
            data.read_u8()  # the comma
