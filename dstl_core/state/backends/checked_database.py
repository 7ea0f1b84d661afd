"""The calls of a database on local disk, with errors that say what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dstl_core.errors import StorageError


def refused(error: Exception, folder: Path) -> StorageError:
    """The error for a disk that does not take or give what a database needs."""
    return StorageError(
        f"A database on local disk cannot work ({error}); make room in its folder and let it be "
        f"written to, or give it another one.",
        location=str(folder),
    )


class CheckedDatabase:
    """What tables use of a database. What it refuses, since a disk is full or damaged, is a
    StorageError.

    Args:
        db: An ``Rdict``.
        folder: Where it lies.
    """

    def __init__(self, db: Any, folder: Path) -> None:
        def checked(call: Callable[..., Any]) -> Callable[..., Any]:
            def checked_call(*arguments: Any) -> Any:
                try:
                    return call(*arguments)
                except Exception as error:  # rocksdict has no narrower one
                    raise refused(error, folder) from error

            return checked_call

        self.get = checked(db.get)
        self.put = checked(db.put)
        self.delete = checked(db.delete)
        self.write = checked(db.write)
        self.flush = checked(db.flush)
        self.compact_range = checked(db.compact_range)
        self.iter = db.iter  # whose end tells
