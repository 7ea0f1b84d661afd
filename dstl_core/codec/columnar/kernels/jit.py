"""Compiles kernels that are not shipped, and caches them only where no other user can write.

A cached kernel is machine code that is loaded without a check. So its folder must belong to the
user and be closed to others (mode 0700). Otherwise nothing is cached, and every process compiles
again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba

from dstl_core.codec.columnar.kernels.shipped import look_first_in, shipped_folder
from dstl_core.private_folders import private_folder, user_cache

# numba's annotations know neither its configuration, nor that a kernel is called like the function
# that it was made from.
_compiler: Any = numba
_CONFIGURED: str = _compiler.config.CACHE_DIR

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def digest_of(sources: Path) -> str:
    """A digest of every module in a folder: the name of what was compiled from them.

    The compiler notices changes in a kernel's own file only, not in helpers of other files that it
    inlines.
    """
    digest = hashlib.sha256()
    for module in sorted(sources.rglob("*.py")):
        digest.update(module.read_bytes())
    return digest.hexdigest()[:16]


def _cache_folder() -> Path | None:
    if _CONFIGURED:
        return private_folder(Path(_CONFIGURED) / DIGEST)
    cache = user_cache()
    return None if cache is None else private_folder(cache / "kernels" / DIGEST)


_SOURCES = Path(__file__).parent
DIGEST = digest_of(_SOURCES)
# Imported from a zip, there is no source file whose change could be noticed.
CACHE_FOLDER = _cache_folder() if _SOURCES.is_dir() else None
SHIPPED_FOLDER = shipped_folder(DIGEST) if _SOURCES.is_dir() else None


def kernel(function: Kernel) -> Kernel:
    """Compiles a function at its first call to machine code that runs without the GIL.

    The machine code comes with the package or from the cache, if it is there.
    """
    # The compiler reads its option while it wraps a function. Restore it, so that the user's own
    # compiled functions keep their cache folder.
    _compiler.config.CACHE_DIR = str(CACHE_FOLDER) if CACHE_FOLDER is not None else _CONFIGURED
    try:
        compiled: Kernel = _compiler.njit(nogil=True, cache=CACHE_FOLDER is not None)(function)
    finally:
        _compiler.config.CACHE_DIR = _CONFIGURED
    if SHIPPED_FOLDER is not None and compiled is not function:
        look_first_in(SHIPPED_FOLDER, compiled)
    return compiled
