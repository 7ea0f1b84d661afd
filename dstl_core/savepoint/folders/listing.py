"""The snapshots below a folder or in a bucket: what ``dstl ls`` shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dstl_core.checkpoint.store.metadata_file import load_metadata_file
from dstl_core.codec.metadata.checkpoint_kind import checkpoint_kind
from dstl_core.errors import DstlError
from dstl_core.storage.file_io import FileIO, FileStatus, open_file_io
from dstl_core.storage.location import (
    CHANGELOG_DIR,
    INTERNAL_DIR,
    METADATA_FILE_NAME,
    SHARED_DIR,
    TASK_OWNED_DIR,
    Location,
    checkpoint_id_of,
)

_STATE_FOLDERS = (SHARED_DIR, TASK_OWNED_DIR, CHANGELOG_DIR, INTERNAL_DIR)


@dataclass(frozen=True, slots=True)
class FoundSnapshot:
    """A folder with a ``_metadata``, and when that was written, if the store tells."""

    folder: Location
    modified_ms: int | None


def snapshots_below(base: Location, file_io: FileIO | None = None) -> Iterator[FoundSnapshot]:
    """Every snapshot below a folder, checkpoints of a job by their number. Links are not followed.

    It lists one folder at a time, and neither the folder of a snapshot's files nor the state files
    of a job are searched.
    """
    files = file_io if file_io is not None else open_file_io(base)
    entries = files.list_folder(base)
    for entry in entries:
        if entry.location.name == METADATA_FILE_NAME and not entry.is_folder:
            yield FoundSnapshot(base, entry.modified_ms)
            return
    for folder in sorted(_folders_to_search(entries), key=_by_number_then_name):
        yield from snapshots_below(folder, files)


def _folders_to_search(entries: Sequence[FileStatus]) -> list[Location]:
    folders = [each.location for each in entries if each.is_folder and not each.is_link]
    if any(checkpoint_id_of(each.name) is not None for each in folders):
        return [each for each in folders if each.name not in _STATE_FOLDERS]
    return folders


def _by_number_then_name(folder: Location) -> tuple[int, str]:
    number = checkpoint_id_of(folder.name)
    return (-1 if number is None else number, folder.name)


def describe(snapshot: FoundSnapshot, base: Location, file_io: FileIO) -> dict[str, Any]:
    """What the metadata of a snapshot says, for ``dstl ls``. ``problem`` says why it cannot be
    read, if it cannot.
    """
    shown = {
        "path": str(snapshot.folder),
        "name": snapshot.folder.relative_to(base),
        "modified_ms": snapshot.modified_ms,
    }
    try:
        file = load_metadata_file(file_io, snapshot.folder)
        kind = checkpoint_kind(file.metadata.properties)
    except DstlError as error:
        return shown | {"problem": str(error)}
    return shown | {
        "kind": kind.name,
        "format": kind.format,
        "version": file.metadata.version,
        "checkpoint_id": file.metadata.checkpoint_id,
        "operators": len(file.metadata.operators),
        "bytes": sum(operator.state_size for operator in file.metadata.operators),
        "metadata_bytes": file.size,
        "problem": None,
    }
