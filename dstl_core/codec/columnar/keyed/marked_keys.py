"""Finds the rows of some keys, by the bytes that their stored keys start with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dstl_core.codec.columnar.kernels.tables.key_marks import mark_keys
from dstl_core.codec.columnar.types.addresses import address_of
from dstl_core.codec.columnar.types.program import Int64s

Mask = npt.NDArray[np.bool_]


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
                address_of(self._data),
                address_of(self._bounds),
                self._size,
                address_of(marks),
            )
        return marks
