"""The durable short-term log: writers, upload, registries and readers."""

from dstl_core.changelog.in_memory_storage import (
    InMemoryStateChangelogStorage,
    InMemoryStateChangelogWriter,
)
from dstl_core.changelog.interfaces import (
    StateChangelogStorage,
    StateChangelogStorageFactory,
    StateChangelogStorageView,
    StateChangelogWriter,
)
from dstl_core.changelog.loader import StateChangelogStorageLoader
from dstl_core.changelog.local_recovery import LocalRecoveryConfig
from dstl_core.changelog.persist import PersistFuture, SnapshotResult
from dstl_core.changelog.reader import StateChangelogHandleReader
from dstl_core.changelog.registry import LocalChangelogRegistry, TaskChangelogRegistry
from dstl_core.changelog.storage import (
    FsStateChangelogStorage,
    FsStateChangelogStorageForRecovery,
)
from dstl_core.changelog.writer import FsStateChangelogWriter
from dstl_core.config import ChangelogOptions
from dstl_core.metrics import MetricGroup
from dstl_core.model.change import StateChange
from dstl_core.model.handle import ChangelogStateHandleStream
from dstl_core.model.ids import JobID
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.model.sequence import SequenceNumber

__all__ = [
    "ChangelogOptions",
    "ChangelogStateHandleStream",
    "FsStateChangelogStorage",
    "FsStateChangelogStorageForRecovery",
    "FsStateChangelogWriter",
    "InMemoryStateChangelogStorage",
    "InMemoryStateChangelogWriter",
    "JobID",
    "KeyGroupRange",
    "LocalChangelogRegistry",
    "LocalRecoveryConfig",
    "MetricGroup",
    "PersistFuture",
    "SequenceNumber",
    "SnapshotResult",
    "StateChange",
    "StateChangelogHandleReader",
    "StateChangelogStorage",
    "StateChangelogStorageFactory",
    "StateChangelogStorageLoader",
    "StateChangelogStorageView",
    "StateChangelogWriter",
    "TaskChangelogRegistry",
]
