"""The durable short-term log: writers, upload, registries, reading."""

from dstl_core.changelog.reader import StateChangelogHandleReader
from dstl_core.changelog.storage import FsStateChangelogStorage
from dstl_core.changelog.writer import FsStateChangelogWriter, PersistFuture, SnapshotResult

__all__ = [
    "FsStateChangelogStorage",
    "FsStateChangelogWriter",
    "PersistFuture",
    "SnapshotResult",
    "StateChangelogHandleReader",
]
