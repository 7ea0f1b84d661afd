"""Computes key groups of columns: Flink's murmur over Java's hashes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from dstl_core.codec.columnar.kernels.jit import kernel
from dstl_core.codec.columnar.keyed.java_hashes import Int32Array, java_hashes
from dstl_core.codec.columnar.types.type_layouts import DEFAULT_OPTIONS, ColumnOptions
from dstl_core.codec.serializers import AnySerializer
from dstl_core.errors import ConfigError


def refuse_null_keys(keys: pa.Array) -> None:
    """Raises ConfigError if a key is null."""
    if keys.null_count:
        first = keys.is_null().index(True).as_py()
        raise ConfigError(
            f"A key is null (row {first} of {len(keys)}); keyed state needs a key: drop or fill "
            f"such rows."
        )


def key_groups_of(
    keys: pa.Array,
    key_type: AnySerializer,
    max_parallelism: int,
    options: ColumnOptions = DEFAULT_OPTIONS,
) -> Int32Array:
    """The key group of each key.

    Args:
        keys: A column without nulls, in the columnar form of the type with these options.
        key_type: The Flink type of the keys.
        max_parallelism: Number of key groups.
        options: Representation of types as columns.

    Raises:
        ConfigError: A key is null, or the Java hash of the type is not known.
    """
    refuse_null_keys(keys)
    hashes = java_hashes(keys, key_type, options)
    groups = np.empty(len(keys), np.int32)
    _murmur_groups(hashes, np.int32(max_parallelism), groups)
    return groups


@kernel
def _murmur_groups(hashes: Any, max_parallelism: Any, out: Any) -> None:
    # Every product is cut to 32 bits at once, since numba widens uint32 * uint32 to 64 bits.
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
