"""Reads of S3 by signed addresses: what is sent, and who reads when one fails."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import s3fs

from dstl_core.errors import StateFileNotFoundError, StorageError
from dstl_core.storage.file_io import FsspecFileIO, open_file_io
from dstl_core.storage.location import Location
from dstl_core.storage.signed_reads import SignedReads
from dstl_core.testing.manual import ManualClock
from tests.s3_proxy import Fault, How, S3Proxy, s3_proxy
from tests.s3_server import S3Server

CONTENT = bytes(range(256)) * 40


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[S3Proxy]:
    with s3_proxy(s3) as running:
        yield running


@pytest.fixture
def place(bucket: str) -> Location:
    return Location.parse(bucket).child("a folder", "file=+é")


@pytest.fixture
def files(proxy: S3Proxy, place: Location, s3: S3Server) -> FsspecFileIO:
    open_file_io(place, s3.storage_options).write_new(place, CONTENT)
    return open_file_io(place, proxy.server.storage_options)


def signed_by_headers(proxy: S3Proxy) -> list[bool]:
    """Of each request, whether ``s3fs`` has sent it."""
    return ["authorization" in headers for headers in proxy.headers]


def test_ranges_are_plain_requests(files: FsspecFileIO, proxy: S3Proxy, place: Location) -> None:
    assert files.read_bytes(place, 3, 9) == CONTENT[3:9]
    assert files.read_bytes(place, 1000, 10240) == CONTENT[1000:]
    assert files.read_bytes(place, 7, 7) == b""
    assert [method for method, _ in proxy.requests] == ["GET"] * 2
    assert [each.get("range") for each in proxy.headers] == ["bytes=3-8", "bytes=1000-10239"]
    assert not any(signed_by_headers(proxy))


def test_errors_are_those_of_the_file_system(files: FsspecFileIO, place: Location) -> None:
    with pytest.raises(StorageError, match="expected 20000 bytes from 0, got 10240"):
        files.read_bytes(place, 0, 20000)
    with pytest.raises(StorageError, match="expected 1 bytes from 10240, got 0"):
        files.read_bytes(place, 10240, 10241)
    with pytest.raises(StateFileNotFoundError):
        files.read_bytes(place.parent.child("none"), 0, 1)
    assert files.read_bytes(place, 0, 1) == CONTENT[:1]


@pytest.mark.parametrize(
    "options",
    [{"requester_pays": True}, {"config_kwargs": {"read_timeout": 50}}, {"version_aware": True}],
)
def test_options_of_a_request_are_left_to_the_file_system(
    proxy: S3Proxy, files: FsspecFileIO, place: Location, options: dict[str, Any]
) -> None:
    special = open_file_io(place, {**proxy.server.storage_options, **options})
    assert special.read_bytes(place, 3, 9) == CONTENT[3:9]
    assert all(signed_by_headers(proxy))


def test_behind_a_proxy_the_file_system_reads(
    s3: S3Server, files: FsspecFileIO, place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = s3fs.S3FileSystem(skip_instance_cache=True, **s3.storage_options)
    reads = SignedReads(fs)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert reads.read(place.path[1:], 3, 9) is None
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert reads.read(place.path[1:], 3, 9) == CONTENT[3:9]


def test_a_proxy_of_another_scheme_is_no_proxy(
    s3: S3Server, files: FsspecFileIO, place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("https_proxy", "no_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    fs = s3fs.S3FileSystem(skip_instance_cache=True, **s3.storage_options)
    assert SignedReads(fs).read(place.path[1:], 3, 9) == CONTENT[3:9]


def test_the_host_is_written_as_it_is_signed(
    s3: S3Server, files: FsspecFileIO, place: Location
) -> None:
    options = {
        **s3.storage_options,
        "endpoint_url": s3.endpoint_url.replace("127.0.0.1", "LocalHost"),
    }
    fs = s3fs.S3FileSystem(skip_instance_cache=True, **options)
    assert SignedReads(fs).read(place.path[1:], 3, 9) == CONTENT[3:9]


def test_a_connection_that_the_store_has_closed_is_made_anew(
    files: FsspecFileIO, proxy: S3Proxy, place: Location
) -> None:
    files.read_bytes(place, 0, 1)
    proxy.faults = [Fault(How.DROP, "GET")]
    assert files.read_bytes(place, 3, 9) == CONTENT[3:9]
    assert signed_by_headers(proxy) == [False] * 3


@pytest.mark.parametrize("how", [How.FAIL, How.TRUNCATE])
def test_after_three_failures_the_file_system_reads_all(
    files: FsspecFileIO, proxy: S3Proxy, place: Location, how: How
) -> None:
    for _ in range(3):
        proxy.faults = [Fault(how, "GET")]
        assert files.read_bytes(place, 3, 9) == CONTENT[3:9]
    assert signed_by_headers(proxy) == [False, True] * 3
    assert files.read_bytes(place, 3, 9) == CONTENT[3:9]
    assert signed_by_headers(proxy)[6:] == [True]


def test_an_address_is_signed_once_in_ten_minutes(
    s3: S3Server, files: FsspecFileIO, place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = s3fs.S3FileSystem(skip_instance_cache=True, **s3.storage_options)
    signed: list[str] = []
    sign = fs.sign

    def counted(path: str, expiration: int) -> Any:
        signed.append(path)
        return sign(path, expiration)

    monkeypatch.setattr(fs, "sign", counted)
    clock = ManualClock()
    reads = SignedReads(fs, clock)
    for minutes, count in [(0, 1), (9, 1), (2, 2), (1, 2)]:
        clock.advance(minutes * 60_000)
        assert reads.read(place.path[1:], 3, 9) == CONTENT[3:9]
        assert len(signed) == count


def _in_fork(ask: Callable[[], bool]) -> bool:
    process = os.fork()
    if not process:
        os._exit(0 if ask() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0


def test_a_fork_signs_as_the_process_that_it_comes_from_and_makes_no_client(
    files: FsspecFileIO, proxy: S3Proxy, place: Location
) -> None:
    other = place.parent.child("other")
    files.write_new(other, CONTENT)
    files.read_bytes(place, 0, 1)
    before = len(proxy.requests)

    def reads_by_addresses_alone() -> bool:
        is_read = all(files.read_bytes(each, 3, 9) == CONTENT[3:9] for each in (place, other))
        has_client = files.at(place)[0]._s3 is not None
        return is_read and not has_client and files.size(other) == len(CONTENT)

    assert _in_fork(reads_by_addresses_alone)
    assert signed_by_headers(proxy)[before:] == [False, False, True]


def test_a_fork_of_a_process_without_a_client_makes_its_own(
    proxy: S3Proxy, place: Location, s3: S3Server
) -> None:
    open_file_io(place, s3.storage_options).write_new(place, CONTENT)
    files = open_file_io(place, proxy.server.storage_options)
    files.at(place)
    assert _in_fork(lambda: files.read_bytes(place, 3, 9) == CONTENT[3:9])
    assert signed_by_headers(proxy) == [False]


def test_an_address_that_cannot_be_signed_at_once_is_signed_by_the_fork(
    files: FsspecFileIO, proxy: S3Proxy, place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with credentials that have to be fetched anew."""
    files.size(place)
    fs, _ = files.at(place)
    signs = fs._url

    async def fetches(path: str, **options: Any) -> Any:
        await asyncio.sleep(0)
        return await signs(path, **options)

    monkeypatch.setattr(fs, "_url", fetches)
    before = len(proxy.requests)
    assert _in_fork(lambda: files.read_bytes(place, 3, 9) == CONTENT[3:9])
    assert signed_by_headers(proxy)[before:] == [False]
