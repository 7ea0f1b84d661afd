"""Key groups: the unit in which keyed state is assigned to subtasks.

Source: ``KeyGroupRange``, ``KeyGroupRangeAssignment`` and ``MathUtils.murmurHash`` of Flink 2.2.1.
Key-group ranges are inclusive at both ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral
from typing import ClassVar

from dstl_core.errors import ConfigError

DEFAULT_LOWER_BOUND_MAX_PARALLELISM = 128
UPPER_BOUND_MAX_PARALLELISM = 32768
_U32 = 0xFFFFFFFF


def _rotl(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (32 - bits))) & _U32


def murmur_hash(code: int) -> int:
    """Flink's ``MathUtils.murmurHash`` of a Java int; the result is never negative."""
    h = (code & _U32) * 0xCC9E2D51 & _U32
    h = _rotl(h, 15) * 0x1B873593 & _U32
    h = (_rotl(h, 13) * 5 + 0xE6546B64) & _U32
    h ^= 4
    h = (h ^ h >> 16) * 0x85EBCA6B & _U32
    h = (h ^ h >> 13) * 0xC2B2AE35 & _U32
    h ^= h >> 16
    if h < 0x80000000:
        return h
    return 0 if h == 0x80000000 else (1 << 32) - h


def assign_to_key_group(java_hash: int, max_parallelism: int) -> int:
    """The key group of a key, from its Java ``hashCode()``."""
    return murmur_hash(java_hash) % max_parallelism


def check_max_parallelism(max_parallelism: int) -> int:
    """Returns the argument; raises if it is not within 1..32768."""
    if not _is_within_bounds(max_parallelism):
        raise ConfigError(
            f"Maximum parallelism must be between 1 and {UPPER_BOUND_MAX_PARALLELISM}. "
            f"Found: {max_parallelism!r}"
        )
    return max_parallelism


def check_parallelism_bounds(parallelism: int) -> int:
    """Returns the argument; raises if it is not within 1..32768."""
    if not _is_within_bounds(parallelism):
        raise ConfigError(
            f"Operator parallelism not within bounds: {parallelism!r}; give a whole number within "
            f"1..{UPPER_BOUND_MAX_PARALLELISM}."
        )
    return parallelism


def _is_within_bounds(number: object) -> bool:
    return isinstance(number, Integral) and 1 <= int(number) <= UPPER_BOUND_MAX_PARALLELISM


def check_parallelism(parallelism: int, max_parallelism: int, operator: str = "") -> None:
    """Raises unless 1 <= parallelism <= max_parallelism <= 32768; ``operator`` is its name."""
    check_max_parallelism(max_parallelism)
    check_parallelism_bounds(parallelism)
    if parallelism > max_parallelism:
        raise ConfigError(
            f"Maximum parallelism must not be smaller than parallelism: "
            f"{max_parallelism} < {parallelism}"
            f"{f' of operator {operator!r}' if operator else ''}."
        )


def key_group_prefix_bytes(max_parallelism: int) -> int:
    """Size of the key-group prefix of a stored key: 1 byte up to 128 key groups, otherwise 2."""
    return 1 if max_parallelism <= 128 else 2


def compute_default_max_parallelism(parallelism: int) -> int:
    """One and a half times the parallelism, rounded up to a power of two, within 128..32768."""
    check_parallelism_bounds(parallelism)
    wanted = parallelism + parallelism // 2
    power = 1 << max(wanted - 1, 0).bit_length()
    return min(max(power, DEFAULT_LOWER_BOUND_MAX_PARALLELISM), UPPER_BOUND_MAX_PARALLELISM)


def compute_operator_index_for_key_group(
    max_parallelism: int, parallelism: int, key_group: int
) -> int:
    """The subtask that owns a key group."""
    return key_group * parallelism // max_parallelism


def compute_key_group_range_for_operator_index(
    max_parallelism: int, parallelism: int, operator_index: int
) -> KeyGroupRange:
    """The key groups that a subtask owns."""
    check_parallelism(parallelism, max_parallelism)
    if not 0 <= operator_index < parallelism:
        raise ConfigError(
            f"There is no such subtask: expected 0..{parallelism - 1}, got {operator_index}."
        )
    start = (operator_index * max_parallelism + parallelism - 1) // parallelism
    end = ((operator_index + 1) * max_parallelism - 1) // parallelism
    return KeyGroupRange(start, end)


@dataclass(frozen=True, slots=True)
class KeyGroupRange:
    """``[start_key_group, end_key_group]``, both inclusive; ``EMPTY`` is 0..-1."""

    start_key_group: int
    end_key_group: int

    EMPTY: ClassVar[KeyGroupRange]

    def __post_init__(self) -> None:
        empty = self.start_key_group == 0 and self.end_key_group == -1
        if not empty and not 0 <= self.start_key_group <= self.end_key_group:
            raise ConfigError(
                f"Not a key-group range: expected 0 <= start <= end, "
                f"got {self.start_key_group}..{self.end_key_group}."
            )

    @classmethod
    def of(cls, start_key_group: int, end_key_group: int) -> KeyGroupRange:
        """The range, or ``EMPTY`` if the start is after the end."""
        if start_key_group > end_key_group:
            return cls.EMPTY
        return cls(start_key_group, end_key_group)

    @property
    def number_of_key_groups(self) -> int:
        return self.end_key_group - self.start_key_group + 1

    def contains(self, key_group: int) -> bool:
        return self.start_key_group <= key_group <= self.end_key_group

    def get_intersection(self, other: KeyGroupRange) -> KeyGroupRange:
        return KeyGroupRange.of(
            max(self.start_key_group, other.start_key_group),
            min(self.end_key_group, other.end_key_group),
        )

    def __len__(self) -> int:
        return self.number_of_key_groups

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start_key_group, self.end_key_group + 1))

    def __str__(self) -> str:
        return f"[{self.start_key_group}, {self.end_key_group}]"


KeyGroupRange.EMPTY = KeyGroupRange(0, -1)


def divided(key_groups: KeyGroupRange, count: int) -> list[KeyGroupRange]:
    """Divides key groups into at most ``count`` ranges of almost equal size."""
    first, total = key_groups.start_key_group, len(key_groups)
    bounds = [first + total * index // count for index in range(count + 1)]
    return [KeyGroupRange(start, end - 1) for start, end in pairwise(bounds) if start < end]
