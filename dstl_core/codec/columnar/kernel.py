"""Compiles the kernels of this package, with a cache that only the user can write.

Compiled kernels are cached as pickles, so a folder that somebody else can write would run their
code: the cache is a folder of the user with mode 0700, or there is none.
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

_Function = TypeVar("_Function", bound=Callable[..., Any])


def cache_folder(parent: Path, source: Path) -> Path | None:
    """The folder ``<parent>/dstl-kernels-<digest of the sources>``, made if it is missing.

    A digest of every module in ``source`` is part of the name, because the compiler notices
    changes in a kernel's own file only, not in the helpers that are inlined into it.

    Returns:
        None if it is not a real folder of this user that only this user can enter, or cannot be
        made; then nothing may be cached.
    """
    digest = hashlib.sha256()
    for module in sorted(source.glob("*.py")):
        digest.update(module.read_bytes())
    folder = parent / f"dstl-kernels-{digest.hexdigest()[:16]}"
    try:
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return None
    private = stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o077
    return folder if private and status.st_uid == os.getuid() else None


def _default_folder() -> Path | None:
    source = Path(__file__).parent
    if not source.is_dir():
        return None  # imported from a zip: there is no file whose change could be noticed
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return cache_folder(home / ".cache", source)


_CACHE = _default_folder()


def kernel(function: _Function) -> _Function:
    """Compiles a function at its first call, to machine code that runs without the GIL."""
    if _CACHE is None:
        compiled: _Function = _compiler.njit(nogil=True)(function)
        return compiled
    # The option counts while the function is wrapped; it is put back so that the user's own
    # compiled functions keep their place.
    before = _compiler.config.CACHE_DIR
    _compiler.config.CACHE_DIR = str(_CACHE)
    try:
        cached: _Function = _compiler.njit(nogil=True, cache=True)(function)
    finally:
        _compiler.config.CACHE_DIR = before
    return cached
