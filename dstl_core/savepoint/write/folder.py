"""Writes the folder of a savepoint: state files first, ``_metadata`` last."""

from __future__ import annotations

import copy
import hashlib
import os
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Literal, get_args

from dstl_core.checkpoint.store.metadata_file import (
    metadata_digest,
    publish_metadata_file,
    read_sidecar,
    replace_metadata_file,
)
from dstl_core.codec.operator_state import OperatorStream
from dstl_core.errors import ConfigError, SnapshotExistsError
from dstl_core.model.checkpoint import CheckpointMetadata
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    IncrementalRemoteKeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
    OperatorStreamStateHandle,
    RelativeFileStateHandle,
    StreamStateHandle,
)
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.write.work_record import FileNames, WorkRecord
from dstl_core.state.columns.progress import Advance, no_progress
from dstl_core.state.tables.keyed_state import KeyedState
from dstl_core.state.tables.raw_sections import RawSections
from dstl_core.storage.file_io import Content, FileIO, FsspecFileIO, check_publishes
from dstl_core.storage.location import METADATA_FILE_NAME, SIDECAR_FILE_NAME, Location
from dstl_core.storage.written_files import DigestingFileIO, WrittenFile, sha256_of

if TYPE_CHECKING:
    from dstl_core.codec.columnar.keyed.record_digests import StateDigest
    from dstl_core.state.columns.keyed_sections import KeyedStream

DATA_INLINE_THRESHOLD = 20 * 1024
"""Streams up to this size are stored inside ``_metadata`` (Flink's default)."""

_COPIED_BYTES = 8 << 20
"""How much of a stream is in memory while it is copied."""

_RECORDED_COPY_BYTES = 1 << 20
"""A smaller copy is made again after a kill."""

KnownFiles = Mapping[str, Sequence[Any]]
"""Size and sha256 of files, by name, and those of the first buffer where they are known."""
Mode = Literal["error", "overwrite"]
KeyedForm = Literal["canonical", "native"]
"""The form of keyed state: ``canonical`` is for every state backend, ``native`` is the files of
RocksDB, which Flink restores without writing each record anew.
"""
RUN_KEY = "run_key"

StoredKeyedHandle = KeyGroupsSavepointStateHandle | IncrementalRemoteKeyedStateHandle


def checked_form(form: KeyedForm) -> KeyedForm:
    """A form of keyed state.

    Raises:
        ConfigError: It is another word.
    """
    if form not in get_args(KeyedForm):
        raise ConfigError(
            f"format is wrong: expected {' or '.join(get_args(KeyedForm))}, got {form!r}."
        )
    return form


class StateFiles:
    """The state files of a folder.

    Every file has a unique name, so tasks that run twice leave only unreferenced files. With a
    record, a run that goes on uses the same names again.

    Args:
        path: The folder.
        file_io: File IO of the folder; by default it follows from the scheme.
        form: The form of keyed state that is added.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        file_io: FileIO | None = None,
        form: KeyedForm = "canonical",
    ) -> None:
        self.form = checked_form(form)
        self.folder = Location.parse(path)
        self._digesting = DigestingFileIO(self.folder.scheme)
        self.file_io: FileIO = self._digesting if file_io is None else file_io
        self._reported: dict[str, WrittenFile] = {}
        self.advance: Advance = no_progress
        """Called with the bytes of other snapshots that are done."""
        self.copied: dict[str, int] = {}
        """Names of streams whose bytes are those of another snapshot, with their sizes."""
        self.copied_by_store: set[str] = set()
        """Those of them whose bytes never came here."""
        self.copied_records: dict[StoredKeyedHandle, Mapping[str, StateDigest]] = {}
        """Keyed state whose records are those of another snapshot, byte for byte, with the digest
        of what was read of each state.
        """
        self.kept: set[str] = set()
        """Names of files of the folder that were there before, and belong to the new snapshot."""
        self.names = FileNames()
        self.record: WorkRecord | None = None
        self.lists_are_inline = False
        """Whether headers and MANIFESTs of native state are in no file of their own."""
        self.heap_timers: dict[KeyGroupRange, KeyGroupsStateHandle] | None = None
        """Timers beside native state that was added, by the key groups of their subtask; None while
        timers go into RocksDB's files.
        """

    def of_tables(self) -> StateFiles:
        """The same files, for native keyed state that becomes a part of another handle: only its
        table files are stored.
        """
        files = copy.copy(self)
        files.form, files.lists_are_inline = "native", True
        return files

    def of_thread(self) -> StateFiles:
        """The same files for another thread, with names of its own."""
        files = copy.copy(self)
        files.names = self.names.part()
        return files

    def at(self, number: int) -> StateFiles:
        """The same files, for a part of the work that has begun: another process, or this one,
        writes it in any order.
        """
        part = copy.copy(self)
        part.names = self.names.at(number)
        part.heap_timers = None if self.heap_timers is None else {}
        return part

    def elsewhere(self) -> StateFiles:
        """The same folder for other processes, which tell this one what they have written
        (``known``, ``learn_known``).
        """
        files = StateFiles(str(self.folder), form=self.form)
        files.names, files.lists_are_inline = self.names, self.lists_are_inline
        files.heap_timers = self.heap_timers
        files.record = None if self.record is None else self.record.elsewhere()
        return files

    def with_record(self, record: WorkRecord) -> None:
        """Goes on with the files of the record, or begins its first ones."""
        self.record, self.names = record, record.names

    @property
    def written(self) -> Mapping[str, WrittenFile]:
        """Size and sha256 of the files that were written here or passed to ``learn``, by path."""
        return {**self._reported, **self._digesting.written}

    def is_stored(self, name: str) -> bool:
        """Whether a file has the bytes that were written, as far as they are known.

        Raises:
            StorageError: It cannot be read.
        """
        location = self.folder.child(name)
        holds = self._digesting.holds(location)
        if holds is None:
            known = self.written.get(str(location))
            holds = sha256_of(self.file_io, location) == known.sha256 if known else True
        return holds

    def has_head(self, name: str) -> bool:
        """Whether a file starts with the header that was written here, as its digest shows."""
        location = self.folder.child(name)
        head = self._digesting.heads.get(str(location))
        if head is None or (self.file_io.size(location) or 0) < head.size:
            return False
        stored = self.file_io.read_bytes(location, 0, head.size)
        return hashlib.sha256(stored).hexdigest() == head.sha256

    def learn(self, files: Iterable[WrittenFile]) -> None:
        """Adds files that tasks in other processes have written into the folder."""
        self._reported.update((each.path, each) for each in files)

    def add_stream(self, data: bytes, *, is_copy: bool = False) -> StreamStateHandle:
        """Stores the bytes of a stream, inline or in a file of the folder. ``is_copy`` says that
        they are the bytes of another snapshot.
        """
        return self.add_parts([data], is_copy=is_copy)

    def add_parts(self, parts: Sequence[bytes], *, is_copy: bool = False) -> StreamStateHandle:
        """As ``add_stream``, with the bytes in parts, which are not put together."""
        name, size = self.names.new(), sum(map(len, parts))
        if is_copy:
            self.copied[name] = size
        if size <= DATA_INLINE_THRESHOLD:
            return ByteStreamStateHandle(name, b"".join(parts))
        self._write(name, parts)
        return RelativeFileStateHandle(name, size)

    def add_mended(self, parts: Iterable[bytes], size: int) -> StreamStateHandle:
        """Stores a table file that has most of its bytes from another snapshot, part by part.
        Its blocks have checksums, so it gets no digest.

        Args:
            parts: The bytes, which are taken once.
            size: How many they are.
        """
        if size <= DATA_INLINE_THRESHOLD:
            return self.add_stream(b"".join(parts), is_copy=True)
        name = self.names.new()
        self.copied[name] = size
        self._write(name, parts, is_self_checking=True)
        return RelativeFileStateHandle(name, size)

    @property
    def goes_on_in_streams(self) -> bool:
        """Whether a run after a kill goes on with a stream of keyed state that was begun: what was
        written of it is there.
        """
        is_local = self.file_io is self._digesting and self._digesting.goes_on
        return is_local and self.form == "canonical"

    def _write_stream(self, name: str, data: Content) -> None:
        if self.record is None or not self.goes_on_in_streams:
            self._write(name, data)
            return
        location = self.folder.child(name)
        self._digesting.write_over(location, data, is_begun=self.record.continues)

    def _write(self, name: str, data: Content, *, is_self_checking: bool = False) -> None:
        location = self.folder.child(name)
        if self.record is not None and self.record.continues:
            self.file_io.delete(location)  # what a killed run or process has begun
        if is_self_checking and self.file_io is self._digesting:
            self._digesting.write_self_checking(location, data)
        else:
            self.file_io.write_new(location, data)

    def add_copy(
        self,
        read: Callable[[int, int], bytes],
        size: int,
        whole: tuple[FileIO, Location] | None = None,
    ) -> RelativeFileStateHandle:
        """Copies a stream of another snapshot into a file of the folder, in parts; or lets the
        store copy it.

        Args:
            read: Reads the bytes ``[start, end)`` of the stream.
            size: Bytes of the stream.
            whole: The file that is the stream, and what reads it; None if it is a part of a file.
        """
        name = self.names.new()
        self.copied[name] = size
        if whole is not None and self._copied_by_store(name, size, *whole):
            self.copied_by_store.add(name)
            return RelativeFileStateHandle(name, size)
        entry = f"copy-{name}"
        if not self.holds(self._files_of(entry)):
            starts = range(0, size, _COPIED_BYTES)
            parts = (read(start, min(start + _COPIED_BYTES, size)) for start in starts)
            self._write(name, parts)
            if self.record is not None and size >= _RECORDED_COPY_BYTES:
                self.record.entries.keep(entry, {"files": self.known([name])})
        return RelativeFileStateHandle(name, size)

    def _copied_by_store(self, name: str, size: int, files: FileIO, source: Location) -> bool:
        target = self.folder.child(name)
        if not isinstance(self.file_io, FsspecFileIO):
            return False
        if not self.file_io.copied_by_store(files, source, target, size):
            return False
        known = self.written.get(str(source))
        if known is not None:
            self.learn([WrittenFile(str(target), size, known.sha256)])
        return True

    def _files_of(self, entry: str) -> KnownFiles | None:
        if self.record is None or not self.record.continues:
            return None
        kept = self.record.entries.get(entry)
        return None if kept is None else kept.facts["files"]

    def known(self, names: Iterable[str]) -> KnownFiles:
        """What is known of files that were written here."""
        written, files = self.written, dict[str, list[Any]]()
        for name in names:
            path = str(self.folder.child(name))
            head = self._digesting.heads.get(path)
            parts = [written[path], *([] if head is None else [head])]
            files[name] = [figure for part in parts for figure in (part.size, part.sha256)]
        return files

    def learn_known(self, files: KnownFiles) -> None:
        """Adds files that another process, or an earlier run, has written into the folder."""
        for name, (size, digest, *head) in files.items():
            path = str(self.folder.child(name))
            self._reported[path] = WrittenFile(path, size, digest)
            if head:
                self._digesting.heads[path] = WrittenFile(path, *head)

    def holds(self, files: KnownFiles | None) -> bool:
        """Whether files that an earlier run has written are here, with the size and the sha256 that
        they had; if so, they count as written.
        """
        if files is None:
            return False
        for name, (size, digest, *_) in files.items():
            location = self.folder.child(name)
            if self.file_io.size(location) != size or sha256_of(self.file_io, location) != digest:
                if self.record is not None:
                    self.record.keeps_checks = False
                return False
        self.learn_known(files)
        return True

    def drop_other_tries(self, numbers: Container[int], files: Container[str]) -> None:
        """Deletes what tries of tasks have written that lost, or were ended.

        Args:
            numbers: Parts of the work, which are done.
            files: The names of their files.
        """
        for status in self.file_io.list_folder(self.folder):
            name = status.location.name
            if name not in files and self.names.is_in(name, numbers):
                self.file_io.delete(status.location)

    def discard(self) -> None:
        """Deletes what was written here, after a refusal: nothing names it."""
        for status in self.file_io.list_folder(self.folder):
            if self.names.has(status.location.name):
                self.file_io.delete(status.location)

    def add_keyed_state(self, state: KeyedState) -> StoredKeyedHandle | None:
        if self.form == "native":
            sections = state.raw_sections()
            return None if sections is None else self._native(sections)
        raw, offsets = state.write_canonical()
        return KeyGroupsSavepointStateHandle(offsets, self.add_stream(raw)) if raw else None

    def add_keyed_stream(
        self, stream: KeyedStream, *, keep_header: bool = False
    ) -> StoredKeyedHandle | None:
        """Stores a stream of keyed state while it is built.

        None if the stream has no record, unless ``keep_header`` keeps its list of states. Memory
        is bounded by a section.
        """
        if self.form == "native":
            sections = stream.raw_sections()
            start = [*islice(sections, 1)]
            if not start and not keep_header:
                return None
            rest = chain(start, sections)
            return self._native(
                RawSections(stream.header, stream.key_groups, stream.prefix_bytes, rest)
            )
        parts, first = iter(stream), []
        for part in parts:
            first.append(part)
            if not stream.is_empty and stream.size > DATA_INLINE_THRESHOLD:
                name = self.names.new()
                self._write_stream(name, chain(first, parts))
                kept = RelativeFileStateHandle(name, stream.size)
                return KeyGroupsSavepointStateHandle(stream.offsets, kept)
        if stream.is_empty and not keep_header:
            return None
        return KeyGroupsSavepointStateHandle(stream.offsets, self.add_stream(b"".join(first)))

    def _native(self, state: RawSections) -> IncrementalRemoteKeyedStateHandle | None:
        from dstl_core.state.backends.native_state import native_state  # loads the compiler

        if self.heap_timers is None:
            return native_state(state, self.add_parts, self._add_list)
        from dstl_core.state.backends.heap_timers import HeapTimers  # loads the compiler

        heap = HeapTimers(state)
        handle = native_state(state, self.add_parts, self._add_list, heap)
        timers = heap.handle(self.add_stream)
        if timers is not None:
            self.heap_timers[state.key_groups] = timers
        # Flink writes no files without states.
        return None if all(map(heap.has, range(len(state.header.states)))) else handle

    def _add_list(self, parts: Sequence[bytes]) -> StreamStateHandle:
        if self.lists_are_inline:
            return ByteStreamStateHandle(self.names.new(), b"".join(parts))
        return self.add_parts(parts)

    def add_operator_state(self, state: OperatorStream | None) -> OperatorStreamStateHandle | None:
        """Stores the operator state of one subtask; None without such state."""
        if state is None:
            return None
        raw, infos = state
        return OperatorStreamStateHandle(infos, self.add_stream(raw)) if infos else None


class SavepointFolder(StateFiles):
    """A savepoint that is being written.

    Args:
        path: Folder of the savepoint.
        file_io: File IO of the folder; by default it follows from the scheme.
        mode: ``error`` refuses a folder that holds a snapshot. ``overwrite`` replaces that snapshot
            in one step, and leaves its state files to ``dstl gc``.
        run_key: Identifies the run that writes. If the same run has already written the snapshot in
            the folder, ``is_finished`` is true.
        form: The form of keyed state that is added.

    Raises:
        ConfigError: The store has no way to publish the snapshot.
        SnapshotExistsError: The folder already holds a snapshot.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        file_io: FileIO | None = None,
        *,
        mode: Mode = "error",
        run_key: str | None = None,
        form: KeyedForm = "canonical",
    ) -> None:
        super().__init__(path, file_io, form)
        if mode not in get_args(Mode):
            raise ConfigError(
                f"mode is wrong: expected {' or '.join(get_args(Mode))}, got {mode!r}."
            )
        if file_io is None:
            check_publishes(self.folder)
        self._run_key = run_key
        self._replaces = mode == "overwrite"
        self.is_finished = False
        has_metadata = self.file_io.size(self.folder.child(METADATA_FILE_NAME)) is not None
        if run_key is not None and self._run_key_there() == run_key:
            # The same run continues its own unfinished snapshot.
            self.is_finished, self._replaces = has_metadata, True
        elif not self._replaces:
            self._refuse(has_metadata)

    def _run_key_there(self) -> object:
        sidecar = read_sidecar(self.file_io, self.folder)
        return None if sidecar is None else sidecar.notes.get(RUN_KEY)

    def _refuse(self, has_metadata: bool) -> None:
        has_sidecar = self.file_io.size(self.folder.child(SIDECAR_FILE_NAME)) is not None
        if has_metadata or has_sidecar:
            what = "A snapshot is already" if has_metadata else "An unfinished snapshot is"
            occupant = f"{what} there: {self.folder}"
            raise SnapshotExistsError(
                f"{occupant}; choose another folder, remove it, or use mode='overwrite'.",
                found=occupant,
            )

    def publish(self, metadata: CheckpointMetadata, notes: Mapping[str, Any]) -> str:
        """Publishes the savepoint; returns its path."""
        known = dict(notes) | ({} if self._run_key is None else {RUN_KEY: self._run_key})
        if self.record is not None:
            self.record.will_publish(metadata_digest(metadata))
        if self._replaces:
            replace_metadata_file(self.file_io, self.folder, metadata, known, self.written)
        else:
            publish_metadata_file(self.file_io, self.folder, metadata, known, self.written)
        return str(self.folder)
