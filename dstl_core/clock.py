"""Time as an argument, so that every component can run under a manual clock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall-clock and monotonic time in milliseconds."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch, for what is written down."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds that never go backwards, for durations and time-outs."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
