"""The files of one subtask of a Spark task: its part of checkpoints, and its log."""

from __future__ import annotations

import time

from dstl_core.changelog.storage import FsStateChangelogStorage
from dstl_core.job.spec.job_spec import TaskSpec
from dstl_core.operators.environment import OperatorSetup, TaskEnvironment, file_system_streams
from dstl_core.operators.process_operator import KeySelector
from dstl_core.state.backends.state_backend import StateBackend
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.written_files import DigestingFileIO, WrittenFile

INLINE_BYTES = 1024
"""Streams of at most this number of bytes are stored in ``_metadata``."""


class FixedClock:
    """A clock with a fixed processing time, so that all tasks and attempts of an epoch agree."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class SubtaskFiles:
    """The files of one subtask, with their sizes and digests.

    Args:
        task: The task; it has the folders.
    """

    def __init__(self, task: TaskSpec) -> None:
        job = task.job
        self._task = task
        self._file_io = DigestingFileIO(job.layout.root.scheme)
        self._changelog = (
            FsStateChangelogStorage(job.job_id, job.changelog_options, self._file_io)
            if job.changelog
            else None
        )

    def setup(self, key_by: str | KeySelector) -> OperatorSetup:
        """The setup of the operator; ``key_by`` gives the key of a row."""
        operator, job = self._task.operator, self._task.job
        return OperatorSetup(
            operator.uid,
            operator.function_key_type,
            key_by,
            job.parallelism,
            job.max_parallelism,
        )

    def environment(self, state_backend: StateBackend, resolver: HandleResolver) -> TaskEnvironment:
        """The environment of the subtask, which writes these files."""
        task = self._task
        return TaskEnvironment(
            state_backend,
            self._changelog,
            resolver,
            file_system_streams(task.job.layout, self._file_io, inline_threshold=INLINE_BYTES),
            FixedClock(task.now_ms),
            task.job.changelog_options,
            registry=task.job.registry,
            value_logging=task.job.value_logging,
            begins_with_base=task.begins_with_base,
        )

    def send(self) -> None:
        """Uploads what was persisted. A subtask has its own files, so nothing else joins them."""
        if self._changelog is not None:
            self._changelog.flush()

    @property
    def written(self) -> list[WrittenFile]:
        """The state files that the subtask has written."""
        return list(self._file_io.written.values())

    @property
    def back_pressure_ms(self) -> int:
        """Milliseconds that uploads of the log had to wait."""
        return 0 if self._changelog is None else self._changelog.metrics.back_pressure_ms.count

    @property
    def failed_uploads(self) -> int:
        """Number of upload attempts that failed."""
        return 0 if self._changelog is None else self._changelog.metrics.upload_failures.count

    def close(self) -> None:
        """Ends the uploads."""
        if self._changelog is not None:
            self._changelog.close()
