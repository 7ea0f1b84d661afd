"""Time to live of state: when an entry expires, whether it is visible, and when it is removed.

A stored value begins with the time of its last access. Source: ``StateTtlConfig``,
``AbstractTtlDecorator`` and ``TtlUtils`` of Flink 2.2.1.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from enum import Enum

from dstl_core.clock import Clock
from dstl_core.errors import ConfigError

_TIMESTAMP = struct.Struct(">q")
TIMESTAMP_BYTES = _TIMESTAMP.size
_MAX_TIMESTAMP = (1 << 63) - 1


class UpdateType(Enum):
    """The accesses that renew the time to live."""

    ON_CREATE_AND_WRITE = "OnCreateAndWrite"
    ON_READ_AND_WRITE = "OnReadAndWrite"


class StateVisibility(Enum):
    """Whether functions see an expired value that was not removed yet."""

    NEVER_RETURN_EXPIRED = "NeverReturnExpired"
    RETURN_EXPIRED_IF_NOT_CLEANED_UP = "ReturnExpiredIfNotCleanedUp"


@dataclass(frozen=True, slots=True)
class StateTtlConfig:
    """Time to live, in milliseconds of processing time.

    Args:
        ttl_ms: Milliseconds from the last access to the expiry.
        update_type: Accesses that renew the time to live.
        state_visibility: Whether expired values are seen until they are removed.
        cleanup_full_snapshot: Whether full snapshots leave out expired entries.
        cleanup_incrementally: Entries that every state access checks for expiry; 0 for none. Both
            backends do it. RocksDB's compaction filter is not available.
    """

    ttl_ms: int
    update_type: UpdateType = UpdateType.ON_CREATE_AND_WRITE
    state_visibility: StateVisibility = StateVisibility.NEVER_RETURN_EXPIRED
    cleanup_full_snapshot: bool = False
    cleanup_incrementally: int = 5

    def __post_init__(self) -> None:
        for number in (self.ttl_ms, self.cleanup_incrementally):
            if not isinstance(number, int) or isinstance(number, bool):
                raise ConfigError(
                    f"A time to live is wrong: expected whole milliseconds, and a whole number of "
                    f"entries, got {number!r}."
                )
        if self.ttl_ms <= 0:
            raise ConfigError(f"A time to live must be more than 0 ms, got {self.ttl_ms} ms.")
        if self.cleanup_incrementally < 0:
            raise ConfigError(
                f"cleanup_incrementally must be 0 or more entries, got "
                f"{self.cleanup_incrementally}."
            )

    def without_cleanup_in_background(self) -> StateTtlConfig:
        """A configuration that removes expired entries only on access and in full snapshots."""
        return replace(self, cleanup_incrementally=0)


class TtlPolicy:
    """A configuration with the clock that measures it."""

    __slots__ = ("_clock", "config", "returns_expired", "updates_on_read")

    def __init__(self, config: StateTtlConfig, clock: Clock) -> None:
        self.config = config
        self._clock = clock
        self.updates_on_read = config.update_type is UpdateType.ON_READ_AND_WRITE
        self.returns_expired = (
            config.state_visibility is StateVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP
        )

    def wrap(self, raw: bytes) -> bytes:
        """Adds the current time to a value."""
        return _TIMESTAMP.pack(self._clock.now_ms()) + raw

    def is_expired(self, stored: bytes) -> bool:
        (last_access,) = _TIMESTAMP.unpack_from(stored)
        expires = min(int(last_access) + self.config.ttl_ms, _MAX_TIMESTAMP)
        return expires <= self._clock.now_ms()


def unwrap(stored: bytes) -> bytes:
    """Removes the time from a value."""
    return stored[TIMESTAMP_BYTES:]
