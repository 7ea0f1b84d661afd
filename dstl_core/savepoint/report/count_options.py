"""What the contents of state are compared with. Importing it loads no kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dstl_core.model.ids import OperatorID


@dataclass(frozen=True)
class CountOptions:
    """What the contents of states are compared with.

    Args:
        at_ms: The moment that ages of values and processing timers count to.
        show_keys: Whether keys and values are named; otherwise keys are digests.
        ttls: Times to live in milliseconds, by name of the state; ``""`` is for all others.
        own_ttls: Those of states of one operator, which go before these.
    """

    at_ms: int
    show_keys: bool = False
    ttls: Mapping[str, int] = field(default_factory=dict)
    own_ttls: Mapping[tuple[OperatorID, str], int] = field(default_factory=dict)

    def ttl_of(self, operator_id: OperatorID, state: str) -> int | None:
        """The time to live of a state; None if none is given."""
        of_all = self.ttls.get(state, self.ttls.get(""))
        return self.own_ttls.get((operator_id, state), of_all)
