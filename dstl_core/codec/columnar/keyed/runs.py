"""Divides records into runs of canonical form: one run per bucket and batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dstl_core.codec.columnar.kernels.write_runs import run_sizes, write_runs
from dstl_core.codec.columnar.types.addresses import address_of
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.codec.keyed_canonical import END_OF_SECTION
from dstl_core.errors import ColumnValueError
from dstl_core.model.handle import KeyGroupRangeOffsets
from dstl_core.model.key_group import KeyGroupRange

MAX_PART_BYTES = 0x7FFFFFFF - 2


@dataclass(frozen=True)
class Runs:
    """The runs of one state.

    The run of bucket ``i`` is ``data[bounds[i] : bounds[i + 1]]``; it is empty if the bucket has no
    record.
    """

    data: pa.Buffer
    bounds: Int64s


def runs_of(
    spans: Int64s, state: int, buckets: Int64s, key_groups: Int64s, count: int, prefix: int
) -> Runs:
    """Divides the records of one state into runs.

    Args:
        spans: The records, ``[records, SPAN_WORDS]``; their keys have no key group.
        state: Id of the state in the output.
        buckets: The bucket of each record, below ``count``.
        key_groups: The key group to write before each key.
        count: Number of buckets.
        prefix: Bytes of a key group.

    Raises:
        ColumnValueError: A key or value has 2 GiB or more.
    """
    rows = len(spans)
    sizes = np.zeros(count, np.int64)
    bucket_at, group_at = _aligned(buckets), _aligned(key_groups)
    largest = run_sizes(address_of(spans), rows, address_of(bucket_at), prefix, address_of(sizes))
    if largest > MAX_PART_BYTES:
        raise ColumnValueError(
            f"A key or value is too long to be written: expected < 2 GiB, got {largest} bytes."
        )
    sizes += 2 * (sizes > 0)
    bounds = np.zeros(count + 1, np.int64)
    np.cumsum(sizes, out=bounds[1:])
    data = pa.allocate_buffer(max(1, int(bounds[-1])))
    cursors = bounds[:-1] + data.address
    lasts = np.zeros(count, np.int64)
    write_runs(
        address_of(spans),
        rows,
        address_of(bucket_at),
        address_of(group_at),
        count,
        prefix,
        state,
        address_of(cursors),
        address_of(lasts),
    )
    return Runs(data.slice(0, int(bounds[-1])), bounds)


def _aligned(values: Int64s) -> Int64s:
    return np.ascontiguousarray(values, np.int64)


Sections = tuple[memoryview, KeyGroupRangeOffsets]


def sections_of(runs: Sequence[Runs], key_groups: KeyGroupRange) -> Sections:
    """Writes the sections of some key groups. Each key group is a bucket of the runs.

    Returns:
        The sections, and their offsets. Offsets count from 1, since 0 means that there is no
        section.
    """
    sizes = np.zeros(len(key_groups), np.int64)
    for run in runs:
        sizes += np.diff(run.bounds)
    starts = 1 + np.cumsum(np.append(0, sizes + len(END_OF_SECTION) * (sizes > 0)))
    # Arrow's pool returns the same pages again.
    sections = memoryview(pa.allocate_buffer(int(starts[-1]))).cast("B")
    sections[:1] = b"\0"
    cursors = starts[:-1].tolist()
    for run in runs:
        data, bound = memoryview(run.data).cast("B"), run.bounds.tolist()
        for index in np.flatnonzero(np.diff(run.bounds)).tolist():
            part = data[bound[index] : bound[index + 1]]
            sections[cursors[index] : cursors[index] + len(part)] = part
            cursors[index] += len(part)
    offsets = np.where(sizes > 0, starts[:-1], 0).tolist()
    for cursor, offset in zip(cursors, offsets, strict=True):
        if offset:
            sections[cursor : cursor + len(END_OF_SECTION)] = END_OF_SECTION
    return sections.toreadonly(), KeyGroupRangeOffsets(key_groups, tuple(offsets))
