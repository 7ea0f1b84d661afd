"""Compiles kernels, and caches them only where no other user can write.

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

from dstl_core.private_folders import private_folder, user_cache

# numba's annotations know neither its configuration, nor that a kernel is called like the function
# that it was made from.
_compiler: Any = numba
_CONFIGURED: str = _compiler.config.CACHE_DIR

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def kernel_folder(parent: Path, sources: Path) -> Path | None:
    """The folder ``<parent>/<digest of the sources>``; it is created if it is missing.

    Its name is a digest of every module in ``sources``: the compiler notices changes in a kernel's
    own file only, not in helpers of other files that it inlines.

    Returns:
        None if nothing may be cached there.
    """
    digest = hashlib.sha256()
    for module in sorted(sources.rglob("*.py")):
        digest.update(module.read_bytes())
    return private_folder(parent / digest.hexdigest()[:16])


def _cache_folder() -> Path | None:
    sources = Path(__file__).parent
    if not sources.is_dir():
        return None  # imported from a zip: no source file whose change could be noticed
    if _CONFIGURED:
        return kernel_folder(Path(_CONFIGURED), sources)
    cache = user_cache()
    return None if cache is None else kernel_folder(cache / "kernels", sources)


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
