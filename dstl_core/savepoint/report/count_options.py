"""What the contents of state are compared with. Importing it loads no kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class CountOptions:
    """What the contents of states are compared with.

    Args:
        at_ms: The moment that ages of values and processing timers count to.
        show_keys: Whether keys and values are named; otherwise keys are digests.
        ttls: Times to live in milliseconds, by name of the state; ``""`` is for all others.
    """

    at_ms: int
    show_keys: bool = False
    ttls: Mapping[str, int] = field(default_factory=dict)
