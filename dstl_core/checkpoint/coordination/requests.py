"""Decides which request for a checkpoint runs next, and which ones are refused.

Source: ``CheckpointRequestDecider`` of Flink 2.2.1.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from dstl_core.checkpoint.coordination.failure import CheckpointFailureReason
from dstl_core.checkpoint.store.properties import CheckpointProperties

MAX_QUEUED_REQUESTS = 1000


@dataclass(frozen=True, slots=True)
class CheckpointTriggerRequest:
    """A request for a checkpoint.

    ``token`` identifies the request for the caller that waits for it; periodic requests have none.
    ``order`` counts the requests of one coordinator.
    """

    properties: CheckpointProperties
    token: Hashable = None
    target_location: str | None = None
    is_periodic: bool = False
    order: int = 0

    @property
    def priority(self) -> tuple[bool, bool, bool, int]:
        """Sorts savepoints first, then forced requests, then non-periodic ones, then by age."""
        return (
            not self.properties.is_savepoint,
            not self.properties.forced,
            self.is_periodic,
            self.order,
        )


@dataclass(frozen=True, slots=True)
class Situation:
    """The present state of the coordinator. Times are monotonic milliseconds."""

    is_triggering: bool
    pending: int
    cleaning: int
    last_completion_ms: int | None
    now_ms: int


@dataclass(slots=True)
class Decision:
    """The request to run now and the refused ones.

    ``retry_after_ms`` is the time to wait before a periodic request is made again.
    """

    chosen: CheckpointTriggerRequest | None = None
    refused: list[tuple[CheckpointTriggerRequest, CheckpointFailureReason]] = field(
        default_factory=list
    )
    retry_after_ms: int | None = None


class CheckpointRequestDecider:
    """One queue of requests, ordered by priority.

    Invariant: the queue never holds more than ``max_queued`` requests.
    """

    def __init__(
        self,
        *,
        max_concurrent: int,
        min_pause_ms: int,
        max_queued: int = MAX_QUEUED_REQUESTS,
    ) -> None:
        self._max_concurrent = max_concurrent
        self._min_pause_ms = min_pause_ms
        self._max_queued = max_queued
        self._queue: list[CheckpointTriggerRequest] = []

    def __len__(self) -> int:
        return len(self._queue)

    def add(
        self, request: CheckpointTriggerRequest
    ) -> list[tuple[CheckpointTriggerRequest, CheckpointFailureReason]]:
        """Queues a request; returns the request that is refused if the queue is full."""
        too_many = CheckpointFailureReason.TOO_MANY_CHECKPOINT_REQUESTS
        if len(self._queue) >= self._max_queued and not self._queue[-1].is_periodic:
            return [(request, too_many)]
        self._queue.append(request)
        self._queue.sort(key=lambda queued: queued.priority)
        return [(self._queue.pop(), too_many)] if len(self._queue) > self._max_queued else []

    def choose(self, situation: Situation) -> Decision:
        """Removes the next request from the queue, if one may run."""
        decision = Decision()
        if situation.is_triggering or not self._queue or situation.cleaning > self._max_concurrent:
            return decision
        first = self._queue[0]
        if situation.pending >= self._max_concurrent:
            if first.properties.forced:
                decision.chosen = self._queue.pop(0)
            return decision
        if first.is_periodic and not first.properties.forced:
            wait_ms = self._pause_left(situation)
            if wait_ms > 0:
                reason = CheckpointFailureReason.MINIMUM_TIME_BETWEEN_CHECKPOINTS
                decision.refused.append((self._queue.pop(0), reason))
                decision.retry_after_ms = wait_ms
                return decision
        decision.chosen = self._queue.pop(0)
        return decision

    def _pause_left(self, situation: Situation) -> int:
        if situation.last_completion_ms is None:
            return 0
        return situation.last_completion_ms + self._min_pause_ms - situation.now_ms

    def abort_all(self) -> list[CheckpointTriggerRequest]:
        queue, self._queue = self._queue, []
        return queue
