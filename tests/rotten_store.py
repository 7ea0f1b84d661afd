"""A store that takes a file, shows that it has it, and damages it afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import fsspec
from fsspec.implementations.memory import MemoryFileSystem

from dstl_core.storage.publish_once import PUBLISHERS

HOW = ("flipped", "short", "lost")


class RottenFileSystem(MemoryFileSystem):  # type: ignore[misc]
    """Files in memory. One of those that are written is damaged once its size was asked for."""

    protocol = "rotten"
    store: dict[str, Any] = {}  # noqa: RUF012  # as fsspec's own
    pseudo_dirs = [""]  # noqa: RUF012  # as fsspec's own
    cachable = False
    written: list[str] = []  # noqa: RUF012
    """Files of state in the order in which they were written."""
    victim: int | None = None
    """Which of them is damaged."""
    how = HOW[0]

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        path = self._strip_protocol(path)
        if "r" not in mode and not path.rpartition("/")[2].startswith("_"):
            self.written.append(path)
        return super()._open(path, mode=mode, **options)

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        status: dict[str, Any] = super().info(path, **options)
        path = self._strip_protocol(path)
        if self.victim is not None and self.written[self.victim : self.victim + 1] == [path]:
            type(self).victim = None
            self._damage(path)
        return status

    def _damage(self, path: str) -> None:
        if self.how == "lost":
            del self.store[path]
            return
        file = self.store[path]
        raw = bytearray(file.getvalue())
        if self.how == "flipped":
            raw[len(raw) // 2] ^= 4
        else:
            del raw[len(raw) // 2 :]
        file.seek(0)
        file.truncate()
        file.write(raw)


@contextmanager
def rotten_store(victim: int | None, how: str = HOW[0]) -> Iterator[type[RottenFileSystem]]:
    """The store while the block runs, empty at its start; ``rotten://s/`` is in it."""
    files = RottenFileSystem
    fsspec.register_implementation("rotten", files, clobber=True)
    files.store.clear()
    files.written.clear()
    files.pseudo_dirs[:] = [""]
    files.victim, files.how = victim, how
    PUBLISHERS["rotten"] = PUBLISHERS["memory"]
    try:
        yield files
    finally:
        del PUBLISHERS["rotten"]
    files.store.clear()
