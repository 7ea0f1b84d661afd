"""A state backend whose keyed state outlives a task.

The state stays in the memory of the worker process, or in a local RocksDB database that all workers
of a machine share. An epoch restores the state of its parent checkpoint, which this worker or this
machine may still have. An older copy catches up by replaying the log.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dstl_core.changelog.reader import StateChangelogHandleReader
from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.state_meta import (
    KeyedBackendHeader,
    read_keyed_header,
    write_keyed_header,
)
from dstl_core.errors import DstlError, FormatError, StorageError
from dstl_core.job.spec.job_spec import TaskSpec
from dstl_core.job.task.held_state import HELD, HELD_LOCK
from dstl_core.job.task.local_copies import CopyFolder, CopyParts
from dstl_core.model.checkpoint import OperatorSubtaskState
from dstl_core.model.handle import ChangelogStateHandle
from dstl_core.state.backends.backend import (
    HashMapKeyedStateBackend,
    KeyedStateBackend,
    RocksDBKeyedStateBackend,
)
from dstl_core.state.backends.state_backend import (
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    KeyedStateBackendParameters,
    StateBackend,
)
from dstl_core.state.restore.changelog import apply_changelog
from dstl_core.state.tables.keyed_state import KeyedState, state_key
from dstl_core.state.tables.table_factory import create_table

if TYPE_CHECKING:
    from dstl_core.state.backends.rocksdb_store import RocksDBStore

_LOG = logging.getLogger(__name__)
WARM, CAUGHT_UP, COLD = "warm", "caught up", "cold"


@dataclass
class _WarmState:
    parts: CopyParts
    state: KeyedState
    entries: int


class WarmStateBackend(StateBackend):
    """Makes the backend of one subtask of one task.

    Args:
        task: The task; it has the actual backend and the limits of copies.
        subtask: Index of the subtask, from 0.
    """

    identifier = "warm"

    def __init__(self, task: TaskSpec, subtask: int) -> None:
        self._inner = task.job.state_backend
        self._copies = task.job.local_copies
        self._key = (
            task.job.job_id,
            task.job.base_path,
            task.operator.operator_id,
            task.job.key_groups(subtask),
            task.job.max_parallelism,
        )
        self._folder = CopyFolder(task, subtask)
        self.warmth = COLD

    def create_keyed_state_backend(
        self, parameters: KeyedStateBackendParameters
    ) -> KeyedStateBackend:
        if self._copies.enabled and parameters.handles:
            wanted = CopyParts.of(parameters.handles)
            try:
                backend = self._from_copy(parameters, wanted)
            except (DstlError, OSError):
                backend = None  # the restore raises the error, if there is one
            if backend is not None:
                return backend
        self.warmth = COLD
        if isinstance(self._inner, EmbeddedRocksDBStateBackend) and self._copies.enabled:
            try:
                # The database is on the file system of the copies, so that files can be linked.
                inner = replace(self._inner, local_dir=str(self._folder.path))
                return inner.create_keyed_state_backend(parameters)
            except OSError as error:
                _LOG.warning("no local copy can be made; state is restored elsewhere: %s", error)
        return self._inner.create_keyed_state_backend(parameters)

    def _from_copy(
        self, parameters: KeyedStateBackendParameters, wanted: CopyParts
    ) -> KeyedStateBackend | None:
        if isinstance(self._inner, HashMapStateBackend):
            return self._from_memory(parameters, wanted)
        if isinstance(self._inner, EmbeddedRocksDBStateBackend):
            return self._from_disk(parameters, wanted, self._inner)
        return None

    def keep(self, backend: KeyedStateBackend, state: OperatorSubtaskState) -> None:
        """Keeps the state as a copy of the reported state. The backend is closed afterwards."""
        handle = state.managed_keyed_state
        if handle is None or not self._copies.enabled or _is_incomplete(backend.state):
            return
        parts = CopyParts.of([handle])
        if isinstance(self._inner, HashMapStateBackend):
            self._keep_in_memory(backend.state, parts)
        elif isinstance(self._inner, EmbeddedRocksDBStateBackend):
            self._keep_on_disk(backend.state, parts)

    def abandon(self) -> None:
        """Deletes the copies that a failed task may have started from, if they are damaged."""
        self._folder.drop_damaged()

    # -------------------------------------------------------------------------------- memory

    def _from_memory(
        self, parameters: KeyedStateBackendParameters, wanted: CopyParts
    ) -> KeyedStateBackend | None:
        # The state is removed first: if this task fails, it belongs to no checkpoint.
        with HELD_LOCK:
            held: _WarmState | None = HELD.pop(self._key, None)
        missing = None if held is None else wanted.since(held.parts)
        if held is None or missing is None:
            return None
        self._catch_up(held.state, missing, parameters)
        return HashMapKeyedStateBackend(
            held.state, parameters.key_serializer, clock=parameters.clock
        )

    def _keep_in_memory(self, state: KeyedState, parts: CopyParts) -> None:
        entries = sum(
            len(group) for table in state.tables.values() for group in table.groups.values()
        )
        if entries > self._copies.max_entries:
            _LOG.warning(
                "state is not kept in memory and each epoch restores it: a subtask has %d entries, "
                "a worker keeps at most %d; raise max_entries or parallelism, or use RocksDB",
                entries,
                self._copies.max_entries,
            )
            return
        with HELD_LOCK:
            HELD[self._key] = _WarmState(parts, state, entries)
            HELD.move_to_end(self._key)
            while HELD and sum(each.entries for each in HELD.values()) > self._copies.max_entries:
                HELD.popitem(last=False)

    def _catch_up(
        self,
        state: KeyedState,
        missing: Sequence[ChangelogStateHandle],
        parameters: KeyedStateBackendParameters,
    ) -> None:
        reader = StateChangelogHandleReader(parameters.resolver.read_segment)
        for log in missing:
            part = log.get_intersection(state.key_groups)
            if part is not None:
                # Each run of a job describes its states again.
                apply_changelog(state, part, reader, parameters.registry, {})
        self.warmth = CAUGHT_UP if missing else WARM

    # ---------------------------------------------------------------------------------- disk

    def _from_disk(
        self,
        parameters: KeyedStateBackendParameters,
        wanted: CopyParts,
        inner: EmbeddedRocksDBStateBackend,
    ) -> KeyedStateBackend | None:
        from dstl_core.state.backends.rocksdb_store import RocksDBStore

        copy = self._folder.find(wanted)
        if copy is None:
            return None
        path, manifest, parts = copy
        missing = wanted.since(parts)
        if missing is None:
            return None
        try:
            store = RocksDBStore(
                self._folder.path,
                cache_bytes=inner.cache_bytes,
                write_buffer_bytes=inner.write_buffer_bytes,
                source=path,
            )
        except StorageError:
            self._folder.drop(path)
            raise
        try:
            state = KeyedState(parameters.key_group_range, parameters.number_of_key_groups, store)
            _open_tables(state, store, manifest, parameters)
            self._catch_up(state, missing, parameters)
            return RocksDBKeyedStateBackend(
                state, parameters.key_serializer, clock=parameters.clock
            )
        except BaseException:
            store.close()
            self._folder.drop(path)
            raise

    def _keep_on_disk(self, state: KeyedState, parts: CopyParts) -> None:
        from dstl_core.state.backends.rocksdb_store import RocksDBGroups, RocksDBStore

        store, key_serializer = state.store, state.key_serializer
        if not isinstance(store, RocksDBStore) or key_serializer is None:
            return
        tables = list(state.tables.values())
        numbers = [
            table.store_groups.table
            for table in tables
            if isinstance(table.store_groups, RocksDBGroups)
        ]
        if len(numbers) < len(tables):
            return
        out = DataOutput()
        write_keyed_header(
            out, KeyedBackendHeader(key_serializer, tuple(each.meta for each in tables), False)
        )
        notes = {"tables": numbers, "header": base64.b64encode(out.to_bytes()).decode()}
        try:
            self._folder.publish(store.release(), parts, notes)
        except StorageError as error:
            _LOG.warning("a local copy was not kept: %s", error)


def _open_tables(
    state: KeyedState,
    store: RocksDBStore,
    manifest: dict[str, Any],
    parameters: KeyedStateBackendParameters,
) -> None:
    """Opens the tables of a copy, by their numbers in its database."""
    try:
        raw = base64.b64decode(manifest["header"])
        numbers = [int(each) for each in manifest["tables"]]
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"The description of a local copy is damaged ({error})") from error
    header = read_keyed_header(DataInput(raw), parameters.registry)
    state.key_serializer = header.key_serializer
    for meta, number in zip(header.states, numbers, strict=True):
        store.start_at(number)
        table = create_table(meta, header.key_serializer, state.prefix_bytes, state.store)
        state.tables[state_key(meta)] = table
        for key_group in state.key_groups:
            table.group(key_group)
    store.start_at(max(numbers, default=-1) + 1)


def _is_incomplete(state: KeyedState) -> bool:
    return any(table.lost for table in state.tables.values())
