"""Copies records into runs: for each bucket, the records of one state one after the other.

A bucket is a key group, or another way to divide records. A run is a state id and records in
canonical form. The high bit of the first byte of its last key is set.
"""

from __future__ import annotations

from dstl_core.codec.columnar.kernels.jit import kernel
from dstl_core.codec.columnar.kernels.memory import (
    copy,
    get32,
    get64,
    load8,
    put8,
    put32,
    put64,
    store32,
)
from dstl_core.codec.columnar.kernels.scan import SPAN_BYTES


@kernel
def copy_short(target: int, source: int, size: int) -> None:
    """Copies a short range without a call to memcpy.

    It uses two words that may overlap each other, and writes only the copied bytes.
    """
    if size > 32:
        copy(target, source, size)
    elif size > 16:
        put64(target, get64(source))
        put64(target + 8, get64(source + 8))
        put64(target + size - 16, get64(source + size - 16))
        put64(target + size - 8, get64(source + size - 8))
    elif size >= 8:
        put64(target, get64(source))
        put64(target + size - 8, get64(source + size - 8))
    elif size >= 4:
        put32(target, get32(source))
        put32(target + size - 4, get32(source + size - 4))
    else:
        for at in range(size):
            put8(target + at, load8(source + at))


@kernel
def run_sizes(spans: int, rows: int, buckets: int, prefix: int, sizes: int) -> int:
    """Adds the bytes of each record to its bucket; returns the size of the largest key or value."""
    largest = 0
    for row in range(rows):
        span = spans + SPAN_BYTES * row
        key = get64(span + 8) - get64(span)
        value = get64(span + 24) - get64(span + 16)
        largest = max(largest, key, value)
        at = sizes + 8 * get64(buckets + 8 * row)
        put64(at, get64(at) + 8 + prefix + key + value)
    return largest


@kernel
def write_runs(
    spans: int,
    rows: int,
    buckets: int,
    key_groups: int,
    bucket_count: int,
    prefix: int,
    state: int,
    cursors: int,
    lasts: int,
) -> None:
    """Writes the run of each bucket.

    Args:
        spans: Address of the spans; their tags are ignored.
        rows: Number of rows.
        buckets: Address of each row's bucket.
        key_groups: Address of each row's key group.
        bucket_count: Number of buckets.
        prefix: Bytes of a key group.
        state: The state id.
        cursors: Address of one address per bucket: first the start of its run, afterwards its end.
        lasts: Scratch space: one 0 per bucket.
    """
    for row in range(rows):
        span = spans + SPAN_BYTES * row
        bucket = get64(buckets + 8 * row)
        at = get64(cursors + 8 * bucket)
        if get64(lasts + 8 * bucket) == 0:
            put8(at, state >> 8)
            put8(at + 1, state & 0xFF)
            at += 2
        start = get64(span)
        size = get64(span + 8) - start
        store32(at, prefix + size)
        at += 4
        put64(lasts + 8 * bucket, at)
        key_group = get64(key_groups + 8 * row)
        if prefix == 2:
            put8(at, key_group >> 8)
            at += 1
        put8(at, key_group & 0xFF)
        at += 1
        copy_short(at, start, size)
        at += size
        start = get64(span + 16)
        size = get64(span + 24) - start
        store32(at, size)
        at += 4
        copy_short(at, start, size)
        put64(cursors + 8 * bucket, at + size)
    for bucket in range(bucket_count):
        last = get64(lasts + 8 * bucket)
        if last != 0:
            put8(last, load8(last) | 0x80)
