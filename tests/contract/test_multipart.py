"""A large object reaches S3 in parts: as a whole or not at all, from a bounded buffer."""

from __future__ import annotations

import io
import random
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from dstl_core.errors import StorageError
from dstl_core.storage import multipart
from dstl_core.storage.file_io import FsspecFileIO
from dstl_core.storage.location import Location
from tests.s3_proxy import Fault, How, s3_proxy
from tests.s3_server import S3Server

PART = 5 << 20  # S3 refuses smaller ones, but for the last
BUFFER = 1 << 20
COUNT = 27


@pytest.fixture(autouse=True)
def _smaller_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multipart, "PART_BYTES", PART)


def content() -> Iterator[bytes]:
    source = random.Random(7)
    for _ in range(COUNT):
        yield source.randbytes(BUFFER)


def test_memory_is_bounded_by_parts(s3: S3Server, bucket: str) -> None:
    files, place = FsspecFileIO("s3", s3.storage_options), Location.parse(f"{bucket}/large")
    files.write_new(place.parent.child("small"), b"first")  # loads what a client needs
    tracemalloc.start()
    try:
        files.write_new(place, content())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert files.read_bytes(place) == b"".join(content())
    assert peak < 5 * PART < COUNT * BUFFER


@pytest.mark.parametrize(
    "fault",
    [
        Fault(How.LOSE, "POST", query="uploadId"),
        Fault(How.DROP, "POST", query="uploadId"),
        Fault(How.FAIL, "PUT", query="partNumber=2"),
        Fault(How.LOSE, "PUT", query="partNumber=3"),
    ],
    ids=lambda fault: f"{fault.method} {fault.how.name}",
)
def test_a_lost_answer_loses_nothing(fault: Fault, s3: S3Server, bucket: str) -> None:
    with s3_proxy(s3) as proxy:
        files = FsspecFileIO("s3", proxy.server.storage_options)
        proxy.faults.append(fault)
        place = Location.parse(f"{bucket}/large")
        files.write_new(place, content())
        assert fault.times == 0
        assert files.read_bytes(place) == b"".join(content())


def test_the_options_of_a_place_reach_the_store(s3: S3Server, bucket: str) -> None:
    encrypted = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "alias/state"}
    with s3_proxy(s3) as proxy:
        more = {"s3_additional_kwargs": encrypted, "requester_pays": True}
        files = FsspecFileIO("s3", {**proxy.server.storage_options, **more})
        for name, data in (("small", b"x"), ("large", content())):
            files.write_new(Location.parse(f"{bucket}/{name}"), data)
        assert files.read_bytes(Location.parse(f"{bucket}/large"), 0, 3) == next(content())[:3]
        sent = list(zip(proxy.requests, proxy.headers, strict=True))
    assert {headers["x-amz-request-payer"] for _, headers in sent} == {"requester"}
    begins = [headers for (method, path), headers in sent if method == "POST" or "small" in path]
    keys = [each.get("x-amz-server-side-encryption-aws-kms-key-id") for each in begins]
    assert keys.count("alias/state") == 2  # the whole file, and the start of the other one


def test_a_conflict_of_two_uploads_is_an_error_and_nothing_is_there(
    s3: S3Server, bucket: str
) -> None:
    """S3 wants all parts again, and those are gone by then."""
    with s3_proxy(s3) as proxy:
        files = FsspecFileIO("s3", proxy.server.storage_options)
        proxy.faults.append(Fault(How.CONFLICT, "POST", query="uploadId", times=1000))
        place = Location.parse(f"{bucket}/large")
        with pytest.raises(StorageError, match="ConditionalRequestConflict"):
            files.write_new(place, content())
        proxy.faults.clear()
        assert files.size(place) is None
        files.write_new(place, content())
        assert files.read_bytes(place) == b"".join(content())


def test_an_object_that_is_there_stays(s3: S3Server, bucket: str) -> None:
    files, place = FsspecFileIO("s3", s3.storage_options), Location.parse(f"{bucket}/large")
    files.write_new(place, b"of another writer")
    with pytest.raises(StorageError, match="it is there already"):
        files.write_new(place, content())
    assert files.read_bytes(place) == b"of another writer"


def test_what_ends_half_way_leaves_nothing(s3: S3Server, bucket: str) -> None:
    def broken() -> Iterator[bytes]:
        yield from content()
        raise OSError("the source is gone")

    files, place = FsspecFileIO("s3", s3.storage_options), Location.parse(f"{bucket}/large")
    with pytest.raises(StorageError, match="the source is gone"):
        files.write_new(place, broken())
    assert files.size(place) is None
    system, _ = files._at(place)
    assert system.list_multipart_uploads(bucket.removeprefix("s3://")) == []


def _memory(folder: Path) -> tuple[Any, str]:
    return fsspec.filesystem("memory"), f"{folder}/large"


def _local(folder: Path) -> tuple[Any, str]:
    return fsspec.filesystem("file"), f"{folder}/large"


def _below(folder: Path) -> tuple[Any, str]:
    return DirFileSystem(path=str(folder), fs=fsspec.filesystem("file")), "large"


def _below_memory(folder: Path) -> tuple[Any, str]:
    return DirFileSystem(path=str(folder), fs=fsspec.filesystem("memory")), "large"


@pytest.mark.parametrize("place", [_memory, _local, _below, _below_memory])
def test_streams_of_any_file_system_are_whole_or_not_at_all(
    place: Callable[[Path], tuple[Any, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some do not let anybody else say that they are closed, and some are there from the start."""
    monkeypatch.setattr(multipart, "PART_BYTES", 1 << 20)
    fs, path = place(tmp_path)

    def broken() -> Iterator[bytes]:
        yield from content()
        raise OSError("the source is gone")

    def put_once(fs: Any, path: str, data: bytes) -> bool:
        raise AssertionError("a large object is not put at once")

    with pytest.raises(OSError, match="the source is gone"):
        multipart.create_object(fs, path, broken(), put_once)
    assert not fs.exists(path)
    assert multipart.create_object(fs, path, content(), put_once) == COUNT * BUFFER
    with pytest.raises(FileExistsError):
        multipart.create_object(fs, path, [*content(), b"more"], put_once)
    assert fs.cat_file(path) == b"".join(content())
    fs.rm_file(path)


class _Refused(io.BytesIO):
    """A file that its store refuses when it is closed, since there is one of that name."""

    def close(self) -> None:
        if not self.closed:
            super().close()
            raise FileExistsError("there is one")


class _ChecksOnClose(MemoryFileSystem):
    store: dict[str, Any] = {}  # noqa: RUF012  # as fsspec declares it

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        return _Refused() if mode == "xb" else super().open(path, mode, **options)


def test_what_another_writer_has_stored_meanwhile_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multipart, "PART_BYTES", 10)
    fs = _ChecksOnClose()

    def parts() -> Iterator[bytes]:
        yield bytes(40)
        fs.pipe_file("/large", b"another")

    with pytest.raises(FileExistsError):
        multipart.create_object(fs, "/large", parts(), lambda *_: False)
    assert fs.store["/large"].getvalue() == b"another"
