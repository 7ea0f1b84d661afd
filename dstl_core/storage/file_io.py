"""File IO on any fsspec file system.

A write is complete when the file is closed and has the size that was written. A failed close is a
failed write, so the caller never gets a handle to a file that does not exist. Local files are
fsynced by default, so that an acknowledged change also survives a power loss.
"""

from __future__ import annotations

import io
import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, BinaryIO, Protocol

from dstl_core.errors import (
    ConfigError,
    PathNotAllowedError,
    StateFileNotFoundError,
    StorageError,
)
from dstl_core.storage import local_files
from dstl_core.storage.file_systems import (
    file_system,
    file_system_at,
    file_system_class,
    protocol_of,
)
from dstl_core.storage.location import Location
from dstl_core.storage.profiles import options_for
from dstl_core.storage.publish_once import PUBLISHERS, create_object
from dstl_core.storage.range_reader import RangeReader
from dstl_core.storage.redaction import redacted
from dstl_core.storage.signed_reads import read_signed

_LOCAL_PROTOCOLS = ("file", "memory")
_COPYING = ("s3",)
"""Stores that copy an object themselves."""
_SIGNING = ("s3",)
"""Stores whose addresses can be signed."""
_WRITING = ("write", "publish", "replace")
_TIMES = ("mtime", "LastModified", "last_modified", "created")
"""Names of the time of a file: on disk and on Google Cloud Storage, S3, Azure, and in memory."""
_TAGS = ("ETag", "etag")
"""Names of the version of a file: on S3, and on Google Cloud Storage and Azure."""
_READERS = 16
"""Number of files to read concurrently from stores where each read takes a round trip."""

Content = bytes | Iterable[bytes | memoryview]
"""Content to write: one buffer, or several in sequence, which are iterated once."""


@dataclass(frozen=True, slots=True)
class FileStatus:
    """A file or folder in a listing; ``modified_ms`` is None if the store has no time stamps.

    ``version`` changes when a file is written anew: the tag of a store, or the exact time.
    """

    location: Location
    size: int
    is_folder: bool
    modified_ms: int | None = None
    is_link: bool = False
    version: str | None = None


class FileIO(Protocol):
    """The file system operations that dstl needs. All paths have one scheme."""

    def read_bytes(self, location: Location, start: int = 0, end: int | None = None) -> bytes:
        """Reads the bytes ``[start, end)`` of a file."""
        ...

    def read_each(self, locations: Sequence[Location]) -> list[bytes | None]:
        """Reads small files; None for each file that does not exist."""
        ...

    def write_new(self, location: Location, data: Content) -> None:
        """Writes a file that must not exist. On return it is closed and its size is checked.

        On an object store, the response to a write may get lost. Therefore an existing file with
        exactly these bytes counts as written.

        Raises:
            StorageError: The write failed; a partial file is deleted if possible.
        """
        ...

    def publish_once(self, location: Location, data: bytes) -> bool:
        """Publishes a whole file atomically; returns False if another file exists at the location.

        Only one of several publishers on any machines succeeds. An existing file with exactly these
        bytes counts as published, so a publisher that must be the only one adds unique content.
        """
        ...

    def replace(self, location: Location, data: Content) -> None:
        """Publishes a whole file and replaces an existing one.

        A reader sees either the old file or the new one.
        """
        ...

    def size(self, location: Location) -> int | None:
        """Size of a file in bytes, or None if it does not exist."""
        ...

    def modified_ms(self, location: Location) -> int | None:
        """When a file was written, as ``list_folder`` says it; None if it does not exist, or if the
        store has no time stamps.
        """
        ...

    def list_folder(self, location: Location) -> list[FileStatus]:
        """Lists the direct content of a folder, sorted by name; empty if the folder does not exist.

        Links are not followed and do not count as folders.
        """
        ...

    def delete(self, location: Location) -> bool:
        """Deletes one file; False if it did not exist."""
        ...

    def delete_folder(self, location: Location) -> None:
        """Deletes a folder with its content, if it exists. Does not follow links."""
        ...


def read_one_by_one(files: FileIO, locations: Iterable[Location]) -> list[bytes | None]:
    """``FileIO.read_each`` for stores with fast responses."""

    def read(location: Location) -> bytes | None:
        try:
            return files.read_bytes(location)
        except StateFileNotFoundError:
            return None

    return [read(each) for each in locations]


class FsspecFileIO:
    """``FileIO`` on fsspec's file systems of one scheme. Thread-safe.

    Args:
        scheme: URL scheme, e.g. ``file``, ``memory``, ``s3``.
        storage_options: Credentials and endpoints for every location, as options of fsspec. By
            default each location uses its profile (``storage.profiles``).
        fsync: Whether a local file and its folder are fsynced before the write is complete.
    """

    def __init__(
        self,
        scheme: str,
        storage_options: dict[str, Any] | None = None,
        *,
        fsync: bool = True,
    ) -> None:
        self.scheme = scheme
        self._protocol = protocol_of(scheme)
        file_system_class(self._protocol)  # raises now rather than at the first file
        self._options = storage_options
        self._fsync = fsync

    def read_bytes(self, location: Location, start: int = 0, end: int | None = None) -> bytes:
        with self._mapped("read", location):
            data = self._read(location, start, end)
        if end is not None and len(data) != end - start:
            raise StorageError(
                f"A file is shorter than its handle says: expected {end - start} bytes from "
                f"{start}, got {len(data)}.",
                location=str(location),
            )
        return data

    def _read(self, location: Location, start: int, end: int | None) -> bytes:
        if self._protocol == "file":
            return local_files.read_regular(self._local_path(location), start, end)
        fs, path = self._at(location)
        if start == 0 and end is None:
            whole: bytes = fs.cat_file(path)
            return whole
        if start == end:
            return b""
        if end is not None and self._protocol in _SIGNING:
            signed = read_signed(fs, path, start, end)
            if signed is not None:
                return signed
        try:
            part: bytes = fs.cat_file(path, start=start, end=end)
        except Exception:
            # Object stores refuse a range that starts after the end; a local file returns no bytes.
            size = self.size(location)
            if size is None or start < size:
                raise
            return b""
        return part

    def read_each(self, locations: Sequence[Location]) -> list[bytes | None]:
        if self._protocol in _LOCAL_PROTOCOLS or len(locations) < 2:
            return read_one_by_one(self, locations)
        with ThreadPoolExecutor(_READERS) as pool:
            parts = pool.map(lambda location: read_one_by_one(self, [location]), locations)
            return [found for [found] in parts]

    def open_input(self, location: Location) -> io.RawIOBase | BinaryIO:
        """Opens a file for random access: an object with ``read``, ``seek`` and ``tell``."""
        with self._mapped("open", location):
            fs, path = self._at(location)
            if self._protocol == "file":
                return local_files.open_regular(path)
            size = int(fs.info(path)["size"])
        return RangeReader(partial(self.read_bytes, location), size)

    def write_new(self, location: Location, data: Content) -> None:
        buffers = [data] if isinstance(data, bytes) else data
        with self._mapped("write", location):
            self._make_parent(location)
            fs, path = self._at(location)
            if self._is_store:
                size = create_object(self._protocol, fs, path, buffers)
            else:
                size = self._create_file(fs, path, buffers)
            self._check_size(location, size)

    @property
    def goes_on(self) -> bool:
        """Whether a file that was begun can be gone on with (``write_over``)."""
        return self._protocol == "file"

    def write_over(self, location: Location, data: Content, *, is_begun: bool) -> None:
        """As ``write_new``, on a local disk, but that each buffer is in the file before the next
        one is asked for, and stays there after an error. If the file is begun, it may be there,
        and is written over from its start.
        """
        buffers = [data] if isinstance(data, bytes) else data
        with self._mapped("write", location):
            self._make_parent(location)
            path = self._local_path(location)
            size = local_files.write_over(path, buffers, is_begun=is_begun, sync=self._syncs)
            self._check_size(location, size)

    def copied_by_store(self, files: FileIO, source: Location, target: Location, size: int) -> bool:
        """Copies a whole file into a new one without its bytes coming here, if the store can.

        Args:
            files: Reads the source.
            source: The file.
            target: The new file. The caller makes sure that it does not exist.
            size: Bytes of the file.

        Returns:
            False if nothing was copied: the store cannot, the two have other credentials, or the
            file has another size.

        Raises:
            StorageError: The copy failed.
        """
        if not (self._protocol in _COPYING and isinstance(files, FsspecFileIO)):
            return False
        if protocol_of(source.scheme) != self._protocol:
            return False
        with self._mapped("write", target):
            (fs, path), (of_source, place) = self._at(target), files.at(source)
            if fs is not of_source or files.size(source) != size:
                return False
            fs.cp_file(place, path)
            self._check_size(target, size)
        return True

    def _create_file(self, fs: Any, path: str, buffers: Iterable[bytes | memoryview]) -> int:
        stream = fs.open(path, "xb")
        size = 0
        # From here on this call owns the file, and deletes no other writer's file.
        try:
            with stream:
                for buffer in buffers:
                    stream.write(buffer)
                    size += len(buffer)
                self._sync(stream)
            if self._syncs:
                local_files.sync_folder(posixpath.dirname(path))
            return size
        except FileExistsError:
            raise  # a store that checks only on close: the file belongs to another writer
        except BaseException:
            _delete_quietly(fs, path)
            raise

    def _check_size(self, location: Location, expected: int) -> None:
        written = self.size(location)
        if written != expected:
            _delete_quietly(*self._at(location))
            raise StorageError(
                f"A written file has the wrong size: expected {expected} bytes, got {written}.",
                location=str(location),
            )

    def publish_once(self, location: Location, data: bytes) -> bool:
        check_publishes(location)
        with self._mapped("publish", location):
            self._make_parent(location)
            return PUBLISHERS[self._protocol](*self._at(location), data)

    def replace(self, location: Location, data: Content) -> None:
        with self._mapped("replace", location):
            self._make_parent(location)
            fs, path = self._at(location)
            if self._protocol == "file":
                parts = [data] if isinstance(data, bytes) else data
                local_files.replace(path, parts, sync=self._fsync)
            else:
                # Object stores publish a PUT as a whole; the memory file system is a dictionary.
                fs.pipe_file(path, data if isinstance(data, bytes) else b"".join(data))

    def size(self, location: Location) -> int | None:
        with self._mapped("look up", location):
            if self._protocol == "file":
                return local_files.size_of(self._local_path(location))
            fs, path = self._at(location)
            try:
                info = fs.info(path)
            except FileNotFoundError:
                return None
        return int(info["size"] or 0) if info["type"] == "file" else None

    def modified_ms(self, location: Location) -> int | None:
        with self._mapped("look up", location):
            fs, path = self._at(location)
            try:
                info = fs.info(path)
            except FileNotFoundError:
                return None
        return _modified_ms(info) if info["type"] == "file" else None

    def list_folder(self, location: Location) -> list[FileStatus]:
        with self._mapped("list", location):
            fs, path = self._at(location)
            try:
                entries = fs.ls(path, detail=True)
            except FileNotFoundError:
                return []
        statuses = []
        for entry in entries:
            if entry["name"].rstrip("/") == path.rstrip("/"):
                continue  # a file is listed as itself; some stores also list the folder
            name = posixpath.basename(entry["name"].rstrip("/"))
            if name in ("", ".", ".."):
                continue  # a key that is not a valid path: neither dstl nor Flink writes such keys
            statuses.append(
                FileStatus(
                    location.child(name),
                    int(entry["size"] or 0),
                    entry["type"] == "directory",
                    _modified_ms(entry),
                    bool(entry.get("islink")),
                    _version(entry),
                )
            )
        return sorted(statuses, key=lambda status: status.location.name)

    def delete(self, location: Location) -> bool:
        with self._mapped("delete", location):
            # An object store reports no error when it deletes a missing file.
            if self._protocol not in _LOCAL_PROTOCOLS and self.size(location) is None:
                return False
            fs, path = self._at(location)
            try:
                fs.rm_file(path)
            except FileNotFoundError:
                return False
        return True

    def delete_folder(self, location: Location) -> None:
        with self._mapped("delete", location):
            fs, path = self._at(location)
            if self._protocol == "file":
                local_files.delete_tree(path)
            else:
                _delete_tree(fs, path)

    def _local_path(self, location: Location) -> str:
        if location.scheme != self.scheme:
            raise ConfigError(
                f"A path belongs to another file system: expected {self.scheme!r}, got {location}."
            )
        return location.path

    def at(self, location: Location) -> tuple[Any, str]:
        """The file system of fsspec for a location, and the location's path in it."""
        return self._at(location)

    def _at(self, location: Location) -> tuple[Any, str]:
        path = self._local_path(location)
        if self._protocol in _LOCAL_PROTOCOLS:
            return file_system(self._protocol, {}), path
        options = options_for(location) if self._options is None else self._options
        fs, place = file_system_at(self._protocol, location.path[1:], options)
        # adlfs takes what follows a question mark for a query, and leaves the mark out.
        if not place.rstrip("/").endswith(path.rstrip("/").partition("/")[2].partition("/")[2]):
            raise PathNotAllowedError(
                f"The file system of {self.scheme!r} takes {location} for {place}, which is "
                f"another name; give it a name of letters and digits.",
                path=str(location),
            )
        return fs, place

    @property
    def _is_store(self) -> bool:
        """Whether it is a store that publishes an object when it has all of it."""
        return self._protocol in PUBLISHERS and self._protocol not in _LOCAL_PROTOCOLS

    @property
    def _syncs(self) -> bool:
        return self._fsync and self._protocol == "file"

    def _make_parent(self, location: Location) -> None:
        fs, folder = self._at(location.parent)
        if self._protocol == "memory":
            fs.makedirs(folder, exist_ok=True)
        elif self._protocol == "file":
            local_files.make_folders(folder, sync=self._fsync)

    def _sync(self, stream: Any) -> None:
        if self._syncs:
            stream.flush()
            os.fsync(stream.fileno())

    @contextmanager
    def _mapped(self, verb: str, location: Location) -> Iterator[None]:
        """Converts every error of the file system to one sentence that names the file."""
        try:
            yield
        except (StorageError, ConfigError):
            raise  # of a file that is read while another one is written, too
        except FileNotFoundError as error:
            missing = "bucket or folder" if verb in _WRITING else "file or folder"
            raise StateFileNotFoundError(
                f"Cannot {verb} {location}: there is no such {missing}.", path=str(location)
            ) from error
        except FileExistsError as error:
            raise StorageError(
                f"Cannot {verb} {location}: it is there already, or a file stands where a folder "
                f"should be.",
                path=str(location),
            ) from error
        except NotADirectoryError as error:
            raise StorageError(
                f"Cannot {verb} {location}: {local_files.file_above(location.path)!r} is a file, "
                f"where a folder is expected; give the path of a folder.",
                path=str(location),
            ) from error
        except PermissionError as error:
            hint = "" if self._protocol == "file" else self._credentials_hint(location)
            raise self._storage_error(verb, location, error, hint) from _shown(error)
        except OSError as error:
            raise self._storage_error(verb, location, error) from _shown(error)
        except Exception as error:
            if self._protocol in _LOCAL_PROTOCOLS:
                raise
            # The client libraries of object stores have their own error classes.
            raise self._storage_error(verb, location, error) from _shown(error)

    def _storage_error(
        self, verb: str, location: Location, error: Exception, hint: str = ""
    ) -> StorageError:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return StorageError(
            f"Cannot {verb} {location}: {redacted(reason.rstrip('.'))}{hint}.",
            path=str(location),
            errno=getattr(error, "errno", None),
        )

    def _credentials_hint(self, location: Location) -> str:
        """Names the credentials that a store has refused."""
        if self._options is not None:
            return "; check the storage options that were given"
        if options_for(location):
            return "; check the credentials in the storage profile of this place"
        return (
            "; no storage profile covers this place, so the environment's credentials were used: "
            "check them, or name the place in a storage resource (also_reaches)"
        )


def _shown(error: Exception) -> Exception | None:
    """The error as a cause, unless its text holds a secret, which a traceback would print."""
    return error if redacted(str(error)) == str(error) else None


def _delete_quietly(fs: Any, path: str) -> None:
    try:
        fs.rm_file(path)
    except Exception:
        pass  # report the original error; the file is an orphan, which gc finds


def _delete_tree(fs: Any, path: str) -> None:
    """Deletes file by file: the recursive delete of fsspec treats ``*``, ``?`` and ``[`` in a path
    as a pattern, and deletes all matches.
    """
    entries = fs.find(path, withdirs=True, detail=True)
    folders = {name for name, entry in entries.items() if entry["type"] == "directory"}
    for name in entries.keys() - folders:
        try:
            fs.rm_file(name)
        except FileNotFoundError:
            pass  # another process deletes, too
    if "memory" in fs.protocol:  # an object store has no folders
        for name in sorted(folders, key=len, reverse=True):
            fs.rmdir(name)


def _first_of(entry: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((entry[name] for name in names if entry.get(name) is not None), None)


def _version(entry: Mapping[str, Any]) -> str | None:
    version = _first_of(entry, (*_TAGS, *_TIMES))
    return None if version is None else str(version)


def _modified_ms(entry: Mapping[str, Any]) -> int | None:
    modified = _first_of(entry, _TIMES)
    if isinstance(modified, datetime):
        return int(modified.timestamp() * 1000)
    return int(modified * 1000) if isinstance(modified, int | float) else None


def check_publishes(location: Location) -> None:
    """Checks that a file can be published exactly once at a place, before much is written there.

    Raises:
        ConfigError: Its store has no way to do so.
    """
    if protocol_of(location.scheme) not in PUBLISHERS:
        raise ConfigError(
            f"Committing to {location.scheme!r} is not supported (no way to publish a file "
            f"exactly once); use one of: {', '.join(sorted(PUBLISHERS))}."
        )


def open_file_io(
    location: Location, storage_options: dict[str, Any] | None = None, *, fsync: bool = True
) -> FsspecFileIO:
    """The file IO for a location's scheme.

    Without options, each location uses its profile.
    """
    return FsspecFileIO(location.scheme, storage_options, fsync=fsync)
