"""Operations on local disks that fsspec lacks: regular files only, fsync, publication by links."""

from __future__ import annotations

import errno
import os
import posixpath
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import BinaryIO
from uuid import uuid4

from dstl_core.errors import StorageError

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe (FIFO)",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def file_above(path: str) -> str:
    """What stands where a folder of a path should be; the path itself if there is no such thing."""
    above = path
    while above != (above := posixpath.dirname(above)):
        if os.path.lexists(above):
            return path if os.path.isdir(above) else above
    return path


def open_regular(path: str) -> BinaryIO:
    """Opens a regular file for reading, without a buffer.

    The call never waits for a writer of a FIFO. The type is checked on the open file, so that
    nobody can replace the file in between.

    Raises:
        StorageError: The path is a folder, FIFO, socket or device.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket, or a device without a driver, cannot be opened
            raise _not_regular(path, os.stat(path).st_mode) from error
        raise
    try:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            raise _not_regular(path, mode)
        return open(handle, "rb", buffering=0)
    except BaseException:
        os.close(handle)
        raise


def size_of(path: str) -> int | None:
    """Size of a regular file in bytes; None for a folder or a missing file.

    Raises:
        StorageError: The path is a FIFO, socket or device.
    """
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    if stat.S_ISREG(status.st_mode):
        return status.st_size
    if stat.S_ISDIR(status.st_mode):
        return None
    raise _not_regular(path, status.st_mode)


def _not_regular(path: str, mode: int) -> StorageError:
    kind = _KINDS.get(stat.S_IFMT(mode), "something else")
    return StorageError(
        f"Cannot read file:{path}: expected a regular file, got {kind}; remove it, or correct the "
        f"path that leads to it.",
        path=f"file:{path}",
    )


def read_regular(path: str, start: int, end: int | None) -> bytes:
    """The bytes ``[start, end)`` of a regular file; fewer if the file is shorter."""
    with open_regular(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        stop = size if end is None else min(end, size)
        stream.seek(start)
        parts = []
        left = stop - start
        while left > 0 and (part := stream.read(left)):
            parts.append(part)
            left -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def make_folders(path: str, *, sync: bool) -> None:
    """Creates a folder with its parents; each new name is synced in its parent folder."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = posixpath.dirname(path)
    for folder in reversed(missing):
        os.makedirs(folder, exist_ok=True)
        if sync:
            sync_folder(posixpath.dirname(folder))


def delete_tree(path: str) -> None:
    while os.path.lexists(path):
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            continue  # another process deletes, too; the next round deletes the rest


def sync_folder(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_over(
    path: str, buffers: Iterable[bytes | memoryview], *, is_begun: bool, sync: bool
) -> int:
    """Writes a file, and gives its size. Each buffer is in the file before the next one is asked
    for, and stays there after an error.

    Args:
        path: The file.
        buffers: Its bytes.
        is_begun: Whether it may be there already, with some of the same bytes.
        sync: Whether it is fsynced.

    Raises:
        FileExistsError: It is there, and was not begun.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    handle = os.open(path, flags if is_begun else flags | os.O_EXCL, 0o666)
    with open(handle, "wb", buffering=0) as stream:
        for buffer in buffers:
            left = memoryview(buffer)
            while left:
                left = left[stream.write(left) :]
        size = stream.truncate()
        if sync:
            os.fsync(handle)
    if sync:
        sync_folder(posixpath.dirname(path))
    return size


def publish(path: str, data: bytes) -> None:
    """Publishes a file: temporary file, fsync, hard link, fsync of the folder.

    Raises:
        FileExistsError: The path exists.
    """
    with _temporary_beside(path, [data]) as temporary:
        os.link(temporary, path)
    sync_folder(posixpath.dirname(path))


def replace(path: str, parts: Iterable[bytes | memoryview], *, sync: bool) -> None:
    """Replaces a file: temporary file, fsync, rename over the old one, fsync of the folder."""
    with _temporary_beside(path, parts, sync=sync) as temporary:
        os.replace(temporary, path)
    if sync:
        sync_folder(posixpath.dirname(path))


@contextmanager
def _temporary_beside(
    path: str, parts: Iterable[bytes | memoryview], *, sync: bool = True
) -> Iterator[str]:
    """A durable temporary file in the same folder; deleted at the end, unless it was moved."""
    folder = posixpath.dirname(path)
    temporary = posixpath.join(folder, f".{posixpath.basename(path)}.{uuid4().hex}.tmp")
    try:
        with open(temporary, "xb") as stream:
            stream.writelines(parts)
            if sync:
                stream.flush()
                os.fsync(stream.fileno())
        yield temporary
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
