"""Snapshots of one value state in the forms that are not canonical, for a benchmark."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from dstl_core.changelog import FsStateChangelogStorage
from dstl_core.codec.change_payload import StateChangeOperation
from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.keyed.key_group_columns import key_groups_of
from dstl_core.codec.columnar.keyed.sections import Section, SectionChunk, SectionChunks
from dstl_core.codec.columnar.keyed.spans import SectionScanner
from dstl_core.codec.data_io import DataOutput
from dstl_core.codec.serializers import AnySerializer
from dstl_core.codec.state_meta import StateMetaInfoSnapshot, write_keyed_header
from dstl_core.config import ChangelogOptions
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from dstl_core.model.handle import (
    ChangelogStateBackendHandle,
    KeyedStateHandle,
    KeyGroupRangeOffsets,
    KeyGroupsStateHandle,
)
from dstl_core.model.ids import JobID, OperatorID
from dstl_core.model.sequence import SequenceNumber
from dstl_core.savepoint.write.folder import SavepointFolder
from dstl_core.state.backends.state_changelog import CapturedState
from dstl_core.state.columns.column_changelog import ColumnChangelog
from dstl_core.state.columns.keyed_encoder import KeyedStateEncoder
from dstl_core.state.restore.carry_over import CarriedState

_VOID = b"\0"


def write_heap(folder: Path, encoder: KeyedStateEncoder, batches: Iterable[pa.RecordBatch]) -> None:
    """A native savepoint, written record by record."""
    groups: dict[int, list[bytes]] = {each: [] for each in encoder.key_groups}
    for batch in batches:
        [runs] = encoder.encode_keyed(batch)
        for at, key_group in enumerate(runs.key_groups):
            part = bytes(memoryview(runs.data)[runs.bounds[at] : runs.bounds[at + 1]])
            if part:
                groups[key_group] += _entries(part + b"\xff\xff", key_group)
    out = DataOutput()
    write_keyed_header(out, encoder.header)
    offsets = []
    for key_group, entries in groups.items():
        offsets.append(out.position)
        out.write_i32(key_group)
        out.write_i16(0)
        out.write_i32(len(entries))
        out.write_bytes(b"".join(entries))
    target = SavepointFolder(folder)
    placed = KeyGroupRangeOffsets(encoder.key_groups, tuple(offsets))
    _publish(target, encoder, KeyGroupsStateHandle(placed, target.add_stream(out.to_bytes()), "id"))


def _entries(section: bytes, key_group: int) -> list[bytes]:
    """Namespace, key and value of each record of a section."""
    entries = []
    for batch in SectionScanner(1, [True]).batches(_chunk(section, key_group)):
        places = batch.spans[:, : scan.TAG] - batch.source.base
        for start, end, value, value_end in places.tolist():
            entries.append(_VOID + section[start : end - 1] + section[value:value_end])
    return entries


def _chunk(section: bytes, key_group: int) -> SectionChunks:
    yield SectionChunk(section, [Section(key_group, 0, len(section), 0)])


def write_changelog(
    folder: Path,
    encoder: KeyedStateEncoder,
    key_type: AnySerializer,
    meta: StateMetaInfoSnapshot,
    batches: Iterable[pa.RecordBatch],
) -> None:
    """A checkpoint that is nothing but a log, written by columns."""
    folder.mkdir(parents=True)
    options = ChangelogOptions.of(base_path=str(folder / "changelog"))
    storage = FsStateChangelogStorage(JobID(bytes(16)), options)
    writer = storage.create_writer("op", encoder.key_groups)
    changes = ColumnChangelog(
        writer, encoder.key_groups, _no_base, CarriedState((), (), 0), key_type, [meta]
    )
    for batch in batches:
        keys = batch["state_key"]
        groups = key_groups_of(keys, key_type, encoder.max_parallelism)
        changes.log_values(0, groups, keys, batch[meta.name], StateChangeOperation.SET)
    log = writer.persist(SequenceNumber(0), 1).result(600).job_manager_owned_snapshot
    assert log is not None
    handle = ChangelogStateBackendHandle((), (log,), encoder.key_groups, 0, 1, 0, "id")
    _publish(SavepointFolder(folder), encoder, handle)
    storage.close()


def _no_base() -> CapturedState:
    raise AssertionError("the log has no base")


def _publish(folder: SavepointFolder, encoder: KeyedStateEncoder, handle: KeyedStateHandle) -> None:
    subtasks = (OperatorSubtaskState(0, managed_keyed_state=handle),)
    operator = OperatorState(
        OperatorID.for_uid("op"), 1, encoder.max_parallelism, subtasks, uid="op"
    )
    folder.publish(CheckpointMetadata(3, 1, (operator,)), {})
