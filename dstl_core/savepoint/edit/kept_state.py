"""Keeps state that an edit does not change in the form that it has: by reference, or as copies.

A snapshot that shares files names those of its source, and has only a ``_metadata`` of its own. Its
source, or a job that owns the source, may delete them. So a note beside the files names every
snapshot that shares them, for ``dstl gc``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Literal, get_args

from dstl_core.checkpoint.store.sharing import leave_notes, take_notes_back
from dstl_core.clock import SystemClock
from dstl_core.codec.metadata.checkpoint_kind import checkpoint_kind
from dstl_core.errors import (
    ConfigError,
    FormatError,
    SavepointError,
    StateFileNotFoundError,
    StorageError,
)
from dstl_core.model.checkpoint import (
    OperatorState,
    OperatorSubtaskState,
    SnapshotFilesHandle,
    with_streams,
)
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    ChangelogStateBackendHandle,
    ChangelogStateHandle,
    ChangelogStateHandleStream,
    EmptySegmentFileStateHandle,
    FileStateHandle,
    IncrementalRemoteKeyedStateHandle,
    KeyedStateHandle,
    KeyGroupsStateHandle,
    OperatorStreamStateHandle,
    RelativeFileStateHandle,
    SegmentFileStateHandle,
    StreamStateHandle,
)
from dstl_core.savepoint.purge.purge import Purge
from dstl_core.savepoint.read.operator_catalog import OperatorCatalog, SnapshotFiles
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.savepoint.write.folder import DATA_INLINE_THRESHOLD, StateFiles
from dstl_core.savepoint.write.table_parts import Kept
from dstl_core.storage.file_io import FileIO
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import Location, checkpoint_id_of

Files = Literal["share", "copy", "canonical"]
"""What becomes of state that an edit does not change. ``share`` names the files of the source,
``copy`` copies them as they are, and ``canonical`` writes keyed state in canonical form.
"""
_SAVEPOINT = "Savepoint"


def checked_files(files: Files | None) -> Files | None:
    """What becomes of state that does not change.

    Raises:
        ConfigError: It is another word.
    """
    if files is not None and files not in get_args(Files):
        raise ConfigError(
            f"files is wrong: expected {', '.join(get_args(Files))} or None, got {files!r}."
        )
    return files


def can_be_kept(operator: OperatorCatalog) -> bool:
    """Whether the form of all keyed state of an operator is one that is kept."""
    handles = (each.managed_keyed_state for each in operator.state.subtasks)
    return all(
        isinstance(part, SnapshotFilesHandle)
        for handle in handles
        if handle is not None
        for part in _parts(handle)
    )


def _parts(handle: KeyedStateHandle) -> tuple[KeyedStateHandle, ...]:
    """The bases of a changelog, or the handle itself."""
    return handle.materialized if isinstance(handle, ChangelogStateBackendHandle) else (handle,)


def has_log(operator: OperatorCatalog) -> bool:
    """Whether keyed state of an operator has a log of changes."""
    handles = (subtask.managed_keyed_state for subtask in operator.state.subtasks)
    return any(isinstance(handle, ChangelogStateBackendHandle) for handle in handles)


def is_native(operator: OperatorCatalog) -> bool:
    """Whether an operator can be kept, and has keyed state that is not canonical."""
    handles = [each.managed_keyed_state for each in operator.state.subtasks]
    return can_be_kept(operator) and any(map(_is_native, handles))


def is_rocksdb(operator: OperatorCatalog) -> bool:
    """Whether all keyed state of an operator is in files of RocksDB, timers included."""
    return not has_heap_timers(operator) and is_beside_heap_timers(operator)


def has_heap_timers(operator: OperatorCatalog) -> bool:
    """Whether an operator has raw keyed state, as RocksDB writes timers that are on the heap."""
    return any(subtask.raw_keyed_state for subtask in operator.state.subtasks)


def is_beside_heap_timers(operator: OperatorCatalog) -> bool:
    """Whether all keyed state of an operator is in files of RocksDB, but for timers on the heap.
    Those are raw keyed state. Flink restores it wherever the job keeps its timers.
    """
    handles = (subtask.managed_keyed_state for subtask in operator.state.subtasks)
    return all(
        handle is None or isinstance(handle, IncrementalRemoteKeyedStateHandle)
        for handle in handles
    )


def _is_native(handle: KeyedStateHandle | None) -> bool:
    return isinstance(
        handle,
        KeyGroupsStateHandle | IncrementalRemoteKeyedStateHandle | ChangelogStateBackendHandle,
    )


def folders_of(operators: Iterable[OperatorCatalog], resolver: HandleResolver) -> list[str]:
    """The folders of the files with the state of operators; state inside ``_metadata`` has none."""
    places = (
        resolver.resolve(stream).location
        for operator in operators
        for subtask in operator.state.subtasks
        for stream in subtask.streams()
        if not isinstance(stream, ByteStreamStateHandle | EmptySegmentFileStateHandle)
    )
    return sorted({str(place.parent) for place in places if place is not None})


def files_by_default(source: Snapshot) -> Files:
    """What becomes of native state: a savepoint is copied, for it belongs to nobody else and can
    be moved; files of a checkpoint are shared. Those of a changelog are copied: Flink takes no
    checkpoint of a job with one that restored with NO_CLAIM.
    """
    if any(map(has_log, source.operators)):
        return "copy"
    try:
        kind = checkpoint_kind(source.metadata.properties).name
    except FormatError:
        kind = None
    is_checkpoint = checkpoint_id_of(source.folder.name) is not None
    return "copy" if kind == _SAVEPOINT or (kind is None and not is_checkpoint) else "share"


class KeptState:
    """State of a source that a new snapshot keeps.

    Args:
        source: The snapshot with the state.
        target: Folder of the new snapshot.
        shares: Whether files are shared; otherwise they are copied.
    """

    def __init__(self, source: Snapshot, target: StateFiles, *, shares: bool) -> None:
        self._source = source
        self._target = target
        self._shares = shares
        self._sizes: dict[Location, dict[str, int]] = {}
        self._shared: dict[Location, tuple[int, bool]] = {}
        self._copies: dict[StreamStateHandle, StreamStateHandle] = {}
        if shares and source.folder.scheme != target.folder.scheme:
            raise ConfigError(
                f"Files of {source.folder} cannot be shared by a snapshot on another store: got "
                f"{target.folder}; choose a folder on {source.folder.scheme}, or copy them "
                f"(files='copy', --copy)."
            )

    def of(
        self, operator: OperatorCatalog, state: OperatorState, purge: Purge | None = None
    ) -> OperatorState:
        """The operator's entry for the new snapshot, with all its state, or without what is purged
        from files of RocksDB.
        """
        kept = self.of_stream(operator)

        # Merged lists name folders of the source, which Flink deletes with a claimed snapshot.
        stays = self._shares or self._source.folder == self._target.folder

        def kept_list(handle: OperatorStreamStateHandle | None) -> OperatorStreamStateHandle | None:
            if handle is None or stays:
                return handle and replace(handle, stream=kept(handle.stream))
            if isinstance(handle.stream, EmptySegmentFileStateHandle):
                return None
            return replace(handle, stream=kept(handle.stream), file_merging=None)

        def kept_subtask(subtask: OperatorSubtaskState) -> OperatorSubtaskState:
            listed, raw = subtask.managed_operator_state, subtask.raw_operator_state
            keyed, timers = subtask.managed_keyed_state, subtask.raw_keyed_state
            assert timers is None or isinstance(timers, SnapshotFilesHandle)
            if purge is not None and isinstance(keyed, IncrementalRemoteKeyedStateHandle):
                from dstl_core.savepoint.purge.purged_tables import PurgedTables  # loads kernels

                tables = PurgedTables(purge, operator.snapshot.tables)
                keyed = tables.handle(keyed, kept, self._target)
            elif keyed is not None:
                keyed = self._with_log(keyed, kept)
            return replace(
                subtask,
                managed_operator_state=kept_list(listed),
                raw_operator_state=kept_list(raw),
                managed_keyed_state=keyed,
                # Timers that are left by a purge are written anew.
                raw_keyed_state=None if timers is None or purge else with_streams(timers, kept),
            )

        return replace(state, subtasks=tuple(map(kept_subtask, state.subtasks)))

    def _with_log(self, handle: KeyedStateHandle, kept: Kept) -> KeyedStateHandle:
        """A handle with its streams kept, and the segments of its log."""
        if not isinstance(handle, ChangelogStateBackendHandle):
            assert isinstance(handle, SnapshotFilesHandle)  # ``can_be_kept``
            return with_streams(handle, kept)
        logs: list[ChangelogStateHandle] = []
        for log in handle.non_materialized:
            if isinstance(log, ChangelogStateHandleStream):
                segments = (
                    (self._segment(stream, kept), offset)
                    for stream, offset in log.handles_and_offsets
                )
                log = replace(log, handles_and_offsets=tuple(segments))
            logs.append(log)
        bases = tuple(self._with_log(base, kept) for base in handle.materialized)
        return replace(handle, materialized=bases, non_materialized=tuple(logs))

    def _segment(self, stream: StreamStateHandle, kept: Kept) -> StreamStateHandle:
        """The new handle of a segment, whose file has a byte more than its handle says."""
        source = self._source
        is_there = isinstance(stream, RelativeFileStateHandle) and (
            source.folder == self._target.folder
        )
        if is_there or not isinstance(stream, FileStateHandle | RelativeFileStateHandle):
            return kept(stream)
        if self._shares:
            return self._shared_stream(stream, exact=False)
        if stream not in self._copies:
            location = source.resolver.resolve(stream).location
            size = None if location is None else source.file_io.size(location)
            if location is None or size is None:
                raise StateFileNotFoundError(
                    f"There is no such file: {location}.", path=str(location)
                )
            files = source.file_io
            copy = self._target.add_copy(
                lambda start, end: files.read_bytes(location, start, end), size, (files, location)
            )
            self._target.advance(stream.state_size)
            self._copies[stream] = replace(copy, state_size=stream.state_size)
        return self._copies[stream]

    def of_stream(self, operator: OperatorCatalog) -> Kept:
        """Gives the new handle of each stream of an operator."""
        return partial(self._stream, is_edited=operator.operator_id in self._source.edited)

    def _stream(self, stream: StreamStateHandle, *, is_edited: bool) -> StreamStateHandle:
        target = self._target
        match stream:
            case EmptySegmentFileStateHandle():
                return stream
            case ByteStreamStateHandle(name, data):
                if not is_edited:
                    target.kept.add(name)
                elif len(data) > DATA_INLINE_THRESHOLD:
                    return target.add_stream(data)
                return stream
            case RelativeFileStateHandle(name) if self._source.folder == target.folder:
                target.kept.add(name)
                return stream
        if self._shares:
            return self._shared_stream(stream, exact=not isinstance(stream, SegmentFileStateHandle))
        if stream not in self._copies:
            self._copies[stream] = self._copied(stream)
        return self._copies[stream]

    def _shared_stream(
        self,
        stream: FileStateHandle | RelativeFileStateHandle | SegmentFileStateHandle,
        *,
        exact: bool,
    ) -> StreamStateHandle:
        place = self._source.resolver.resolve(stream)
        assert place.location is not None  # an inline stream has none
        self._check_size(place.location, place.end, exact=exact)
        end, is_whole = self._shared.get(place.location, (0, False))
        self._shared[place.location] = max(end, place.end), is_whole or exact
        if isinstance(stream, RelativeFileStateHandle):
            return FileStateHandle(str(place.location), stream.state_size)
        named = self._source.resolver.places(stream)[0]
        # The path of a file that did not move stays as it is, with its spelling of the scheme.
        return stream if named == place.location else replace(stream, path=str(place.location))

    def _check_size(self, location: Location, end: int, *, exact: bool) -> None:
        """Checks that a file is there. One listing of a folder tells about all its files."""
        folder = location.parent
        if folder not in self._sizes:
            self._sizes[folder] = dict(_sizes_in(self._source.file_io, folder))
        size = self._sizes[folder].get(location.name)
        if size is None:
            size = self._source.file_io.size(location)
        if size is None or size < end or (exact and size > end):
            got = "no file" if size is None else f"{size} bytes"
            raise SavepointError(
                f"The source is damaged, so nothing was published: expected {end} bytes, got {got} "
                f"in {location}; mend the source, or leave the operator out.",
                location=str(self._source.folder),
            )

    def _copied(self, stream: StreamStateHandle) -> StreamStateHandle:
        size = stream.state_size
        read = self._source.resolver.reader(stream, 0, size)
        copy = self._target.add_copy(read, size, whole_file(self._source, stream))
        self._target.advance(size)
        return copy

    def leave_notes(self) -> None:
        """Leaves a note beside the shared files that the new snapshot names them, and looks whether
        they are still there: a collection that had not seen the note may have taken one.

        Raises:
            SavepointError: A file is gone, or a collection deletes files there.
            ConfigError: A pipeline of dstl owns them, which deletes files that no checkpoint of its
                own needs.
        """
        if self._source.folder != self._target.folder:
            files = self._source.file_io
            try:
                leave_notes(files, self._shared, self._target.folder, SystemClock().now_ms())
                self._sizes.clear()
                for location, (end, is_whole) in self._shared.items():
                    self._check_size(location, end, exact=is_whole)
            except (ConfigError, SavepointError, StorageError):
                take_notes_back(files, self._shared, self._target.folder)
                raise


def whole_file(
    snapshot: SnapshotFiles, stream: StreamStateHandle
) -> tuple[FileIO, Location] | None:
    """The file that begins with a stream, and what reads it; None of inline bytes. Whether more is
    behind the stream, only the size of the file shows.
    """
    place = snapshot.resolver.resolve(stream)
    if place.location is None or place.start:
        return None
    return snapshot.file_io, place.location


def _sizes_in(files: FileIO, folder: Location) -> Iterator[tuple[str, int]]:
    for status in files.list_folder(folder):
        if not status.is_folder and not status.is_link:
            yield status.location.name, status.size
