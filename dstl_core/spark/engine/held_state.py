"""State that this worker process keeps in memory for later tasks."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

HELD: OrderedDict[tuple[object, ...], Any] = OrderedDict()
"""By job, operator and key groups; the most recently used last."""


def holds_state() -> bool:
    """Whether a later task may continue with state of this process."""
    return bool(HELD)
