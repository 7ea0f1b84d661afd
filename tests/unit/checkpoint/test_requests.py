"""The queue of requests at its limits."""

from __future__ import annotations

from dstl_core.checkpoint.coordination.failure import CheckpointFailureReason
from dstl_core.checkpoint.coordination.requests import (
    CheckpointRequestDecider,
    CheckpointTriggerRequest,
    Situation,
)
from dstl_core.checkpoint.store.properties import CheckpointProperties, CheckpointRetentionPolicy

CHECKPOINT = CheckpointProperties.for_checkpoint(CheckpointRetentionPolicy.RETAIN_ON_CANCELLATION)
SAVEPOINT = CheckpointProperties.for_savepoint()
UNFORCED_SAVEPOINT = CheckpointProperties.for_savepoint(forced=False)
IDLE = Situation(False, 0, 0, None, 0)
BUSY = Situation(False, 1, 0, None, 0)
TOO_MANY = CheckpointFailureReason.TOO_MANY_CHECKPOINT_REQUESTS


def request(
    order: int, properties: CheckpointProperties = CHECKPOINT, *, periodic: bool = False
) -> CheckpointTriggerRequest:
    return CheckpointTriggerRequest(properties, order, None, periodic, order)


def decider(**options: int) -> CheckpointRequestDecider:
    return CheckpointRequestDecider(**{"max_concurrent": 1, "min_pause_ms": 0, **options})


def test_the_order_of_the_queue() -> None:
    queue = decider()
    forced = CheckpointProperties(True, CHECKPOINT.checkpoint_type, True)
    requests = [
        request(1, periodic=True),
        request(2),
        request(3, forced),
        request(4),
        request(5, UNFORCED_SAVEPOINT),
        request(6, SAVEPOINT),
        request(7, SAVEPOINT),
    ]
    for own_request in requests:
        assert queue.add(own_request) == []
    chosen = [queue.choose(IDLE).chosen for _ in requests]
    assert [each.order for each in chosen if each is not None] == [6, 7, 5, 3, 2, 4, 1]
    assert queue.choose(IDLE).chosen is None


def test_only_forced_requests_pass_the_limit() -> None:
    queue = decider()
    queue.add(request(1, UNFORCED_SAVEPOINT))
    assert queue.choose(BUSY).chosen is None
    queue.add(request(2, SAVEPOINT))
    assert queue.choose(BUSY).chosen == request(2, SAVEPOINT)
    assert queue.choose(BUSY).chosen is None


def test_a_full_queue_evicts_the_last_periodic_request() -> None:
    queue = decider(max_queued=2)
    queue.add(request(1, periodic=True))
    queue.add(request(2))
    assert queue.add(request(3)) == [(request(1, periodic=True), TOO_MANY)]
    # Now there are only requests of users, which stay; a new one is refused.
    assert queue.add(request(4, SAVEPOINT)) == [(request(4, SAVEPOINT), TOO_MANY)]
    assert len(queue) == 2


def test_a_periodic_request_that_comes_last_is_itself_evicted() -> None:
    queue = decider(max_queued=2)
    queue.add(request(1))
    queue.add(request(2, periodic=True))
    late = request(3, periodic=True)
    assert queue.add(late) == [(late, TOO_MANY)]


def test_while_one_is_triggered_or_deletions_lag_nothing_is_chosen() -> None:
    queue = decider()
    queue.add(request(1, SAVEPOINT))
    assert queue.choose(Situation(True, 0, 0, None, 0)).chosen is None
    assert queue.choose(Situation(False, 0, 2, None, 0)).chosen is None
    assert queue.choose(Situation(False, 0, 1, None, 0)).chosen is not None


def test_the_pause() -> None:
    queue = decider(min_pause_ms=100)
    periodic = request(1, periodic=True)
    queue.add(periodic)
    decision = queue.choose(Situation(False, 0, 0, last_completion_ms=50, now_ms=120))
    reason = CheckpointFailureReason.MINIMUM_TIME_BETWEEN_CHECKPOINTS
    assert (decision.chosen, decision.refused, decision.retry_after_ms) == (
        None,
        [(periodic, reason)],
        30,
    )
    queue.add(periodic)
    assert queue.choose(Situation(False, 0, 0, 50, 150)).chosen == periodic
    queue.add(request(2))
    assert queue.choose(Situation(False, 0, 0, 50, 51)).chosen == request(2)
    queue.add(periodic)
    assert queue.choose(IDLE).chosen == periodic


def test_aborting_empties_the_queue() -> None:
    queue = decider()
    queue.add(request(2))
    queue.add(request(1, SAVEPOINT))
    assert [each.order for each in queue.abort_all()] == [1, 2]
    assert len(queue) == 0
