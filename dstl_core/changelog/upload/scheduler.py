"""Schedules uploads of change sets: immediately, or in batches of all writers of a storage.

Source: ``StateChangeUploadScheduler`` and ``BatchingStateChangeUploadScheduler`` of Flink 2.2.1.
Unlike in Flink, every task gets an outcome, also after a close; retries of I/O errors count; the
wait for room is bounded; and no callback can delay another writer's callback.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future
from weakref import WeakKeyDictionary

from dstl_core.changelog.discarder import FileDiscarder, delete_by_scheme
from dstl_core.changelog.local_recovery import LOCAL_RECOVERY_DISABLED, LocalRecoveryConfig
from dstl_core.changelog.registry import TaskChangelogRegistry
from dstl_core.changelog.storage_metrics import ChangelogStorageMetricGroup
from dstl_core.changelog.upload.retry import RetryingExecutor, RetryPolicy
from dstl_core.changelog.upload.task import UploadResult, UploadTask, UploadTasksResult
from dstl_core.changelog.upload.throttle import (
    ALWAYS_AVAILABLE,
    AvailabilityProvider,
    InFlightAccount,
    UploadThrottle,
)
from dstl_core.changelog.upload.uploader import (
    StateChangeUploader,
    base_location,
    fs_uploader,
)
from dstl_core.closing import Closing
from dstl_core.config import ChangelogOptions
from dstl_core.errors import (
    ConfigError,
    SchedulerClosedError,
    UploadFailedError,
    WriterClosedError,
)
from dstl_core.model.ids import JobID
from dstl_core.model.sequence import SequenceNumber
from dstl_core.scheduling import Action, BoundedExecutor, Cancellable, Scheduler, ThreadScheduler
from dstl_core.storage.file_io import FileIO, open_file_io

_LOG = logging.getLogger(__name__)

_CLOSE_TIMEOUT_MS = 5_000


class StateChangeUploadScheduler(Closing, ABC):
    """Accepts upload tasks and completes each of them exactly once."""

    @abstractmethod
    def upload(self, task: UploadTask) -> None:
        """Accepts a task. It may wait for room.

        Raises:
            BackpressureTimeoutError: The time is up; the task was not accepted.
        """

    @abstractmethod
    def close(self) -> None:
        """Completes every accepted task, and accepts no more."""

    def flush(self) -> None:
        """Sends what waits for a full batch. By default nothing waits."""
        return None

    def get_availability_provider(self) -> AvailabilityProvider:
        return ALWAYS_AVAILABLE

    @property
    def bytes_in_flight(self) -> int:
        """Bytes that count towards the limit now; 0 without a limit."""
        return 0

    def open_account(self) -> InFlightAccount:
        """Opens an account for the failed bytes of one writer."""
        return InFlightAccount()

    @staticmethod
    def direct_scheduler(uploader: StateChangeUploader) -> StateChangeUploadScheduler:
        """Makes a scheduler without batching, threads and retries."""
        return DirectUploadScheduler(uploader)

    @staticmethod
    def from_config(
        job_id: JobID,
        options: ChangelogOptions,
        metrics: ChangelogStorageMetricGroup | None = None,
        registry: TaskChangelogRegistry | None = None,
        local_recovery: LocalRecoveryConfig = LOCAL_RECOVERY_DISABLED,
        *,
        file_io: FileIO | None = None,
    ) -> StateChangeUploadScheduler:
        """Makes the batching scheduler that the options describe, with its own threads.

        It writes to the file system of ``base-path`` unless another one is given. Without a
        registry, the thread that releases a file deletes it.
        """
        base = base_location(options)
        remote = file_io if file_io is not None else open_file_io(base, fsync=options.fsync)
        threads = ThreadScheduler("dstl-changelog")
        if registry is None:
            delete = delete_by_scheme({"file": local_recovery.file_io, base.scheme: remote})
            registry = TaskChangelogRegistry(FileDiscarder(delete))
        uploader = fs_uploader(job_id, options, remote, registry, metrics, local_recovery)
        return BatchingStateChangeUploadScheduler.of_options(
            uploader, threads, options, metrics, owns_threads=True
        )


class DirectUploadScheduler(StateChangeUploadScheduler):
    """Uploads every task at once, on the caller's thread."""

    def __init__(self, uploader: StateChangeUploader) -> None:
        self._uploader = uploader
        self._closed = False

    def upload(self, task: UploadTask) -> None:
        if self._closed:
            task.fail(WriterClosedError("The upload scheduler is closed and accepts no task."))
            return
        try:
            result = self._uploader.upload([task])
        except Exception as error:
            # Whatever an uploader raises is this task's outcome; the writer keeps and reports it.
            task.fail(error)
        else:
            _complete(result, [task])

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._uploader.close()


class BatchingStateChangeUploadScheduler(StateChangeUploadScheduler):
    """Collects the tasks of all writers into one file, and retries its upload.

    A batch is sent when its first task has waited for ``persist_delay_ms``, or when
    ``size_threshold`` bytes wait. Bytes count as in flight from ``upload`` until the first outcome
    of their task, and after a failure for as long as the writer keeps them. Thread-safe.

    Invariants:
        1. Every accepted task gets exactly one outcome, in whatever order things are closed.
        2. Bytes in flight are released before the callback runs, so that no callback can hold
           them.

    Args:
        uploader: Writes the batches. The scheduler closes it.
        threads: Run batches, timers and callbacks.
        backpressure_timeout_ms: Longest wait of ``upload`` for room.
        promised_size: Size of a task, in bytes, for which availability promises room.
        owns_threads: Whether ``close`` also ends the threads.
    """

    def __init__(
        self,
        uploader: StateChangeUploader,
        threads: Scheduler,
        *,
        persist_delay_ms: int,
        size_threshold: int,
        max_bytes_in_flight: int,
        retry_policy: RetryPolicy = RetryPolicy.NONE,
        num_upload_threads: int = 1,
        backpressure_timeout_ms: int = 60_000,
        promised_size: int = 1,
        metrics: ChangelogStorageMetricGroup | None = None,
        owns_threads: bool = False,
    ) -> None:
        if size_threshold > max_bytes_in_flight:
            raise ConfigError(
                f"sizeThresholdBytes ({size_threshold}) must not exceed maxBytesInFlight "
                f"({max_bytes_in_flight})."
            )
        self._uploader = uploader
        self._threads = threads
        self._owns_threads = owns_threads
        self._delay_ms = persist_delay_ms
        self._size_threshold = size_threshold
        self._backpressure_timeout_ms = backpressure_timeout_ms
        self._policy = retry_policy
        self._metrics = metrics if metrics is not None else ChangelogStorageMetricGroup()
        self._lanes = CallbackLanes(threads)
        self._throttle = UploadThrottle(
            max_bytes_in_flight, threads, self._notify, promised=promised_size
        )
        self._retrying = RetryingExecutor(
            threads,
            num_upload_threads,
            self._metrics.attempts_per_upload,
            self._metrics.total_attempts_per_upload,
        )
        self._lock = threading.Lock()
        self._queue: list[UploadTask] = []
        self._queued_bytes = 0
        self._timer: Cancellable | None = None
        self._closed = False
        self._metrics.register_upload_queue_size(lambda: len(self._queue))
        self._metrics.register_bytes_in_flight(lambda: self._throttle.bytes_in_flight)

    @classmethod
    def of_options(
        cls,
        uploader: StateChangeUploader,
        threads: Scheduler,
        options: ChangelogOptions,
        metrics: ChangelogStorageMetricGroup | None = None,
        *,
        owns_threads: bool = False,
    ) -> BatchingStateChangeUploadScheduler:
        return cls(
            uploader,
            threads,
            persist_delay_ms=options.persist_delay_ms,
            size_threshold=options.persist_size_threshold,
            max_bytes_in_flight=options.max_in_flight,
            retry_policy=RetryPolicy.from_config(options),
            num_upload_threads=options.num_upload_threads,
            backpressure_timeout_ms=options.backpressure_timeout_ms,
            # The change that reaches the threshold may be as large as the threshold itself.
            promised_size=max(1, 2 * options.preemptive_persist_threshold),
            metrics=metrics,
            owns_threads=owns_threads,
        )

    @property
    def bytes_in_flight(self) -> int:
        return self._throttle.bytes_in_flight

    def get_availability_provider(self) -> AvailabilityProvider:
        return self._throttle.availability

    def open_account(self) -> InFlightAccount:
        return InFlightAccount(self._throttle)

    def upload(self, task: UploadTask) -> None:
        started = self._threads.clock.monotonic_ms()
        try:
            self._throttle.seize(
                task.size, task.account, self._backpressure_timeout_ms, kept=task.kept
            )
        except WriterClosedError as error:
            task.fail(error)
            return
        finally:
            self._metrics.back_pressure_ms.inc(self._threads.clock.monotonic_ms() - started)
        admitted = self._admit(task)
        with self._lock:
            closed = self._closed
            if not closed:
                self._queue.append(admitted)
                self._queued_bytes += task.size
                send_now = self._delay_ms == 0 or self._queued_bytes >= self._size_threshold
        if closed:
            admitted.fail(_closed_error())
        elif send_now:
            self._send_batch()
        else:
            self._start_timer()

    def _admit(self, task: UploadTask) -> UploadTask:
        """Wraps a task: its outcome first settles the bytes in flight."""
        account = task.account
        owner: object = account if account is not None else task

        def succeeded(results: list[UploadResult]) -> None:
            if task.kept and account is not None:
                account.give_up(task.size)
            else:
                self._throttle.release(task.size)
            self._lanes.run(owner, lambda: task.complete(results))

        def failed(numbers: list[SequenceNumber], error: BaseException) -> None:
            if account is None:
                self._throttle.release(task.size)
            elif not task.kept:
                self._throttle.hold(account, task.size)
            self._lanes.run(owner, lambda: task.fail(error))

        return UploadTask(task.change_sets, succeeded, failed)

    def _start_timer(self) -> None:
        with self._lock:
            if self._timer is not None:
                return
            try:
                self._timer = self._threads.schedule(self._send_batch, self._delay_ms)
                return
            except SchedulerClosedError:
                pass  # sending at once gives the tasks their outcome
        self._send_batch()

    def _send_batch(self) -> None:
        with self._lock:
            tasks, self._queue = self._queue, []
            self._queued_bytes = 0
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        if not tasks:
            return
        self._metrics.upload_batch_sizes.update(len(tasks))
        try:
            self._retrying.execute(
                self._policy, _BatchUpload(self._uploader, tasks, self._throttle)
            )
        except SchedulerClosedError:
            _fail(tasks, _closed_error())

    def flush(self) -> None:
        self._send_batch()

    def _notify(self, future: Future[None]) -> None:
        self._lanes.run(future, lambda: future.set_result(None))

    def close(self) -> None:
        """Fails unsent tasks, waits some seconds for running attempts, then fails the rest."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            queued, self._queue = self._queue, []
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        self._throttle.close()
        _fail(queued, _closed_error())
        self._retrying.close(_CLOSE_TIMEOUT_MS)
        self._uploader.close()
        self._lanes.close(_CLOSE_TIMEOUT_MS)
        if self._owns_threads:
            hanging = self._threads.close(_CLOSE_TIMEOUT_MS)
            if hanging:
                _LOG.error("uploads still run after the close: attempts=%d", hanging)


class _BatchUpload:
    """The upload of tasks into one file, for the retrying executor."""

    def __init__(
        self, uploader: StateChangeUploader, tasks: Sequence[UploadTask], throttle: UploadThrottle
    ) -> None:
        self._uploader = uploader
        self._tasks = tasks
        self._throttle = throttle
        self._size = sum(task.size for task in tasks)
        self._charge = 0

    def try_execute(self) -> UploadTasksResult:
        return self._uploader.upload(self._tasks)

    def complete_with_result(self, result: UploadTasksResult) -> None:
        _complete(result, self._tasks)

    def discard_result(self, result: UploadTasksResult) -> None:
        result.discard()

    def handle_failure(self, error: BaseException) -> None:
        _fail(self._tasks, error)

    def attempt_hangs(self) -> None:
        self._charge = self._throttle.attempt_hangs(self._size)

    def attempt_returned(self) -> None:
        self._throttle.attempt_returned(self._charge)


def _complete(result: UploadTasksResult, tasks: Sequence[UploadTask]) -> None:
    """Completes all tasks. A task that the uploader left out fails, so that nobody waits for it."""
    try:
        result.complete()
    finally:
        _fail(
            [task for task in tasks if not task.is_finished],
            UploadFailedError("The uploader reported no result for a task."),
        )


def _fail(tasks: Sequence[UploadTask], error: BaseException) -> None:
    for task in tasks:
        try:
            task.fail(error)
        except Exception:
            _LOG.exception("a callback of an upload failed")


def _closed_error() -> WriterClosedError:
    return WriterClosedError("The upload scheduler was closed before the upload ended.")


class CallbackLanes:
    """Runs the callbacks of one owner one after the other, and those of other owners concurrently.

    A callback that is slow or fails delays only its owner. An owner's lane is removed with the
    owner. Thread-safe.
    """

    def __init__(self, threads: Scheduler) -> None:
        self._threads = threads
        self._changed = threading.Condition(threading.Lock())
        self._lanes: WeakKeyDictionary[object, BoundedExecutor] = WeakKeyDictionary()
        self._pending = 0

    def run(self, owner: object, callback: Action) -> None:
        """Runs the callback soon, or on the caller's thread if the threads have ended."""
        with self._changed:
            self._pending += 1
            lane = self._lanes.get(owner)
            if lane is None:
                lane = self._lanes[owner] = BoundedExecutor(self._threads, 1)
        try:
            lane.execute(lambda slot: self._run(callback))
        except SchedulerClosedError:
            self._run(callback)

    def close(self, timeout_ms: int) -> None:
        """Waits for callbacks that have not ended."""
        with self._changed:
            self._threads.wait_for(self._changed, lambda: not self._pending, timeout_ms)
            left = self._pending
        if left:
            _LOG.error("callbacks of uploads still run after the close: callbacks=%d", left)

    def _run(self, callback: Action) -> None:
        try:
            callback()
        except Exception:
            # A user's callback: its error is its own.
            _LOG.exception("a callback of an upload failed")
        finally:
            with self._changed:
                self._pending -= 1
                self._changed.notify_all()
