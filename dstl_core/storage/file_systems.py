"""Opens fsspec's file systems without caches between the store and the caller.

Most file systems of fsspec cache listings, and answer questions about single files from them, until
the same object writes. Another process may write at any time, so such an answer may be outdated,
and a decision based on it loses data. Each file system has a different option to disable its cache,
but all of them keep listings in ``dircache``. This module replaces it by one that keeps nothing.
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
from dstl_core.extras import how_to_install

_SCHEME_TO_PROTOCOL = {"s3a": "s3", "s3p": "s3", "gs": "gcs", "abfss": "abfs", "wasbs": "abfs"}
_LOCK = threading.Lock()
_OPEN: dict[str, tuple[int, Any]] = {}
"""One file system for equal options, so that all users of a store share its connections; with the
process that uses it.
"""
_BEFORE = "_dstl_before_fork"
_CREDENTIALS = ("AWS_", "AZURE_", "GOOGLE_", "FSSPEC_")
"""Prefixes of environment variables from which file systems take credentials and endpoints."""
_NEEDED = {
    "s3": how_to_install("s3fs"),
    "gcs": how_to_install("gcsfs"),
    "abfs": how_to_install("adlfs"),
    "hdfs": "pyarrow needs Hadoop's client library libhdfs with JAVA_HOME, HADOOP_HOME and "
    "CLASSPATH set; or use webhdfs://",
}
"""What to install for a protocol."""
_LONGEST_REASON = 200


def _renew_lock() -> None:
    global _LOCK
    _LOCK = threading.Lock()


if hasattr(os, "register_at_fork"):
    # Another thread may hold the lock while this one forks, and is not there to give it back.
    os.register_at_fork(after_in_child=_renew_lock)


def _first_line(error: Exception) -> str:
    """Why a library does not start: some say it in many lines."""
    return (str(error).splitlines() or [type(error).__name__])[0][:_LONGEST_REASON]


def protocol_of(scheme: str) -> str:
    """The protocol name of fsspec for a URL scheme; several schemes may mean one store."""
    return _SCHEME_TO_PROTOCOL.get(scheme, scheme)


def file_system_class(protocol: str) -> Any:
    """The file system class of a protocol.

    Raises:
        ConfigError: There is no such class, its library is not installed, or it is a cache.
    """
    try:
        class_ = fsspec.get_filesystem_class(protocol)
    except (ValueError, ImportError) as error:
        raise ConfigError(
            f"No file system for the scheme {protocol!r} ({_first_line(error)}); "
            f"{_NEEDED.get(protocol, 'correct the URL or install its fsspec file system')}."
        ) from error
    if issubclass(class_, CachingFileSystem):
        raise ConfigError(
            f"The file system {protocol!r} keeps copies of files, which another process may have "
            f"changed; use the file system behind it directly."
        )
    return class_


def file_system(protocol: str, options: Mapping[str, Any]) -> Any:
    """The file system of a protocol, without caches.

    Raises:
        ConfigError: As for ``file_system_class``.
    """
    # A forked process must not use the connections of its parent. Client libraries read credentials
    # once, so changed environment variables need another file system.
    credentials = [] if protocol == "file" else _credentials()
    token = tokenize(protocol, dict(options), sorted(credentials))
    with _LOCK:
        process, known = _OPEN.get(token, (0, None))
        if process == os.getpid():
            return known
        made = _uncached(protocol, options)
        if made.cachable:  # else, its connection serves only one user
            setattr(made, _BEFORE, known)
            _OPEN[token] = os.getpid(), made
        return made


def before_fork(fs: Any) -> Any | None:
    """The equal file system of the process that this one was forked from: what it knows is known
    here, but nobody may wait for it. None without one.
    """
    return getattr(fs, _BEFORE, None)


def _credentials() -> list[tuple[str, str]]:
    return [(name, value) for name, value in os.environ.items() if name.startswith(_CREDENTIALS)]


def file_system_at(protocol: str, path: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    """The file system for ``protocol://path``, and the form of the path that it accepts."""
    url = f"{protocol}://{path}"
    # The host or account in a URL belongs to the options.
    kind = file_system_class(protocol)
    named: dict[str, Any] = kind._get_kwargs_from_urls(url)  # noqa: SLF001  # fsspec's own protocol
    fs = file_system(protocol, {**named, **options})
    return fs, fs._strip_protocol(url)  # noqa: SLF001  # as above


def _uncached(protocol: str, options: Mapping[str, Any]) -> Any:
    # A separate object: other users of the same store may want its listings cached.
    kind = file_system_class(protocol)
    try:
        made = kind(**{**options, "skip_instance_cache": True})
    except (ImportError, OSError) as error:
        raise ConfigError(
            f"The file system {protocol!r} does not start on this machine ({_first_line(error)}); "
            f"{_NEEDED.get(protocol, 'install what its fsspec file system needs')}."
        ) from error
    made.dircache = DirCache(use_listings_cache=False)
    return made
