"""Fields that the payloads of several connectors have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from dstl_core.codec.data_io import DataInput
from dstl_core.errors import FormatError, UnsupportedVersionError

T = TypeVar("T")
Json = Any
"""A decoded payload: what ``json`` writes."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where a split stands.

    Args:
        split: Name of the split, unique within its source.
        value: The stored position.
        word: Says what the value is: ``next`` to read, ``last`` read, ``records`` done, ``from`` a
            time; empty for markers such as ``earliest``.
        stop: Where the split ends, if it does.
        time_ms: The time of the position in milliseconds, where the connector stores one.
    """

    split: str
    value: str
    word: str = ""
    stop: str | None = None
    time_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SourceFormat:
    """The payloads of one connector. Each function raises ``FormatError`` for bytes of others.

    Args:
        name: Name of the connector.
        split: Version and bytes of a split to its fields.
        enumerator: The same for the enumerator's checkpoint.
        position: The fields of a split to where it stands.
        pending: The fields of an enumerator to where the splits stand that no reader has.
    """

    name: str
    split: Callable[[int, bytes], Json]
    enumerator: Callable[[int, bytes], Json]
    position: Callable[[Json], Position]
    pending: Callable[[Json], list[Position]]


def check_version(what: str, version: int, known: Mapping[int, Any] | tuple[int, ...]) -> None:
    """Refuses a version that is not among the known ones.

    Raises:
        UnsupportedVersionError: It is not.
    """
    if version not in known:
        raise UnsupportedVersionError(
            f"{what} of this version cannot be read",
            expected=", ".join(map(str, known)),
            got=version,
        )


def whole(raw: bytes, what: str, read: Callable[[DataInput], T]) -> T:
    """Reads a payload that ends with its last field."""
    data = DataInput(raw)
    value = read(data)
    data.expect_end(what)
    return value


def read_flag(data: DataInput, field: str) -> bool:
    """A boolean as Java writes it: 0 or 1. Other bytes mean that this is another format."""
    at = data.position
    value = data.read_u8(field)
    if value > 1:
        raise FormatError("Not a boolean", offset=at, field=field, expected="0 or 1", got=value)
    return value == 1


def read_optional_utf(data: DataInput, field: str) -> str | None:
    return data.read_utf(field) if read_flag(data, field) else None


def read_texts(data: DataInput, field: str) -> list[str]:
    return [data.read_utf(field) for _ in range(data.read_count(field, 2))]


def read_choice(data: DataInput, field: str, names: tuple[str, ...]) -> str:
    """The name of an enum's constant by its ordinal."""
    at = data.position
    ordinal = data.read_i32(field)
    if not 0 <= ordinal < len(names):
        raise FormatError(
            "A constant is out of range",
            offset=at,
            field=field,
            expected=f"0..{len(names) - 1}",
            got=ordinal,
        )
    return names[ordinal]


def read_le_i32(data: DataInput, field: str) -> int:
    return int.from_bytes(data.read_bytes(4, field), "little", signed=True)


def read_le_length(data: DataInput, field: str, item_bytes: int = 1) -> int:
    """A little-endian count that fits into what remains."""
    at = data.position
    count = read_le_i32(data, field)
    if not 0 <= count * item_bytes <= data.remaining:
        raise FormatError(
            "A count does not fit into the data",
            offset=at,
            field=field,
            expected=f"0..{data.remaining // item_bytes}",
            got=count,
        )
    return count
