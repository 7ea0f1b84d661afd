"""fsspec's file systems as dstl uses them: nothing is kept between the store and the caller.

Most file systems of fsspec keep listings, and answer questions about single files from them, until
the same object writes. Another process writes at any time, so such an answer may be wrong, and what
is decided on it loses data. How a file system is told to keep nothing differs from one to the next,
but all keep their listings in one place, ``dircache``: here it is replaced by one that keeps
nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any

import fsspec
from fsspec.dircache import DirCache
from fsspec.implementations.cached import CachingFileSystem
from fsspec.utils import tokenize

from dstl_core.errors import ConfigError

_LOCK = threading.Lock()
_OPEN: dict[str, Any] = {}
"""One file system for equal options, so that all users of a store share its connections."""


def file_system(protocol: str, options: Mapping[str, Any]) -> Any:
    """The file system of a protocol, which asks the store each time.

    Raises:
        ConfigError: There is none, its library is not installed, or it is a cache by itself.
    """
    # A forked process must not use the connections of its parent.
    token = tokenize(os.getpid(), protocol, dict(options))
    with _LOCK:
        if token not in _OPEN:
            made = _uncached(protocol, options)
            if not made.cachable:  # its connection serves one user
                return made
            _OPEN[token] = made
        return _OPEN[token]


def _uncached(protocol: str, options: Mapping[str, Any]) -> Any:
    try:
        # Not one that somebody else may have, who wants it to keep listings.
        made = fsspec.filesystem(protocol, **{**options, "skip_instance_cache": True})
    except (ValueError, ImportError) as error:
        raise ConfigError(
            f"No file system for the scheme {protocol!r} ({error}); install the extra that "
            f"brings it (s3, gcs, azure) or correct the URL."
        ) from error
    if isinstance(made, CachingFileSystem):
        raise ConfigError(
            f"The file system {protocol!r} keeps copies of files, which another process may have "
            f"changed; use the file system behind it directly."
        )
    made.dircache = DirCache(use_listings_cache=False)
    return made
