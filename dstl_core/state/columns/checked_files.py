"""Checks the content of local files by their sha256 before they are used.

A process checks a file once, and again if it has changed. A worker maps the same large files in
every epoch, and reading them completely each time would take longer than the epoch.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from dstl_core.errors import FormatError

_REMEMBERED = 10_000
_MARK_NS = 3600 * 10**9
_Identity = tuple[int, int, int, int]
_CHECKED: OrderedDict[_Identity, str] = OrderedDict()
"""Digests of checked files, by an identity that changes with the content. Links share it."""


class _DigestWriter:
    """Writes to a file and computes the sha256 of the bytes."""

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
    """Writes a file; returns the sha256 of its bytes."""
    with path.open("xb") as file:
        writer = _DigestWriter(file)
        write(writer)
        digest = writer.hexdigest()
    set_mark(path)
    _remember(_identity(path), digest)
    return digest


def set_mark(path: Path) -> None:
    """Gives a new file a time in the past, at random, so that every later write changes its time.

    The clock of a file system stands still for some milliseconds. A write shortly after another one
    would leave the time as it was.
    """
    mark = path.stat().st_mtime_ns - _MARK_NS - secrets.randbelow(_MARK_NS)
    os.utime(path, ns=(mark, mark))


def check_file(path: Path, digest: str) -> None:
    """Raises FormatError if a file does not have this sha256."""
    actual = digest_of(path)
    if actual != digest:
        raise FormatError("A local copy is damaged", field=path.name, expected=digest, got=actual)


def digest_of(path: Path, *, again: bool = False) -> str:
    """The sha256 of a file, which is read if it has changed, or ``again``."""
    identity = _identity(path)
    digest = None if again else _CHECKED.get(identity)
    if digest is None:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        _remember(identity, digest)
    return digest


def _identity(path: Path) -> _Identity:
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def _remember(identity: _Identity, digest: str) -> None:
    _CHECKED[identity] = digest
    _CHECKED.move_to_end(identity)
    while len(_CHECKED) > _REMEMBERED:
        _CHECKED.popitem(last=False)
