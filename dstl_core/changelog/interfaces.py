"""The interfaces of a changelog storage.

Source: ``StateChangelogStorage``, ``StateChangelogStorageView``, ``StateChangelogWriter`` and
``StateChangelogStorageFactory`` of Flink 2.2.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from dstl_core.changelog.inbox import Mailbox
from dstl_core.changelog.local_recovery import LOCAL_RECOVERY_DISABLED, LocalRecoveryConfig
from dstl_core.changelog.persist import PersistFuture
from dstl_core.changelog.reader import StateChangelogHandleReader
from dstl_core.changelog.upload.throttle import AvailabilityProvider
from dstl_core.closing import Closing
from dstl_core.config import ChangelogOptions
from dstl_core.metrics import MetricGroup
from dstl_core.model.handle import ChangelogStateHandleStream, InMemoryChangelogStateHandle
from dstl_core.model.ids import JobID
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.model.sequence import SequenceNumber

if TYPE_CHECKING:
    from dstl_core.changelog.columnar_sets import KeyGroupColumn, ValueColumn


class StateChangelogWriter(Closing, Protocol):
    """Appends the changes of one backend. The thread that made it owns it."""

    def append(self, key_group: int, value: bytes) -> None: ...

    def append_meta(self, value: bytes) -> None: ...

    def append_batch(self, key_groups: KeyGroupColumn, values: ValueColumn) -> None: ...

    def initial_sequence_number(self) -> SequenceNumber: ...

    def next_sequence_number(self) -> SequenceNumber: ...

    def persist(
        self, from_sqn: SequenceNumber, checkpoint_id: int
    ) -> (
        PersistFuture[ChangelogStateHandleStream] | PersistFuture[InMemoryChangelogStateHandle]
    ): ...

    def confirm(
        self, from_sqn: SequenceNumber, to_sqn: SequenceNumber, checkpoint_id: int
    ) -> None: ...

    def reset(
        self, from_sqn: SequenceNumber, to_sqn: SequenceNumber, checkpoint_id: int
    ) -> None: ...

    def truncate(self, to: SequenceNumber) -> None: ...

    def truncate_and_close(self, from_: SequenceNumber) -> None: ...

    def drain(self) -> None: ...

    def close(self) -> None: ...


class StateChangelogStorageView(Closing, Protocol):
    """Reads the handles of a storage."""

    def create_reader(self) -> StateChangelogHandleReader: ...

    def close(self) -> None: ...


class StateChangelogStorage(StateChangelogStorageView, Protocol):
    """Makes the writers of one job, and reads their handles."""

    def create_writer(
        self, operator_id: str, key_group_range: KeyGroupRange, mailbox: Mailbox | None = None
    ) -> StateChangelogWriter: ...

    def get_availability_provider(self) -> AvailabilityProvider: ...


class StateChangelogStorageFactory(Protocol):
    """Makes storages of one kind."""

    @property
    def identifier(self) -> str:
        """The short name in ``state.changelog.storage`` and in handles."""
        ...

    def create_storage(
        self,
        job_id: JobID,
        options: ChangelogOptions,
        metrics: MetricGroup | None = None,
        local_recovery: LocalRecoveryConfig = LOCAL_RECOVERY_DISABLED,
    ) -> StateChangelogStorage: ...

    def create_storage_view(self, options: ChangelogOptions) -> StateChangelogStorageView: ...
