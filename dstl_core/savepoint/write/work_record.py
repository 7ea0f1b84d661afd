"""What a long work has done already: a record in a folder. The same command goes on from it after a
kill.

The record is the folder ``_dstl_work`` in the output of a rewriting, or in the folder that a check
or a report was given for it. It names the input, the plan and the version, and has an entry for
each part of the work that is done. A run that ends deletes it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import struct
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import xxhash

from dstl_core.errors import (
    FencedError,
    FormatError,
    SavepointError,
    StateFileNotFoundError,
    StorageError,
)
from dstl_core.storage import local_files
from dstl_core.storage.file_io import FileIO, open_file_io
from dstl_core.storage.json_document import parse_json_object, write_json_object
from dstl_core.storage.location import METADATA_FILE_NAME, Location
from dstl_core.version import __version__

WORK_FOLDER = "_dstl_work"
_DIGEST_BYTES = xxhash.xxh3_128().digest_size
_WORK = "work.json"
_LOCK = "lock"
_WHAT = "The record of a work"
_INPUT, _PLAN, _VERSION = "input", "plan", "version"
_NO_PLAN = "none"
"""The plan of work that nobody can go on with: its record hands results over in one run."""
_WORDS = {
    _INPUT: ("another input", "the sha256 of its _metadata"),
    _PLAN: ("other options", "the digest of its plan"),
    _VERSION: ("another version of dstl", "the version"),
}

TRY: ContextVar[int] = ContextVar("try", default=0)
"""Which try of its task a process makes. Spark may make two of one at the same time, and may end
one of them: each has files of its own.
"""
_COUNT_BITS, _SCOPE_BITS = 24, 28


class FileNames:
    """Names of the new files of one work. They are UUIDs: 64 bits of the work, then the place of
    the file, so that the same work gives the same names again.
    """

    def __init__(self, work: str | None = None) -> None:
        self.work = work or secrets.token_hex(8)
        self._prefix = f"{self.work[:8]}-{self.work[8:12]}-{self.work[12:]}-"
        self._scope = self._count = 0

    def begin(self) -> int:
        """Begins the next part of the work, whose names do not depend on what came before; gives
        its number.
        """
        self._scope, self._count = self._scope + 1, 0
        return self._scope

    def at(self, number: int) -> FileNames:
        """The names of a part of the work that has begun, in this try of it."""
        names = FileNames(self.work)
        names._scope = TRY.get() << _SCOPE_BITS | number
        return names

    def new(self) -> str:
        name = self.following
        self._count += 1
        return name

    @property
    def following(self) -> str:
        """The name that ``new`` gives next."""
        place = f"{(self._scope << _COUNT_BITS) | self._count:016x}"
        return f"{self._prefix}{place[:4]}-{place[4:]}"

    def part(self) -> FileNames:
        """Names for a part of the work that runs beside others, e.g. in another thread."""
        beside = self.at(self.begin())
        self.begin()  # of what comes after it here
        return beside

    def has(self, name: str) -> bool:
        """Whether a name is one of this work."""
        return name.startswith(self._prefix)

    def is_in(self, name: str, numbers: Container[int]) -> bool:
        """Whether a name is one of some parts of this work, in any try of them."""
        if not self.has(name):
            return False
        place = int(name.removeprefix(self._prefix).replace("-", ""), 16)
        return (place >> _COUNT_BITS) % (1 << _SCOPE_BITS) in numbers


@dataclass(frozen=True)
class Entry:
    """What is known of a part of the work that is done: facts, and bytes."""

    facts: Mapping[str, Any]
    data: bytes = b""


NumberedPiece = tuple[int, bytes | memoryview]
PIECES = "pieces"
"""The fact of an entry whose bytes are in a file of their own: its size, digest and name."""
PLACE = "place"
"""The fact of an entry whose bytes are in a file of the output, which is being written: the name of
the file, where they begin, and their digest. ``sizes`` are those of their parts.
"""
_PIECE = struct.Struct(">IQ")
_READ_BYTES = 8 << 20


def gone(location: Location) -> StorageError:
    """The error for what a unit has written and is not there."""
    return StorageError(
        f"What a unit has written is gone or damaged: expected it in {location}; run the command "
        f"again, which does this unit anew.",
        path=str(location),
    )


class Entries:
    """The entries of a record. Processes on other machines may write them, too.

    Args:
        folder: The folder of the record.
        continues: Whether there may be entries of an earlier run.
    """

    def __init__(self, folder: Location, continues: bool) -> None:
        self.folder = folder
        self.continues = continues
        self.file_io: FileIO = open_file_io(folder, fsync=False)
        self._read: dict[str, str] = {}
        """Entries whose pieces were read here, with the names of their files."""

    def keep(
        self, name: str, facts: Mapping[str, Any], parts: Iterable[bytes | memoryview] = ()
    ) -> None:
        """Keeps an entry. It is there as a whole or not at all."""
        head = write_json_object(facts, _WHAT)
        body = [len(head).to_bytes(8, "big"), head, *parts]
        digest = xxhash.xxh3_128()
        for part in body:
            digest.update(part)
        self.file_io.replace(self.folder.child(name), [digest.digest(), *body])

    def names(self) -> set[str]:
        return {status.location.name for status in self.file_io.list_folder(self.folder)}

    def get(self, name: str) -> Entry | None:
        """An entry that is whole; None if there is none."""
        try:
            raw = self.file_io.read_bytes(self.folder.child(name))
        except StateFileNotFoundError:
            return None
        body = memoryview(raw)[_DIGEST_BYTES:]
        if xxhash.xxh3_128_digest(body) != raw[:_DIGEST_BYTES]:
            return None
        start = 8 + int.from_bytes(body[:8], "big")
        facts = parse_json_object(bytes(body[8:start]), _WHAT)
        if PIECES in facts:
            size, _, file = facts[PIECES]
            if self.file_io.size(self.folder.child(file)) != size:
                return None  # a power loss can keep an entry without its pieces
        return Entry(facts, bytes(body[start:]))

    def keep_pieces(
        self,
        name: str,
        pieces: Iterable[NumberedPiece],
        report: Callable[[], Any],
    ) -> None:
        """Keeps an entry whose bytes are not held together: in a file of its own, which the entry
        names once it is whole.

        Args:
            name: The entry.
            pieces: Its bytes, each with a number.
            report: What the facts say beside them, once all pieces were read.
        """
        file = f"{name}-pieces-{TRY.get()}"
        location = self.folder.child(file)
        digest, size = xxhash.xxh3_128(), 0

        def written() -> Iterator[bytes | memoryview]:
            nonlocal size
            for number, piece in pieces:
                head = _PIECE.pack(number, memoryview(piece).nbytes)
                size += len(head) + memoryview(piece).nbytes
                for part in (head, piece):
                    digest.update(part)
                    yield part

        self.file_io.delete(location)  # what a killed run has begun
        self.file_io.write_new(location, written())
        self.keep(name, {PIECES: [size, digest.hexdigest(), file], "report": report()})

    def pieces(self, name: str, entry: Entry) -> Iterator[NumberedPiece]:
        """The pieces of an entry of ``keep_pieces``, one at a time.

        Raises:
            StorageError: They are not those that were kept.
        """
        total, expected, file = entry.facts[PIECES]
        location = self.folder.child(file)
        digest, at, buffer = xxhash.xxh3_128(), 0, b""
        while at < total or buffer:
            more = self.file_io.read_bytes(location, at, min(at + _READ_BYTES, total))
            digest.update(more)
            at += len(more)
            buffer = buffer + more if buffer else more
            start, is_whole = 0, True
            while is_whole and start + _PIECE.size <= len(buffer):
                number, size = _PIECE.unpack_from(buffer, start)
                end = start + _PIECE.size + size
                is_whole = end <= len(buffer)
                if is_whole:
                    yield number, memoryview(buffer)[start + _PIECE.size : end]
                    start = end
            buffer = buffer[start:]
            if not more and buffer:
                break
        if digest.hexdigest() != expected:
            self.forget([name])
            raise gone(location)
        self._read[name] = file

    def holds_place(self, entry: Entry) -> bool:
        """Whether the bytes of an entry with a ``PLACE`` are there."""
        file, start, expected = entry.facts[PLACE]
        location, end = self._placed(file), start + sum(entry.facts["sizes"])
        if (self.file_io.size(location) or 0) < end:
            return False
        digest = xxhash.xxh3_128()
        for at in range(start, end, _READ_BYTES):
            digest.update(self.file_io.read_bytes(location, at, min(at + _READ_BYTES, end)))
        return bool(digest.hexdigest() == expected)

    def placed_parts(self, name: str, entry: Entry) -> Iterator[NumberedPiece]:
        """The bytes of an entry with a ``PLACE``, each piece with the number of its part.

        Raises:
            StorageError: They are not those that were kept: the file has changed since
                ``holds_place``.
        """
        file, at, expected = entry.facts[PLACE]
        location, digest = self._placed(file), xxhash.xxh3_128()
        for number, size in enumerate(entry.facts["sizes"]):
            end = at + size
            while at < end:
                stop = min(at + _READ_BYTES, end)
                piece = self.file_io.read_bytes(location, at, stop)
                digest.update(piece)
                yield number, piece
                at = stop
        if digest.hexdigest() != expected:
            self.forget([name])
            raise gone(location)

    def _placed(self, file: str) -> Location:
        return self.folder.parent.child(file)

    def forget(self, names: Iterable[str]) -> None:
        for name in names:
            self.file_io.delete(self.folder.child(name))
            if name in self._read:
                self.file_io.delete(self.folder.child(self._read.pop(name)))


class WorkRecord:
    """The record of one run. ``open_record`` makes it.

    Args:
        folder: The folder of the output.
        identity: What the run is: input, plan and version.
        body: What the record says now.
        continues: Whether an earlier run began the work.
        lock: The lock on the output, on a local disk.
    """

    def __init__(
        self,
        folder: Location,
        body: Mapping[str, str],
        continues: bool,
        lock: int | None,
    ) -> None:
        self.folder = folder
        self.continues = continues
        self.entries = Entries(folder.child(WORK_FOLDER), continues)
        self.names = FileNames(body["work"])
        self.keeps_checks = True
        """Whether the checks of an earlier run hold: all files are those that it checked."""
        self._body = dict(body)
        self._lock = lock

    @property
    def published(self) -> str | None:
        """The sha256 of the metadata that the earlier run was about to publish."""
        return self._body.get("published")

    def will_publish(self, digest: str) -> None:
        """Notes what is about to be published, so that a run that was killed before it could delete
        the record is known to be finished.
        """
        self.check_owner()
        self._body["published"] = digest
        _write(self.entries, self._body)

    def check_owner(self) -> None:
        """Checks that no other run has taken the work over, as one on an object store can.

        Raises:
            FencedError: One has.
        """
        other = _read(self.entries)
        if other is None or other.get("owner") != self._body["owner"]:
            raise FencedError(
                f"Another run writes {self.folder} now and goes on with the work of this one; wait "
                f"for it, or choose another folder."
            )

    def elsewhere(self) -> WorkRecord:
        """The record for another process, which has no lock. It may have to go on with what one
        began that was killed.
        """
        return WorkRecord(self.folder, self._body, continues=True, lock=None)

    def close(self, *, is_done: bool) -> None:
        """Lets other runs begin. The record of work that is done goes."""
        lock, self._lock = self._lock, None
        try:
            if is_done:
                _delete(self.entries, lock)
        finally:
            _unlock(lock)


def stable(value: Any) -> Any:
    """A value as JSON that is the same in every process: a set has no order of its own."""
    match value:
        case Mapping():
            return sorted(([stable(key), stable(own)] for key, own in value.items()), key=repr)
        case frozenset() | set():
            return sorted(map(repr, value))
        case list() | tuple():
            return [*map(stable, value)]
    if is_dataclass(value):
        return {own.name: stable(getattr(value, own.name)) for own in fields(value)}
    return value if value is None or isinstance(value, str | int | float) else repr(value)


def plan_digest(plan: Any) -> str:
    """The digest of what decides the bytes of a rewriting, as JSON values."""
    return hashlib.sha256(write_json_object({"plan": plan}, _WHAT)).hexdigest()


def open_record(
    folder: Location, source_sha256: str, plan: str | None, *, begins: bool
) -> WorkRecord | None:
    """Goes on with the record in a folder, or begins one.

    Args:
        folder: The folder of the output.
        source_sha256: The digest of the metadata of the input.
        plan: The digest of the plan; None if no later run can go on with the work.
        begins: Whether to begin a record where none is.

    Raises:
        SavepointError: The record is of other work, or another run is at it.
    """
    entries = Entries(folder.child(WORK_FOLDER), continues=True)
    body = _read(entries)
    if body is None and not begins:
        return None
    identity = {_INPUT: source_sha256, _PLAN: plan or _NO_PLAN, _VERSION: __version__}
    if body is not None:
        _check(folder, body, identity)
    lock = _locked(folder, entries.folder)
    try:
        body = _read(entries)  # another run may have begun or ended meanwhile
        if body is not None and body[_PLAN] == _NO_PLAN:
            _forget_dead(folder, entries, FileNames(body["work"]))
            body = None
        owner = secrets.token_hex(8)
        continues = body is not None
        if body is None:
            _forget_rest(entries)
            body = {**identity, "work": secrets.token_hex(8), "owner": owner}
            raw = write_json_object(body, _WHAT)
            if not entries.file_io.publish_once(entries.folder.child(_WORK), raw):
                raise _busy(folder)
        else:
            _check(folder, body, identity)
            body = {**body, "owner": owner}
            _write(entries, body)
        return WorkRecord(folder, body, continues, lock)
    except BaseException:
        _unlock(lock)
        raise


def _check(folder: Location, body: Mapping[str, Any], identity: Mapping[str, str]) -> None:
    if body.get(_PLAN) == _NO_PLAN:
        return  # of a run that was killed: any other may begin anew
    for part, (what, of) in _WORDS.items():
        if body.get(part) != identity[part]:
            raise SavepointError(
                f"An unfinished run in {folder} had {what}: expected {of} {body.get(part)}, got "
                f"{identity[part]}; run its own command again, choose another folder, or delete "
                f"{folder.child(WORK_FOLDER)} to begin anew."
            )


def _forget_dead(folder: Location, entries: Entries, names: FileNames) -> None:
    """Forgets work that was killed and that nobody can go on with, and deletes its files, unless
    a snapshot is there, which may name them.
    """
    files = entries.file_io
    if files.size(folder.child(METADATA_FILE_NAME)) is None:
        for status in files.list_folder(folder):
            if names.has(status.location.name):
                files.delete(status.location)
    _forget_rest(entries)
    entries.forget([_WORK])


def _forget_rest(entries: Entries) -> None:
    """Forgets what a run has left that was killed while it deleted its record: entries of other
    work have the same names.
    """
    entries.forget(sorted(entries.names() - {_WORK, _LOCK}))


def _read(entries: Entries) -> dict[str, Any] | None:
    location = entries.folder.child(_WORK)
    try:
        return parse_json_object(entries.file_io.read_bytes(location), f"{_WHAT} {location}")
    except StateFileNotFoundError:
        return None
    except FormatError as error:
        raise FormatError(f"{error}; delete {entries.folder} to begin anew") from error


def _write(entries: Entries, body: Mapping[str, Any]) -> None:
    raw = write_json_object(body, _WHAT)
    open_file_io(entries.folder).replace(entries.folder.child(_WORK), raw)  # survives a power loss


# ------------------------------------------------------------------------------------------- lock

_LOCK_ATTEMPTS = 1000
"""As often may runs that end delete the folder of one that begins."""
_HELD: set[int] = set()
"""Locks of this process. A process of a pool must not hold them after this one was killed."""


def _let_go() -> None:
    for lock in _HELD:
        os.close(lock)
    _HELD.clear()


os.register_at_fork(after_in_child=_let_go)


def _locked(folder: Location, work: Location) -> int | None:
    """Locks the work on a local disk; elsewhere, a later run takes it over."""
    if work.scheme != "file":
        return None
    path = work.child(_LOCK).path
    attempts = _LOCK_ATTEMPTS
    while True:
        attempts -= 1
        try:
            local_files.make_folders(work.path, sync=False)
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and attempts:
                continue  # a run that ends has deleted the folder
            raise StorageError(
                f"Cannot write to {folder}: {error.strerror}; choose another folder.",
                path=str(folder),
                errno=error.errno,
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            raise _busy(folder) from error
        if _is_at(lock, path):
            _HELD.add(lock)
            return lock
        os.close(lock)  # a run that ended has deleted it


def _is_at(lock: int, path: str) -> bool:
    """Whether a lock is the file at a path, which may be gone, or that of another run."""
    try:
        return os.path.samestat(os.fstat(lock), os.stat(path))
    except FileNotFoundError:
        return False


def _unlock(lock: int | None) -> None:
    """Lets another run have the lock, even if a process that another thread forks has it, too."""
    if lock is not None:
        _HELD.discard(lock)
        fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)


def _delete(entries: Entries, lock: int | None) -> None:
    """Deletes the record of a run, unless somebody has deleted the folder with its lock. The lock
    goes last: from then on the folder may be that of another run, which has a lock of its own.
    """
    if lock is None:
        entries.file_io.delete_folder(entries.folder)
        return
    if not _is_at(lock, entries.folder.child(_LOCK).path):
        return
    _forget_rest(entries)
    for name in (_WORK, _LOCK):
        with suppress(FileNotFoundError):  # somebody deletes the folder just now
            os.unlink(entries.folder.child(name).path)
    with suppress(OSError):  # another run has begun there, or has ended since
        os.rmdir(entries.folder.path)


def _busy(folder: Location) -> SavepointError:
    return SavepointError(
        f"Another run writes {folder}: wait for its end, or choose another folder."
    )
