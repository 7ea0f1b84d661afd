"""Java's ``BigDecimal``, a struct of unscaled bytes and scale, as decimals of one scale."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.codec.columnar.types.type_layouts import layout_of
from dstl_core.codec.serializers import Types

DIGITS = 38
"""The most digits of a decimal in 16 bytes."""
_DECIMAL_BYTES = 16
BIG_DECIMAL = layout_of(Types.BIG_DEC).arrow_type


def element_of(kind: pa.DataType) -> pa.DataType | None:
    """The type of the elements of a list; None for other types."""
    return kind.value_type if pa.types.is_list(kind) else None


def largest_scale(column: pa.Array) -> int:
    """The most digits after the point, of Java's decimals or lists of them; 0 for other types."""
    if element_of(column.type) == BIG_DECIMAL:
        column = pc.list_flatten(column)
    if column.type != BIG_DECIMAL:
        return 0
    return pc.max(pc.struct_field(column, "scale")).as_py() or 0


def with_scale(column: pa.Array, scale: int) -> pa.Array:
    """Java's decimals, or lists of them, as decimals of a scale; other columns as they are.

    Raises:
        pa.ArrowInvalid: A number has more digits than a decimal.
    """
    if column.type == BIG_DECIMAL:
        return decimals_of(column, scale)
    if element_of(column.type) == BIG_DECIMAL:
        sizes = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        elements = decimals_of(pc.list_flatten(column), scale)
        return pa.ListArray.from_arrays(pa.array(offsets), elements, mask=column.is_null())
    return column


def decimals_of(stored: pa.Array, scale: int) -> pa.Array:
    """Converts Java's ``BigDecimal``, a struct of unscaled bytes and scale, to one scale.

    Raises:
        pa.ArrowInvalid: A number has more digits than a decimal.
    """
    kind = pa.decimal128(DIGITS, scale)
    decimals = pa.nulls(len(stored), kind)
    scales = pc.struct_field(stored, "scale")
    for stored_scale in pc.unique(scales.drop_null()).to_pylist():
        has_scale = pc.fill_null(pc.and_(stored.is_valid(), pc.equal(scales, stored_scale)), False)
        unscaled = pc.struct_field(stored.filter(has_scale), "unscaled")
        values = _integers(unscaled, stored_scale).cast(kind)
        decimals = pc.replace_with_mask(decimals, has_scale, values)
    return decimals


def _integers(raw: pa.Array, scale: int) -> pa.Array:
    """Converts big-endian two's complement bytes to decimals of a scale."""
    _, offsets, stored = raw.cast(pa.large_binary()).buffers()
    bounds = np.frombuffer(offsets, np.int64)[raw.offset : raw.offset + len(raw) + 1]
    sizes = np.diff(bounds)
    if sizes.max() > _DECIMAL_BYTES:
        raise pa.ArrowInvalid("a decimal of more than 38 digits")
    joined = np.frombuffer(stored, np.uint8)[bounds[0] : bounds[-1]]
    digits = np.zeros((len(sizes), _DECIMAL_BYTES), np.uint8)
    digits[joined[bounds[:-1] - bounds[0]] & 0x80 != 0] = 0xFF
    digits[np.arange(_DECIMAL_BYTES) >= _DECIMAL_BYTES - sizes[:, None]] = joined
    data: Any = np.ascontiguousarray(digits[:, ::-1])
    return pa.Array.from_buffers(pa.decimal128(DIGITS, scale), len(raw), [None, pa.py_buffer(data)])
