"""Writes large objects to a store in parts, from a bounded buffer."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

from fsspec.spec import AbstractBufferedFile

PART_BYTES = 16 << 20
"""Size of the first parts. S3 takes 10,000 parts of an object, so later parts are larger."""
_PARTS_OF_A_SIZE = 1000

PutOnce = Callable[[Any, str, bytes], bool]


def create_object(
    fs: Any, path: str, buffers: Iterable[bytes | memoryview], put_once: PutOnce
) -> int:
    """Writes an object that must not exist; returns its size. Memory is bounded by a few parts.

    Args:
        fs: The file system of the store.
        path: Bucket and key.
        buffers: The content.
        put_once: Writes a small object, unless another one exists.

    Raises:
        FileExistsError: Another object is there.
    """
    parts = _parts(buffers)
    start = deque(islice(parts, 2))
    if len(start) == 2:
        upload = _S3Upload if hasattr(fs, "call_s3") else _OpenedUpload
        return upload(fs, path).write(_after(start, parts))
    whole = start.pop() if start else b""
    if not put_once(fs, path, whole):
        raise FileExistsError(path)
    return len(whole)


def _after(start: deque[bytes], rest: Iterator[bytes]) -> Iterator[bytes]:
    """Both, without a part that was passed on."""
    while start:
        yield start.popleft()
    yield from rest


def _parts(buffers: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    held, number = bytearray(), 0
    for buffer in buffers:
        held += buffer
        size = PART_BYTES * (1 + number // _PARTS_OF_A_SIZE)
        while len(held) >= size:
            yield bytes(memoryview(held)[:size])
            del held[:size]
            number += 1
    if held:
        yield bytes(held)


class _Upload(ABC):
    """One object in parts. It becomes visible when all parts are there."""

    def __init__(self, fs: Any, path: str) -> None:
        self._fs = fs
        self._path = path
        self._digest = hashlib.sha256()
        self._size = 0

    @abstractmethod
    def write(self, parts: Iterator[bytes]) -> int:
        """Writes all parts; returns their size.

        Raises:
            FileExistsError: Another object is there.
        """

    def _count(self, part: bytes) -> None:
        self._digest.update(part)
        self._size += len(part)

    def _finished(self, finish: Callable[[], object]) -> None:
        """Finishes the upload, which the store refuses if an object is there. If the answer got
        lost, that is this one.
        """
        try:
            finish()
        except Exception as error:
            self._fs.invalidate_cache(self._path)
            try:
                size = self._fs.info(self._path)["size"]
            except FileNotFoundError:
                raise error from error.__cause__
            if size != self._size or not self._is_ours():
                raise FileExistsError(self._path) from error

    def _is_ours(self) -> bool:
        stored = hashlib.sha256()
        for start in range(0, self._size, PART_BYTES):
            end = min(start + PART_BYTES, self._size)
            stored.update(self._fs.cat_file(self._path, start=start, end=end))
        return stored.digest() == self._digest.digest()


class _S3Upload(_Upload):
    """On S3."""

    def __init__(self, fs: Any, path: str) -> None:
        super().__init__(fs, path)
        bucket, key, _ = fs.split_path(path)
        self._place = {"Bucket": bucket, "Key": key}
        self._done: list[dict[str, Any]] = []

    def write(self, parts: Iterator[bytes]) -> int:
        upload = self._fs.call_s3("create_multipart_upload", **self._place)["UploadId"]
        try:
            for part in parts:
                self._send(upload, part)
            self._finished(lambda: self._complete(upload))
        except BaseException:
            with suppress(Exception):  # the store deletes what is left, if it has such a rule
                self._fs.call_s3("abort_multipart_upload", **self._place, UploadId=upload)
            raise
        self._fs.invalidate_cache(self._path)
        return self._size

    def _send(self, upload: str, part: bytes) -> None:
        number = len(self._done) + 1
        answer = self._fs.call_s3(
            "upload_part", **self._place, UploadId=upload, PartNumber=number, Body=part
        )
        self._done.append({"PartNumber": number, "ETag": answer["ETag"]})
        self._count(part)

    def _complete(self, upload: str) -> None:
        self._fs.call_s3(
            "complete_multipart_upload",
            **self._place,
            UploadId=upload,
            MultipartUpload={"Parts": self._done},
            IfNoneMatch="*",
        )


class _OpenedUpload(_Upload):
    """On Google Cloud Storage and Azure, whose file systems upload the parts of an open file."""

    def write(self, parts: Iterator[bytes]) -> int:
        with suppress(FileNotFoundError):
            self._fs.info(self._path)
            raise FileExistsError(self._path)  # before all parts are sent in vain
        stream = self._fs.open(self._path, "xb", block_size=PART_BYTES)
        try:
            for part in parts:
                stream.write(part)
                self._count(part)
            self._finished(stream.close)
        except BaseException as error:
            self._abandon(stream, is_ours=not isinstance(error, FileExistsError))
            raise
        self._fs.invalidate_cache(self._path)
        return self._size

    def _abandon(self, stream: Any, *, is_ours: bool) -> None:
        """Leaves nothing of an object whose upload failed, and leaves that of another writer."""
        with suppress(Exception):  # the store deletes what is left after some days
            stream.discard()
        if isinstance(stream, AbstractBufferedFile):
            stream.closed = True  # or its destructor would publish what is there
            return
        # Files of other file systems, such as memory and local ones, are there from the start.
        with suppress(Exception):
            stream.close()
        if is_ours:
            with suppress(Exception):
                self._fs.rm_file(self._path)
