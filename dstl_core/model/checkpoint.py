"""The content of a ``_metadata`` file as values.

Source: ``CheckpointMetadata``, ``OperatorState``, ``OperatorSubtaskState`` and ``MasterState`` of
Flink 2.2.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from dstl_core.model.handle import (
    AnyChannelStateHandle,
    ByteStreamStateHandle,
    ChangelogStateBackendHandle,
    ChangelogStateHandleStream,
    IncrementalRemoteKeyedStateHandle,
    InMemoryChangelogStateHandle,
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
    OperatorStreamStateHandle,
    StreamStateHandle,
)
from dstl_core.model.ids import OperatorID


@dataclass(frozen=True, slots=True)
class MasterState:
    """State of a master hook."""

    name: str
    version: int
    data: bytes


@dataclass(frozen=True, slots=True)
class OperatorSubtaskState:
    """State of one subtask. A subtask that is ``finished`` has no state."""

    index: int
    managed_operator_state: OperatorStreamStateHandle | None = None
    raw_operator_state: OperatorStreamStateHandle | None = None
    managed_keyed_state: KeyedStateHandle | None = None
    raw_keyed_state: KeyedStateHandle | None = None
    input_channel_state: tuple[AnyChannelStateHandle, ...] = ()
    result_subpartition_state: tuple[AnyChannelStateHandle, ...] = ()
    finished: bool = False

    def streams(self) -> Iterator[StreamStateHandle]:
        """Every stream that holds state of this subtask."""
        for operator_state in (self.managed_operator_state, self.raw_operator_state):
            if operator_state is not None:
                yield operator_state.stream
        for keyed_state in (self.managed_keyed_state, self.raw_keyed_state):
            if keyed_state is not None:
                yield from keyed_state_streams(keyed_state)
        for channel in self.input_channel_state + self.result_subpartition_state:
            yield channel.stream

    def log_streams(self) -> Iterator[StreamStateHandle]:
        """The streams that are segments of a changelog."""
        for keyed_state in (self.managed_keyed_state, self.raw_keyed_state):
            match keyed_state:
                case ChangelogStateHandleStream():
                    yield from keyed_state_streams(keyed_state)
                case ChangelogStateBackendHandle():
                    for log in keyed_state.non_materialized:
                        yield from keyed_state_streams(log)

    @property
    def state_size(self) -> int:
        parts = (
            self.managed_operator_state,
            self.raw_operator_state,
            self.managed_keyed_state,
            self.raw_keyed_state,
        )
        channels = self.input_channel_state + self.result_subpartition_state
        return sum(part.state_size for part in parts if part is not None) + sum(
            channel.state_size for channel in channels
        )


def keyed_state_streams(handle: KeyedStateHandle) -> Iterator[StreamStateHandle]:
    """Every stream that a keyed state handle refers to."""
    match handle:
        case ChangelogStateBackendHandle():
            for part in (*handle.materialized, *handle.non_materialized):
                yield from keyed_state_streams(part)
        case ChangelogStateHandleStream():
            yield from dict.fromkeys(stream for stream, _ in handle.handles_and_offsets)
        case IncrementalRemoteKeyedStateHandle():
            yield handle.meta_stream
            yield from (stream for _, stream in handle.shared + handle.private)
        case InMemoryChangelogStateHandle():
            return
        case _:
            yield handle.stream


ChangeStream = Callable[[StreamStateHandle], StreamStateHandle]
SnapshotFilesHandle = (
    KeyGroupsSavepointStateHandle | KeyGroupsStateHandle | IncrementalRemoteKeyedStateHandle
)
"""Keyed state whose streams are whole by themselves: no log of changes belongs to it."""


def with_streams(handle: SnapshotFilesHandle, change: ChangeStream) -> SnapshotFilesHandle:
    """The handle with other streams of the same bytes; everything else stays."""
    if not isinstance(handle, IncrementalRemoteKeyedStateHandle):
        return replace(handle, stream=change(handle.stream))
    return replace(
        handle,
        meta_stream=change(handle.meta_stream),
        shared=tuple((name, change(stream)) for name, stream in handle.shared),
        private=tuple((name, change(stream)) for name, stream in handle.private),
    )


DeclaredDecimals: TypeAlias = "tuple[int, int] | Mapping[str, DeclaredDecimals]"
"""Digits and scale of a decimal or of the elements of a list; of a row, those of its fields; of a
map, those of its ``key`` and its ``value``.
"""

KEY_DECIMALS = ""
"""The name of the operator's key among the states whose decimals were declared."""


@dataclass(frozen=True, slots=True)
class OperatorState:
    """State of one operator over all its subtasks.

    ``name`` and ``uid`` are stored in metadata version 5 and later; an empty text means unknown.
    ``fully_finished`` means that all subtasks have ended and the operator has no state.
    ``decimals`` has what was declared of Java's decimals, by state; the sidecar stores it, since
    ``_metadata`` has no place for it.
    """

    operator_id: OperatorID
    parallelism: int
    max_parallelism: int
    subtasks: tuple[OperatorSubtaskState, ...]
    name: str = ""
    uid: str = ""
    coordinator_state: ByteStreamStateHandle | None = None
    fully_finished: bool = False
    decimals: Mapping[str, DeclaredDecimals] = field(default_factory=dict, compare=False)

    @property
    def state_size(self) -> int:
        coordinator = self.coordinator_state.state_size if self.coordinator_state else 0
        return coordinator + sum(subtask.state_size for subtask in self.subtasks)


@dataclass(frozen=True, slots=True)
class CheckpointMetadata:
    """The content of one ``_metadata`` file.

    ``properties`` is the tail of versions 4 and later (a Java-serialized
    ``CheckpointProperties``), kept byte for byte.
    """

    version: int
    checkpoint_id: int
    operators: tuple[OperatorState, ...]
    master_states: tuple[MasterState, ...] = ()
    properties: bytes | None = None
