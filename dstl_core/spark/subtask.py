"""What runs inside a Spark task: one Flink subtask at a time.

A task gets plain values (paths, ids, the user's function), reads the parent snapshot itself, and
reports handles. Files carry random names, so an attempt that was repeated leaves only files that
nothing names.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dstl_core.changelog.storage import FsStateChangelogStorage
from dstl_core.checkpoint.metadata_file import load_metadata_file
from dstl_core.errors import InvariantViolation
from dstl_core.model.handle import (
    ChangelogStateBackendHandle,
    FileStateHandle,
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
)
from dstl_core.savepoint.folder import SavepointFolder
from dstl_core.spark.inputs import FINGERPRINT_COLUMN, Fingerprint
from dstl_core.spark.key_groups import SUBTASK_COLUMN
from dstl_core.spark.operators import TaskSpec
from dstl_core.spark.reports import SubtaskReport, encode_handle
from dstl_core.state.backend import HashMapKeyedStateBackend
from dstl_core.state.carry_over import CarriedState, carry_over
from dstl_core.state.changelog_backend import ChangelogKeyedStateBackend
from dstl_core.state.functions import KeyedProcessOperator, Row
from dstl_core.state.keyed_state import KeyedState, restore_keyed_state
from dstl_core.storage.file_io import FileIO, open_file_io
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import Location

OUTPUT_ROWS_PER_FILE = 1_000_000


def parent_handles(task: TaskSpec) -> tuple[list[KeyedStateHandle], HandleResolver] | None:
    """The operator's keyed handles in the parent snapshot, whole, with what resolves them."""
    if task.parent is None:
        return None
    folder = Location.parse(task.parent)
    file_io = open_file_io(folder)
    file = load_metadata_file(file_io, folder)
    handles = [
        subtask.managed_keyed_state
        for operator in file.metadata.operators
        if operator.operator_id == task.parent_operator
        for subtask in operator.subtasks
        if subtask.managed_keyed_state is not None
    ]
    return handles, HandleResolver(file_io, file.folder, allow_roots=[task.layout.root])


def restore_subtask(task: TaskSpec, subtask: int) -> KeyedState:
    """Reads the key groups of a subtask from the parent snapshot, whatever its parallelism."""
    key_groups = task.key_groups(subtask)
    parent = parent_handles(task)
    if parent is None:
        return KeyedState(key_groups, task.max_parallelism)
    handles, resolver = parent
    return restore_keyed_state(handles, key_groups, task.max_parallelism, resolver)


def carried_state(task: TaskSpec, subtask: int) -> CarriedState:
    """The handles of the parent that the subtask's next checkpoint builds on."""
    parent = parent_handles(task)
    if parent is None:
        return CarriedState((), (), 0)
    carried = carry_over(parent[0], task.key_groups(subtask))
    if carried is None:
        raise InvariantViolation("the parent had to be materialized before this epoch")
    return carried


# ----------------------------------------------------------------------------------- epoch


@dataclass
class OutputFiles:
    """Output rows of one subtask, as Parquet files under the checkpoint."""

    file_io: FileIO
    folder: Location
    schema: pa.Schema | None
    subtask: int
    names: list[str] = field(default_factory=list)
    rows: int = 0
    buffer: list[Row] = field(default_factory=list)

    def add(self, rows: Iterable[Row]) -> None:
        if self.schema is None:
            return
        self.buffer.extend(rows)
        if len(self.buffer) >= OUTPUT_ROWS_PER_FILE:
            self.flush()

    def flush(self) -> None:
        if not self.buffer or self.schema is None:
            return
        table = pa.Table.from_pylist([dict(row) for row in self.buffer], schema=self.schema)
        raw = io.BytesIO()
        pq.write_table(table, raw)
        name = f"part-{self.subtask:05d}-{uuid4().hex}.parquet"
        self.file_io.write_new(self.folder.child(name), raw.getvalue())
        self.names.append(name)
        self.rows += len(self.buffer)
        self.buffer = []


def run_epoch_subtask(
    task: TaskSpec, checkpoint_id: int, subtask: int, batches: Iterable[pa.RecordBatch]
) -> SubtaskReport:
    """Restores, applies the rows in order, logs, persists."""
    carried = carried_state(task, subtask)
    file_io = open_file_io(task.layout.root)
    storage = FsStateChangelogStorage(task.job_id, task.changelog, file_io)
    delegate = HashMapKeyedStateBackend(restore_subtask(task, subtask), task.operator.key_type)
    writer = storage.create_writer(task.operator.uid, task.key_groups(subtask))
    backend = ChangelogKeyedStateBackend(
        delegate,
        writer,
        base=carried.base,
        restored_log=carried.log,
        materialization_id=carried.materialization_id,
        value_logging=task.value_logging,
    )
    output = OutputFiles(
        file_io, task.layout.output(checkpoint_id), task.operator.output_schema, subtask
    )
    try:
        fingerprint = _apply(_operator(task, delegate, subtask), batches, output)
        output.flush()
        handle = backend.snapshot(checkpoint_id)
    except BaseException:
        # Nothing of this attempt will be committed: its own files go at once.
        writer.truncate_and_close(writer.initial_sequence_number())
        raise
    backend.close()
    storage.close()
    return SubtaskReport(
        subtask,
        encode_handle(handle),
        fingerprint.rows,
        str(fingerprint.hash_sum),
        backend.changes,
        len(backend.changed_scopes),
        output.rows,
        output.names,
    )


def _operator(
    task: TaskSpec, backend: HashMapKeyedStateBackend, subtask: int
) -> KeyedProcessOperator:
    operator = task.operator
    return KeyedProcessOperator(
        operator.function,
        backend,
        operator.key_by,
        subtask_index=subtask,
        parallelism=task.parallelism,
    )


def _apply(
    operator: KeyedProcessOperator, batches: Iterable[pa.RecordBatch], output: OutputFiles
) -> Fingerprint:
    fingerprint = Fingerprint(0, 0)
    for batch in batches:
        fingerprint += Fingerprint.of_column(batch.column(FINGERPRINT_COLUMN))
        for row in batch.drop_columns([FINGERPRINT_COLUMN, SUBTASK_COLUMN]).to_pylist():
            output.add(operator.process(row))
    operator.close()
    return fingerprint


def split_by_subtask(
    batches: Iterable[pa.RecordBatch],
) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
    """Groups a partition's batches by subtask. The rows come sorted by subtask; usually a
    partition has one, but Spark may put several into a task.
    """
    for subtask, runs in groupby(_runs(batches), key=lambda run: run[0]):
        yield subtask, (batch for _, batch in runs)


def _runs(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    for batch in batches:
        encoded = pc.run_end_encode(batch.column(SUBTASK_COLUMN))
        start = 0
        ends = encoded.run_ends.to_pylist()
        for end, subtask in zip(ends, encoded.values.to_pylist(), strict=True):
            yield subtask, batch.slice(start, end - start)
            start = end


# ------------------------------------------------------------------------------ full state


def materialize_subtask(
    task: TaskSpec, checkpoint_id: int, materialization_id: int, subtask: int
) -> SubtaskReport:
    """Writes the full state of a subtask as a new base, owned by the pipeline."""
    state = _full_state(task, subtask)
    raw, offsets = state.write_canonical()
    location = task.layout.task_owned.child(str(uuid4()))
    open_file_io(location).write_new(location, raw)
    base = KeyGroupsSavepointStateHandle(offsets, FileStateHandle(str(location), len(raw)))
    handle = ChangelogStateBackendHandle(
        (base,), (), state.key_groups, materialization_id, checkpoint_id, len(raw), str(uuid4())
    )
    return SubtaskReport(subtask, encode_handle(handle))


def savepoint_subtask(task: TaskSpec, target: str, subtask: int) -> SubtaskReport:
    """Writes the full state of a subtask into a savepoint folder."""
    handle = SavepointFolder(target).add_keyed_state(_full_state(task, subtask))
    return SubtaskReport(subtask, encode_handle(handle))


def _full_state(task: TaskSpec, subtask: int) -> KeyedState:
    """The restored state with every state that the function declares, so that the header names
    them even while they are empty, and types that do not fit are found before a byte is written.
    """
    state = restore_subtask(task, subtask)
    _operator(task, HashMapKeyedStateBackend(state, task.operator.key_type), subtask)
    return state
