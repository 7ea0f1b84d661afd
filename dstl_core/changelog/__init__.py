"""The durable short-term log: writers, upload, registries, reading."""

from dstl_core.changelog.loader import StateChangelogStorageLoader
from dstl_core.changelog.local_recovery import LocalRecoveryConfig
from dstl_core.changelog.memory import InMemoryStateChangelogStorage, InMemoryStateChangelogWriter
from dstl_core.changelog.persist import PersistFuture, SnapshotResult
from dstl_core.changelog.reader import StateChangelogHandleReader
from dstl_core.changelog.registry import LocalChangelogRegistry, TaskChangelogRegistry
from dstl_core.changelog.storage import (
    FsStateChangelogStorage,
    FsStateChangelogStorageForRecovery,
)
from dstl_core.changelog.writer import FsStateChangelogWriter

__all__ = [
    "FsStateChangelogStorage",
    "FsStateChangelogStorageForRecovery",
    "FsStateChangelogWriter",
    "InMemoryStateChangelogStorage",
    "InMemoryStateChangelogWriter",
    "LocalChangelogRegistry",
    "LocalRecoveryConfig",
    "PersistFuture",
    "SnapshotResult",
    "StateChangelogHandleReader",
    "StateChangelogStorageLoader",
    "TaskChangelogRegistry",
]
