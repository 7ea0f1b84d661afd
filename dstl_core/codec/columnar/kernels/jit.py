"""Compiles kernels, and caches them only where no other user can write.

A cached kernel is machine code that is loaded without a check. So its folder must belong to the
user and be closed to others (mode 0700). Otherwise nothing is cached, and every process compiles
again.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba

# numba's annotations know neither its configuration, nor that a kernel is called like the function
# that it was made from.
_compiler: Any = numba
_CONFIGURED: str = _compiler.config.CACHE_DIR

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def private_folder(parent: Path, sources: Path) -> Path | None:
    """The folder ``<parent>/<digest of the sources>``; it is created if it is missing.

    Its name is a digest of every module in ``sources``: the compiler notices changes in a kernel's
    own file only, not in helpers of other files that it inlines.

    Returns:
        None if the folder cannot be created, is a link, belongs to another user, or is open to
        other users. Then nothing may be cached.
    """
    digest = hashlib.sha256()
    for module in sorted(sources.rglob("*.py")):
        digest.update(module.read_bytes())
    folder = parent / digest.hexdigest()[:16]
    try:
        parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return None
    closed = stat.S_ISDIR(status.st_mode) and not status.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    return folder if closed and status.st_uid == os.getuid() else None


def _cache_folder() -> Path | None:
    sources = Path(__file__).parent
    if not sources.is_dir():
        return None  # imported from a zip: no source file whose change could be noticed
    if _CONFIGURED:
        return private_folder(Path(_CONFIGURED), sources)
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return private_folder(home / ".cache" / "dstl" / "kernels", sources)


CACHE_FOLDER = _cache_folder()


def kernel(function: Kernel) -> Kernel:
    """Compiles a function at its first call to machine code that runs without the GIL.

    The machine code comes from the cache if there is one.
    """
    # The compiler reads its option while it wraps a function. Restore it, so that the user's own
    # compiled functions keep their cache folder.
    _compiler.config.CACHE_DIR = str(CACHE_FOLDER) if CACHE_FOLDER is not None else _CONFIGURED
    try:
        compiled: Kernel = _compiler.njit(nogil=True, cache=CACHE_FOLDER is not None)(function)
    finally:
        _compiler.config.CACHE_DIR = _CONFIGURED
    return compiled
