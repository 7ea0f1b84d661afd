"""Runs code as a user whom file permissions bind."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NOBODY = 65534


@contextmanager
def unprivileged() -> Iterator[None]:
    """Root is above all permissions; for the block it is nobody. Others are bound already."""
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(_NOBODY)
    try:
        yield
    finally:
        if was_root:
            os.seteuid(0)


@contextmanager
def public_folder() -> Iterator[Path]:
    """A temporary folder that everybody may enter (pytest's own are for their owner)."""
    folder = Path(tempfile.mkdtemp(prefix="dstl-test-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        for path in (folder, *folder.rglob("*")):
            if path.is_dir():
                path.chmod(0o755)
        shutil.rmtree(folder)
