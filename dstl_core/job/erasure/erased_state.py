"""Keyed state of a checkpoint without some keys: only subtasks that hold one are written anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

from dstl_core.job.erasure.left_records import records_of
from dstl_core.job.task.reports import SubtaskReport, encode_state
from dstl_core.job.task.restore import carried
from dstl_core.model.checkpoint import (
    OperatorState,
    OperatorSubtaskState,
    SnapshotFilesHandle,
    with_streams,
)
from dstl_core.model.handle import (
    ChangelogStateBackendHandle,
    FileStateHandle,
    KeyedStateHandle,
    RelativeFileStateHandle,
    StreamStateHandle,
)
from dstl_core.model.ids import OperatorID, OperatorIdentifier
from dstl_core.savepoint.access.units import Jobs
from dstl_core.savepoint.edit.rewriting import Output
from dstl_core.savepoint.edit.savepoint_edit import edit_savepoint
from dstl_core.savepoint.purge.check_purged import check_purged
from dstl_core.savepoint.purge.purge import Purge
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot
from dstl_core.savepoint.read.state_parts import StatesOf, merged_header
from dstl_core.savepoint.verify.read_back import read_back
from dstl_core.savepoint.write.folder import SavepointFolder
from dstl_core.state.columns.progress import no_progress, written_and_read_back
from dstl_core.storage.location import Location

Keys = Mapping[str, Sequence[Any]]
"""Keys by uid of the operator: texts as ``dump`` shows them, or values of columns."""


def purges_of(snapshot: Snapshot, keys: Keys) -> dict[OperatorID, Purge]:
    """What goes from the operators of a snapshot. Those that it lacks have nothing.

    Raises:
        ConfigError: A key is of another type.
    """
    edit = edit_savepoint(snapshot)
    for operator in snapshot.operators:
        if operator.uid in keys and operator.keyed_handles:
            identifier = OperatorIdentifier(operator.operator_id)
            edit = edit.erase_keys(identifier, keys[operator.uid])
    return dict(edit.purges)


def entries_in(snapshot: Snapshot, keys: Keys) -> dict[str, dict[str, int]]:
    """How many entries a snapshot has of keys, by uid of the operator and by state; only of states
    that have some. Of a key that the state has no longer, the log may still have changes.
    """
    counts: dict[str, dict[str, int]] = {}
    purges = purges_of(snapshot, keys)
    for operator in snapshot.operators:
        purge = purges.get(operator.operator_id)
        for handle in operator.keyed_handles if purge is not None else ():
            assert purge is not None
            for state, count in purge.found(operator, handle).items():
                by_state = counts.setdefault(operator.uid or "", {})
                by_state[state] = by_state.get(state, 0) + count
    return counts


def left_in(snapshot: Snapshot, keys: Keys) -> dict[str, int]:
    """How many records the files of a snapshot still have of keys, by uid of the operator, beside
    the entries: changes in logs, and older versions in files of RocksDB. A key that the state has
    no longer is there until the next base, or the next compaction.
    """
    counts: dict[str, int] = {}
    purges = purges_of(snapshot, keys)
    for operator in snapshot.operators:
        purge = purges.get(operator.operator_id)
        if purge is not None:
            count = sum(records_of(operator, purge, each) for each in operator.keyed_handles)
            counts |= {operator.uid or "": count} if count else {}
    return counts


@dataclass
class ErasedState:
    """The keyed state of a checkpoint without keys, as the reports of a new one.

    Args:
        source: The checkpoint.
        keys: The keys.
        folder: Where new files go. They are of no checkpoint until one names them.
        jobs: The number of processes that read keyed state; None: all cores if it is large.
    """

    source: Snapshot
    keys: Keys
    folder: Location
    jobs: Jobs = None
    entries: dict[str, dict[str, int]] = field(default_factory=dict)
    """Entries that went, by uid of the operator and by state."""
    subtasks: int = 0
    """Subtasks whose keyed state was written anew."""
    written_bytes: int = 0

    def reports(self, checkpoint_id: int) -> list[SubtaskReport]:
        """Writes the state of each subtask that holds a key; that of others stays as it is.

        What was written is read back, and the keys are looked for again.

        Raises:
            SavepointError: Something is left of a key, or cannot be read.
        """
        purges = purges_of(self.source, self.keys)
        reports: list[SubtaskReport] = []
        for operator in self.source.operators:
            purge = purges.get(operator.operator_id)
            target = SavepointFolder(str(self.folder))
            new = {} if purge is None else self._written(operator, purge, target)
            files = list(target.written.values())
            for subtask in operator.state.subtasks:
                kept = carried(operator.state, subtask.index, checkpoint_id)
                if subtask.index in new:
                    handle = _above(kept.managed_keyed_state, new[subtask.index])
                    kept = replace(kept, managed_keyed_state=handle)
                state = encode_state(kept)
                reports.append(SubtaskReport(operator.uid, subtask.index, state, written=files))
                files = []
        return reports

    def _written(
        self, operator: OperatorSnapshot, purge: Purge, target: SavepointFolder
    ) -> dict[int, KeyedStateHandle]:
        """The new keyed state of the subtasks that hold a key, with absolute paths."""
        from dstl_core.savepoint.edit import keyed_units as units  # loads kernels

        touched = [
            (subtask.index, subtask.managed_keyed_state)
            for subtask in operator.state.subtasks
            if subtask.managed_keyed_state is not None
            and (
                purge.touches(operator, subtask.managed_keyed_state)
                or records_of(operator, purge, subtask.managed_keyed_state)
            )
        ]
        if not touched:
            return {}
        sources, output = [StatesOf(operator, select=purge)], Output(target, jobs=self.jobs)
        header = merged_header(sources)
        assert header is not None  # it has keys
        header, total = output.header(header, [operator]), operator.max_parallelism
        streams = [
            units.NewStream(
                header, handle.key_group_range, total, handle.state_size, handle, keep_header=True
            )
            for _, handle in touched
        ]
        handles = units.copy_streams(sources, streams, output)
        new = {
            at: handle
            for (at, _), handle in zip(touched, handles, strict=True)
            if handle is not None
        }
        self._prove(operator, purge, target, new)
        if purge.counts.total():
            self.entries[operator.uid or ""] = dict(purge.counts)
        self.subtasks += len(new)
        self.written_bytes += sum(handle.state_size for handle in new.values())
        return {at: _absolute(handle, self.folder) for at, handle in new.items()}

    def _prove(
        self,
        operator: OperatorSnapshot,
        purge: Purge,
        target: SavepointFolder,
        new: Mapping[int, Any],
    ) -> None:
        """Reads what was written, and looks for the keys again."""
        subtasks = tuple(
            OperatorSubtaskState(at, managed_keyed_state=handle) for at, handle in new.items()
        )
        state: OperatorState = replace(operator.state, uid=operator.uid, subtasks=subtasks)
        _, reading = written_and_read_back(no_progress, 1)
        metadata = replace(self.source.metadata, operators=(state,))
        stored, _ = read_back(target, metadata, self.source, reading, jobs=self.jobs)
        check_purged(stored[f"hash:{operator.operator_id.hex}"], purge)


def _above(old: KeyedStateHandle | None, base: KeyedStateHandle) -> KeyedStateHandle:
    """A new base, in place of the base and the log of a changelog."""
    if not isinstance(old, ChangelogStateBackendHandle):
        return base
    return replace(
        old,
        materialized=(base,),
        non_materialized=(),
        materialization_id=old.materialization_id + 1,
        checkpointed_size=base.state_size,
        state_handle_id=str(uuid4()),
    )


def _absolute(handle: SnapshotFilesHandle, folder: Location) -> KeyedStateHandle:
    """A handle whose files other checkpoints can name, too."""

    def named(stream: StreamStateHandle) -> StreamStateHandle:
        if not isinstance(stream, RelativeFileStateHandle):
            return stream
        place = folder.child(stream.relative_path)
        return FileStateHandle(str(place), stream.state_size)

    return with_streams(handle, named)
