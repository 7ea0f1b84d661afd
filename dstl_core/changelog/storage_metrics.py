"""The changelog's metrics, under Flink's names.

Source: ``ChangelogStorageMetricGroup`` of Flink 2.2.1. All writers of a storage share the metrics.
"""

from __future__ import annotations

from collections.abc import Callable

from dstl_core.metrics import MetricGroup

CHANGELOG_STORAGE = "ChangelogStorage"


class ChangelogStorageMetricGroup:
    """Metrics of one changelog storage. Sizes are bytes of uncompressed segment bodies.

    Args:
        parent: The parent group; without it, the metrics are not reported.
    """

    def __init__(self, parent: MetricGroup | None = None) -> None:
        group = (parent if parent is not None else MetricGroup()).add_group(CHANGELOG_STORAGE)
        self._group = group
        self.upload_requests = group.counter("numberOfUploadRequests")
        """Attempts: one for each file that an uploader starts."""
        self.upload_failures = group.counter("numberOfUploadFailures")
        """Attempts that ended in an I/O error; timeouts do not count."""
        self.upload_sizes = group.histogram("uploadSizes")
        self.upload_latencies_nanos = group.histogram("uploadLatenciesNanos")
        self.attempts_per_upload = group.histogram("attemptsPerUpload")
        """Number of the attempt that succeeded."""
        self.total_attempts_per_upload = group.histogram("totalAttemptsPerUpload")
        """Number of attempts that were started before one succeeded."""
        self.upload_batch_sizes = group.histogram("uploadBatchSizes")
        """Number of tasks in one file."""

        self.back_pressure_ms = group.counter("backPressureMs")
        """Not in Flink: time for which callers have waited for room in flight, in milliseconds."""

    def register_upload_queue_size(self, read: Callable[[], int]) -> None:
        """Registers the number of tasks that wait for their batch."""
        self._group.gauge("uploadQueueSize", read)

    def register_bytes_in_flight(self, read: Callable[[], int]) -> None:
        """Not in Flink: registers the bytes that count towards ``upload.max-in-flight``."""
        self._group.gauge("bytesInFlight", read)
