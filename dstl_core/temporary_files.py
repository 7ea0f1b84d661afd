"""Temporary files of records, whose disk may be full."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from dstl_core.display import size_text
from dstl_core.errors import StorageError


@contextmanager
def in_temporary_files(more: str = "", folder: str | None = None) -> Iterator[None]:
    """For writes of records to temporary files. ``more`` says what was expected, and ``folder`` is
    theirs; None: the system's.

    Raises:
        StorageError: Their folder is full.
    """
    try:
        yield
    except OSError as error:
        place = folder or tempfile.gettempdir()
        way = "choose a" if folder else "set TMPDIR to a"
        raise StorageError(
            f"Records cannot be written to the folder for temporary files, {place} "
            f"({error.strerror or error}{_free_text(place)}){more}; {way} folder on a larger disk, "
            f"and run the command again.",
            errno=error.errno,
        ) from error


def _free_text(folder: str) -> str:
    try:
        return f", {size_text(shutil.disk_usage(folder).free)} free"
    except OSError:  # the folder is gone
        return ""


class Closable(Protocol):
    """A file, or a writer of one."""

    def close(self) -> object: ...


def let_go(file: Closable) -> None:
    """Closes a temporary file whose bytes nobody needs. On a full disk, this tries once more to
    write what a buffer has, and that failure would hide the first one.
    """
    with suppress(OSError):
        file.close()
