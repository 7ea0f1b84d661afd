"""Stores keyed state of one subtask as files of RocksDB, as its incremental checkpoints have them.

No database is needed: sorted table files of the last level, and a MANIFEST that names them. Source:
``RocksIncrementalSnapshotStrategy`` and ``RocksDBIncrementalRestoreOperation`` of Flink 2.2.1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import uuid4

from dstl_core.codec.columnar.keyed.sst_writer import tables_of
from dstl_core.codec.data_io import DataOutput
from dstl_core.codec.sst.manifest import NEW_MANIFEST_NUMBER, ManifestFile, new_manifest
from dstl_core.codec.state_meta import write_keyed_header
from dstl_core.errors import SavepointError
from dstl_core.model.handle import IncrementalRemoteKeyedStateHandle, StreamStateHandle
from dstl_core.state.backends.heap_timers import HeapTimers
from dstl_core.state.restore.rocksdb import CURRENT, DEFAULT_FAMILY, MANIFEST, table_name
from dstl_core.state.tables.raw_sections import RawSections

AddStream = Callable[[Sequence[bytes]], StreamStateHandle]


def native_state(
    state: RawSections,
    add_stream: AddStream,
    add_list: AddStream | None = None,
    heap: HeapTimers | None = None,
) -> IncrementalRemoteKeyedStateHandle:
    """Stores the keyed state of one subtask; returns its handle.

    Args:
        state: The state.
        add_stream: Stores a file, whose bytes come in parts.
        add_list: Stores header, MANIFEST and CURRENT; ``add_stream`` by default.
        heap: Takes the timers, which then are no part of the files.

    Raises:
        DuplicateKeyError: A key has two values in one state.
        SavepointError: RocksDB cannot have states of these names.
    """
    every = enumerate(state.header.states)
    left = {at: meta for at, meta in every if heap is None or not heap.has(at)}
    names = [meta.name for meta in left.values()]
    _check_names(names)
    families: dict[str, list[ManifestFile]] = {name: [] for name in names}
    of_states = [meta.name if at in left else None for at, meta in enumerate(state.header.states)]
    shared: list[tuple[str, StreamStateHandle]] = []
    apart = None if heap is None else heap.add
    for written in tables_of(of_states, state.prefix_bytes, state.sections, apart=apart):
        number = NEW_MANIFEST_NUMBER + 1 + len(shared)
        families[left[written.state_id].name].append(written.table.as_file(number))
        shared.append((table_name(number), add_stream(written.table.parts)))
        del written  # a file is not held while the next one is built
    manifest = f"{MANIFEST}{NEW_MANIFEST_NUMBER:06d}"
    add = add_list or add_stream
    private = [
        (manifest, add([new_manifest(families)])),
        (CURRENT, add([f"{manifest}\n".encode()])),
    ]
    out = DataOutput()
    header = replace(state.header, states=tuple(left.values()), compressed=False)
    write_keyed_header(out, header)
    meta_stream = add([out.to_bytes()])
    return IncrementalRemoteKeyedStateHandle(
        backend_id=str(uuid4()),
        key_group_range=state.key_groups,
        checkpoint_id=0,
        checkpointed_size=sum(stream.state_size for _, stream in shared),
        meta_stream=meta_stream,
        shared=tuple(shared),
        private=tuple(private),
        state_handle_id=str(uuid4()),
    )


def _check_names(names: list[str]) -> None:
    wrong = DEFAULT_FAMILY in names or len({*names}) < len(names)
    if wrong:
        raise SavepointError(
            f"Files of RocksDB cannot hold these states: expected names that differ from each "
            f"other and from {DEFAULT_FAMILY!r}, got {', '.join(map(repr, names))}; write the "
            f"savepoint in canonical form."
        )
