"""Sequence numbers of change sets.

A range is half-open: ``from_`` is inclusive, ``to`` is exclusive.
Source: ``org.apache.flink.runtime.state.changelog.SequenceNumber`` of Flink 2.2.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from dstl_core.errors import ConfigError

_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True, order=True)
class SequenceNumber:
    """Number of one change set of one writer; 0 <= number < 2^63."""

    number: int

    def __post_init__(self) -> None:
        if not 0 <= self.number <= _MAX:
            raise ConfigError(
                f"A sequence number is out of range: expected 0..2^63-1, got {self.number}."
            )

    @classmethod
    def of(cls, number: int) -> SequenceNumber:
        return cls(number)

    def next(self) -> SequenceNumber:
        return SequenceNumber(self.number + 1)

    def __str__(self) -> str:
        return str(self.number)


def number_of(value: object) -> int:
    """The number of a sequence number. Checks the type, since callers pass any object.

    Raises:
        ConfigError: The value is not a ``SequenceNumber``.
    """
    if not isinstance(value, SequenceNumber):
        raise ConfigError(
            f"A sequence number has to be a SequenceNumber, got {type(value).__name__}."
        )
    return value.number
