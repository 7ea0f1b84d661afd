"""Raw state: bytes whose format the operator defines, by key group or by partition.

Source: ``KeyedStateCheckpointOutputStream``, ``OperatorStateCheckpointOutputStream``,
``StatePartitionStreamProvider`` and ``KeyGroupStatePartitionStreamProvider`` of Flink 2.2.1.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from itertools import pairwise
from uuid import uuid4

from dstl_core.errors import ConfigError, RestoreError, error_context
from dstl_core.model.handle import (
    NO_OFFSET,
    KeyedStateHandle,
    KeyGroupRangeOffsets,
    KeyGroupsStateHandle,
    OperatorStateMetaInfo,
    OperatorStateMode,
    OperatorStreamStateHandle,
)
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.backends.streams import CheckpointStateOutputStream
from dstl_core.state.restore.canonical import read_key_groups
from dstl_core.storage.handle_resolver import HandleResolver

RAW_OPERATOR_STATE = "_default_"


class KeyedStateCheckpointOutputStream:
    """Writes raw keyed state: the bytes of one key group after the other."""

    def __init__(self, stream: CheckpointStateOutputStream, key_groups: KeyGroupRange) -> None:
        self._stream = stream
        self._key_groups = key_groups
        self._offsets = dict.fromkeys(key_groups, NO_OFFSET)
        self._started = False

    def start_new_key_group(self, key_group: int) -> None:
        """Starts a key group: later writes belong to it.

        Raises:
            ConfigError: The key group belongs to another subtask, or was started before.
        """
        if self._offsets.get(key_group) != NO_OFFSET:
            known = key_group in self._offsets
            problem = "was started before" if known else f"is outside {self._key_groups}"
            raise ConfigError(f"Key group {key_group} {problem}.")
        self._offsets[key_group] = self._stream.position
        self._started = True

    def write(self, data: bytes) -> int:
        """Raises: ConfigError: No key group was started."""
        if not self._started:
            raise ConfigError("Raw keyed state was written before a key group was started.")
        return self._stream.write(data)

    def close_and_get_handle(self) -> KeyGroupsStateHandle | None:
        """Closes the stream; returns its handle, None if no key group was started."""
        if not self._started:
            self._stream.close()
            return None
        offsets = KeyGroupRangeOffsets(self._key_groups, tuple(self._offsets.values()))
        return KeyGroupsStateHandle(offsets, self._stream.close_and_get_handle(), str(uuid4()))


class OperatorStateCheckpointOutputStream:
    """Writes raw operator state: partitions that are redistributed when the parallelism changes."""

    def __init__(self, stream: CheckpointStateOutputStream) -> None:
        self._stream = stream
        self._offsets: list[int] = []

    def start_new_partition(self) -> None:
        self._offsets.append(self._stream.position)

    def write(self, data: bytes) -> int:
        if not self._offsets:
            self.start_new_partition()
        return self._stream.write(data)

    def close_and_get_handle(self) -> OperatorStreamStateHandle | None:
        """Closes the stream; returns its handle, None if no partition was started."""
        if not self._offsets:
            self._stream.close()
            return None
        info = OperatorStateMetaInfo(
            RAW_OPERATOR_STATE, OperatorStateMode.SPLIT_DISTRIBUTE, tuple(self._offsets)
        )
        return OperatorStreamStateHandle((info,), self._stream.close_and_get_handle())


class StatePartitionStreamProvider:
    """One restored partition of raw state; ``key_group`` is None for operator state."""

    def __init__(self, data: bytes, key_group: int | None = None) -> None:
        self._data = data
        self.key_group = key_group

    def get_stream(self) -> io.BytesIO:
        """A stream at the start of the partition."""
        return io.BytesIO(self._data)


def raw_keyed_inputs(
    handles: Sequence[KeyedStateHandle], key_groups: KeyGroupRange, resolver: HandleResolver
) -> Iterator[StatePartitionStreamProvider]:
    """Yields the raw keyed state of a subtask, key group by key group.

    Raises:
        RestoreError: A handle is not raw keyed state.
    """
    for handle in handles:
        if not isinstance(handle, KeyGroupsStateHandle):
            raise RestoreError(
                f"Raw keyed state cannot be restored from a handle of type {type(handle).__name__}."
            )
        with error_context(location=resolver.describe(handle.stream)):
            for key_group, data in read_key_groups(
                handle.offsets, handle.stream, key_groups, resolver, zero_is_empty=False
            ):
                yield StatePartitionStreamProvider(data.peek(data.position), key_group)


def raw_operator_inputs(
    handles: Sequence[OperatorStreamStateHandle], resolver: HandleResolver
) -> Iterator[StatePartitionStreamProvider]:
    """Yields the raw operator state of a subtask, partition by partition."""
    for handle in handles:
        raw = resolver.read(handle.stream)
        # A handle that was split for another parallelism may lack the offset of the next partition.
        for info in handle.states:
            for start, end in pairwise([*sorted(info.offsets), len(raw)]):
                yield StatePartitionStreamProvider(raw[start:end])
