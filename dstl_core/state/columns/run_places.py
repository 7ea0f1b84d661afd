"""Where runs of records lie in a temporary file, for more runs than memory holds places of."""

from __future__ import annotations

import os
import tempfile
from array import array
from collections.abc import Iterator
from typing import IO

from dstl_core.temporary_files import let_go

_HELD = 32
"""Places of a key group in memory; when there are more, they go to a file together."""
_WORDS = 3
_WORD_BYTES = 8


class RunPlaces:
    """Three words for each run, by key group. Not thread-safe.

    Those in the file are chains: behind the places of a key group that were written together stands
    where the ones before them are.

    Args:
        folder: The folder of the file; None: the system's.
    """

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder
        self._held: dict[int, array[int]] = {}
        self._lasts: dict[int, int] = {}
        """Where the last places of a key group in the file end."""
        self._file: IO[bytes] | None = None
        self._size = 0

    def add(self, key_group: int, first: int, second: int, third: int) -> None:
        """Adds a run.

        Raises:
            OSError: The disk of temporary files is full.
        """
        held = self._held.get(key_group)
        if held is None:
            held = self._held[key_group] = array("Q")
        held.extend((first, second, third))
        if len(held) == _WORDS * _HELD:
            held.append(self._lasts.get(key_group, 0))
            if self._file is None:
                self._file = tempfile.TemporaryFile(  # noqa: SIM115  # see close
                    prefix="dstl-", dir=self._folder
                )
            self._file.write(held)
            self._size += _WORD_BYTES * len(held)
            self._lasts[key_group] = self._size
            del held[:]

    def flush(self) -> None:
        """Writes what is in a buffer still.

        Raises:
            OSError: As ``add``.
        """
        if self._file is not None:
            self._file.flush()

    def of(self, key_group: int) -> Iterator[tuple[int, int, int]]:
        """The words of the runs of a key group, in no order."""
        words = self._held.get(key_group, array("Q"))
        end = self._lasts.get(key_group, 0)
        self.flush()
        while True:
            values = iter(words)
            yield from zip(values, values, values, strict=True)
            if not end:
                return
            assert self._file is not None  # it has places
            size = _WORD_BYTES * (_WORDS * _HELD + 1)
            words = array("Q", os.pread(self._file.fileno(), size, end - size))
            end = words.pop()

    def close(self) -> None:
        """Releases memory and the file."""
        self._held.clear()
        self._lasts.clear()
        if self._file is not None:
            let_go(self._file)
            self._file = None
