"""Metrics of the changelog backend of one subtask, under Flink's names.

Source: ``ChangelogMaterializationMetricGroup`` and ``ChangelogMetricGroup`` of Flink 2.2.1.
"""

from __future__ import annotations

from dstl_core.clock import Clock, SystemClock
from dstl_core.metrics import MetricGroup
from dstl_core.model.handle import (
    ChangelogStateBackendHandle,
    IncrementalRemoteKeyedStateHandle,
    KeyedStateHandle,
)

CHANGELOG_MATERIALIZATION = "ChangelogMaterialization"
CHANGELOG_STATE_BACKEND = "ChangelogStateBackend"


class ChangelogMaterializationMetricGroup:
    """Counts and durations of materializations.

    Args:
        parent: The operator's group; None: the metrics are not reported.
        clock: Measures durations.
    """

    def __init__(self, parent: MetricGroup | None = None, clock: Clock | None = None) -> None:
        group = _group(parent, CHANGELOG_MATERIALIZATION)
        self._clock = clock if clock is not None else SystemClock()
        self._started_at_ms = 0
        self._last_duration_ms = -1
        self._started = group.counter("startedMaterialization")
        self._completed = group.counter("completedMaterialization")
        self._failed = group.counter("failedMaterialization")
        group.gauge("lastDurationOfMaterialization", lambda: self._last_duration_ms)

    def started(self) -> None:
        self._started.inc()
        self._started_at_ms = self._clock.monotonic_ms()

    def completed(self) -> None:
        self._completed.inc()
        self._last_duration_ms = self._clock.monotonic_ms() - self._started_at_ms

    def failed(self) -> None:
        self._failed.inc()


class ChangelogStateBackendMetricGroup:
    """Sizes in bytes of the last snapshot: its materialized part, and the log after it.

    "Full" counts all state that the snapshot references, "Inc" only what this checkpoint added.
    """

    def __init__(self, parent: MetricGroup | None = None) -> None:
        group = _group(parent, CHANGELOG_STATE_BACKEND)
        self._sizes = dict.fromkeys(_SIZES, 0)
        for name in _SIZES:
            group.gauge(name, lambda name=name: self._sizes[name])  # type: ignore[misc]

    def snapshot_completed(self, handle: ChangelogStateBackendHandle) -> None:
        sizes = (
            handle.materialized_size,
            sum(_checkpointed_size(each) for each in handle.materialized),
            handle.non_materialized_size,
            handle.checkpointed_size,
        )
        self._sizes.update(zip(_SIZES, sizes, strict=True))


_SIZES = (
    "lastFullSizeOfMaterialization",
    "lastIncSizeOfMaterialization",
    "lastFullSizeOfNonMaterialization",
    "lastIncSizeOfNonMaterialization",
)


def _checkpointed_size(handle: KeyedStateHandle) -> int:
    """The new bytes of a handle; its whole size if it does not record them."""
    if isinstance(handle, IncrementalRemoteKeyedStateHandle | ChangelogStateBackendHandle):
        return handle.checkpointed_size
    return handle.state_size


def _group(parent: MetricGroup | None, name: str) -> MetricGroup:
    return (parent if parent is not None else MetricGroup()).add_group(name)
