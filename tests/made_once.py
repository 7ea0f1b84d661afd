"""Folders of what tests fetch or compile, kept beside the sources for the next run."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Callable
from pathlib import Path


def made_once(folder: Path, make: Callable[[Path, Path], None]) -> Path:
    """The folder, made by the first process that asks; others wait for it.

    Args:
        make: Called with a folder to fill, which is there and empty, and one for scratch files.
    """
    if not folder.is_dir():
        folder.parent.mkdir(exist_ok=True)
        with folder.with_name(f"{folder.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.is_dir():
                with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
                    made = Path(scratch, "made")
                    made.mkdir()
                    make(made, Path(scratch))
                    made.rename(folder)
    return folder
