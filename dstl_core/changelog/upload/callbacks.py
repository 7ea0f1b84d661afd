"""Runs callbacks so that a slow or failing callback delays only its owner."""

from __future__ import annotations

import logging
import threading
from weakref import WeakKeyDictionary

from dstl_core.errors import SchedulerClosedError
from dstl_core.scheduling import Action, BoundedExecutor, Scheduler

_LOG = logging.getLogger(__name__)


class CallbackLanes:
    """Runs the callbacks of one owner one after the other, and those of other owners concurrently.

    Thread-safe. An owner's lane is removed with the owner.
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
