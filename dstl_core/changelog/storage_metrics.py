"""The changelog's metrics, under Flink's names.

Source: ``ChangelogStorageMetricGroup`` of Flink 2.2.1; all writers of a storage share them.
"""

from __future__ import annotations

from collections.abc import Callable

from dstl_core.metrics import MetricGroup

CHANGELOG_STORAGE = "ChangelogStorage"


class ChangelogStorageMetricGroup:
    """Metrics of one changelog storage. Sizes are bytes of uncompressed segment bodies.

    Args:
        parent: The group to put them under; nowhere by default.
    """

    def __init__(self, parent: MetricGroup | None = None) -> None:
        group = (parent if parent is not None else MetricGroup()).add_group(CHANGELOG_STORAGE)
        self._group = group
        self.upload_requests = group.counter("numberOfUploadRequests")
        """Attempts: one for each file that an uploader begins."""
        self.upload_failures = group.counter("numberOfUploadFailures")
        """Attempts that ended in an I/O error; time-outs are not among them."""
        self.upload_sizes = group.histogram("uploadSizes")
        self.upload_latencies_nanos = group.histogram("uploadLatenciesNanos")
        self.attempts_per_upload = group.histogram("attemptsPerUpload")
        """The number of the attempt that succeeded."""
        self.total_attempts_per_upload = group.histogram("totalAttemptsPerUpload")
        """Attempts started by the time one succeeded."""
        self.upload_batch_sizes = group.histogram("uploadBatchSizes")
        """Tasks in one file."""

        self.back_pressure_ms = group.counter("backPressureMs")
        """Not in Flink: how long callers have waited for room in flight."""

    def register_upload_queue_size(self, read: Callable[[], int]) -> None:
        """Tasks that wait for their batch to be sent."""
        self._group.gauge("uploadQueueSize", read)

    def register_bytes_in_flight(self, read: Callable[[], int]) -> None:
        """Not in Flink: what counts against ``upload.max-in-flight``."""
        self._group.gauge("bytesInFlight", read)
