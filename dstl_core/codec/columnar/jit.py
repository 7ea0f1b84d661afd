"""Compiles kernels, and keeps the compiled form only where nobody else can write.

A cached kernel is machine code that is loaded without a check, so its folder must belong to the
user and be closed to others (mode 0700); otherwise nothing is cached and every process compiles
anew.
This module sets numba's cache folder before numba is imported, so it has to be the only importer.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

_CACHE_VARIABLE = "NUMBA_CACHE_DIR"
Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def _private_folder() -> str | None:
    """A folder for compiled kernels that is the user's alone, or None if there can be none."""
    configured = os.environ.get(_CACHE_VARIABLE)
    folder = Path(configured) if configured else Path.home() / ".cache" / "dstl" / "kernels"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except (OSError, RuntimeError):
        return None
    mine = status.st_uid == os.getuid() and not status.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    return str(folder) if mine and os.access(folder, os.W_OK) else None


CACHE_FOLDER = _private_folder()
if CACHE_FOLDER is not None:
    os.environ[_CACHE_VARIABLE] = CACHE_FOLDER

import numba  # noqa: E402  # the cache folder has to be set first


def kernel(function: Kernel) -> Kernel:
    """Compiles a function on first call; from the cache if there is one."""
    compiled: Any = numba.njit(nogil=True, cache=CACHE_FOLDER is not None)(function)
    return compiled  # type: ignore[no-any-return]  # numba keeps the signature
