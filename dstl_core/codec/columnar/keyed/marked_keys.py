"""Finds the rows of some keys, by the bytes that their stored keys start with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dstl_core.codec.columnar.kernels.tables.key_marks import (
    FILTER_BYTES,
    fill_filter,
    mark_blocks,
    mark_keys,
)
from dstl_core.codec.columnar.types.addresses import address_of
from dstl_core.codec.columnar.types.program import Int64s

Mask = npt.NDArray[np.bool_]
_WORD_BYTES = 8


class KeyMarks:
    """Some keys, as the bytes of one type.

    A serialized key has a readable end, so no key is the start of another one. So a stored key that
    starts with the bytes of a key is of that key.

    Args:
        keys: The bytes of the keys.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        ordered = sorted(keys)
        self._size = len(ordered)
        self._data = np.frombuffer(b"".join(ordered) + bytes(8), np.uint8)
        self._bounds = np.zeros(self._size + 1, np.int64)
        np.cumsum([len(key) for key in ordered], out=self._bounds[1:])
        # A few bytes in which the keys differ tell most rows that are of none of them.
        first, last = (ordered[0], ordered[-1]) if ordered else (b"", b"")
        pairs = enumerate(zip(first, last, strict=False))
        shared = next((at for at, (a, b) in pairs if a != b), len(first))
        shortest = min(map(len, ordered), default=0)
        self._width = min(_WORD_BYTES, shortest)
        self._place = min(shared, shortest - self._width)
        self._filter = np.zeros(FILTER_BYTES, np.uint8)
        fill_filter(*self._wanted, *self._filtered)

    @property
    def _wanted(self) -> tuple[int, int, int]:
        return address_of(self._data), address_of(self._bounds), self._size

    @property
    def _filtered(self) -> tuple[int, int, int]:
        return address_of(self._filter), self._place, self._width

    def of(self, rows: Int64s, skip: int) -> Mask:
        """Whether each row is of one of the keys.

        Args:
            rows: The first two words of a row are start and end of its stored key.
            skip: Bytes of a stored key before the key.
        """
        marks = np.zeros(len(rows), np.bool_)
        if len(rows):
            mark_keys(
                address_of(rows),
                len(rows),
                rows.strides[0],
                skip,
                *self._wanted,
                *self._filtered,
                address_of(marks),
            )
        return marks

    def blocks_of(self, index: Int64s, first: int, last: int) -> Mask:
        """Which blocks may have rows of some of the keys.

        Args:
            index: A line of the index for each block, as ``TableReader`` has them.
            first: The first of the keys, in their order.
            last: The one behind the last of them.
        """
        marks = np.zeros(len(index), np.bool_)
        wanted, bounds, _ = self._wanted
        mark_blocks(address_of(index), len(index), wanted, bounds, first, last, address_of(marks))
        return marks
