"""Memory that is used for a short time.

It comes from Arrow's pool, which gives the same pages again once they are free. New pages cost more
than filling them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dstl_core.codec.columnar.types.program import Int64s

SPARE_BYTES = 16
"""Bytes after other bytes that a kernel may read, too (``text.copy_if_ascii``)."""


def scratch(size: int) -> npt.NDArray[np.uint8]:
    """At least ``size`` bytes with any content."""
    return np.frombuffer(pa.allocate_buffer(max(1, size)), np.uint8)


def scratch_bytes(size: int) -> memoryview:
    """As ``scratch``: exactly ``size`` bytes, or one if that is 0."""
    return scratch(size).data


def scratch_words(rows: int, words: int) -> Int64s:
    """``[rows, words]`` int64 with any content."""
    size = 8 * rows * words
    return scratch(size)[:size].view(np.int64).reshape(rows, words)
