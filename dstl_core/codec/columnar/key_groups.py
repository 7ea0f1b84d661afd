"""Key groups of whole columns: Java's ``hashCode()`` and Flink's murmur over Arrow buffers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dstl_core.codec.columnar.jit import kernel
from dstl_core.codec.serializers import AnySerializer
from dstl_core.codec.serializers.primitives import IntSerializer, LongSerializer
from dstl_core.codec.serializers.strings import StringSerializer
from dstl_core.errors import ConfigError

Int32Array = npt.NDArray[np.int32]


def key_groups_of(keys: pa.Array, key_type: AnySerializer, max_parallelism: int) -> Int32Array:
    """The key group of each key.

    Args:
        keys: A column without nulls: string for String, int64 for Long, int32 for Integer.
        key_type: The Flink type of the keys.
        max_parallelism: Number of key groups.

    Raises:
        ConfigError: A null key, or a type without a column-wise hash.
    """
    if keys.null_count:
        first = keys.is_null().index(True).as_py()
        raise ConfigError(
            f"A key is null (row {first} of {len(keys)}); keyed state needs a key: drop or fill "
            f"such rows."
        )
    hashes = np.empty(len(keys), np.int32)
    match key_type:
        case StringSerializer():
            text = keys.cast(pa.large_string())
            _, offsets, data = text.buffers()
            if len(keys) and offsets is not None:
                bounds = np.frombuffer(offsets, np.int64)[text.offset : text.offset + len(text) + 1]
                raw = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
                _string_hashes(bounds, raw, hashes)
        case LongSerializer():
            values = keys.cast(pa.int64()).to_numpy(zero_copy_only=False)
            hashes = (values ^ (values >> np.int64(32))).astype(np.int32)
        case IntSerializer():
            hashes = keys.cast(pa.int32()).to_numpy(zero_copy_only=False)
        case _:
            by_value = (key_type.java_hash(key) & 0xFFFFFFFF for key in keys.to_pylist())
            hashes = np.fromiter(by_value, np.uint32, len(keys)).view(np.int32)
    groups = np.empty(len(keys), np.int32)
    _murmur_groups(hashes, np.int32(max_parallelism), groups)
    return groups


@kernel
def _string_hashes(offsets: Any, data: Any, out: Any) -> None:
    """``31 * h + unit`` over the UTF-16 units of UTF-8 text. Arrow guarantees valid UTF-8."""
    for row in range(len(out)):
        h = np.uint32(0)
        at = offsets[row]
        end = offsets[row + 1]
        while at < end:
            byte = np.uint32(data[at])
            if byte < 0x80:
                h = np.uint32(np.uint32(31) * h + byte)
                at += 1
            elif byte < 0xE0:
                unit = (byte & np.uint32(0x1F)) << np.uint32(6) | np.uint32(
                    data[at + 1]
                ) & np.uint32(0x3F)
                h = np.uint32(np.uint32(31) * h + np.uint32(unit))
                at += 2
            elif byte < 0xF0:
                unit = (
                    (byte & np.uint32(0x0F)) << np.uint32(12)
                    | (np.uint32(data[at + 1]) & np.uint32(0x3F)) << np.uint32(6)
                    | np.uint32(data[at + 2]) & np.uint32(0x3F)
                )
                h = np.uint32(np.uint32(31) * h + np.uint32(unit))
                at += 3
            else:
                point = (
                    (byte & np.uint32(0x07)) << np.uint32(18)
                    | (np.uint32(data[at + 1]) & np.uint32(0x3F)) << np.uint32(12)
                    | (np.uint32(data[at + 2]) & np.uint32(0x3F)) << np.uint32(6)
                    | np.uint32(data[at + 3]) & np.uint32(0x3F)
                ) - np.uint32(0x10000)
                high = np.uint32(0xD800) + (point >> np.uint32(10))
                low = np.uint32(0xDC00) + (point & np.uint32(0x3FF))
                h = np.uint32(np.uint32(31) * h + np.uint32(high))
                h = np.uint32(np.uint32(31) * h + np.uint32(low))
                at += 4
        out[row] = np.int32(h)


@kernel
def _murmur_groups(hashes: Any, max_parallelism: Any, out: Any) -> None:
    # Every product is cut to 32 bits at once: numba widens uint32 * uint32 to 64 bits.
    for row in range(len(out)):
        h = np.uint32(np.uint32(hashes[row]) * np.uint32(0xCC9E2D51))
        h = np.uint32(h << np.uint32(15)) | np.uint32(h >> np.uint32(17))
        h = np.uint32(np.uint32(h) * np.uint32(0x1B873593))
        h = np.uint32(h << np.uint32(13)) | np.uint32(h >> np.uint32(19))
        h = np.uint32(np.uint32(np.uint32(h) * np.uint32(5)) + np.uint32(0xE6546B64))
        h = np.uint32(h ^ np.uint32(4))
        h = np.uint32(np.uint32(h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B))
        h = np.uint32(np.uint32(h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35))
        h = np.uint32(h ^ (h >> np.uint32(16)))
        signed = np.int32(h)
        if signed == np.int32(-2147483648):
            signed = np.int32(0)
        elif signed < 0:
            signed = np.int32(-signed)
        out[row] = signed % max_parallelism
