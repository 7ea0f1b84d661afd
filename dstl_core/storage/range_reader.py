"""A stored file as an object with ``read`` and ``seek``."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any


class RangeReader(io.RawIOBase):
    """Reads a file with random access; each read requests exactly its bytes from the store.

    Args:
        read_range: Reads exactly the bytes ``[start, end)`` of the file.
        size: Size of the file in bytes.
    """

    def __init__(self, read_range: Callable[[int, int], bytes], size: int) -> None:
        self._read_range = read_range
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"A position lies before the start of a file: {base + offset}.")
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        wanted = self._size if size is None or size < 0 else size
        end = min(self._position + wanted, self._size)
        if end <= self._position:
            return b""
        data = self._read_range(self._position, end)
        self._position = end
        return data

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
