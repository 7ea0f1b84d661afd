"""A subtask whose function works on whole columns: no Python per row or key."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.changelog.reader import StateChangelogHandleReader
from dstl_core.changelog.storage import FsStateChangelogStorage
from dstl_core.codec.change_payload import StateChangeOperation, metadata_change
from dstl_core.codec.columnar.keyed.encoder import EncodeProgram
from dstl_core.codec.columnar.keyed.key_group_columns import key_groups_of
from dstl_core.codec.columnar.types.type_layouts import bounded_layout, layout_of
from dstl_core.codec.serializers import (
    VoidNamespaceSerializer,
    serialize_to_bytes,
)
from dstl_core.errors import ConfigError, DstlError, UserFunctionError
from dstl_core.functions import KEY_INDEX, ColumnResult, KeyedColumnFunction, RuntimeContext
from dstl_core.model.checkpoint import OperatorSubtaskState
from dstl_core.model.handle import (
    ChangelogStateBackendHandle,
    CheckpointedStateScope,
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
)
from dstl_core.model.snapshot_type import CheckpointMetaData, CheckpointOptions, CheckpointType
from dstl_core.operators.environment import file_system_streams
from dstl_core.operators.subtask import refuse_unclaimed_raw_state
from dstl_core.operators.user_code import user_code
from dstl_core.savepoint.columns.keyed_sections import KeyedSections
from dstl_core.savepoint.columns.state_columns import KEY_COLUMN
from dstl_core.savepoint.write.column_fit import fit
from dstl_core.savepoint.write.keyed_encoder import KeyedStateEncoder
from dstl_core.spark.task.column_restore import ColumnRestore
from dstl_core.spark.task.column_store import KEY, ColumnStore, Keys, batches_of, bytes_of
from dstl_core.spark.task.job_spec import TaskSpec
from dstl_core.spark.task.local_copies import CopyFolder, Parts
from dstl_core.spark.task.output_files import OutputFiles
from dstl_core.spark.task.restore import Assigned
from dstl_core.spark.task.warm_backend import CAUGHT_UP, COLD, WARM
from dstl_core.state.backends.backend import HashMapKeyedStateBackend
from dstl_core.state.backends.changelog_backend import ChangelogKeyedStateBackend
from dstl_core.state.restore.carry_over import carry_over
from dstl_core.state.restore.compaction import compact_log, count_segments
from dstl_core.state.tables.keyed_state import KeyedState
from dstl_core.storage.written_files import DigestingFileIO, WrittenFile

ROWS_PER_CALL = 1_000_000
BYTES_PER_CALL = 256 << 20
_ENCODE_ROWS = 1 << 18
_VOID = VoidNamespaceSerializer()
_BITS = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}


class ColumnSubtask:
    """One subtask of one task. One thread.

    Args:
        task: The operator and where its files lie.
        subtask: Index of this subtask, from 0.
        given: What it restores.
    """

    def __init__(self, task: TaskSpec, subtask: int, given: Assigned) -> None:
        operator, function = task.operator, task.operator.function
        if operator.key_by is None or not isinstance(function, KeyedColumnFunction):
            raise ConfigError(f"The operator {operator.uid!r} has no key, or no column function.")
        refuse_unclaimed_raw_state(operator.uid, function, given.state)
        self._task = task
        self._subtask = subtask
        self._operator = operator
        self._function = function
        self._own = task.job.key_groups(subtask)
        self._handles = given.state.managed_keyed_state
        self._resolver = given.resolver
        self._metas = [each.meta_info(_VOID) for each in function.states]
        self._encode_values = {
            each.name: EncodeProgram([("value", bounded_layout(each.serializer))])
            for each in function.states
        }
        self._encode_keys = EncodeProgram([(KEY, layout_of(operator.key_type))])
        self._folder = CopyFolder(task, subtask)
        self.warmth = COLD
        self._store = self._restored()
        self._file_io = DigestingFileIO(task.job.layout.root.scheme)
        self._streams = file_system_streams(task.job.layout, self._file_io, inline_threshold=1024)
        self._open_changelog()
        self._described: set[str] = set()
        self._changed_keys = 0
        self.changes = 0
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_size = 0, 0
        with user_code(function, "open"):
            function.open(RuntimeContext(None, subtask, task.job.parallelism))

    late_rows = 0

    @property
    def written(self) -> list[WrittenFile]:
        """The state files that were written."""
        return list(self._file_io.written.values())

    @property
    def changed_keys(self) -> int:
        return self._changed_keys

    @property
    def upload_metrics(self) -> tuple[int, int]:
        """As for a function by row."""
        if self._changelog is None:
            return 0, 0
        metrics = self._storage.metrics
        return metrics.back_pressure_ms.count, metrics.upload_failures.count

    def take_late(self) -> list[Any]:
        """There are no windows."""
        return []

    def begin(self, output: OutputFiles) -> None:
        """There are no timers."""

    # ------------------------------------------------------------------------------- restore

    def _restored(self) -> ColumnStore:
        wanted = Parts.of(self._handles)
        restore = self._from_copy(wanted)
        if restore is not None:
            return restore
        self.warmth = COLD
        store = self._new_store()
        base: list[KeyedStateHandle] = []
        for handle in self._handles:
            if isinstance(handle, ChangelogStateBackendHandle):
                base += handle.materialized
            else:
                base.append(handle)
        restore_columns = self._restorer(store)
        restore_columns.base(base)
        store.tidy()
        # State ids count within a handle.
        for handle in self._handles:
            if isinstance(handle, ChangelogStateBackendHandle):
                restore_columns.replay(handle.non_materialized)
        return store

    def _from_copy(self, wanted: Parts) -> ColumnStore | None:
        if not self._task.job.local_copies.enabled or not self._handles:
            return None
        found = self._folder.find(wanted)
        if found is None:
            return None
        path, manifest, parts = found
        try:
            store = self._new_store(int(manifest["seed"]))
            store.open(path, manifest["levels"])
            missing = wanted.since(parts) or ()
            for log in missing:
                self._restorer(store).replay([log])
        except (DstlError, OSError, KeyError, TypeError, ValueError, AttributeError):
            # Restoring tells what is wrong, if it is not the copy.
            self._folder.drop(path)
            return None
        self.warmth = CAUGHT_UP if missing else WARM
        return store

    def _new_store(self, seed: int | None = None) -> ColumnStore:
        return ColumnStore(self._operator.key_type, self._function.states, seed)

    def _restorer(self, store: ColumnStore) -> ColumnRestore:
        return ColumnRestore(
            store,
            self._operator.key_type,
            self._metas,
            self._own,
            self._task.job.max_parallelism,
            self._resolver,
        )

    def _open_changelog(self) -> None:
        job = self._task.job
        self._changelog: ChangelogKeyedStateBackend | None = None
        if not job.changelog:
            return
        carried = carry_over(self._handles, self._own)
        self._storage = FsStateChangelogStorage(job.job_id, job.changelog_options, self._file_io)
        self._writer = self._storage.create_writer(self._operator.uid, self._own)
        # Holds no state: what changes is logged from columns.
        nothing = HashMapKeyedStateBackend(
            KeyedState(self._own, job.max_parallelism), self._operator.key_type
        )
        self._materialization_id = max(
            (getattr(each, "materialization_id", 0) for each in self._handles), default=0
        )
        self._changelog = ChangelogKeyedStateBackend(
            nothing,
            self._writer,
            base=carried.base if carried else (),
            restored_log=carried.log if carried else (),
            materialization_id=self._materialization_id,
        )
        self._changelog.must_materialize = carried is None

    # ---------------------------------------------------------------------------------- work

    def apply_broadcast(self, raw: bytes) -> None:
        """Raises ConfigError: a function on columns has no broadcast state."""
        raise ConfigError(
            f"The operator {self._operator.uid!r} works on columns and takes no broadcast input; "
            f"join it as a DataFrame."
        )

    def apply(self, batch: pa.RecordBatch, output: OutputFiles) -> None:
        self._waiting.append(batch)
        rows, size = self._waiting_size
        self._waiting_size = rows + batch.num_rows, size + batch.nbytes
        if self._waiting_size[0] >= ROWS_PER_CALL or self._waiting_size[1] >= BYTES_PER_CALL:
            self._process(output)

    def finish(self, watermark: int, output: OutputFiles) -> None:
        """Processes what waits. Functions on columns have no timers."""
        self._process(output)
        with user_code(self._function, "close"):
            self._function.close()

    def _process(self, output: OutputFiles) -> None:
        if not self._waiting:
            return
        table = pa.Table.from_batches(self._waiting).combine_chunks()
        self._waiting, self._waiting_size = [], (0, 0)
        [rows] = table.to_batches()
        column = rows.column(self._operator.key_by)
        if column.null_count:
            raise ConfigError("A key is null; keyed state needs a key.")
        keys, numbers = self._store.keys(fit(column, self._store.key_type, "The key"))
        before = self._store.lookup(keys)
        with_index = rows.append_column(KEY_INDEX, pa.array(numbers, pa.int64()))
        with user_code(self._function, "process_batch"):
            result = self._function.process_batch(keys.values, _batch(before), with_index)
            after = self._checked(result, before)
        self._log(keys, before, after)
        output.add_columns(result.output)

    def _checked(self, result: Any, before: pa.Table) -> pa.Table:
        """The new state of every key, columns that were not given as they were."""
        if not isinstance(result, ColumnResult):
            raise UserFunctionError(f"expected a ColumnResult, got a {type(result).__name__}")
        state, after = result.state, before
        if not isinstance(state, pa.RecordBatch | pa.Table):
            raise UserFunctionError(
                f"expected the new state as a record batch, got a {type(state).__name__}"
            )
        unknown = set(state.schema.names) - set(before.schema.names)
        if unknown or state.num_rows != before.num_rows:
            raise UserFunctionError(
                f"expected columns out of {before.schema.names} with {before.num_rows} rows, got "
                f"{state.schema.names} with {state.num_rows}"
            )
        for name in state.schema.names:
            at = before.schema.get_field_index(name)
            kind = before.schema.field(at)
            column = state.column(name)
            if isinstance(column, pa.ChunkedArray):
                column = column.combine_chunks()
            after = after.set_column(at, kind, fit(column, kind.type, f"State {name!r}"))
        return after

    # ---------------------------------------------------------------------------------- log

    def _log(self, keys: Keys, before: pa.Table, after: pa.Table) -> None:
        any_changed = np.zeros(len(keys), np.bool_)
        groups = key_groups_of(keys.values, self._operator.key_type, self._task.job.max_parallelism)
        for at, meta in enumerate(self._metas):
            old, new = _one(before.column(meta.name)), _one(after.column(meta.name))
            changed = _differ(old, new)
            any_changed |= changed
            if self._changelog is None or not changed.any():
                self.changes += int(changed.sum())
                continue
            if meta.name not in self._described:
                self._writer.append_meta(metadata_change(at, meta))
                self._described.add(meta.name)
            there = new.is_valid().to_numpy(zero_copy_only=False)
            for rows, operation in (
                (np.flatnonzero(changed & there), StateChangeOperation.SET),
                (np.flatnonzero(changed & ~there), StateChangeOperation.CLEAR),
            ):
                self._append(meta.name, at, keys, groups, new, rows, operation)
        rows = np.flatnonzero(any_changed)
        self._changed_keys += len(rows)
        if len(rows):
            self._store.put(keys.take(rows), after.take(pa.array(rows)))

    def _append(
        self,
        name: str,
        state_id: int,
        keys: Keys,
        groups: Any,
        values: pa.Array,
        rows: Any,
        operation: StateChangeOperation,
    ) -> None:
        if not len(rows):
            return
        places = pa.array(rows)
        head = bytes((operation.value,)) + state_id.to_bytes(2, "big")
        parts: list[Any] = [
            pa.scalar(head, pa.large_binary()),
            keys.raw.take(places),
            pa.scalar(serialize_to_bytes(_VOID, None), pa.large_binary()),
        ]
        if operation is StateChangeOperation.SET:
            encoded = self._encode_values[name].encode({"value": values.take(places)}, len(rows))
            parts.append(bytes_of(encoded))
        changes = pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))
        self._writer.append_batch(groups[rows], changes)
        self.changes += len(rows)

    # ------------------------------------------------------------------------------ snapshot

    def snapshot(
        self, checkpoint: CheckpointMetaData, options: CheckpointOptions
    ) -> OperatorSubtaskState:
        """The subtask's part of a snapshot, durable."""
        changelog = self._changelog
        checkpoint_id = checkpoint.checkpoint_id
        if changelog is None or options.checkpoint_type.is_savepoint:
            handle = self._write(checkpoint_id, options, CheckpointedStateScope.EXCLUSIVE)
            return OperatorSubtaskState(self._subtask, managed_keyed_state=handle)
        is_full = options.checkpoint_type == CheckpointType.FULL_CHECKPOINT
        if is_full or changelog.must_materialize:
            up_to = changelog.init_materialization()
            base = self._write(checkpoint_id, options, CheckpointedStateScope.SHARED)
            changelog.materialized(base, self._materialization_id + 1, up_to)
        else:
            self._compact(changelog, checkpoint_id)
        logged = changelog.snapshot(checkpoint_id)
        return OperatorSubtaskState(self._subtask, managed_keyed_state=logged)

    def _compact(self, changelog: ChangelogKeyedStateBackend, checkpoint_id: int) -> None:
        least = self._task.job.changelog_options.compaction_min_segments
        if not least or count_segments(changelog.restored_log) < least:
            return
        writer = self._storage.create_writer(self._operator.uid, self._own)
        reader = StateChangelogHandleReader(self._resolver.read_segment)
        changelog.replace_restored_log(
            compact_log(changelog.restored_log, reader, writer, checkpoint_id)
        )

    def _write(
        self, checkpoint_id: int, options: CheckpointOptions, scope: CheckpointedStateScope
    ) -> KeyGroupsSavepointStateHandle:
        """All state in canonical form."""
        task, key_type = self._task, self._operator.key_type
        encoder = KeyedStateEncoder(
            key_type, self._metas, task.job.max_parallelism, key_groups=self._own
        )
        stream = self._streams(checkpoint_id, options).create_checkpoint_state_output_stream(scope)
        whole = self._store.whole().rename_columns([KEY_COLUMN, *self._store.schema.names])
        try:
            with KeyedSections(
                encoder.header, self._own, task.job.max_parallelism, check_duplicates=False
            ) as sections:
                for batch in batches_of(whole, _ENCODE_ROWS):
                    for runs in encoder.encode_keyed(batch):
                        sections.add(runs)
                written = sections.stream(self._own)
                for part in written:
                    stream.write(part)
            return KeyGroupsSavepointStateHandle(written.offsets, stream.close_and_get_handle())
        finally:
            stream.close()

    # --------------------------------------------------------------------------------- close

    def close(self, state: OperatorSubtaskState | None) -> None:
        """Ends the subtask after its state was kept, which a local copy is named after."""
        if self._changelog is not None:
            self._changelog.close()
            self._storage.close()
        handle = None if state is None else state.managed_keyed_state
        if handle is None or not self._task.job.local_copies.enabled:
            return
        parts = Parts.of([handle])
        if self.warmth == WARM and parts == Parts.of(self._handles):
            return
        store = self._store
        store.tidy()
        self._folder.build(parts, lambda built: {"levels": store.save(built), "seed": store.seed})

    def abandon(self) -> None:
        """Nothing of this attempt will be committed: its own files go at once."""
        if self._changelog is not None:
            self._changelog.abandon()
            self._storage.close()


def _one(column: pa.ChunkedArray) -> pa.Array:
    found: Any = column.combine_chunks()
    return found


def _batch(table: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [_one(column) for column in table.columns], schema=table.schema
    )


def _differ(old: pa.Array, new: pa.Array) -> Any:
    """Where a value is another one, comes, or goes, by its bits: 0.0 and -0.0 are two. Values that
    Arrow cannot compare count as changed.
    """
    was, now = old.is_valid(), new.is_valid()
    moved = pc.not_equal(was, now)
    bits = _BITS.get(old.type)
    try:
        if bits is not None:
            old, new = old.view(bits), new.view(bits)
        other = pc.fill_null(pc.not_equal(old, new), False)
    except pa.ArrowNotImplementedError:
        other = now
    return pc.or_(moved, other).to_numpy(zero_copy_only=False)
