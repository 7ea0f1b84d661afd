"""Hashes of more keys than memory holds, among which equal ones are looked for."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from typing import IO

import numpy as np

from dstl_core.codec.columnar.types.program import Int64s

_MOST_HELD = 1 << 20
"""Hashes in memory; more go to temporary files."""
_FILES = 64
"""Equal hashes are in one file, by their low bits; memory holds one file of them at a time."""


class StoredHashes:
    """Collects hashes of 64 bits. Use it as a context manager: it has temporary files.

    Args:
        folder: The folder of these files; None: the system's.
    """

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder
        self._held: list[Int64s] = []
        self._count = 0
        self._files: list[IO[bytes]] = []
        self._open = ExitStack()

    def __enter__(self) -> StoredHashes:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def add(self, hashes: Int64s) -> None:
        """Adds hashes.

        Raises:
            OSError: The disk of temporary files is full.
        """
        self._held.append(hashes)
        self._count += len(hashes)
        if self._count >= _MOST_HELD:
            self._spill()

    def are_distinct(self) -> bool:
        """Whether no hash came twice.

        Raises:
            OSError: As ``add``.
        """
        if not self._files:
            return not self._held or _are_distinct(np.concatenate(self._held))
        self._spill()
        for file in self._files:
            file.seek(0)
            if not _are_distinct(np.frombuffer(file.read(), np.int64)):
                return False
        return True

    def _spill(self) -> None:
        if not self._files:
            for _ in range(_FILES):
                file = tempfile.TemporaryFile(  # noqa: SIM115  # see __exit__
                    prefix="dstl-", dir=self._folder
                )
                self._files.append(self._open.enter_context(file))
        hashes = np.concatenate([np.empty(0, np.int64), *self._held])
        places = hashes & (_FILES - 1)
        ordered = hashes[np.argsort(places, kind="stable")]
        ends = np.cumsum(np.bincount(places, minlength=_FILES))
        for stored, part in zip(self._files, np.split(ordered, ends[:-1]), strict=True):
            stored.write(part.tobytes())
        self._held.clear()
        self._count = 0


def _are_distinct(hashes: Int64s) -> bool:
    ordered = np.sort(hashes)
    return not (ordered[1:] == ordered[:-1]).any()
