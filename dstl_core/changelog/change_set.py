"""All that one writer appended between two rollovers, as it will stand on disk.

Source: ``StateChangeSet`` of Flink 2.2.1. Unlike there, the changes are encoded when the set is
closed: an upload that is repeated encodes nothing again, and no record object outlives its set.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from dstl_core.codec.change_format import read_change_set, write_change_set
from dstl_core.codec.data_io import DataOutput
from dstl_core.model.change import StateChange
from dstl_core.model.sequence import SequenceNumber


class StateChangeSet:
    """Identity equality; immutable.

    Args:
        log_id: The writer.
        sequence_number: The set's number in that writer.
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
        """A set whose bytes are already there; ``size`` is its payload in bytes."""
        made = cls.__new__(cls)
        made._fill(log_id, sequence_number, encoded, size)  # noqa: SLF001  # its own
        return made

    def _fill(
        self, log_id: UUID, sequence_number: SequenceNumber, encoded: memoryview, size: int
    ) -> None:
        self.log_id = log_id
        self.sequence_number = sequence_number
        self.encoded = encoded
        """The set's bytes in a segment's uncompressed body; never written to."""
        self.size = size
        """Payload bytes, without headers."""

    @property
    def changes(self) -> tuple[StateChange, ...]:
        """The changes, decoded: by key group as on disk, in append order inside each."""
        return tuple(read_change_set(bytes(self.encoded), 0))
