"""The changelog in memory. Its handles hold the changes, so ``_metadata`` stores them.

Source: ``InMemoryStateChangelogStorage`` and ``InMemoryStateChangelogWriter`` of Flink 2.2.1.
"""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import TYPE_CHECKING
from uuid import uuid4

from dstl_core.changelog.change_buffer import check_key_group, check_payload
from dstl_core.changelog.inbox import Mailbox
from dstl_core.changelog.owning_thread import check_owning_thread
from dstl_core.changelog.persist import PersistFuture, SnapshotResult
from dstl_core.changelog.reader import StateChangelogHandleReader
from dstl_core.changelog.upload.throttle import ALWAYS_AVAILABLE, AvailabilityProvider
from dstl_core.closing import Closing
from dstl_core.errors import (
    ChangelogError,
    ChangesTruncatedError,
    ConfigError,
    WriterClosedError,
)
from dstl_core.model.change import META_KEY_GROUP
from dstl_core.model.handle import InMemoryChangelogStateHandle, StreamStateHandle
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.model.sequence import SequenceNumber, number_of

if TYPE_CHECKING:
    from dstl_core.changelog.columnar_sets import KeyGroupColumn, ValueColumn

InMemoryPersistFuture = PersistFuture[InMemoryChangelogStateHandle]


class InMemoryStateChangelogWriter(Closing):
    """Keeps changes in a list. Every change has its own sequence number.

    The thread that made it owns it. There are no uploads, so every future is complete at once.
    """

    def __init__(self, key_group_range: KeyGroupRange) -> None:
        self._key_group_range = key_group_range
        self._owner = threading.get_ident()
        self._lowest = 0
        self._changes: list[tuple[int, bytes]] = []
        self._closed = False

    @property
    def _active(self) -> int:
        return self._lowest + len(self._changes)

    def append(self, key_group: int, value: bytes) -> None:
        """Appends one change.

        Raises:
            ChangelogError: The key group is not in the writer's range.
            WriterClosedError: The writer is closed.
        """
        self._check_usable("append to")
        number = check_key_group(key_group, self._key_group_range)
        self._changes.append((number, check_payload(value)))

    def append_meta(self, value: bytes) -> None:
        self._check_usable("append to")
        self._changes.append((META_KEY_GROUP, check_payload(value)))

    def append_batch(self, key_groups: KeyGroupColumn, values: ValueColumn) -> None:
        """Appends the changes of two columns in order."""
        from dstl_core.changelog.columnar_sets import change_columns

        self._check_usable("append to")
        for part in change_columns(key_groups, values, self._key_group_range):
            data = part.data.tobytes()
            offsets = part.offsets.tolist()
            cut = (data[a:b] for a, b in pairwise(offsets))
            self._changes.extend(zip(part.key_groups.tolist(), cut, strict=True))

    def initial_sequence_number(self) -> SequenceNumber:
        check_owning_thread(self._owner)
        return SequenceNumber(0)

    def next_sequence_number(self) -> SequenceNumber:
        self._check_usable("use")
        return SequenceNumber(self._active)

    def persist(self, from_sqn: SequenceNumber, checkpoint_id: int) -> InMemoryPersistFuture:
        """Returns a completed future with a handle of all changes from ``from_sqn`` on.

        Raises:
            ChangesTruncatedError: The changes were truncated.
            ChangelogError: The changes were not appended yet.
        """
        self._check_usable("persist")
        from_ = number_of(from_sqn)
        if from_ < self._lowest:
            raise ChangesTruncatedError(
                f"Requested changes were truncated (requested: {from_sqn}, "
                f"truncated: {self._lowest}).",
                checkpoint_id=checkpoint_id,
            )
        if from_ > self._active:
            raise ChangelogError(
                f"Requested changes were not yet appended (requested: {from_sqn}, "
                f"appended: {self._active}).",
                checkpoint_id=checkpoint_id,
            )
        changes = tuple(self._changes[from_ - self._lowest :])
        remote, local = (
            InMemoryChangelogStateHandle(
                changes,
                self._key_group_range,
                from_,
                self._active,
                str(uuid4()),
            )
            for _ in range(2)
        )
        future = InMemoryPersistFuture(self)
        future.finish(SnapshotResult(remote, local), None)
        return future

    def confirm(self, from_sqn: SequenceNumber, to_sqn: SequenceNumber, checkpoint_id: int) -> None:
        """Checks the range. The handle owns its changes already."""
        self._check_usable("confirm")
        if not number_of(from_sqn) <= number_of(to_sqn) <= self._active:
            raise ChangelogError(
                f"Invalid confirm range: [{from_sqn},{to_sqn}), active sqn: {self._active}.",
                checkpoint_id=checkpoint_id,
            )

    def reset(self, from_sqn: SequenceNumber, to_sqn: SequenceNumber, checkpoint_id: int) -> None:
        """Does nothing: the next checkpoint has the changes."""
        self._check_usable("reset")

    def truncate(self, to: SequenceNumber) -> None:
        """Drops all changes below ``to``.

        Raises:
            ChangelogError: ``to`` is above the last change, or below an earlier bound.
        """
        self._check_usable("truncate")
        number = number_of(to)
        if not self._lowest <= number <= self._active:
            raise ChangelogError(
                f"A changelog cannot be truncated to {to}: expected {self._lowest}..{self._active}."
            )
        del self._changes[: number - self._lowest]
        self._lowest = number

    def truncate_and_close(self, from_: SequenceNumber) -> None:
        if self._closed:
            return
        check_owning_thread(self._owner)
        number_of(from_)
        self.close()

    def drain(self) -> None:
        """Checks the thread only: there are no uploads."""
        if not self._closed:
            check_owning_thread(self._owner)

    def wait_for(self, done: threading.Event, timeout_s: float | None) -> None:
        """Does nothing: every future is complete."""

    def close(self) -> None:
        if self._closed:
            return
        check_owning_thread(self._owner)
        self._closed = True
        self._changes.clear()

    def _check_usable(self, verb: str) -> None:
        if self._closed:
            raise WriterClosedError(f"Cannot {verb} a changelog writer that is closed.")
        check_owning_thread(self._owner)


class InMemoryStateChangelogStorage(Closing):
    """A storage for tests and tiny state. It writes nothing but ``_metadata``."""

    def create_writer(
        self, operator_id: str, key_group_range: KeyGroupRange, mailbox: Mailbox | None = None
    ) -> InMemoryStateChangelogWriter:
        return InMemoryStateChangelogWriter(key_group_range)

    def create_reader(self) -> StateChangelogHandleReader:
        return StateChangelogHandleReader(_no_segments)

    def get_availability_provider(self) -> AvailabilityProvider:
        return ALWAYS_AVAILABLE

    def close(self) -> None:
        """Does nothing: the storage holds no resources."""


def _no_segments(handle: StreamStateHandle) -> bytes:
    raise ConfigError(
        f"The memory changelog has no segments, got a {type(handle).__name__}; read it with the "
        f"storage named in the handle."
    )
