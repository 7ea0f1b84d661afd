"""Snapshots as dstl_core writes them: canonical savepoints, and the checkpoints of a logging job.

Updates have the form that ``FlinkChecker.restore`` takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from dstl_core.changelog import FsStateChangelogStorage
from dstl_core.checkpoint.store.completed_store import CompletedCheckpointStore
from dstl_core.clock import SystemClock
from dstl_core.codec.serializers import AnySerializer, Types
from dstl_core.config import ChangelogOptions
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from dstl_core.model.handle import (
    FileStateHandle,
    KeyGroupsSavepointStateHandle,
)
from dstl_core.model.ids import JobID, OperatorID
from dstl_core.model.key_group import (
    assign_to_key_group,
    compute_key_group_range_for_operator_index,
    compute_operator_index_for_key_group,
)
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.savepoint.write.folder import SavepointFolder
from dstl_core.state.backends.backend import HashMapKeyedStateBackend
from dstl_core.state.backends.changelog_backend import ChangelogKeyedStateBackend
from dstl_core.state.backends.keyed_access import ValueState
from dstl_core.state.backends.keyed_collections import ListState
from dstl_core.state.restore.carry_over import CarriedState, carry_over
from dstl_core.state.tables.descriptor import ListStateDescriptor, ValueStateDescriptor
from dstl_core.state.tables.keyed_state import KeyedState
from dstl_core.state.tables.state_table import ListTable, ValueTable
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import JobLayout, Location
from tests.integration.flink.checker import Entry, State

METADATA_VERSION = 3
TYPES: dict[str, AnySerializer] = {
    "string": Types.STRING,
    "long": Types.LONG,
    "int": Types.INT,
    "double": Types.DOUBLE,
}


def from_text(type_name: str, value: Any) -> Any:
    """A Python value from its text form."""
    return float(value) if type_name == "double" else value


def open_state(backend: HashMapKeyedStateBackend, key: str, state: State) -> ValueState | ListState:
    """The state of a declaration, made if it is new."""
    describe = ListStateDescriptor if state.kind == "list" else ValueStateDescriptor
    table = backend.state.table(describe(state.name, TYPES[state.type]).meta_info(), TYPES[key])
    if isinstance(table, ListTable):
        return ListState(backend, table)
    assert isinstance(table, ValueTable)
    return ValueState(backend, table)


class Subtasks:
    """The backends of all subtasks of one operator; an update goes to the one that owns its key."""

    def __init__(
        self, key: str, states: Sequence[State], backends: Sequence[HashMapKeyedStateBackend]
    ) -> None:
        self.backends = backends
        self._key = key
        self._states = {state.name: state for state in states}
        for backend in backends:
            for state in states:
                open_state(backend, key, state)

    def apply(self, updates: Iterable[Entry]) -> None:
        max_parallelism = self.backends[0].state.max_parallelism
        for update in updates:
            key = from_text(self._key, update["key"])
            key_group = assign_to_key_group(TYPES[self._key].java_hash(key), max_parallelism)
            owner = compute_operator_index_for_key_group(
                max_parallelism, len(self.backends), key_group
            )
            self.backends[owner].set_current_key(key)
            self._change(self.backends[owner], update)

    def _change(self, backend: HashMapKeyedStateBackend, update: Entry) -> None:
        declared = self._states[update["state"]]
        state = open_state(backend, self._key, declared)
        verb = update["do"]
        if verb == "clear":
            state.clear()
        elif isinstance(state, ValueState):
            state.update(from_text(declared.type, update["value"]))
        elif verb == "add":
            state.add(from_text(declared.type, update["value"]))
        else:
            elements = [from_text(declared.type, each) for each in update["value"]]
            {"update": state.update, "add_all": state.add_all}[verb](elements)


def write_savepoint(
    path: Path,
    uid: str,
    key: str,
    states: Sequence[State],
    updates: Iterable[Entry],
    *,
    max_parallelism: int = 128,
    parallelism: int = 1,
) -> Path:
    """A canonical savepoint of one operator, after updates on empty state."""
    ranges = [
        compute_key_group_range_for_operator_index(max_parallelism, parallelism, index)
        for index in range(parallelism)
    ]
    backends = [
        HashMapKeyedStateBackend(KeyedState(key_groups, max_parallelism), TYPES[key])
        for key_groups in ranges
    ]
    Subtasks(key, states, backends).apply(updates)
    folder = SavepointFolder(path)
    subtasks = tuple(
        OperatorSubtaskState(index, managed_keyed_state=folder.add_keyed_state(backend.state))
        for index, backend in enumerate(backends)
    )
    operator = OperatorState(
        OperatorID.for_uid(uid), parallelism, max_parallelism, subtasks, uid=uid
    )
    folder.publish(CheckpointMetadata(METADATA_VERSION, 1, (operator,)), {})
    return path


class LoggingJob:
    """A job of one operator; its checkpoints hold a materialized base and the logs of its runs."""

    def __init__(
        self, base: Path, uid: str, key: str, *, max_parallelism: int, compressed: bool = False
    ) -> None:
        self.uid = uid
        self.key = key
        self.max_parallelism = max_parallelism
        self.job_id = JobID.for_name(uid)
        self.options = ChangelogOptions.of(base_path=str(base), compression_enabled=compressed)
        self.layout = JobLayout.of(Location.parse(base), self.job_id.hex)
        self.file_io = open_file_io(self.layout.root)
        self.store = CompletedCheckpointStore(self.file_io, self.layout, SystemClock())
        self.store.claim("test")

    def run(self, states: Sequence[State], *, parallelism: int) -> Run:
        """A run that goes on from the latest checkpoint."""
        return Run(self, states, parallelism)


class Run:
    """One run of a job: its own writers, and so its own numbering of states."""

    def __init__(self, job: LoggingJob, states: Sequence[State], parallelism: int) -> None:
        self._job = job
        self._storage = FsStateChangelogStorage(job.job_id, job.options)
        latest = job.store.latest
        self._previous = (
            None
            if latest is None
            else Snapshot.load(job.layout.checkpoint(latest.checkpoint_id).path)[job.uid]
        )
        self._materialization_id = 0
        self._delegates: list[HashMapKeyedStateBackend] = []
        self._loggers: list[ChangelogKeyedStateBackend] = []
        carried = [self._restore(index, parallelism) for index in range(parallelism)]
        self.apply = Subtasks(job.key, states, self._delegates).apply
        self.had_to_materialize = None in carried
        if self.had_to_materialize:
            self.materialize()

    def _restore(self, index: int, parallelism: int) -> CarriedState | None:
        job, previous = self._job, self._previous
        own = compute_key_group_range_for_operator_index(job.max_parallelism, parallelism, index)
        handles = [] if previous is None else previous.keyed_handles
        state = KeyedState(own, job.max_parallelism)
        if previous is not None:
            state = previous.restore(handles, own)
        carried = carry_over(handles, own)
        delegate = HashMapKeyedStateBackend(state, TYPES[job.key])
        logger = ChangelogKeyedStateBackend(
            delegate,
            self._storage.create_writer(job.uid, own),
            base=carried.base if carried else (),
            restored_log=carried.log if carried else (),
            materialization_id=carried.materialization_id if carried else 0,
        )
        self._delegates.append(delegate)
        self._loggers.append(logger)
        known = (getattr(handle, "materialization_id", 0) for handle in handles)
        self._materialization_id = max([self._materialization_id, *known])
        return carried

    def materialize(self) -> None:
        """Writes all state as new bases; the next checkpoint holds them and the log since."""
        job = self._job
        self._materialization_id += 1
        for delegate, logger in zip(self._delegates, self._loggers, strict=True):
            up_to = logger.init_materialization()
            raw, offsets = delegate.state.write_canonical()
            location = job.layout.task_owned.child(str(uuid4()))
            job.file_io.write_new(location, raw)
            stream = FileStateHandle(str(location), len(raw))
            base = KeyGroupsSavepointStateHandle(offsets, stream)
            logger.materialized(base, self._materialization_id, up_to)

    def checkpoint(self) -> Path:
        """Takes and commits a checkpoint; returns its folder."""
        job = self._job
        checkpoint_id = job.store.next_checkpoint_id()
        subtasks = tuple(
            OperatorSubtaskState(index, managed_keyed_state=logger.snapshot(checkpoint_id))
            for index, logger in enumerate(self._loggers)
        )
        operator = OperatorState(
            OperatorID.for_uid(job.uid), len(subtasks), job.max_parallelism, subtasks, uid=job.uid
        )
        job.store.commit(CheckpointMetadata(METADATA_VERSION, checkpoint_id, (operator,)))
        for logger in self._loggers:
            logger.notify_checkpoint_complete(checkpoint_id)
        return Path(job.layout.checkpoint(checkpoint_id).path)

    def close(self) -> None:
        for logger in self._loggers:
            logger.close()
        self._storage.close()
