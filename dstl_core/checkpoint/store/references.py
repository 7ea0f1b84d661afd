"""Finds the files that snapshots reference, for all code that deletes files."""

from __future__ import annotations

import posixpath
from contextlib import suppress

from dstl_core.checkpoint.store.metadata_file import MetadataFile
from dstl_core.errors import ConfigError, PathNotAllowedError
from dstl_core.model.checkpoint import CheckpointMetadata
from dstl_core.model.handle import (
    FileStateHandle,
    RelativeFileStateHandle,
    SegmentFileStateHandle,
)
from dstl_core.storage.file_io import FileIO
from dstl_core.storage.file_set import FileSet
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import METADATA_FILE_NAME, SIDECAR_FILE_NAME, Location

FileHandle = FileStateHandle | SegmentFileStateHandle | RelativeFileStateHandle
_NO_PLACE = (PathNotAllowedError, ConfigError)
"""A path that is no location; no file is looked at to say so."""


def references_of(file_io: FileIO, file: MetadataFile) -> FileSet:
    """The files that a snapshot references: metadata, sidecar and state files.

    A state file counts at every place where dstl or Flink looks for it.
    """
    resolver = HandleResolver(file_io, file.folder)
    references = FileSet()
    places = [file.folder.child(name) for name in (METADATA_FILE_NAME, SIDECAR_FILE_NAME)]
    for handle in file_handles(file.metadata):
        try:
            places += resolver.places(handle)
        except _NO_PLACE:
            # dstl does not open such a path, but Flink may; so the file's name stays referenced.
            if isinstance(handle, RelativeFileStateHandle):
                path = f"{file.folder}/{handle.relative_path}"
            else:
                path = handle.path
            references.add_name(posixpath.basename(path.rstrip("/")))
            with suppress(*_NO_PLACE):
                places.append(Location.parse(path))
    references.add_all(places)
    return references


def file_handles(metadata: CheckpointMetadata) -> list[FileHandle]:
    """Every handle of a snapshot's state whose bytes are in a file, once each."""
    handles = (
        stream
        for operator in metadata.operators
        for subtask in operator.subtasks
        for stream in subtask.streams()
        if isinstance(stream, FileHandle)
    )
    return list(dict.fromkeys(handles))
