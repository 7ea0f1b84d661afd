"""Writes a savepoint from another one: the one engine behind edits, upgrades and migrations.

An author plans a step for each operator, and the engine does the rest in the same way for all: it
takes the folder, writes operator by operator, reads back what it wrote, and publishes.
"""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dstl_core.checkpoint.store.metadata_file import metadata_sha256
from dstl_core.clock import Clock, SystemClock
from dstl_core.codec.metadata.checkpoint_kind import checkpoint_kind
from dstl_core.codec.metadata.savepoint_properties import savepoint_properties
from dstl_core.codec.state_meta import KeyedBackendHeader
from dstl_core.errors import (
    ColumnValueError,
    ConfigError,
    FormatError,
    RestoreError,
    SavepointError,
)
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from dstl_core.model.handle import KeyGroupsStateHandle
from dstl_core.model.key_group import KeyGroupRange, compute_key_group_range_for_operator_index
from dstl_core.savepoint.access.thread_runner import ThreadRunner
from dstl_core.savepoint.access.units import Jobs, jobs_for
from dstl_core.savepoint.edit.kept_state import Files, KeptState
from dstl_core.savepoint.edit.trial import Forecast, Trial, TriedFiles, check_room
from dstl_core.savepoint.read.operator_catalog import OperatorCatalog
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.savepoint.verify.read_back import read_back
from dstl_core.savepoint.verify.verify import Report
from dstl_core.savepoint.write.folder import KeyedForm, Mode, SavepointFolder, StateFiles
from dstl_core.savepoint.write.source_files import SourceFiles
from dstl_core.savepoint.write.work_record import open_record, plan_digest
from dstl_core.state.columns.progress import Advance, no_progress, written_and_read_back
from dstl_core.storage.location import Location

_LOG = logging.getLogger(__name__)
RECORDED_FROM_BYTES = 256 << 20
"""A rewriting that reads this much or more can be resumed; a smaller one takes seconds."""
_REFUSALS = (ColumnValueError, ConfigError, FormatError, RestoreError, SavepointError)
"""What a second run would say again, so nothing of the first one is kept."""


@dataclass(frozen=True)
class Output:
    """Where a step writes.

    Args:
        target: Folder of the new files.
        kept: Keeps state in the form that it has; None where all state is written anew.
        jobs: The number of processes that was asked for; None leaves it to the size.
        keep_compression: Whether key groups are compressed as those of the source are.
        trial: Takes a few units in place of all: nothing is written.
    """

    target: StateFiles
    kept: KeptState | None = None
    jobs: Jobs = 1
    keep_compression: bool = False
    trial: Trial | None = None

    def header(
        self, header: KeyedBackendHeader, sources: Iterable[OperatorCatalog]
    ) -> KeyedBackendHeader:
        """The header of streams that are written anew. Their key groups are compressed, because
        Flink reads a plain stream in tiny pieces.
        """
        compressed = self.target.form == "canonical"
        if compressed and self.keep_compression:
            compressed = any(operator.compresses_key_groups for operator in sources)
        return replace(header, compressed=compressed)


@dataclass(frozen=True)
class OperatorStep:
    """Writes one operator of the result.

    Args:
        label: Its name in messages.
        write: Writes its state, and gives its entry of the new metadata.
        has_heap_timers: Whether its timers were on the heap: in native form, they stay there.
    """

    label: str
    write: Callable[[Output], OperatorState]
    has_heap_timers: bool = False

    def written(self, output: Output) -> OperatorState:
        """Writes its state and its timers, and gives its entry of the new metadata."""
        timers: dict[KeyGroupRange, KeyGroupsStateHandle] = {}
        target = output.target
        target.heap_timers = timers if self.has_heap_timers else None
        state = self.write(output)
        return replace(state, subtasks=tuple(_with_timers(state, timers))) if timers else state


def _with_timers(
    state: OperatorState, timers: Mapping[KeyGroupRange, KeyGroupsStateHandle]
) -> Iterator[OperatorSubtaskState]:
    for subtask in state.subtasks:
        key_groups = compute_key_group_range_for_operator_index(
            state.max_parallelism, state.parallelism, subtask.index
        )
        yield replace(subtask, raw_keyed_state=timers.get(key_groups))


def _accept(stored: Snapshot, target: SavepointFolder, report: Report) -> None:
    """Has nothing to add to what was read back."""


@dataclass(frozen=True)
class RewritingPlan:
    """A savepoint to write.

    Args:
        kind: What it is, for its notes.
        source: The snapshot that the state is from; None for state that is all new.
        source_size: Bytes of the source that are read.
        steps: The operators.
        metadata: Makes the metadata of the written operators.
        files: What becomes of state that does not change.
        shares_files_in: Folders of files that the result needs.
        counts: Records that steps have written, by operator and state, as far as they are known.
        check: Looks at what was read back, before it is published; raises if it is wrong.
        form: The form of keyed state that is written.
        threads: Threads of this process that read back table files, where one process does it.
        plan: What decides the bytes beside the source, as JSON values, so that a run after a kill
            goes on only with its own work; None for what cannot be resumed.
        facts: Gives further facts for its notes, once it is written.
    """

    kind: str
    source: Snapshot | None
    source_size: int
    steps: Sequence[OperatorStep]
    metadata: Callable[[tuple[OperatorState, ...]], CheckpointMetadata]
    files: Files = "canonical"
    shares_files_in: Sequence[str] = ()
    counts: Mapping[tuple[str, str], int] = field(default_factory=dict)
    check: Callable[[Snapshot, SavepointFolder, Report], None] = _accept
    form: KeyedForm = "canonical"
    threads: int = 1
    plan: Any = None
    facts: Callable[[], Mapping[str, Any]] = dict

    def write(
        self,
        path: str | os.PathLike[str],
        mode: Mode = "error",
        run_key: str | None = None,
        on_progress: Advance = no_progress,
        jobs: Jobs = 1,
        keep_compression: bool = False,
    ) -> str:
        """As ``SavepointRewriter.write``. After a kill, the same call goes on with what is whole. A
        refusal leaves no file.

        Raises:
            SavepointError: The folder holds a snapshot or unfinished work of another plan, another
                run writes there, or what is stored is not what was written.
        """
        folder = Location.parse(path)
        source = "" if self.source is None else self.source.file.sha256
        decided = [self.kind, self.form, self.files, keep_compression, self.plan]
        plan = None if self.plan is None else plan_digest(decided)
        if folder.scheme == "memory":
            jobs = 1  # what another process writes there is not here
        record = open_record(folder, source, plan, begins=self._is_recorded(jobs))
        target, is_done = None, False
        try:
            if record is not None:
                published = metadata_sha256(record.entries.file_io, folder)
                is_done = published is not None and published == record.published
                if is_done:
                    return str(folder)
            files = None if self.source is None else SourceFiles(self.source)
            if record is not None:
                if files is not None:
                    files.keep_in(record.entries)
                if record.continues and published is None:
                    mode = "overwrite"  # of what the killed run has published beside it
            target = SavepointFolder(path, mode=mode, run_key=run_key, form=self.form)
            if record is not None:
                target.with_record(record)
            if not target.is_finished:
                self._write(target, files, on_progress, jobs, keep_compression)
            is_done = True
            return str(target.folder)
        except _REFUSALS:
            if target is None:
                is_done = record is not None and not record.continues  # nothing was done
                raise
            if record is not None:
                record.check_owner()  # the files may be those of another run by now
            is_done = True
            target.discard()
            raise
        finally:
            if record is not None:
                record.close(is_done=is_done)

    def _is_recorded(self, jobs: Jobs) -> bool:
        """Whether units are kept while it is written. Processes share a stream by its record."""
        is_shared = jobs_for(self.source_size, jobs) != 1  # a wrong number is refused first
        return is_shared or (self.plan is not None and self.source_size >= RECORDED_FROM_BYTES)

    def _write(
        self,
        target: SavepointFolder,
        files: SourceFiles | None,
        on_progress: Advance,
        jobs: Jobs,
        keep_compression: bool,
    ) -> None:
        writing, reading = written_and_read_back(on_progress, self.source_size)
        target.advance = writing.add
        kept = self._kept(target)
        output, states = Output(target, kept, jobs, keep_compression), []
        for step in self.steps:
            _LOG.info("%s: operator %s", target.folder, step.label)
            target.names.begin()
            states.append(step.written(output))
        writing.finish()
        metadata = self._of_form(self.metadata(tuple(states)))
        readers = self._readers(jobs)
        stored, report = read_back(target, metadata, self.source, reading, self.counts, readers)
        if files is not None:
            files.check()
        self.check(stored, target, report)
        if kept is not None:
            kept.leave_notes()
        target.publish(metadata, self._facts())

    def _readers(self, jobs: Jobs) -> Jobs:
        """What reads back. A canonical stream is read in its order, because of its digest."""
        by_threads = jobs == 1 and self.threads > 1 and self.form == "native"
        return ThreadRunner(self.threads) if by_threads else jobs

    def _of_form(self, metadata: CheckpointMetadata) -> CheckpointMetadata:
        """Metadata whose properties say which form the keyed state of a savepoint has now."""
        if self.form == "canonical" and self.files != "canonical":
            return metadata  # state has the form that it had
        before, now = checkpoint_kind(metadata.properties).format, self.form.upper()
        if before in (None, now):
            return metadata
        return replace(metadata, properties=savepoint_properties(now))

    def _kept(self, target: StateFiles) -> KeptState | None:
        if self.source is None:
            return None
        target.learn(self.source.file.written.values())  # of files that stay where they are
        if self.files == "canonical":
            return None
        return KeptState(self.source, target, shares=self.files == "share")

    def forecast(
        self,
        path: str | os.PathLike[str],
        mode: Mode = "error",
        jobs: Jobs = 1,
        keep_compression: bool = False,
        clock: Clock | None = None,
    ) -> Forecast:
        """Says what ``write`` takes. It does a few units of each operator, and writes nothing.

        Raises:
            SnapshotExistsError: The folder holds a snapshot.
            StorageError: There is no room for the output or for temporary files.
        """
        SavepointFolder(path, mode=mode)  # refuses what ``write`` refuses
        files = TriedFiles(path, self.form)
        trial = Trial(clock or SystemClock(), files)
        output = Output(files, self._kept(files), jobs, keep_compression, trial)
        for step in self.steps:
            step.written(output)
        told = trial.forecast(self.source_size, jobs, is_recorded=self._is_recorded(jobs))
        check_room(files.folder, told.written + told.beside)
        return told

    def _facts(self) -> dict[str, Any]:
        if self.source is None:
            return {"kind": self.kind}
        facts: dict[str, Any] = {
            "kind": self.kind,
            "source": str(self.source.folder),
            "source_sha256": self.source.file.sha256,
            **self.facts(),
        }
        shared = list(self.shares_files_in)
        return facts | ({"shares_files_in": shared} if shared else {})


class SavepointRewriter(ABC):
    """What writes a savepoint by a ``RewritingPlan``: an edit, an upgrade, a migration."""

    @property
    @abstractmethod
    def source_size(self) -> int:
        """Bytes of state that ``write`` reads."""

    @abstractmethod
    def _rewriting(self) -> RewritingPlan:
        """The plan. Raises: SavepointError: It has problems."""

    def write(
        self,
        path: str | os.PathLike[str],
        mode: Mode = "error",
        run_key: str | None = None,
        on_progress: Advance = no_progress,
        jobs: Jobs = 1,
        keep_compression: bool = False,
    ) -> str:
        """Writes the savepoint and returns its path. It becomes visible when it is complete and was
        read back. The source does not change.

        Args:
            path: Folder of the savepoint. An edit may write over its source, with ``overwrite``:
                then state that did not change is not rewritten.
            mode: ``error`` refuses a folder with a snapshot; ``overwrite`` replaces it in one step.
            run_key: Names the run. A second write under the same key does nothing.
            on_progress: Called with the bytes of the source that are done; ``source_size`` in all.
                Half of them count when they are written, the rest when they were read back.
            jobs: Number of processes that read keyed state; None: all cores if it is large.
            keep_compression: Whether key groups that are written anew are compressed as those of
                the source are; by default they are.

        Raises:
            SavepointError: The plan has problems; or the folder holds a snapshot; or what is stored
                is not what was written.
            UnreadableValueError: A value cannot be converted; the message says which state.
            ColumnValueError: Values do not fit; nothing is published.
        """
        return self._rewriting().write(path, mode, run_key, on_progress, jobs, keep_compression)

    def forecast(
        self,
        path: str | os.PathLike[str],
        mode: Mode = "error",
        jobs: Jobs = 1,
        keep_compression: bool = False,
    ) -> Forecast:
        """Says what ``write`` takes: bytes, memory, temporary files, time. It does a few units of
        each operator, and writes nothing.

        Raises:
            SnapshotExistsError: The folder holds a snapshot.
            StorageError: There is no room for the output or for temporary files.
        """
        return self._rewriting().forecast(path, mode, jobs, keep_compression)
