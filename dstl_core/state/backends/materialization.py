"""Materializes the state of a subtask with a changelog: periodically, or when its log is large.

Source: ``PeriodicMaterializationManager`` of Flink 2.2.1. Flink only materializes periodically. A
large log, absolute or relative to the base, is one more reason here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future

from dstl_core.clock import Clock
from dstl_core.codec.serializers import Types
from dstl_core.config import ChangelogOptions
from dstl_core.errors import CheckpointError, DstlError
from dstl_core.model.handle import (
    CheckpointedStateScope,
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    StreamStateHandle,
)
from dstl_core.model.key_group import murmur_hash
from dstl_core.state.backends.state_changelog import (
    CapturedState,
    Materialization,
    StateChangelog,
)
from dstl_core.state.backends.streams import CheckpointStreamFactory

_LOG = logging.getLogger(__name__)


def write_state(
    state: CapturedState, streams: CheckpointStreamFactory, scope: CheckpointedStateScope
) -> KeyGroupsSavepointStateHandle:
    """Writes state in canonical form.

    Raises:
        StorageError: The state could not be written; no file is left.
    """
    stream = streams.create_checkpoint_state_output_stream(scope)
    try:
        offsets = state.write_canonical_to(stream.write)
        return KeyGroupsSavepointStateHandle(offsets, stream.close_and_get_handle())
    finally:
        stream.close()


def write_native_state(state: CapturedState, streams: CheckpointStreamFactory) -> KeyedStateHandle:
    """Writes state as files of RocksDB. Without any state, it is a canonical stream of nothing.

    Raises:
        StorageError: A file could not be written; those before it are left.
    """
    from dstl_core.state.backends.native_state import native_state  # loads the compiler

    def add_stream(parts: Sequence[bytes]) -> StreamStateHandle:
        stream = streams.create_checkpoint_state_output_stream(CheckpointedStateScope.EXCLUSIVE)
        try:
            for part in parts:
                stream.write(part)
            return stream.close_and_get_handle()
        finally:
            stream.close()

    sections = state.raw_sections()
    if sections is None:
        return write_state(state, streams, CheckpointedStateScope.EXCLUSIVE)
    return native_state(sections, add_stream)


class PeriodicMaterializationManager:
    """Materializes the state of one subtask. The subtask's thread owns it and calls ``poll``.

    Args:
        changelog: The changelog whose state is materialized.
        streams: Opens the streams of bases, whose files several checkpoints share.
        options: The interval, the sizes, and the number of failures in a row that are allowed.
        clock: Measures the interval.
        operator_identifier: Spreads the first materializations of a job over the interval.
        executor: Writes on another thread; None: ``poll`` writes on the subtask's thread.
    """

    def __init__(
        self,
        changelog: StateChangelog,
        streams: CheckpointStreamFactory,
        options: ChangelogOptions,
        clock: Clock,
        *,
        operator_identifier: str,
        executor: Executor | None = None,
    ) -> None:
        self._changelog = changelog
        self._streams = streams
        self._options = options
        self._clock = clock
        self._executor = executor
        self._running: tuple[Materialization, Future[KeyedStateHandle]] | None = None
        interval = options.periodic_materialize_interval_ms
        delay = murmur_hash(Types.STRING.java_hash(operator_identifier)) % max(interval, 1)
        self._next_ms = clock.monotonic_ms() + delay
        self.started = 0
        self.completed = 0
        self.failed = 0
        self.consecutive_failures = 0

    def poll(self) -> None:
        """Takes the result of an ended materialization, and starts one that is due.

        Raises:
            CheckpointError: Too many failed in a row; the subtask must fail.
        """
        self._take_over(wait=False)
        if self._running is None and self._is_due():
            self.trigger()

    def _is_due(self) -> bool:
        options, changelog = self._options, self._changelog
        if not options.periodic_materialize_enabled:
            return False
        if self._clock.monotonic_ms() >= self._next_ms:
            return True
        log = changelog.log_bytes
        if options.materialize_log_size and log >= options.materialize_log_size:
            return True
        ratio = options.materialize_log_ratio
        # A small log is cheap at any ratio.
        return bool(ratio) and log > max(
            ratio * changelog.base_bytes, options.preemptive_persist_threshold
        )

    def trigger(self, *, forced: bool = False) -> bool:
        """Starts a materialization; returns False if nothing has changed, unless ``forced``."""
        self.started += 1
        materialization = self._changelog.start_materialization(forced=forced)
        if materialization is None:
            self.completed += 1
            self._schedule_next()
            return False

        def write() -> KeyedStateHandle:
            return write_state(materialization.state, self._streams, CheckpointedStateScope.SHARED)

        self._running = materialization, _run(self._executor, write)
        self._take_over(wait=False)
        return True

    def materialize_now(self) -> None:
        """Writes a new base at once, even if none is due.

        Raises:
            StorageError: The base could not be written.
        """
        self._take_over(wait=True)
        materialization = self._changelog.start_materialization(forced=True)
        if materialization is None:
            return
        try:
            base = write_state(materialization.state, self._streams, CheckpointedStateScope.SHARED)
        except BaseException:
            self._changelog.fail_materialization(materialization)
            raise
        self._changelog.finish_materialization(materialization, base)

    def _take_over(self, *, wait: bool) -> None:
        if self._running is None or not (wait or self._running[1].done()):
            return
        (materialization, future), self._running = self._running, None
        self._schedule_next()
        try:
            base = future.result()
        except DstlError as error:
            self._changelog.fail_materialization(materialization)
            self.failed += 1
            self.consecutive_failures += 1
            _LOG.warning("a materialization failed: %s", error)
            if self.consecutive_failures > self._options.max_failures_allowed:
                raise CheckpointError(
                    f"Materializing the state failed {self.consecutive_failures} times in a row, "
                    f"allowed are {self._options.max_failures_allowed} ({error})."
                ) from error
            return
        self.consecutive_failures = 0
        self._changelog.finish_materialization(materialization, base)
        self.completed += 1

    def _schedule_next(self) -> None:
        # The interval counts from the end of the previous one, so that they never overlap.
        self._next_ms = self._clock.monotonic_ms() + self._options.periodic_materialize_interval_ms

    def close(self) -> None:
        """Waits for a running materialization and drops its result."""
        if self._running is not None:
            (_, future), self._running = self._running, None
            future.exception()


def _run(
    executor: Executor | None, work: Callable[[], KeyedStateHandle]
) -> Future[KeyedStateHandle]:
    if executor is not None:
        return executor.submit(work)
    future: Future[KeyedStateHandle] = Future()
    try:
        future.set_result(work())
    except DstlError as error:
        future.set_exception(error)
    return future
