"""``_metadata`` files and the sidecar beside them.

The sidecar ``_dstl.json`` is written first and never changed. Flink ignores it, and a snapshot
loads without it. It adds the uids, which older metadata versions cannot store, and the origin of
the snapshot.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from dstl_core.codec.metadata.metadata_format import read_metadata, write_metadata
from dstl_core.errors import (
    FormatError,
    PathNotAllowedError,
    StateFileNotFoundError,
    StorageError,
    error_context,
)
from dstl_core.model.checkpoint import CheckpointMetadata, DeclaredDecimals
from dstl_core.model.handle import FileStateHandle, RelativeFileStateHandle
from dstl_core.model.ids import OperatorID
from dstl_core.storage.file_io import FileIO
from dstl_core.storage.json_document import CONVERSION_ERRORS, parse_json_object, write_json_object
from dstl_core.storage.location import METADATA_FILE_NAME, SIDECAR_FILE_NAME, Location
from dstl_core.storage.written_files import WrittenFile

SIDECAR_VERSION = 1
_WHAT = f"A sidecar {SIDECAR_FILE_NAME}"
MAX_METADATA_BYTES = 1 << 31
_MAX_DEPTH = 32
_MAX_KEPT_BYTES = 1 << 20
"""The largest ``_metadata`` whose content stays in memory."""
MAX_SIDECAR_BYTES = 256 << 20
"""A file in it takes 200 bytes."""
NOTHING_KNOWN: Mapping[str, WrittenFile] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Sidecar:
    """The content of ``_dstl.json``.

    Args:
        metadata_sha256: The sha256 of the ``_metadata`` that it belongs to.
        uids: Operator ids to uids.
        notes: JSON values, ``facts`` in the file. For a checkpoint they are its parent and its
            ``EpochFacts``, for a savepoint its origin.
        files: Size and sha256 of the files that the snapshot references, by the path in their
            handle: absolute, or relative to the snapshot's folder.
        decimals: What was declared of decimals, by operator and state.
    """

    metadata_sha256: str
    uids: Mapping[OperatorID, str]
    notes: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, WrittenFile] = field(default_factory=dict)
    decimals: Mapping[OperatorID, Mapping[str, DeclaredDecimals]] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        body: dict[str, Any] = {
            "version": SIDECAR_VERSION,
            "metadata_sha256": self.metadata_sha256,
            "uids": {operator_id.hex: uid for operator_id, uid in self.uids.items()},
            "facts": dict(self.notes),
            "files": {
                path: {"bytes": file.size, "sha256": file.sha256}
                for path, file in self.files.items()
            },
        }
        if self.decimals:
            body["decimals"] = {each.hex: dict(of) for each, of in self.decimals.items()}
        return write_json_object(body, _WHAT)

    @classmethod
    def from_bytes(cls, raw: bytes) -> Sidecar:
        try:
            body = parse_json_object(raw, "its JSON")
            if body["version"] != SIDECAR_VERSION:
                raise ValueError(f"version {body['version']}")
            uids = {OperatorID.from_hex(key): str(uid) for key, uid in body["uids"].items()}
            files = {
                path: WrittenFile(path, int(file["bytes"]), str(file["sha256"]))
                for path, file in body.get("files", {}).items()
            }
            decimals = {
                OperatorID.from_hex(key): {name: _decimals(each) for name, each in of.items()}
                for key, of in body.get("decimals", {}).items()
            }
            return cls(str(body["metadata_sha256"]), uids, dict(body["facts"]), files, decimals)
        except CONVERSION_ERRORS as error:
            raise FormatError(
                f"{_WHAT} is damaged ({error}); delete it to read the snapshot without it"
            ) from error


def _decimals(stored: Any, depth: int = 0) -> DeclaredDecimals:
    if depth > _MAX_DEPTH:
        raise ValueError(f"a row is nested more than {_MAX_DEPTH} levels deep")
    if isinstance(stored, dict):
        return {name: _decimals(each, depth + 1) for name, each in stored.items()}
    digits, scale = map(int, stored)
    if not 0 <= scale <= digits <= 38 or digits == 0:
        raise ValueError(f"a decimal of {digits} digits and scale {scale}")
    return digits, scale


@dataclass(frozen=True, slots=True)
class MetadataFile:
    """A ``_metadata`` file that was read. ``sidecar`` is None if no sidecar belongs to it."""

    folder: Location
    metadata: CheckpointMetadata
    sha256: str
    size: int
    sidecar: Sidecar | None

    @property
    def written(self) -> Mapping[str, WrittenFile]:
        """Size and sha256 of files from the sidecar, by their absolute path."""
        files = {} if self.sidecar is None else self.sidecar.files
        by_path = {}
        for path, file in files.items():
            # An absolute path has a scheme; a relative one is a name in the folder.
            with suppress(PathNotAllowedError):
                absolute = path if ":" in path else str(self.folder.child(path))
                by_path[absolute] = replace(file, path=absolute)
        return by_path


def load_metadata_file(file_io: FileIO, path: Location) -> MetadataFile:
    """Reads a snapshot's metadata; ``path`` is its folder or the ``_metadata`` in it.

    Raises:
        StateFileNotFoundError: There is no such snapshot.
        FormatError: The file is damaged or of another kind.
    """
    folder = path.parent if path.name == METADATA_FILE_NAME else path
    location = folder.child(METADATA_FILE_NAME)
    size = file_io.size(location)
    if size is None:
        raise StateFileNotFoundError(
            f"There is no snapshot: expected a file {METADATA_FILE_NAME} in {folder}; give the "
            f"folder of a savepoint or checkpoint, or its {METADATA_FILE_NAME}.",
            path=str(location),
        )
    if size > MAX_METADATA_BYTES:
        raise StorageError(
            f"The metadata is too large: expected at most {MAX_METADATA_BYTES} bytes, got {size}.",
            location=str(location),
        )
    raw = file_io.read_bytes(location)
    with error_context(location=str(location)):
        metadata = _metadata_of(raw)
    digest = hashlib.sha256(raw).hexdigest()
    sidecar = _load_sidecar(file_io, folder, digest)
    return MetadataFile(folder, _with_decimals(metadata, sidecar), digest, size, sidecar)


def _metadata_of(raw: bytes) -> CheckpointMetadata:
    """The content of a ``_metadata``. An epoch reads the same few ones several times."""
    return _metadata_of_small(raw) if len(raw) <= _MAX_KEPT_BYTES else read_metadata(raw)


@lru_cache(maxsize=4)
def _metadata_of_small(raw: bytes) -> CheckpointMetadata:
    return read_metadata(raw)


def _with_decimals(metadata: CheckpointMetadata, sidecar: Sidecar | None) -> CheckpointMetadata:
    """The metadata with what the sidecar says of decimals, so that a copy of it says that, too."""
    if sidecar is None or not sidecar.decimals:
        return metadata
    operators = [
        replace(operator, decimals=sidecar.decimals.get(operator.operator_id, {}))
        for operator in metadata.operators
    ]
    return replace(metadata, operators=tuple(operators))


def _load_sidecar(file_io: FileIO, folder: Location, digest: str) -> Sidecar | None:
    sidecar = read_sidecar(file_io, folder)
    # A sidecar of other metadata (a copy, an edit by another tool) does not describe this one.
    return sidecar if sidecar is not None and sidecar.metadata_sha256 == digest else None


def read_sidecar(file_io: FileIO, folder: Location) -> Sidecar | None:
    """The sidecar of a folder, even if it belongs to other metadata; None if there is none."""
    location = folder.child(SIDECAR_FILE_NAME)
    size = file_io.size(location)
    if size is None:
        return None
    if size > MAX_SIDECAR_BYTES:
        raise StorageError(
            f"The sidecar is too large: expected at most {MAX_SIDECAR_BYTES} bytes, got {size}; "
            f"delete it to read the snapshot without it.",
            location=str(location),
        )
    with error_context(location=str(location)):
        return Sidecar.from_bytes(file_io.read_bytes(location))


def metadata_digest(metadata: CheckpointMetadata) -> str:
    """The sha256 (hex) that the ``_metadata`` of a snapshot has once it is published."""
    return hashlib.sha256(write_metadata(metadata)).hexdigest()


def metadata_sha256(file_io: FileIO, folder: Location) -> str | None:
    """The sha256 (hex) of the ``_metadata`` in a folder; None if there is none."""
    try:
        raw = file_io.read_bytes(folder.child(METADATA_FILE_NAME))
    except StateFileNotFoundError:
        return None
    return hashlib.sha256(raw).hexdigest()


def holds_metadata(file_io: FileIO, folder: Location, digest: str) -> bool:
    """Whether a folder holds no other metadata than this one, and no other's sidecar."""
    digest_of_file = metadata_sha256(file_io, folder)
    if digest_of_file is None:
        sidecar = read_sidecar(file_io, folder)
        return sidecar is None or sidecar.metadata_sha256 == digest
    return digest_of_file == digest


def publish_metadata_file(
    file_io: FileIO,
    folder: Location,
    metadata: CheckpointMetadata,
    notes: Mapping[str, Any],
    written: Mapping[str, WrittenFile] = NOTHING_KNOWN,
) -> tuple[str, int]:
    """Publishes the sidecar, then ``_metadata``. After that, the snapshot exists.

    Args:
        file_io: The file IO of the folder.
        folder: The folder of both files.
        metadata: The snapshot.
        notes: The ``notes`` of the sidecar.
        written: Size and sha256 of files, by their absolute path.

    Returns:
        The sha256 (hex) and the size of ``_metadata`` in bytes.

    Raises:
        StorageError: The folder already has a snapshot, or a sidecar: another process may be about
            to write its metadata.
    """
    raw, sidecar = _to_bytes(folder, metadata, notes, written)
    digest = sidecar.metadata_sha256
    target = folder.child(METADATA_FILE_NAME)
    if file_io.size(target) is None:
        if not file_io.publish_once(folder.child(SIDECAR_FILE_NAME), sidecar.to_bytes()):
            raise StorageError(
                f"The folder {folder} has an unfinished snapshot; choose another folder, or delete "
                f"it if no process is writing it.",
                path=str(folder),
            )
        if file_io.publish_once(target, raw):
            return digest, len(raw)
    raise StorageError(
        f"A snapshot is already there: {folder}; choose another folder or delete it.",
        path=str(folder),
    )


def unpublished_metadata_file(
    folder: Location,
    metadata: CheckpointMetadata,
    written: Mapping[str, WrittenFile] = NOTHING_KNOWN,
) -> MetadataFile:
    """What ``load_metadata_file`` gives once the snapshot is published: its bytes, read again."""
    raw, sidecar = _to_bytes(folder, metadata, {}, written)
    sidecar = Sidecar.from_bytes(sidecar.to_bytes())
    published = _with_decimals(read_metadata(raw), sidecar)
    return MetadataFile(folder, published, sidecar.metadata_sha256, len(raw), sidecar)


def replace_metadata_file(
    file_io: FileIO,
    folder: Location,
    metadata: CheckpointMetadata,
    notes: Mapping[str, Any],
    written: Mapping[str, WrittenFile] = NOTHING_KNOWN,
) -> None:
    """As ``publish_metadata_file``, but replaces a snapshot that may be there.

    The state files of the old snapshot stay. After a crash between the two files, the old snapshot
    is there without its sidecar.
    """
    raw, sidecar = _to_bytes(folder, metadata, notes, written)
    file_io.replace(folder.child(SIDECAR_FILE_NAME), sidecar.to_bytes())
    file_io.replace(folder.child(METADATA_FILE_NAME), raw)


def _to_bytes(
    folder: Location,
    metadata: CheckpointMetadata,
    notes: Mapping[str, Any],
    written: Mapping[str, WrittenFile],
) -> tuple[bytes, Sidecar]:
    raw = write_metadata(metadata)
    digest = hashlib.sha256(raw).hexdigest()
    uids = {each.operator_id: each.uid for each in metadata.operators if each.uid}
    decimals = {each.operator_id: each.decimals for each in metadata.operators if each.decimals}
    return raw, Sidecar(digest, uids, notes, known_of(folder, metadata, written), decimals)


def known_of(
    folder: Location, metadata: CheckpointMetadata, written: Mapping[str, WrittenFile]
) -> dict[str, WrittenFile]:
    """Size and sha256 of the files that a snapshot references, by the path in their handle."""
    known = {}
    for operator in metadata.operators:
        for subtask in operator.subtasks:
            for stream in subtask.streams():
                match stream:
                    case FileStateHandle(path):
                        absolute = path
                    case RelativeFileStateHandle(path):
                        absolute = (
                            f"{folder}/{path}"  # a damaged handle does no harm: this is only a key
                        )
                    case _:
                        continue
                if absolute in written:
                    known[path] = written[absolute]
    return known
