"""Passes the outcomes of uploads to the thread that owns the writer."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from dstl_core.changelog.ledger import UploadOutcome
from dstl_core.scheduling import Scheduler

_LOG = logging.getLogger(__name__)

Mailbox = Callable[[Callable[[], None]], object]
"""Runs a function on the writer's thread later, e.g. ``executor.submit`` of its event loop."""


class UploadInbox:
    """Any thread adds outcomes; the owner drains them.

    Args:
        threads: Let the owner wait.
        arrived: Called under the inbox's lock after an outcome was added.
        drain: The function that the mailbox runs then.
        settle_late: Handles outcomes that arrive after the close, on the thread that brings them.
    """

    def __init__(
        self,
        threads: Scheduler,
        *,
        arrived: Callable[[], None],
        drain: Callable[[], None],
        mailbox: Mailbox | None,
        settle_late: Callable[[UploadOutcome], None],
    ) -> None:
        self._threads = threads
        self._arrived = arrived
        self._drain = drain
        self._mailbox = mailbox
        self._settle_late = settle_late
        self._changed = threading.Condition(threading.Lock())
        self._outcomes: deque[UploadOutcome] = deque()
        self._closed = False

    def put(self, outcome: UploadOutcome) -> None:
        with self._changed:
            closed = self._closed
            if not closed:
                self._outcomes.append(outcome)
                self._arrived()
                self._changed.notify_all()
        if closed:
            self._settle_late(outcome)
        elif self._mailbox is not None:
            try:
                self._mailbox(self._drain)
            except Exception:
                # The outcome is in the inbox; a mailbox that refuses only delays its handling.
                _LOG.exception("a mailbox refused to drain its writer")

    def take(self) -> UploadOutcome | None:
        with self._changed:
            return self._outcomes.popleft() if self._outcomes else None

    def wait_for(self, done: threading.Event, timeout_s: float | None) -> bool:
        """Drains until the event is set; False after the timeout."""
        clock = self._threads.clock
        timeout_ms = None if timeout_s is None else round(timeout_s * 1000)
        started = clock.monotonic_ms()
        while True:
            self._drain()
            if done.is_set():
                return True
            left = None
            if timeout_ms is not None:
                left = max(0, timeout_ms - (clock.monotonic_ms() - started))
            with self._changed:
                if not self._threads.wait_for(self._changed, lambda: bool(self._outcomes), left):
                    return False

    def close(self) -> list[UploadOutcome]:
        """Stops accepting outcomes; returns those that were not drained."""
        with self._changed:
            self._closed = True
            left = list(self._outcomes)
            self._outcomes.clear()
        return left
