"""Notes beside state files that snapshots in other folders share.

A snapshot that shares files of another one names them by their absolute path. Whoever collects
garbage in the folder of the files may not see that snapshot; so a note there names it.

Each side says what it does before it looks at the other one. Who shares leaves the note, looks for
a collection, then for the files. A collection leaves a sign, looks for notes, then deletes. So one
of them sees the other: the collection keeps the files, or nothing is shared.

A killed collection leaves its sign. So a sign counts for a day, and a collection ends long before.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from uuid import uuid4

from dstl_core.errors import (
    ConfigError,
    FormatError,
    SavepointError,
    StorageError,
    error_context,
)
from dstl_core.storage.file_io import FileIO, FileStatus
from dstl_core.storage.json_document import parse_json_object, write_json_object
from dstl_core.storage.location import (
    INTERNAL_DIR,
    METADATA_FILE_NAME,
    Location,
    checkpoint_id_of,
)

_NOTE_NAME = re.compile(r"_dstl_shared_[0-9a-f]{32}\.json")
_COLLECTION_NAME = re.compile(r"_dstl_collection_[0-9a-f]{32}\.json")
_WHAT = "A note of shared files"
_VERSION = 1
_HOUR_MS = 3_600_000
COLLECTION_MS = 12 * _HOUR_MS
"""How long a collection deletes files at most."""
_SIGN_MS = 24 * _HOUR_MS
"""The age of a sign whose collection has ended. Clocks may differ by what is left."""


def leave_notes(
    file_io: FileIO, files: Iterable[Location], snapshot: Location, now_ms: int
) -> None:
    """Says beside files that a snapshot names them. To say it again changes nothing.

    Args:
        file_io: File IO of the files.
        files: The files that the snapshot shares.
        snapshot: Its folder.
        now_ms: The time.

    Raises:
        ConfigError: A file is one of a pipeline of dstl, which does not read notes when it retires
            checkpoints.
        SavepointError: A collection deletes files there.
        StorageError: A note cannot be written.
    """
    folders = _places_of_notes(files)
    for folder in folders:
        for job in (folder, folder.parent):
            if file_io.list_folder(job.child(INTERNAL_DIR)):
                raise ConfigError(
                    f"Files of the pipeline in {job} cannot be shared: it deletes what its own "
                    f"checkpoints do not need; copy them (files='copy', --copy)."
                )
    note = write_json_object({"version": _VERSION, "snapshot": str(snapshot)}, _WHAT)
    for folder in folders:
        location = folder.child(_name_of_note(snapshot))
        try:
            known = file_io.publish_once(location, note)
        except StorageError as error:
            raise StorageError(
                f"Files in {folder} cannot be shared, for no note can be left there for dstl gc "
                f"({error.message}); copy the files (files='copy', --copy).",
                location=str(location),
            ) from error
        if not known:
            raise StorageError(f"A note has other content: {location}; delete it.")
    for folder in folders:
        for status in file_io.list_folder(folder):
            if _is_sign(status) and not _is_of_the_past(status, now_ms):
                raise SavepointError(
                    f"A collection of garbage deletes files in {folder}, so nothing that shares "
                    f"them was published: write again once it has ended, or copy the files "
                    f"(files='copy', --copy); if it was killed, delete {status.location}, which "
                    f"counts for {_SIGN_MS // _HOUR_MS} hours."
                )


def take_notes_back(file_io: FileIO, files: Iterable[Location], snapshot: Location) -> None:
    """Deletes the notes of a snapshot that was not published, unless one of before is there. One
    that cannot be deleted stays: why nothing was published counts more.
    """
    with suppress(StorageError):
        is_there = file_io.size(snapshot.child(METADATA_FILE_NAME)) is not None
        for folder in () if is_there else _places_of_notes(files):
            file_io.delete(folder.child(_name_of_note(snapshot)))


@contextmanager
def announced_collection(
    file_io: FileIO, files: Iterable[Location], now_ms: int
) -> Iterator[list[FileStatus]]:
    """Says beside files that a collection deletes some of them, until it has ended; gives the notes
    that are there. Signs of collections that were killed go.
    """
    folders, name = _places_of_notes(files), f"_dstl_collection_{uuid4().hex}.json"
    sign = write_json_object({"version": _VERSION}, "A sign of a collection")
    try:
        for folder in folders:
            file_io.write_new(folder.child(name), sign)
        every = [status for folder in folders for status in file_io.list_folder(folder)]
        for status in filter(_is_sign, every):
            if status.location.name != name and _is_of_the_past(status, now_ms):
                file_io.delete(status.location)
        yield [*filter(is_note, every)]
    finally:
        for folder in folders:
            file_io.delete(folder.child(name))


def _is_sign(status: FileStatus) -> bool:
    return _COLLECTION_NAME.fullmatch(status.location.name) is not None


def _is_of_the_past(sign: FileStatus, now_ms: int) -> bool:
    return sign.modified_ms is not None and sign.modified_ms < now_ms - _SIGN_MS


def _name_of_note(snapshot: Location) -> str:
    return f"_dstl_shared_{hashlib.sha256(str(snapshot).encode()).hexdigest()[:32]}.json"


def _places_of_notes(files: Iterable[Location]) -> list[Location]:
    return sorted({_place_of_note(each.parent) for each in files}, key=str)


def _place_of_note(folder: Location) -> Location:
    """Flink deletes the folder of a checkpoint, and expects nothing else in it."""
    return folder.parent if checkpoint_id_of(folder.name) is not None else folder


def is_note(status: FileStatus) -> bool:
    is_file = not status.is_folder and not status.is_link
    return is_file and _NOTE_NAME.fullmatch(status.location.name) is not None


def snapshot_of_note(file_io: FileIO, note: Location) -> Location:
    """The folder of the snapshot that shares files beside a note.

    Raises:
        FormatError: The note is damaged.
    """
    with error_context(location=str(note)):
        body = parse_json_object(file_io.read_bytes(note), _WHAT)
        snapshot = body.get("snapshot")
        if body.get("version") != _VERSION or not isinstance(snapshot, str):
            raise FormatError(f"{_WHAT} is damaged", expected=f"version {_VERSION}", got=body)
        return Location.parse(snapshot)
