"""State that this worker process keeps in memory for later tasks."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

HELD: OrderedDict[tuple[object, ...], Any] = OrderedDict()
"""State by job, operator and key groups; the most recently used is last."""
HELD_LOCK = threading.Lock()
"""Held while ``HELD`` changes: the threads of a local engine share it."""


def holds_state() -> bool:
    """Whether this process has state that a later task may continue with."""
    return bool(HELD)
