"""Compiles kernels, and keeps the compiled form only where nobody else can write.

A cached kernel is machine code that is loaded without a check, so its folder must belong to the
user and be closed to others (mode 0700); otherwise nothing is cached and every process compiles
anew.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba

# The compiler's own annotations know neither its configuration nor that a kernel is called as the
# function that it was made of.
_compiler: Any = numba
_CONFIGURED: str = _compiler.config.CACHE_DIR

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def private_folder(parent: Path, sources: Path) -> Path | None:
    """The folder ``<parent>/<digest of the sources>``, made if it is missing.

    A digest of every module in ``sources`` names it, because the compiler notices changes in a
    kernel's own file only, not in the helpers of other files that are inlined into it.

    Returns:
        None if it is not a real folder that belongs to this user and that only this user can
        enter, or cannot be made; then nothing may be cached.
    """
    digest = hashlib.sha256()
    for module in sorted(sources.glob("*.py")):
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
        return None  # imported from a zip: there is no file whose change could be noticed
    if _CONFIGURED:
        return private_folder(Path(_CONFIGURED), sources)
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return private_folder(home / ".cache" / "dstl" / "kernels", sources)


CACHE_FOLDER = _cache_folder()


def kernel(function: Kernel) -> Kernel:
    """Compiles a function on first call, to machine code that runs without the GIL; from the cache
    if there is one.
    """
    # The compiler looks at its option while it wraps a function. It is put back, so that the
    # user's own compiled functions stay where they are.
    _compiler.config.CACHE_DIR = str(CACHE_FOLDER) if CACHE_FOLDER is not None else _CONFIGURED
    try:
        compiled: Kernel = _compiler.njit(nogil=True, cache=CACHE_FOLDER is not None)(function)
    finally:
        _compiler.config.CACHE_DIR = _CONFIGURED
    return compiled
