"""Folders for what is loaded without a check: machine code and classes.

Such a folder belongs to the user and is closed to others (mode 0700).
"""

from __future__ import annotations

import os
import stat
from pathlib import Path


def user_cache() -> Path | None:
    """The folder ``~/.cache/dstl``; None for a user without a home."""
    try:
        return Path.home() / ".cache" / "dstl"
    except RuntimeError:
        return None


def private_folder(folder: Path) -> Path | None:
    """The folder, which is created if it is missing.

    Returns:
        None if the folder cannot be created, is a link, belongs to another user, or is open to
        other users. Then nothing may be kept in it.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return None
    closed = stat.S_ISDIR(status.st_mode) and not status.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    return folder if closed and status.st_uid == os.getuid() else None
