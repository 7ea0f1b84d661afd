"""Local files that are not used before their content was checked.

A file is read for that once in a process, and again when it has changed: a worker maps the same
large files epoch after epoch, and to read them whole each time would cost more than the epoch.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from dstl_core.errors import FormatError

_REMEMBERED = 10_000
_Identity = tuple[int, int, int, int]
_CHECKED: OrderedDict[_Identity, str] = OrderedDict()
"""Digests of files as they are, by what changes with their content. Links share it."""


class _DigestWriter:
    """Passes on what is written, and digests it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()

    def write(self, data: Any) -> int:
        self._digest.update(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()

    @property
    def closed(self) -> bool:
        return self._file.closed

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


def write_checked(path: Path, write: Callable[[Any], None]) -> str:
    """Writes a file; gives the sha256 of what was written."""
    with path.open("xb") as file:
        writer = _DigestWriter(file)
        write(writer)
        digest = writer.hexdigest()
    _remember(_identity(path), digest)
    return digest


def check_file(path: Path, digest: str) -> None:
    """Raises FormatError if a file is not the one that has this sha256."""
    identity = _identity(path)
    found = _CHECKED.get(identity)
    if found is None:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        _remember(identity, found)
    if found != digest:
        raise FormatError("A local copy is damaged", field=path.name, expected=digest, got=found)


def _identity(path: Path) -> _Identity:
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def _remember(identity: _Identity, digest: str) -> None:
    _CHECKED[identity] = digest
    _CHECKED.move_to_end(identity)
    while len(_CHECKED) > _REMEMBERED:
        _CHECKED.popitem(last=False)
