"""The state of one subtask in columns: restore, changes, log, snapshots and local copies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dstl_core.changelog.interfaces import StateChangelogWriter
from dstl_core.codec.change_payload import StateChangeOperation
from dstl_core.codec.columnar.keyed.key_group_columns import key_groups_of
from dstl_core.codec.columnar.types.input import one_array
from dstl_core.codec.serializers import VoidNamespaceSerializer
from dstl_core.errors import ConfigError, DstlError
from dstl_core.job.rows.keys import fitted_keys
from dstl_core.job.rows.row_buffer import RowBuffer
from dstl_core.job.spec.job_spec import TaskSpec
from dstl_core.job.task.local_copies import BegunCopy, CopyFolder, CopyParts
from dstl_core.job.task.output_files import OutputFiles
from dstl_core.job.task.reports import SubtaskMetrics
from dstl_core.job.task.restore import Assigned
from dstl_core.job.task.subtask_files import SubtaskFiles
from dstl_core.job.task.warm_backend import CAUGHT_UP, COLD, WARM
from dstl_core.model.checkpoint import OperatorSubtaskState
from dstl_core.model.handle import ChangelogStateBackendHandle, KeyedStateHandle
from dstl_core.model.snapshot_type import CheckpointMetaData, CheckpointOptions
from dstl_core.operators.keyed_snapshots import KeyedSnapshots
from dstl_core.operators.subtask import refuse_unclaimed_raw_state
from dstl_core.state.columns.column_changelog import CapturedColumns, ColumnChangelog
from dstl_core.state.columns.column_restore import ColumnRestore
from dstl_core.state.columns.column_store import ColumnStore, Keys, files_of
from dstl_core.state.restore.carry_over import CarriedState
from dstl_core.state.tables.descriptor import ValueStateDescriptor
from dstl_core.state.tables.readable_types import check_readable
from dstl_core.storage.written_files import WrittenFile

LOGGED_ROWS = 1 << 18
"""Changes that are encoded at a time."""
_VOID = VoidNamespaceSerializer()


Changed = npt.NDArray[np.bool_]


class StateInColumns(ABC):
    """One subtask of one task, with value state in columns. One thread.

    Args:
        task: The operator, and the folders of its files.
        subtask: Index of this subtask, from 0.
        assigned: The state that it restores.
        states: The states of the function.

    Raises:
        RestoreError, StateMigrationError: The restored state is not of these states alone.
    """

    def __init__(
        self,
        task: TaskSpec,
        subtask: int,
        assigned: Assigned,
        states: Sequence[ValueStateDescriptor],
    ) -> None:
        operator = task.operator
        if operator.key_by is None:
            raise ConfigError(f"The operator {operator.uid!r} has no key.")
        refuse_unclaimed_raw_state(operator.uid, operator.function, assigned.state)
        self._task = task
        self._subtask = subtask
        self._operator = operator
        self._key_by = operator.key_by
        self._states = states
        self._own = task.job.key_groups(subtask)
        self._handles = assigned.state.managed_keyed_state
        self._resolver = assigned.resolver
        self._metas = [each.meta_info(_VOID) for each in states]
        self._folder = CopyFolder(task, subtask)
        self.warmth = COLD
        self._store = self._restored()
        self._files = SubtaskFiles(task)
        self._environment = self._files.environment(task.job.state_backend, assigned.resolver)
        self._snapshots = KeyedSnapshots(
            self._files.setup(self._key_by),
            self._environment,
            subtask,
            self._handles,
            self._capture,
            self._open_log,
        )
        self._changes = 0
        self._changed_keys = 0
        self._keys_gained = 0
        self._waiting = RowBuffer()
        self._begun: BegunCopy | None = None

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
        """Returns nothing: state in columns has no windows."""
        return []

    def begin(self, output: OutputFiles) -> None:
        """Does nothing: state in columns has no timers."""
        return None

    def apply_broadcast(self, raw: bytes) -> None:
        """Raises ConfigError: a function with state in columns has no broadcast input."""
        raise ConfigError(
            f"The operator {self._operator.uid!r} works on columns and takes no broadcast input; "
            f"join it to the rows before they are an input."
        )

    # ------------------------------------------------------------------------------- restore

    def _restored(self) -> ColumnStore:
        wanted = CopyParts.of(self._handles)
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

    def _from_copy(self, wanted: CopyParts) -> ColumnStore | None:
        if not self._task.job.local_copies.enabled or not self._handles:
            return None
        copy = self._folder.find(wanted)
        if copy is None:
            return None
        path, manifest, parts = copy
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
        return ColumnStore(self._operator.key_type, self._states, seed)

    def _restorer(self, store: ColumnStore) -> ColumnRestore:
        return ColumnRestore(
            store,
            self._operator.key_type,
            self._metas,
            self._own,
            self._task.job.max_parallelism,
            self._resolver,
            self._task.job.registry,
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

    def apply(self, batch: pa.RecordBatch, output: OutputFiles) -> None:
        if self._waiting.add(batch):
            self._process(output)

    def finish(self, watermark: int, output: OutputFiles) -> None:
        """Processes the waiting rows. State in columns has no timers."""
        self._process(output)

    def _process(self, output: OutputFiles) -> None:
        rows = self._waiting.take()
        if rows is not None:
            self._process_rows(rows, output)

    @abstractmethod
    def _process_rows(self, rows: pa.RecordBatch, output: OutputFiles) -> None:
        """Calls the function with rows and the states of their keys, and keeps the new states.

        Args:
            rows: The rows.
            output: Takes the output of the function.
        """

    def _number_keys(self, column: pa.Array) -> tuple[Keys, npt.NDArray[np.int64]]:
        """The distinct keys of a column, and the number of the key of each row."""
        return self._store.keys(fitted_keys(column, self._key_by, self._operator.key_type))

    # ---------------------------------------------------------------------------------- log

    def _keep(
        self, keys: Keys, known: Changed, after: pa.Table, changed: Sequence[Changed]
    ) -> Changed:
        """Logs and keeps new states; returns which keys changed.

        Args:
            keys: Distinct keys.
            known: Which keys have had state until now.
            after: Their new states.
            changed: Which keys changed, for each state.
        """
        any_changed = np.zeros(len(keys), np.bool_)
        changelog = self._snapshots.changelog
        groups = key_groups_of(keys.values, self._operator.key_type, self._task.job.max_parallelism)
        for at, (meta, differs) in enumerate(zip(self._metas, changed, strict=True)):
            new = one_array(after.column(meta.name))
            any_changed |= differs
            self._changes += int(np.count_nonzero(differs))
            is_set = new.is_valid().to_numpy(zero_copy_only=False)
            for chosen, operation in (
                (differs & is_set, StateChangeOperation.SET),
                (differs & ~is_set, StateChangeOperation.CLEAR),
            ):
                if changelog is None:
                    continue
                rows = np.flatnonzero(chosen)
                for start in range(0, len(rows), LOGGED_ROWS):
                    some = rows[start : start + LOGGED_ROWS]
                    places = pa.array(some)
                    own_keys, values = keys.values.take(places), new.take(places)
                    changelog.log_values(at, groups[some], own_keys, values, operation)
        self._changed_keys += int(np.count_nonzero(any_changed))
        self._keys_gained += int(np.count_nonzero(with_state(after)) - np.count_nonzero(known))
        self._store.put(keys, after, any_changed)
        return any_changed

    # ------------------------------------------------------------------------------ snapshot

    def snapshot(
        self, checkpoint: CheckpointMetaData, options: CheckpointOptions
    ) -> OperatorSubtaskState:
        checkpoint_id = checkpoint.checkpoint_id
        streams = self._environment.streams(checkpoint_id, options)
        check_readable(
            self._operator.uid, self._operator.key_type, self._metas, self._environment.registry
        )
        written = self._snapshots.start(checkpoint_id, options, streams)
        self._files.send()
        if not options.checkpoint_type.is_savepoint and (self._changes or self.warmth != WARM):
            self._begun = self._begin_copy()  # while the log is uploaded
        state = OperatorSubtaskState(self._subtask, managed_keyed_state=written())
        # Mapped files have no checksums that a read would check.
        self._folder.check_used()
        return state

    # --------------------------------------------------------------------------------- close

    def close(self, state: OperatorSubtaskState | None) -> None:
        self._snapshots.close()
        self._files.close()
        handle = None if state is None else state.managed_keyed_state
        parts = None if handle is None else CopyParts.of([handle])
        is_kept = self.warmth == WARM and parts == CopyParts.of(self._handles)
        if parts is None or is_kept or not self._task.job.local_copies.enabled:
            self._folder.give_up(self._begun)
        else:
            begun = self._begun or self._begin_copy()
            if begun is not None:
                self._folder.finish(begun, parts, files_of(begun.notes["levels"]))
        self._let_go()

    def _begin_copy(self) -> BegunCopy | None:
        """The files of a local copy of the state; None if none is kept."""
        if not self._task.job.local_copies.enabled:
            return None
        if self._folder.damage_of_used() is not None:
            return None  # a copy that is made of damaged levels would have valid digests
        store = self._store
        store.tidy()
        return self._folder.begin(lambda built: {"levels": store.save(built), "seed": store.seed})

    def abandon(self) -> None:
        self._snapshots.abandon()
        self._files.close()
        self._folder.give_up(self._begun)
        self._folder.drop_damaged()
        self._let_go()

    def _let_go(self) -> None:
        """Frees the memory of the state now: the objects of a subtask refer to each other."""
        self._store.levels.clear()
        self._waiting.take()


def with_state(table: pa.Table) -> Changed:
    """Which rows have a value in at least one column."""
    if any(column.null_count == 0 for column in table.columns):
        return np.ones(table.num_rows, np.bool_)
    is_set = np.zeros(table.num_rows, np.bool_)
    for column in table.columns:
        is_set |= one_array(column).is_valid().to_numpy(zero_copy_only=False)
    return is_set
