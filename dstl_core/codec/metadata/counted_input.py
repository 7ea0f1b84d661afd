"""Reads ``_metadata`` and counts what becomes an object.

Counts are checked against the bytes that remain, but three bytes become an object of a hundred. So
all counts of a file have a limit together, too.
"""

from __future__ import annotations

from dstl_core.codec.data_io import DataInput
from dstl_core.errors import FormatError

MAX_ITEMS = 1 << 24
"""Operators, states, files, changes and so on. Each one takes 65 to 270 bytes."""
MAX_OFFSETS = 1 << 26
"""Offsets of elements, key groups and buffers. Each one takes 40 bytes."""


class CountedInput(DataInput):
    """A ``DataInput`` whose counts have a limit together."""

    __slots__ = ("_items", "_offsets")

    def __init__(self, buffer: bytes, start: int = 0, end: int | None = None) -> None:
        super().__init__(buffer, start, end)
        self._items = 0
        self._offsets = 0

    def read_count(self, field: str, item_bytes: int, *, limit: int | None = None) -> int:
        at = self.position
        count = super().read_count(field, item_bytes, limit=limit)
        self._items += count
        if self._items > MAX_ITEMS:
            raise _too_many("items", at, field, MAX_ITEMS, self._items)
        return count

    def read_length(self, field: str, *, limit: int | None = None) -> int:
        return super().read_count(field, 1, limit=limit)

    def read_counted_i64s(self, field: str) -> tuple[int, ...]:
        return self.read_i64s(super().read_count(field, 8), field)

    def read_i64s(self, count: int, field: str = "long") -> tuple[int, ...]:
        self._offsets += count
        if self._offsets > MAX_OFFSETS:
            raise _too_many("offsets", self.position, field, MAX_OFFSETS, self._offsets)
        return super().read_i64s(count, field)


def _too_many(what: str, at: int, field: str, most: int, number: int) -> FormatError:
    return FormatError(
        f"The metadata has too many {what}",
        offset=at,
        field=field,
        expected=f"<= {most}",
        got=f"{number} up to here",
    )
