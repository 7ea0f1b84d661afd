"""A subtask whose function processes columns, without Python per row or key."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dstl_core.changelog.interfaces import StateChangelogWriter
from dstl_core.codec.change_payload import StateChangeOperation
from dstl_core.codec.columnar.keyed.key_group_columns import key_groups_of
from dstl_core.codec.serializers import VoidNamespaceSerializer
from dstl_core.errors import ConfigError, DstlError, UserFunctionError
from dstl_core.functions import KEY_INDEX, ColumnResult, KeyedColumnFunction, RuntimeContext
from dstl_core.model.checkpoint import OperatorSubtaskState
from dstl_core.model.handle import ChangelogStateBackendHandle, KeyedStateHandle
from dstl_core.model.snapshot_type import CheckpointMetaData, CheckpointOptions
from dstl_core.operators.aggregate_merge import AggregateMerge
from dstl_core.operators.keyed_snapshots import KeyedSnapshots
from dstl_core.operators.subtask import refuse_unclaimed_raw_state
from dstl_core.operators.user_code import user_code
from dstl_core.savepoint.write.column_fit import fit
from dstl_core.spark.engine.reduced_rows import ReducedRows
from dstl_core.spark.engine.waiting_rows import WaitingRows
from dstl_core.spark.task.column_changelog import CapturedColumns, ColumnChangelog
from dstl_core.spark.task.column_differences import differ
from dstl_core.spark.task.column_restore import ColumnRestore
from dstl_core.spark.task.column_store import ColumnStore, Keys
from dstl_core.spark.task.job_spec import TaskSpec
from dstl_core.spark.task.local_copies import CopyFolder, Parts
from dstl_core.spark.task.operators import AggregateOperator
from dstl_core.spark.task.output_files import OutputFiles
from dstl_core.spark.task.reports import SubtaskMetrics
from dstl_core.spark.task.restore import Assigned
from dstl_core.spark.task.subtask_files import SubtaskFiles
from dstl_core.spark.task.warm_backend import CAUGHT_UP, COLD, WARM
from dstl_core.state.restore.carry_over import CarriedState
from dstl_core.storage.written_files import WrittenFile

_VOID = VoidNamespaceSerializer()


class ColumnSubtask:
    """One subtask of one task. One thread.

    Args:
        task: The operator, and the folders of its files.
        subtask: Index of this subtask, from 0.
        given: The state that it restores.
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
        self._folder = CopyFolder(task, subtask)
        self.warmth = COLD
        self._store = self._restored()
        self._files = SubtaskFiles(task)
        self._environment = self._files.environment(task.job.state_backend, given.resolver)
        self._snapshots = KeyedSnapshots(
            self._files.setup(operator.key_by),
            self._environment,
            subtask,
            self._handles,
            self._capture,
            self._open_log,
        )
        self._changes = 0
        self._changed_keys = 0
        self._keys_gained = 0
        self._waiting = WaitingRows()
        self._reduced_rows: ReducedRows[Keys] | None = (
            ReducedRows(
                operator.key_by,
                list(zip(operator.aggregates.values(), operator.function.merges, strict=True)),
                self._number_keys,
            )
            if isinstance(operator, AggregateOperator)
            else None
        )
        with user_code(function, "open"):
            function.open(RuntimeContext(None, subtask, task.job.parallelism))

    @property
    def written(self) -> list[WrittenFile]:
        return self._files.written

    @property
    def metrics(self) -> SubtaskMetrics:
        return SubtaskMetrics(
            changes=self._changes,
            changed_keys=self._changed_keys,
            keys_gained=self._keys_gained,
            late_rows=0,
            back_pressure_ms=self._files.back_pressure_ms,
            failed_uploads=self._files.failed_uploads,
        )

    def take_late(self) -> list[Any]:
        """Returns nothing: functions on columns have no windows."""
        return []

    def begin(self, output: OutputFiles) -> None:
        """Does nothing: functions on columns have no timers."""

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
        # State ids are valid within a handle.
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
            # If the state itself is damaged, the restore raises the error.
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

    def _open_log(self, writer: StateChangelogWriter, above: CarriedState) -> ColumnChangelog:
        return ColumnChangelog(
            writer, self._own, self._capture, above, self._operator.key_type, self._metas
        )

    def _capture(self) -> CapturedColumns:
        return CapturedColumns(
            self._store,
            self._operator.key_type,
            self._metas,
            self._own,
            self._task.job.max_parallelism,
        )

    # ---------------------------------------------------------------------------------- work

    def apply_broadcast(self, raw: bytes) -> None:
        """Raises ConfigError: a function on columns has no broadcast input."""
        raise ConfigError(
            f"The operator {self._operator.uid!r} works on columns and takes no broadcast input; "
            f"join it as a DataFrame."
        )

    def apply(self, batch: pa.RecordBatch, output: OutputFiles) -> None:
        if self._reduced_rows is not None and self._reduced_rows.takes(batch):
            self._merge_reduced(self._reduced_rows.add(batch), output)
        elif self._waiting.add(batch):
            self._process(output)

    def finish(self, watermark: int, output: OutputFiles) -> None:
        """Processes the waiting rows. Functions on columns have no timers."""
        if self._reduced_rows is not None:
            self._merge_reduced(self._reduced_rows.take(), output)
        self._process(output)
        with user_code(self._function, "close"):
            self._function.close()

    def _process(self, output: OutputFiles) -> None:
        rows = self._waiting.take()
        if rows is None:
            return
        keys, numbers = self._number_keys(rows.column(self._operator.key_by))
        self._merge(keys, numbers, rows, output)

    def _merge_reduced(
        self, reduced: tuple[Keys, pa.RecordBatch] | None, output: OutputFiles
    ) -> None:
        if reduced is not None:
            keys, rows = reduced
            self._merge(keys, np.arange(len(keys)), rows, output)

    def _merge(
        self,
        keys: Keys,
        numbers: npt.NDArray[np.int64],
        rows: pa.RecordBatch,
        output: OutputFiles,
    ) -> None:
        """Calls the function with rows and the states of their keys, and keeps the new states."""
        before = self._store.lookup(keys)
        with_index = rows.append_column(KEY_INDEX, pa.array(numbers, pa.int64()))
        with self._calling("process_batch"):
            result = self._function.process_batch(keys.values, _batch(before), with_index)
            after = self._checked(result, before)
        changed = self._log(keys, before, after)
        output.add_columns(result.output)
        if output.schema is None or not changed.any():
            return
        places = pa.array(np.flatnonzero(changed))
        new = after.take(places).combine_chunks()
        with self._calling("output_of_changes"):
            rows_of_changes = self._function.output_of_changes(
                keys.values.take(places), _batch(new)
            )
        output.add_columns(rows_of_changes)

    def _number_keys(self, column: pa.Array) -> tuple[Keys, npt.NDArray[np.int64]]:
        """The distinct keys of a column, and the number of the key of each row."""
        if column.null_count:
            raise ConfigError("A key is null; keyed state needs a key.")
        return self._store.keys(fit(column, self._store.key_type, "The key"))

    def _calling(self, method: str) -> AbstractContextManager[None]:
        """Names the function in errors of a user's code; declared aggregates are dstl's code."""
        own = isinstance(self._function, AggregateMerge)
        return nullcontext() if own else user_code(self._function, method)

    def _checked(self, result: Any, before: pa.Table) -> pa.Table:
        """The new state of every key; columns that the function left out are unchanged."""
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

    def _log(self, keys: Keys, before: pa.Table, after: pa.Table) -> npt.NDArray[np.bool_]:
        """Logs and keeps what changed; returns which keys changed."""
        any_changed = np.zeros(len(keys), np.bool_)
        changelog = self._snapshots.changelog
        groups = key_groups_of(keys.values, self._operator.key_type, self._task.job.max_parallelism)
        for at, meta in enumerate(self._metas):
            new = _one(after.column(meta.name))
            changed = differ(_one(before.column(meta.name)), new)
            any_changed |= changed
            self._changes += int(np.count_nonzero(changed))
            there = new.is_valid().to_numpy(zero_copy_only=False)
            for chosen, operation in (
                (changed & there, StateChangeOperation.SET),
                (changed & ~there, StateChangeOperation.CLEAR),
            ):
                if changelog is None or not chosen.any():
                    continue
                if chosen.all():
                    changelog.log_values(at, groups, keys.values, new, operation)
                    continue
                rows = np.flatnonzero(chosen)
                places = pa.array(rows)
                changelog.log_values(
                    at, groups[rows], keys.values.take(places), new.take(places), operation
                )
        self._changed_keys += int(np.count_nonzero(any_changed))
        self._keys_gained += _keys_with_state(after) - _keys_with_state(before)
        self._store.put(keys, after, any_changed)
        return any_changed

    # ------------------------------------------------------------------------------ snapshot

    def snapshot(
        self, checkpoint: CheckpointMetaData, options: CheckpointOptions
    ) -> OperatorSubtaskState:
        checkpoint_id = checkpoint.checkpoint_id
        streams = self._environment.streams(checkpoint_id, options)
        written = self._snapshots.start(checkpoint_id, options, streams)
        return OperatorSubtaskState(self._subtask, managed_keyed_state=written())

    # --------------------------------------------------------------------------------- close

    def close(self, state: OperatorSubtaskState | None) -> None:
        self._snapshots.close()
        self._files.close()
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
        self._snapshots.abandon()
        self._files.close()


def _keys_with_state(table: pa.Table) -> int:
    """How many rows have a value in at least one column."""
    if any(column.null_count == 0 for column in table.columns):
        return int(table.num_rows)
    there = np.zeros(table.num_rows, np.bool_)
    for column in table.columns:
        there |= _one(column).is_valid().to_numpy(zero_copy_only=False)
    return int(np.count_nonzero(there))


def _one(column: pa.ChunkedArray) -> pa.Array:
    found: Any = column.combine_chunks()
    return found


def _batch(table: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [_one(column) for column in table.columns], schema=table.schema
    )
