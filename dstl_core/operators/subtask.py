"""One subtask of an operator: its function, all its state, and its part of each checkpoint.

Source: ``StreamOperatorStateHandler``, ``StreamTaskStateInitializerImpl`` and
``AbstractStreamOperator`` of Flink 2.2.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

from dstl_core.changelog.interfaces import StateChangelogWriter
from dstl_core.codec.python_values import stored_type
from dstl_core.codec.serializers import AnySerializer
from dstl_core.errors import CheckpointError, ConfigError, InvariantViolation, RestoreError
from dstl_core.functions import CheckpointedFunction, RawStateOperator, RichFunction, WindowFunction
from dstl_core.model.checkpoint import OperatorSubtaskState
from dstl_core.model.handle import (
    CheckpointedStateScope,
    KeyedStateHandle,
    KeyGroupsStateHandle,
    OperatorStreamStateHandle,
)
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.model.snapshot_type import CheckpointMetaData, CheckpointOptions
from dstl_core.model.task_restore import PrioritizedOperatorSubtaskState
from dstl_core.operators.aggregated_sessions import AggregatedSessionOperator
from dstl_core.operators.aggregated_windows import AggregatedWindowOperator, AggregatedWindows
from dstl_core.operators.environment import OperatorSetup, TaskEnvironment
from dstl_core.operators.keyed_snapshots import KeyedSnapshots
from dstl_core.operators.process_operator import KeyedProcessOperator
from dstl_core.operators.user_code import user_code
from dstl_core.operators.window_operator import WindowOperator, refuse_other_windows
from dstl_core.state.backends.backend import KeyedStateBackend
from dstl_core.state.backends.changelog_backend import ChangelogKeyedStateBackend
from dstl_core.state.backends.context import (
    KeyedStateStore,
    StateInitializationContext,
    StateSnapshotContext,
)
from dstl_core.state.backends.materialization import PeriodicMaterializationManager
from dstl_core.state.backends.raw_streams import raw_keyed_inputs, raw_operator_inputs
from dstl_core.state.backends.state_backend import KeyedStateBackendParameters
from dstl_core.state.backends.timers import MAX_WATERMARK, InternalTimerService
from dstl_core.state.restore.carry_over import CarriedState
from dstl_core.state.tables.readable_types import check_readable

if TYPE_CHECKING:
    import pyarrow as pa

    from dstl_core.codec.columnar.types.input import Column


def refuse_unclaimed_raw_state(
    uid: str, function: RichFunction, restored: PrioritizedOperatorSubtaskState
) -> None:
    """Raises RestoreError for raw state that the function would not read.

    Checkpoints of Flink's RocksDB backend with timers on the heap have the timers as raw state.
    """
    if not isinstance(function, RawStateOperator) and (
        restored.raw_keyed_state or restored.raw_operator_state
    ):
        raise RestoreError(
            f"The operator {uid!r} has raw state (maybe timers of a Flink job) that its function "
            f"does not read, so it would be lost; start from a canonical savepoint of the job, or "
            f"make the function a RawStateOperator."
        )


class OperatorSubtask:
    """A running subtask. One thread.

    Args:
        setup: The setup of the operator.
        environment: The environment of the subtask.
        index: Index of the subtask, from 0.
        function: The user's function.
        restore: The state that was assigned to the subtask.
        is_open: Whether the function was opened before; windows are always opened here.
    """

    def __init__(
        self,
        setup: OperatorSetup,
        environment: TaskEnvironment,
        index: int,
        function: RichFunction,
        restore: PrioritizedOperatorSubtaskState | None = None,
        *,
        is_open: bool = False,
    ) -> None:
        restored = restore if restore is not None else PrioritizedOperatorSubtaskState()
        self.setup = setup
        self.index = index
        self._environment = environment
        self._function = function
        self._last_snapshot = -1
        self._snapshots: KeyedSnapshots[ChangelogKeyedStateBackend] | None = None
        self.operator_state = environment.state_backend.create_operator_state_backend(
            restored.managed_operator_state, environment.resolver, environment.registry
        )
        self.keyed: KeyedStateBackend | None = None
        if setup.key_type is not None:
            self.keyed = self._create_keyed(stored_type(setup.key_type), restored)
            self._snapshots = self._snapshots_of(self.keyed, restored.managed_keyed_state)
        self._initialize(restored)
        self._operator = self._create_operator(is_open=is_open)

    # ------------------------------------------------------------------------------- restore

    @property
    def key_groups(self) -> KeyGroupRange:
        return self.setup.key_groups(self.index)

    def _create_keyed(
        self, key_type: AnySerializer, restored: PrioritizedOperatorSubtaskState
    ) -> KeyedStateBackend:
        environment = self._environment
        return environment.state_backend.create_keyed_state_backend(
            KeyedStateBackendParameters(
                key_type,
                self.setup.max_parallelism,
                self.key_groups,
                restored.managed_keyed_state,
                environment.resolver,
                environment.clock,
                environment.registry,
            )
        )

    def _snapshots_of(
        self, keyed: KeyedStateBackend, handles: tuple[KeyedStateHandle, ...]
    ) -> KeyedSnapshots[ChangelogKeyedStateBackend]:
        def open_log(
            writer: StateChangelogWriter, above: CarriedState
        ) -> ChangelogKeyedStateBackend:
            return ChangelogKeyedStateBackend(
                keyed,
                writer,
                base=above.base,
                restored_log=above.log,
                materialization_id=above.materialization_id,
                value_logging=self._environment.value_logging,
            )

        return KeyedSnapshots(
            self.setup, self._environment, self.index, handles, keyed.capture, open_log
        )

    def _initialize(self, restored: PrioritizedOperatorSubtaskState) -> None:
        refuse_unclaimed_raw_state(self.setup.uid, self._function, restored)
        resolver = self._environment.resolver
        context = StateInitializationContext(
            KeyedStateStore(self.keyed),
            self.operator_state,
            restored.restored_checkpoint_id,
            raw_keyed_inputs(restored.raw_keyed_state, self.key_groups, resolver),
            raw_operator_inputs(restored.raw_operator_state, resolver),
        )
        function = self._function
        if isinstance(function, RawStateOperator):
            with user_code(function, "initialize_raw_state"):
                function.initialize_raw_state(context)
        if isinstance(function, CheckpointedFunction):
            with user_code(function, "initialize_state"):
                function.initialize_state(context)

    def _create_operator(
        self, *, is_open: bool
    ) -> KeyedProcessOperator | WindowOperator | AggregatedWindowOperator:
        setup, clock, function = self.setup, self._environment.clock, self._function
        if self.keyed is not None and isinstance(function, AggregatedWindows | WindowFunction):
            refuse_other_windows(setup.uid, self.keyed, function.assigner)
        if isinstance(function, AggregatedWindows):
            if self.keyed is None:
                raise InvariantViolation("declared aggregates have no key")
            if function.assigner.is_merging:
                return AggregatedSessionOperator(function, self.keyed, clock)
            return AggregatedWindowOperator(function, self.keyed, clock)
        if not isinstance(function, WindowFunction):
            return KeyedProcessOperator(
                function,
                self.keyed,
                setup.key_by,
                subtask_index=self.index,
                parallelism=setup.parallelism,
                timers=None if self.keyed is None else InternalTimerService(self.keyed, clock),
                key_type=setup.key_type,
                is_open=is_open,
            )
        if self.keyed is None:
            raise ConfigError(f"The windows of {setup.uid!r} need a key; use a KeyedOperator.")
        return WindowOperator(
            function,
            self.keyed,
            clock,
            setup.key_by,
            subtask_index=self.index,
            parallelism=setup.parallelism,
            key_type=setup.key_type,
        )

    # ---------------------------------------------------------------------------------- work

    @property
    def late_rows(self) -> int:
        """Number of rows that came after all of their windows had expired."""
        operator = self._operator
        if isinstance(operator, WindowOperator | AggregatedWindowOperator):
            return operator.late_rows
        return 0

    def take_late(self) -> list[Any]:
        """Returns the late rows since the last call, if the windows have them as a side output: a
        list of rows, or of record batches for declared aggregates.
        """
        operator = self._operator
        if not isinstance(operator, WindowOperator | AggregatedWindowOperator):
            return []
        late: list[Any] = operator.late
        operator.late = []
        return late

    def process(self, element: Any, timestamp: int | None = None) -> list[Any]:
        """Applies one element; returns the output."""
        return self._by_row.process(element, timestamp)

    def process_batch(
        self, keys: Column | None, parts: Iterable[tuple[Sequence[Any], Iterable[int | None]]]
    ) -> Iterator[list[Any]]:
        """Applies the elements of a batch in order, with state access for many keys at a time.

        Changed state is written when the iterator ends, or earlier.

        Args:
            keys: The key of each element; None if there is no keyed state.
            parts: The elements with their times, in parts.

        Yields:
            The output of each part.
        """
        operator = self._by_row
        if self.keyed is None or keys is None:
            for rows, times in parts:
                yield operator.process_rows([None], zip(repeat(0), rows, times, strict=False))
            return
        with self.keyed.batch(keys) as batch:
            known, start = operator.keys_of(batch), 0
            for rows, times in parts:
                numbers = batch.numbers[start : start + len(rows)].tolist()
                start += len(rows)
                yield operator.process_rows(known, zip(numbers, rows, times, strict=False))

    @property
    def _by_row(self) -> KeyedProcessOperator | WindowOperator:
        if isinstance(self._operator, AggregatedWindowOperator):
            raise InvariantViolation("an operator on columns got rows")
        return self._operator

    def process_columns(
        self, keys: pa.Array, rows: pa.RecordBatch, until_ms: int
    ) -> pa.RecordBatch | None:
        if not isinstance(self._operator, AggregatedWindowOperator):
            raise InvariantViolation("an operator on rows got columns")
        return self._operator.add_columns(keys, rows, until_ms)

    def advance_watermark(self, watermark_ms: int) -> list[Any]:
        """Advances event time to at least this; returns the output of the timers that fire."""
        return self._operator.advance_watermark(watermark_ms)

    def advance_processing_time(self) -> list[Any]:
        """Fires the processing-time timers that are due by the clock; returns their output."""
        return self._operator.advance_processing_time()

    def finish(self) -> list[Any]:
        """Ends event time: every event-time timer fires."""
        return self.advance_watermark(MAX_WATERMARK)

    def poll(self) -> None:
        """Materializes the state if a materialization is due.

        Raises:
            CheckpointError: Too many materializations failed in a row.
        """
        if self._snapshots is not None:
            self._snapshots.poll()

    @property
    def changelog(self) -> ChangelogKeyedStateBackend | None:
        return None if self._snapshots is None else self._snapshots.changelog

    @property
    def materialization(self) -> PeriodicMaterializationManager | None:
        """Writes new bases of the changelog."""
        return None if self._snapshots is None else self._snapshots.materialization

    # ------------------------------------------------------------------------------ snapshot

    def snapshot(
        self, checkpoint: CheckpointMetaData, options: CheckpointOptions
    ) -> OperatorSubtaskState:
        """Takes the subtask's part of a snapshot and waits until it is durable.

        Raises:
            StorageError, UploadFailedError: It could not be made durable; nothing is lost.
        """
        return self.start_snapshot(checkpoint, options)()

    def start_snapshot(
        self, checkpoint: CheckpointMetaData, options: CheckpointOptions
    ) -> Callable[[], OperatorSubtaskState]:
        """Captures the present state; returns a function that makes it durable.

        The function has to be called on the thread of the subtask, which may process elements
        before the call.

        Raises:
            CheckpointError: A later snapshot was taken before.
        """
        checkpoint_id = checkpoint.checkpoint_id
        if checkpoint_id <= self._last_snapshot:
            raise CheckpointError(
                f"Checkpoint {checkpoint_id} comes after checkpoint {self._last_snapshot} was "
                f"taken, which subsumes it.",
                checkpoint_id=checkpoint_id,
            )
        self._last_snapshot = checkpoint_id
        streams = self._environment.streams(checkpoint_id, options)
        context = StateSnapshotContext(
            checkpoint_id,
            checkpoint.timestamp,
            streams,
            None if self.keyed is None else self.key_groups,
        )
        function = self._function
        if isinstance(function, RawStateOperator):
            with user_code(function, "snapshot_raw_state"):
                function.snapshot_raw_state(context)
        if isinstance(function, CheckpointedFunction):
            with user_code(function, "snapshot_state"):
                function.snapshot_state(context)
        snapshots = self._snapshots
        self._check_types()
        keyed = None if snapshots is None else snapshots.start(checkpoint_id, options, streams)
        operator = self.operator_state.snapshot()

        def finish() -> OperatorSubtaskState:
            raw_keyed: KeyGroupsStateHandle | None
            raw_keyed, raw_operator = context.close_streams()
            managed = None
            if operator is not None:
                stream = streams.create_checkpoint_state_output_stream(
                    CheckpointedStateScope.EXCLUSIVE
                )
                stream.write(operator[0])
                handle = stream.close_and_get_handle()
                managed = OperatorStreamStateHandle(operator[1], handle)
            return OperatorSubtaskState(
                self.index,
                managed_operator_state=managed,
                raw_operator_state=raw_operator,
                managed_keyed_state=None if keyed is None else keyed(),
                raw_keyed_state=raw_keyed,
            )

        return finish

    def _check_types(self) -> None:
        """Raises ConfigError for state that no later process could restore."""
        metas = self.operator_state.metas()
        if self.keyed is not None:
            metas += [table.meta for table in self.keyed.state.tables.values()]
        check_readable(self.setup.uid, self.setup.key_type, metas, self._environment.registry)

    # --------------------------------------------------------------------------------- notes

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Notes that the checkpoint completed: a failed job restores it."""
        if self._snapshots is not None:
            self._snapshots.notify_checkpoint_complete(checkpoint_id)
        self._tell("notify_checkpoint_complete", checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        if self._snapshots is not None:
            self._snapshots.notify_checkpoint_aborted(checkpoint_id)
        self._tell("notify_checkpoint_aborted", checkpoint_id)

    def notify_checkpoint_subsumed(self, checkpoint_id: int) -> None:
        """Notes that checkpoints up to this one are no longer restorable."""
        if self._snapshots is not None:
            self._snapshots.notify_checkpoint_subsumed(checkpoint_id)

    def _tell(self, method: str, checkpoint_id: int) -> None:
        listener = getattr(self._function, method, None)
        if listener is not None:
            with user_code(self._function, method):
                listener(checkpoint_id)

    def close(self) -> None:
        """Closes the subtask. Its changes after the last checkpoint are lost."""
        self._operator.close()
        self.cancel()

    def cancel(self) -> None:
        """As ``close``, without a call of the function's ``close``."""
        if self._snapshots is not None:
            self._snapshots.close()
        self._close_state()

    def abandon(self) -> None:
        """As ``cancel``, and deletes the files of its log that no checkpoint references."""
        if self._snapshots is not None:
            self._snapshots.abandon()
        self._close_state()

    def _close_state(self) -> None:
        if self.keyed is not None:
            self.keyed.close()
