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

_SCHEME_TO_PROTOCOL = {"s3a": "s3", "s3p": "s3", "gs": "gcs", "abfss": "abfs", "wasbs": "abfs"}
_LOCK = threading.Lock()
_OPEN: dict[str, Any] = {}
"""One file system for equal options, so that all users of a store share its connections."""
_CREDENTIALS = ("AWS_", "AZURE_", "GOOGLE_", "FSSPEC_")
"""Variables of the environment from which file systems take credentials and endpoints."""


def protocol_of(scheme: str) -> str:
    """The name that fsspec has for a URL scheme; several schemes may mean one store."""
    return _SCHEME_TO_PROTOCOL.get(scheme, scheme)


def file_system_class(protocol: str) -> Any:
    """The class of a protocol's file systems.

    Raises:
        ConfigError: There is none, its library is not installed, or it is a cache by itself.
    """
    try:
        found = fsspec.get_filesystem_class(protocol)
    except (ValueError, ImportError) as error:
        raise ConfigError(
            f"No file system for the scheme {protocol!r} ({error}); install the extra that "
            f"brings it (s3, gcs, azure) or correct the URL."
        ) from error
    if issubclass(found, CachingFileSystem):
        raise ConfigError(
            f"The file system {protocol!r} keeps copies of files, which another process may have "
            f"changed; use the file system behind it directly."
        )
    return found


def file_system(protocol: str, options: Mapping[str, Any]) -> Any:
    """The file system of a protocol, which asks the store each time.

    Raises:
        ConfigError: As ``file_system_class``.
    """
    # A forked process must not use the connections of its parent. Client libraries look for
    # credentials once: whoever changes them in the environment gets another file system.
    found = [(name, value) for name, value in os.environ.items() if name.startswith(_CREDENTIALS)]
    token = tokenize(os.getpid(), protocol, dict(options), sorted(found))
    with _LOCK:
        if token not in _OPEN:
            made = _uncached(protocol, options)
            if not made.cachable:  # its connection serves one user
                return made
            _OPEN[token] = made
        return _OPEN[token]


def file_system_at(protocol: str, path: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    """The file system for ``protocol://path``, and the path as it takes it."""
    url = f"{protocol}://{path}"
    # Where a URL names a host or an account, that belongs to the options.
    kind = file_system_class(protocol)
    named: dict[str, Any] = kind._get_kwargs_from_urls(url)  # noqa: SLF001  # fsspec's own protocol
    fs = file_system(protocol, {**named, **options})
    return fs, fs._strip_protocol(url)  # noqa: SLF001  # as above


def _uncached(protocol: str, options: Mapping[str, Any]) -> Any:
    # An object of our own: others who use the same store may want theirs to keep listings.
    made = file_system_class(protocol)(**{**options, "skip_instance_cache": True})
    made.dircache = DirCache(use_listings_cache=False)
    return made
