"""State changes, the input of a changelog writer.

Source: ``StateChange`` of Flink 2.2.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from dstl_core.errors import ConfigError

META_KEY_GROUP = -1


@dataclass(frozen=True, slots=True)
class StateChange:
    """One change: its key group (``META_KEY_GROUP`` for metadata) and its bytes."""

    key_group: int
    change: bytes

    @classmethod
    def of_metadata_change(cls, change: bytes) -> StateChange:
        return cls(META_KEY_GROUP, change)

    @classmethod
    def of_data_change(cls, key_group: int, change: bytes) -> StateChange:
        if key_group < 0:
            raise ConfigError(f"A data change needs a key group >= 0, got {key_group}.")
        return cls(key_group, change)
