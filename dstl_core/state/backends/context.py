"""The stores of state and the contexts that user functions and operators get.

Source: ``KeyedStateStore``, ``OperatorStateStore``, ``FunctionInitializationContext``,
``FunctionSnapshotContext``, ``StateInitializationContext`` and ``StateSnapshotContext`` of Flink
2.2.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from dstl_core.codec.serializers import AnySerializer, VoidNamespaceSerializer
from dstl_core.errors import ConfigError
from dstl_core.model.handle import (
    CheckpointedStateScope,
    KeyGroupsStateHandle,
    OperatorStreamStateHandle,
)
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.backends.keyed_access import (
    AggregatingState,
    FoldingState,
    ReducingState,
    State,
    ValueState,
)
from dstl_core.state.backends.keyed_collections import ListState, MapState
from dstl_core.state.backends.operator_backend import BroadcastState, OperatorListState
from dstl_core.state.backends.raw_streams import (
    KeyedStateCheckpointOutputStream,
    OperatorStateCheckpointOutputStream,
    StatePartitionStreamProvider,
)
from dstl_core.state.backends.streams import CheckpointStreamFactory
from dstl_core.state.tables.descriptor import (
    AggregatingStateDescriptor,
    FoldingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)

_VOID = VoidNamespaceSerializer()


class OperatorStateStore(Protocol):
    """Registers operator state; ``DefaultOperatorStateBackend`` implements it."""

    def get_list_state(self, descriptor: ListStateDescriptor) -> OperatorListState: ...

    def get_union_list_state(self, descriptor: ListStateDescriptor) -> OperatorListState: ...

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> BroadcastState: ...

    def get_registered_state_names(self) -> set[str]: ...

    def get_registered_broadcast_state_names(self) -> set[str]: ...


class KeyedStates(Protocol):
    """The keyed state of a subtask, by descriptor; ``KeyedStateBackend`` implements it."""

    def get_or_create_keyed_state(
        self, namespace_serializer: AnySerializer, descriptor: StateDescriptor
    ) -> State[Any]: ...


class KeyedStateStore:
    """Registers keyed state. It has no backend if the operator is not keyed."""

    def __init__(self, backend: KeyedStates | None) -> None:
        self._backend = backend

    def _state(self, descriptor: StateDescriptor) -> Any:
        if self._backend is None:
            raise ConfigError(
                f"Keyed state {descriptor.name!r} needs a keyed operator; use KeyedOperator, or "
                f"operator state."
            )
        return self._backend.get_or_create_keyed_state(_VOID, descriptor)

    def get_state(self, descriptor: ValueStateDescriptor) -> ValueState:
        """A value state.

        Raises:
            StateMigrationError: The restored values cannot be converted to this type.
        """
        state: ValueState = self._state(descriptor)
        return state

    def get_list_state(self, descriptor: ListStateDescriptor) -> ListState:
        state: ListState = self._state(descriptor)
        return state

    def get_map_state(self, descriptor: MapStateDescriptor) -> MapState:
        state: MapState = self._state(descriptor)
        return state

    def get_reducing_state(self, descriptor: ReducingStateDescriptor) -> ReducingState:
        state: ReducingState = self._state(descriptor)
        return state

    def get_aggregating_state(self, descriptor: AggregatingStateDescriptor) -> AggregatingState:
        state: AggregatingState = self._state(descriptor)
        return state

    def get_folding_state(self, descriptor: FoldingStateDescriptor) -> FoldingState:
        """A folding state. Flink 2.x cannot restore it."""
        state: FoldingState = self._state(descriptor)
        return state


class FunctionInitializationContext:
    """The context that a function gets before its first element.

    Args:
        keyed: Registers keyed state.
        operator: Registers operator state.
        restored_checkpoint_id: Id of the restored checkpoint; None if the job starts empty.
    """

    def __init__(
        self,
        keyed: KeyedStateStore,
        operator: OperatorStateStore,
        restored_checkpoint_id: int | None,
    ) -> None:
        self.keyed_state_store = keyed
        self.operator_state_store = operator
        self.restored_checkpoint_id = restored_checkpoint_id

    @property
    def is_restored(self) -> bool:
        """Whether the job starts from a snapshot, even from one without state of the function."""
        return self.restored_checkpoint_id is not None

    @property
    def managed_initialization_context(self) -> FunctionInitializationContext:
        """The context of managed state: this object itself."""
        return self


class StateInitializationContext(FunctionInitializationContext):
    """The context that an operator gets before its first element; it adds raw state."""

    def __init__(
        self,
        keyed: KeyedStateStore,
        operator: OperatorStateStore,
        restored_checkpoint_id: int | None,
        raw_keyed: Iterator[StatePartitionStreamProvider],
        raw_operator: Iterator[StatePartitionStreamProvider],
    ) -> None:
        super().__init__(keyed, operator, restored_checkpoint_id)
        self.raw_keyed_state_inputs = raw_keyed
        self.raw_operator_state_inputs = raw_operator


class FunctionSnapshotContext:
    """The context that a function gets before a snapshot. Its timestamp is in milliseconds."""

    def __init__(self, checkpoint_id: int, checkpoint_timestamp: int) -> None:
        self.checkpoint_id = checkpoint_id
        self.checkpoint_timestamp = checkpoint_timestamp


class StateSnapshotContext(FunctionSnapshotContext):
    """The context that an operator gets before a snapshot; it opens streams of raw state."""

    def __init__(
        self,
        checkpoint_id: int,
        checkpoint_timestamp: int,
        stream_factory: CheckpointStreamFactory,
        key_groups: KeyGroupRange | None,
    ) -> None:
        super().__init__(checkpoint_id, checkpoint_timestamp)
        self.checkpoint_stream_factory = stream_factory
        self._key_groups = key_groups
        self._keyed: KeyedStateCheckpointOutputStream | None = None
        self._operator: OperatorStateCheckpointOutputStream | None = None

    def get_raw_keyed_operator_state_output(self) -> KeyedStateCheckpointOutputStream:
        """Raises: ConfigError: The operator is not keyed."""
        if self._key_groups is None:
            raise ConfigError("Raw keyed state needs a keyed operator; use KeyedOperator.")
        if self._keyed is None:
            self._keyed = KeyedStateCheckpointOutputStream(self._open(), self._key_groups)
        return self._keyed

    def get_raw_operator_state_output(self) -> OperatorStateCheckpointOutputStream:
        if self._operator is None:
            self._operator = OperatorStateCheckpointOutputStream(self._open())
        return self._operator

    def _open(self) -> Any:
        return self.checkpoint_stream_factory.create_checkpoint_state_output_stream(
            CheckpointedStateScope.EXCLUSIVE
        )

    def close_streams(
        self,
    ) -> tuple[KeyGroupsStateHandle | None, OperatorStreamStateHandle | None]:
        """Closes the raw streams; returns the handles of those that were written."""
        keyed = None if self._keyed is None else self._keyed.close_and_get_handle()
        operator = None if self._operator is None else self._operator.close_and_get_handle()
        return keyed, operator
