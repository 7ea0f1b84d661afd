"""Records of keys that files of state still have, whether the state has the keys or not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.changelog.reader import StateChangelogHandleReader
from dstl_core.codec.change_payload import MetadataChange, StateChangeOperation, read_change
from dstl_core.codec.columnar.changes.change_spans import ChangeSpans, change_spans
from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.serializers import AnySerializer
from dstl_core.codec.state_meta import StateMetaInfoSnapshot
from dstl_core.model.change import META_KEY_GROUP
from dstl_core.model.handle import (
    ChangelogStateBackendHandle,
    ChangelogStateHandle,
    IncrementalRemoteKeyedStateHandle,
    KeyedStateHandle,
)
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.purge.check_purged import found_in_tables
from dstl_core.savepoint.purge.purge import TIME_BYTES, Purge
from dstl_core.savepoint.read.handle_forms import logs_of
from dstl_core.savepoint.read.snapshot import OperatorSnapshot


def records_of(operator: OperatorSnapshot, purge: Purge, handle: KeyedStateHandle) -> int:
    """The changes of the keys in the log of a handle, and their entries in files of RocksDB with
    older versions and deletions.
    """
    bases = handle.materialized if isinstance(handle, ChangelogStateBackendHandle) else (handle,)
    tables = [each for each in bases if isinstance(each, IncrementalRemoteKeyedStateHandle)]
    stored = sum(found_in_tables(operator, purge, each).total() for each in tables)
    return stored + sum(_changes_of(operator, purge, log) for log in logs_of(handle))


def _changes_of(operator: OperatorSnapshot, purge: Purge, log: ChangelogStateHandle) -> int:
    """The changes of the keys in a log, also in key groups that belong to other subtasks."""
    groups = sorted({group for own in purge.key_groups for group in own})
    read = pa.array([META_KEY_GROUP, *groups], pa.int32())
    every = replace(log, key_group_range=KeyGroupRange(0, purge.max_parallelism - 1))
    reader = StateChangelogHandleReader(operator.snapshot.resolver.read_segment)
    metas: dict[int, StateMetaInfoSnapshot] = {}
    count = 0
    for batch in reader.read_batches(every):
        for part in change_spans(batch.filter(pc.is_in(batch.column("key_group"), read))):
            if isinstance(part, ChangeSpans):
                count += _marked(part, metas, purge)
                continue
            change = read_change(part, operator.snapshot.registry)
            if isinstance(change, MetadataChange):
                metas[change.state_id] = change.state
    return count


def _marked(part: ChangeSpans, metas: dict[int, StateMetaInfoSnapshot], purge: Purge) -> int:
    count = 0
    for operation, state_id, changes in part.by_operation():
        # The key, or a timer, comes after the state id.
        spans = changes.batch.spans[:, scan.VALUE_START : scan.VALUE_END + 1]
        meta = metas.get(state_id)
        if meta is None or not meta.is_queue:
            count += int(purge.marks.of(spans, 0).sum())
        elif operation is StateChangeOperation.ADD_ELEMENT:
            bounds = [bound for row in spans for bound in _timers(row, changes, meta)]
            rows = np.array(bounds, np.int64).reshape(-1, 2)
            count += int(purge.marks.of(rows, TIME_BYTES).sum())
        else:
            count += int(purge.marks.of(spans, TIME_BYTES).sum())
    return count


def _timers(
    row: np.ndarray[tuple[int], np.dtype[np.int64]], part: ChangeSpans, meta: StateMetaInfoSnapshot
) -> Iterator[tuple[int, int]]:
    """Start and end of each timer of a change that adds some."""
    timer: AnySerializer = meta.value_serializer
    start, end = int(row[0]), int(row[1])
    first = start - part.batch.source.base
    body = DataInput(bytes(part.batch.source.data[first : first + end - start]))
    for _ in range(body.read_count("queue elements", 1)):
        at = body.position
        timer.deserialize(body)
        yield start + at, start + body.position
