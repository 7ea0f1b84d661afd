"""Temporary files of records, whose disk may be full."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

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
        raise StorageError(
            f"Records cannot be written to the folder for temporary files, "
            f"{folder or tempfile.gettempdir()} ({error.strerror}){more}; set TMPDIR to a folder "
            f"on a larger disk, and run the command again.",
            errno=error.errno,
        ) from error


def let_go(file: IO[bytes]) -> None:
    """Closes a temporary file whose bytes nobody needs. On a full disk, this tries once more to
    write what a buffer has, and that failure would hide the first one.
    """
    with suppress(OSError):
        file.close()
