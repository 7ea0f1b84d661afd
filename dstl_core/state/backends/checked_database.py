"""Converts errors of a database on local disk to errors that say what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dstl_core.errors import StorageError


def refused(error: Exception, folder: Path) -> StorageError:
    """The error for a failed read or write of a local database."""
    return StorageError(
        f"The local database of a state backend failed ({error}); make sure that its folder is "
        f"writable and has free space, or configure another folder.",
        location=str(folder),
    )


class CheckedDatabase:
    """The calls of a database that tables use. A full or damaged disk raises ``StorageError``.

    Args:
        db: An ``Rdict``.
        folder: The folder of the database.
    """

    def __init__(self, db: Any, folder: Path) -> None:
        def checked(call: Callable[..., Any]) -> Callable[..., Any]:
            def checked_call(*arguments: Any) -> Any:
                try:
                    return call(*arguments)
                except Exception as error:  # rocksdict raises no narrower type
                    raise refused(error, folder) from error

            return checked_call

        self.get = checked(db.get)
        self.put = checked(db.put)
        self.delete = checked(db.delete)
        self.write = checked(db.write)
        self.flush = checked(db.flush)
        self.compact_range = checked(db.compact_range)
        self.iter = db.iter  # the caller checks its status at the end
