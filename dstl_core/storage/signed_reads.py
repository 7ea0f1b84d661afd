"""Reads of S3 over plain connections, by addresses that ``s3fs`` has signed.

A request by ``s3fs`` takes a millisecond of the processor, most of it for what no read needs, and
its bodies are copied three times. An address is signed once, and then any range of the object is
one request of HTTP. Whatever is not a plain success is read again by ``s3fs``: it knows redirects,
retries and the errors of the store.
"""

from __future__ import annotations

import os
import ssl
import threading
from collections import deque
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from dstl_core.cached_property import cached_property
from dstl_core.clock import Clock, SystemClock
from dstl_core.storage.file_systems import before_fork

_SIGNED_S = 3600
_USED_MS = 600_000
"""How long an address is used: it was signed with credentials that may change."""
_MOST_ADDRESSES = 4096
_TIMEOUT_S = 30.0
_MOST_FAILURES = 3
"""Failures in a row after which ``s3fs`` reads everything."""
_NO_ANSWER, _PART = 0, 206
_OTHER_ANSWERS = (404, 416, 503)
"""No such object, no such range, too many requests: plain reads are not to blame."""
_SPECIAL = (
    "version_aware", "requester_pays", "s3_additional_kwargs", "cache_regions",
    "config_kwargs", "asynchronous",
)  # fmt: skip
"""Options of a file system that change what it sends."""
_OPTIONS = {"endpoint_url", "region_name"}
_VERSION_4 = ("v4-query", "s3v4-query")
_NAME = "_dstl_signed_reads"


def read_signed(fs: Any, path: str, start: int, end: int) -> bytes | None:
    """The bytes ``[start, end)`` of an object; None if the file system itself has to read them.

    Args:
        fs: A file system of fsspec.
        path: The object.
        start: Where to start.
        end: Where to end.
    """
    reads = vars(fs).get(_NAME)
    if reads is None:
        reads = vars(fs).setdefault(_NAME, SignedReads(fs))
    answer: bytes | None = reads.read(path, start, end)
    return answer


@dataclass(frozen=True)
class _Address:
    scheme: str
    host: str
    target: str = field(repr=False)  # it has the signature
    until_ms: int


class SignedReads:
    """The connections of one file system, and the addresses that it signed. Thread-safe.

    Args:
        fs: The file system. One that needs headers, proxies or options of a request of its own is
            left to read by itself, and so is any but that of ``s3fs``.
        clock: Says how old an address is.
    """

    def __init__(self, fs: Any, clock: Clock | None = None) -> None:
        self._fs = fs
        self._clock = clock or SystemClock()
        self._failures = 0 if _is_plain(fs) else _MOST_FAILURES
        self._addresses: dict[str, _Address] = {}
        self._signer = before_fork(fs)
        """Signs without a connection of its own: to make one takes a quarter of a second."""
        self._lock = threading.Lock()
        self._idle: deque[tuple[str, HTTPConnection]] = deque()

    def read(self, path: str, start: int, end: int) -> bytes | None:
        """See ``read_signed``."""
        if self._failures >= _MOST_FAILURES:
            return None
        try:
            address = self._address(path)
            if address.scheme in getproxies() and not proxy_bypass(address.host):
                return None
            status, data = self._answer(address, start, end)
        except Exception:
            status, data = _NO_ANSWER, None  # the file system reads, and its error says why
        if data is not None:
            self._failures = 0
            return data
        self._addresses.pop(path, None)
        self._failures += status not in _OTHER_ANSWERS
        return None

    def _address(self, path: str) -> _Address:
        address, now = self._addresses.get(path), self._clock.monotonic_ms()
        if address is None or now > address.until_ms:
            url = urlsplit(self._signed(path))
            target = f"{url.path}?{url.query}" if url.query else url.path
            # In small letters, as it was signed.
            address = _Address(url.scheme, url.netloc.lower(), target, now + _USED_MS)
            if len(self._addresses) >= _MOST_ADDRESSES:
                self._addresses.clear()
            self._addresses[path] = address
        return address

    def _signed(self, path: str) -> str:
        with self._lock:
            if self._signer is not None:
                signed = _signed_at_once(self._signer, path)
                if signed is not None:
                    return signed
                self._signer = None
        _sign_in_version_4(self._fs.s3)
        signed = self._fs.sign(path, expiration=_SIGNED_S)
        assert isinstance(signed, str)
        return signed

    def _answer(self, address: _Address, start: int, end: int) -> tuple[int, bytes | None]:
        """The status, and the bytes if it is a success."""
        connection, response = self._asked(address, {"Range": f"bytes={start}-{end - 1}"})
        size, data = end - start, b""
        if response.status == _PART and response.length == size:
            data = response.read(size)
        if len(data) != size:
            connection.close()
            return response.status, None
        if response.will_close:
            connection.close()
        else:
            self._idle.append((address.scheme + address.host, connection))
        return response.status, data

    def _asked(
        self, address: _Address, headers: dict[str, str]
    ) -> tuple[HTTPConnection, HTTPResponse]:
        """Sends a request. A store closes connections that were idle for long; then another one is
        made.
        """
        while True:
            connection, is_new = self._connection(address)
            try:
                connection.request("GET", address.target, headers=headers)
                return connection, connection.getresponse()
            except (OSError, HTTPException) as error:
                connection.close()
                if is_new or isinstance(error, TimeoutError):
                    raise

    def _connection(self, address: _Address) -> tuple[HTTPConnection, bool]:
        place = address.scheme + address.host
        while self._idle:
            try:
                known, connection = self._idle.pop()
            except IndexError:  # another thread has taken the last one
                break
            if known == place:
                return connection, False
            connection.close()
        if address.scheme == "http":
            return HTTPConnection(address.host, timeout=_TIMEOUT_S), True
        return HTTPSConnection(address.host, timeout=_TIMEOUT_S, context=self._context), True

    @cached_property
    def _context(self) -> ssl.SSLContext:
        bundle = os.environ.get("AWS_CA_BUNDLE") or os.environ.get("REQUESTS_CA_BUNDLE")
        return ssl.create_default_context(cafile=bundle or None)


def _is_plain(fs: Any) -> bool:
    """Whether a signed address is all that a read by this file system needs."""
    kind = type(fs)
    if (kind.__module__, kind.__name__) != ("s3fs.core", "S3FileSystem"):
        return False
    return not any(getattr(fs, name, None) for name in _SPECIAL) and _OPTIONS.issuperset(
        fs.client_kwargs
    )


def _signed_at_once(fs: Any, path: str) -> str | None:
    """An address that is signed without waiting for anything; None if that is not possible, as with
    credentials that have to be fetched anew.
    """
    if getattr(fs, "_s3", None) is None:
        return None  # it has never been connected
    try:
        _sign_in_version_4(fs.s3)
        signing = fs._url(path, expires=_SIGNED_S)  # noqa: SLF001  # ``sign`` waits for another thread
        try:
            signing.send(None)
        except StopIteration as done:
            return str(done.value)
        signing.close()
    except Exception:
        return None  # the file system of this process signs, and its error says why
    return None


def _sign_in_version_4(client: Any) -> None:
    client.meta.events.register_first("choose-signer.s3", _in_version_4, unique_id=_NAME)


def _in_version_4(signature_version: str, **_: Any) -> str | None:
    """Addresses are signed as headers are. By default botocore takes an older version for them,
    which new buckets refuse.
    """
    return "s3v4-query" if signature_version in _VERSION_4 else None
