"""A change set: all changes that one writer appended between two rollovers, encoded.

Source: ``StateChangeSet`` of Flink 2.2.1. Unlike in Flink, the changes are encoded when the set is
closed. So a repeated upload does not encode again, and no record object outlives its set.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from dstl_core.codec.change_format import read_change_set, write_change_set
from dstl_core.codec.data_io import DataOutput
from dstl_core.model.change import StateChange
from dstl_core.model.sequence import SequenceNumber


class StateChangeSet:
    """Immutable. Two sets are equal only if they are identical.

    Args:
        log_id: Identifies the writer.
        sequence_number: Number of the set in its writer.
        changes: The changes in append order.
    """

    __slots__ = ("encoded", "log_id", "sequence_number", "size")

    def __init__(
        self, log_id: UUID, sequence_number: SequenceNumber, changes: Iterable[StateChange]
    ) -> None:
        every = list(changes)
        out = DataOutput()
        write_change_set(out, every)
        self._fill(
            log_id,
            sequence_number,
            memoryview(out.to_bytes()),
            sum(len(each.change) for each in every),
        )

    @classmethod
    def of_encoded(
        cls, log_id: UUID, sequence_number: SequenceNumber, encoded: memoryview, size: int
    ) -> StateChangeSet:
        """Makes a set from encoded bytes; ``size`` is its payload in bytes."""
        made = cls.__new__(cls)
        made._fill(log_id, sequence_number, encoded, size)  # noqa: SLF001  # its own
        return made

    def _fill(
        self, log_id: UUID, sequence_number: SequenceNumber, encoded: memoryview, size: int
    ) -> None:
        self.log_id = log_id
        self.sequence_number = sequence_number
        self.encoded = encoded
        """Bytes of the set in a segment's uncompressed body; never modified."""
        self.size = size
        """Size of the payload in bytes, without headers."""

    @property
    def changes(self) -> tuple[StateChange, ...]:
        """The decoded changes: by key group as on disk, and in append order inside a group."""
        return tuple(read_change_set(bytes(self.encoded), 0))
