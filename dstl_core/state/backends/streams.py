"""The streams to which a subtask writes its part of a snapshot.

Source: ``CheckpointStreamFactory``, ``FsCheckpointStreamFactory`` and
``FsCheckpointStateOutputStream`` of Flink 2.2.1.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from typing import Protocol
from uuid import uuid4

from dstl_core.errors import InvariantViolation
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    CheckpointedStateScope,
    FileStateHandle,
    RelativeFileStateHandle,
    StreamStateHandle,
)
from dstl_core.storage.file_io import FileIO
from dstl_core.storage.location import Location
from dstl_core.temporary_files import in_temporary_files, let_go

SPOOL_BYTES = 8 << 20
"""Larger streams are buffered in a temporary file on local disk."""
_CHUNK = 8 << 20


class CheckpointStateOutputStream(Protocol):
    """One stream of a snapshot."""

    @property
    def position(self) -> int: ...

    def write(self, data: bytes) -> int: ...

    def close_and_get_handle(self) -> StreamStateHandle:
        """Makes the stream durable and returns its handle."""
        ...

    def close(self) -> None:
        """Discards the stream, unless it has a handle."""
        ...


class CheckpointStreamFactory(Protocol):
    """Opens streams of one snapshot."""

    def create_checkpoint_state_output_stream(
        self, scope: CheckpointedStateScope
    ) -> CheckpointStateOutputStream: ...


class FsCheckpointStateOutputStream:
    """Bytes of a snapshot: a file, or a part of ``_metadata`` if they are few."""

    def __init__(
        self,
        keep: Callable[[Iterable[bytes], int], StreamStateHandle],
    ) -> None:
        self._keep = keep
        # close() and close_and_get_handle() close it.
        self._spool = tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES)  # noqa: SIM115
        self._closed = False
        self.position = 0

    def write(self, data: bytes) -> int:
        if self._closed:
            raise InvariantViolation("a stream was written to after it was closed")
        with in_temporary_files():
            self._spool.write(data)
        self.position += len(data)
        return len(data)

    def close_and_get_handle(self) -> StreamStateHandle:
        """Makes the stream durable.

        Raises:
            StorageError: The stream could not be written; no file is left.
        """
        if self._closed:
            raise InvariantViolation("a stream was closed twice")
        try:
            with in_temporary_files():
                self._spool.seek(0)  # writes what the buffer has
            chunks = iter(lambda: self._spool.read(_CHUNK), b"")
            return self._keep(chunks, self.position)
        finally:
            self.close()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            let_go(self._spool)


class FsCheckpointStreamFactory:
    """Opens streams in the folders of a pipeline.

    Args:
        file_io: The file IO of both folders.
        exclusive: Folder of files that belong to one snapshot.
        shared: Folder of files that several checkpoints reference, e.g. materializations.
        inline_threshold: Streams of at most this number of bytes are stored in ``_metadata``.
        relative: Whether paths of exclusive files are relative to ``_metadata``, as in savepoints.
    """

    def __init__(
        self,
        file_io: FileIO,
        exclusive: Location,
        shared: Location,
        *,
        inline_threshold: int,
        relative: bool = False,
        new_name: Callable[[], str] = lambda: str(uuid4()),
    ) -> None:
        self._file_io = file_io
        self._folders = {
            CheckpointedStateScope.EXCLUSIVE: exclusive,
            CheckpointedStateScope.SHARED: shared,
        }
        self._inline_threshold = inline_threshold
        self._relative = relative
        self._new_name = new_name

    def create_checkpoint_state_output_stream(
        self, scope: CheckpointedStateScope
    ) -> FsCheckpointStateOutputStream:
        def keep(parts: Iterable[bytes], size: int) -> StreamStateHandle:
            return self._keep(scope, parts, size)

        return FsCheckpointStateOutputStream(keep)

    def _keep(
        self, scope: CheckpointedStateScope, parts: Iterable[bytes], size: int
    ) -> StreamStateHandle:
        name = self._new_name()
        if size <= self._inline_threshold:
            return ByteStreamStateHandle(name, b"".join(parts))
        location = self._folders[scope].child(name)
        self._file_io.write_new(location, parts)
        if self._relative and scope is CheckpointedStateScope.EXCLUSIVE:
            return RelativeFileStateHandle(name, size)
        return FileStateHandle(str(location), size)
