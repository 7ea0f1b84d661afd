"""Erases keys from all that a pipeline keeps: state, logs, stored output, local copies, savepoints.

The state without the keys is one commit. Then earlier checkpoints, and files of runs that have
died, are deleted; rows of stored output are left out file by file. Each of these steps may be
interrupted: the same call again does what is left.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from dstl_core.cached_property import cached_property
from dstl_core.checkpoint.coordination.pending import OperatorPlan
from dstl_core.checkpoint.store.epoch_facts import EpochFacts
from dstl_core.checkpoint.store.pipeline_store import PipelineStore
from dstl_core.clock import Clock, SystemClock
from dstl_core.codec.serializers import BUILT_IN, SerializerRegistry
from dstl_core.display import command_text
from dstl_core.errors import (
    CheckpointError,
    ConfigError,
    FormatError,
    PathNotAllowedError,
    SavepointError,
    StateFileNotFoundError,
    StorageError,
)
from dstl_core.job.coordination.job_coordinator import JobCoordinator
from dstl_core.job.erasure.erased_rows import ErasedRows
from dstl_core.job.erasure.erased_state import ErasedState, Keys, entries_in, left_in, purges_of
from dstl_core.job.task.local_copies import drop_copies_of
from dstl_core.model.ids import JobID
from dstl_core.savepoint.access.units import Jobs
from dstl_core.savepoint.edit.savepoint_edit import edit_savepoint
from dstl_core.savepoint.gc import collect_garbage
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import METADATA_FILE_NAME, Location

_LOG = logging.getLogger(__name__)
ERASED_NOTE = "erased"
"""The note of the commit: how many entries went, by operator and state."""
_TIMEOUT_MS = 7 * 24 * 3_600_000
"""How long an erasure may take to write the state."""
_CLOCKS_APART_MS = 24 * 3_600_000
"""How far the clock of a storage may be ahead of this one."""
Entries = Mapping[str, Mapping[str, int]]
"""Numbers of entries, by uid of the operator and by state."""


@dataclass(frozen=True)
class KeyTraces:
    """Where a pipeline has something of some keys, without the keys.

    Args:
        keys: How many keys were looked for, by uid of the operator.
        entries: Entries in the latest state.
        records: Changes in its logs, and older versions in its files of RocksDB, by uid of the
            operator: also of keys that the state has no longer.
        earlier: Ids of earlier checkpoints that have some, and of those that cannot be read.
        rows: Rows of stored output, by name of the output.
        savepoints: Entries in each savepoint that was named.
        unread: Savepoints that the commit log names, and that were not looked at.
    """

    keys: Mapping[str, int]
    entries: Entries = field(default_factory=dict)
    records: Mapping[str, int] = field(default_factory=dict)
    earlier: Sequence[str] = ()
    rows: Mapping[str, int] = field(default_factory=dict)
    savepoints: Mapping[str, Entries] = field(default_factory=dict)
    unread: Sequence[str] = ()

    @property
    def is_nothing(self) -> bool:
        """Whether no key was found anywhere."""
        in_state = self.entries or self.records
        return not (in_state or self.earlier or self.rows or self.savepoints)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Erasure:
    """What was erased, without the keys.

    Args:
        traces: What there was.
        checkpoint: Id of the commit without the keys; None if the latest state had none of them.
        subtasks: Subtasks whose keyed state was written anew.
        written_bytes: Bytes of these.
        files: Files of stored output that were replaced.
        swept: Files and folders of runs that had died.
        copies: Local copies of state that were deleted on this machine.
    """

    traces: KeyTraces
    checkpoint: int | None = None
    subtasks: int = 0
    written_bytes: int = 0
    files: int = 0
    swept: int = 0
    copies: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def _may_work(run_id: str) -> bool:
    """Takes each run that holds a lease for one that works."""
    return True


@dataclass(frozen=True)
class PipelineKeys:
    """Keys of a pipeline, to be found or erased in all that it keeps.

    Args:
        folder: The folder of the pipeline.
        keys: Keys by uid of the operator, or those of each operator with keyed state: texts as
            ``dump`` shows them, or values of columns.
        output_columns: The columns of stored output that have the key, by uid of the operator; by
            default its key column.
        drop_outputs: Whether all rows go of stored output without such a column.
        savepoints: Savepoints of the pipeline that count as well.
        local_copies: The folder of local copies of state on this machine; None: the usual one.
        jobs: The number of processes that read keyed state; None: all cores if it is large.
        serializers: The registry of types.
        clock: The clock; the system's by default.
    """

    folder: str
    keys: Keys | Iterable[Any]
    output_columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    drop_outputs: bool = False
    savepoints: Sequence[str] = ()
    local_copies: str | None = None
    jobs: Jobs = None
    serializers: SerializerRegistry = BUILT_IN
    clock: Clock = field(default_factory=SystemClock)

    @cached_property
    def store(self) -> PipelineStore:
        return PipelineStore.in_folder(self.folder, clock=self.clock)

    def find(self) -> KeyTraces:
        """Looks for the keys, and changes nothing.

        Raises:
            ConfigError: A key is of another type, or stored output has no column with it.
            NoSuchOperatorError: The pipeline has no operator of a uid.
            SavepointError: A checkpoint may need files that the pipeline has claimed from Flink.
        """
        source = self._latest()
        try:
            keys = self._keys_of(source)
            earlier = [*self._earlier(keys)]
            for gone in self.store.claimed_and_gone():
                self._check_claimed(f"the metadata of {gone} is gone")
            return KeyTraces(
                {uid: len(own) for uid, own in keys.items()},
                entries_in(source, keys),
                left_in(source, keys),
                earlier,
                self._rows(keys).count(),
                self._in_savepoints(keys),
                self._unread(),
            )
        except PathNotAllowedError as error:
            raise SavepointError(
                f"Keys cannot be found: a checkpoint has files outside of the pipeline's folder, "
                f"as after a start with CLAIM ({error.message.partition(';')[0]}); let the "
                f"pipeline write bases of its own until no checkpoint does, and try again.",
                location=str(self.store.layout.root),
            ) from error

    def erase(
        self,
        is_alive: Callable[[str], bool] = _may_work,
        coordinator: JobCoordinator | None = None,
    ) -> Erasure:
        """Erases the keys, and looks for them again.

        Args:
            is_alive: Whether a run that holds a lease may still work; by default each may.
            coordinator: Takes the checkpoint; by default one that takes the pipeline over.

        Raises:
            CheckpointError: A run works on the pipeline, or takes it over.
            ConfigError: As ``find``; nothing was changed.
            SavepointError: Something of a key is left.
        """
        busy = [lease.run_id for lease in self.store.leases() if is_alive(lease.run_id)]
        if busy:
            raise CheckpointError(
                f"Nothing was erased: run {busy[0]!r} holds a lease on the pipeline, and would "
                f"write what it knows; let it end, or reset the pipeline if it has died.",
                location=str(self.store.layout.root),
            )
        traces = self.find()
        source = self._latest()
        keys = self._keys_of(source)
        coordinator = coordinator or JobCoordinator(
            self.store.layout, num_retained=1, timeout_ms=_TIMEOUT_MS, clock=self.clock
        )
        coordinator.claim()
        state = ErasedState(source, keys, self.store.layout.task_owned, self.jobs)
        # A commit also tells tables that rows of stored output go.
        is_new = bool(traces.entries or traces.records or traces.rows)
        number = self._commit(coordinator, source, state) if is_new else None
        if number is not None or traces.earlier:
            left = coordinator.discard_earlier()
            if left:
                raise StorageError(
                    f"Checkpoint {left[0]} could not be deleted as a whole; erase again.",
                    location=str(self.store.layout.root),
                )
        _, files = self._rows(keys).erase(coordinator.claim)
        swept = self._sweep(coordinator.claim)
        copies = drop_copies_of(self._job_id, self.local_copies)
        for path in self.savepoints:
            self._erase_in_savepoint(path, keys if path in traces.savepoints else {})
        self._prove()
        return Erasure(traces, number, state.subtasks, state.written_bytes, files, swept, copies)

    # ------------------------------------------------------------------------------- parts

    @property
    def _job_id(self) -> JobID:
        """The id of the pipeline, unless its folder has got another name."""
        name = self.store.layout.root.name
        try:
            return JobID.from_hex(name)
        except ConfigError:
            return JobID.for_name(name)

    def _latest(self) -> Snapshot:
        return self._snapshot(self.store.path_of(self.store.require_latest()))

    def _snapshot(self, path: str) -> Snapshot:
        return Snapshot.load(path, serializers=self.serializers)

    def _keys_of(self, source: Snapshot) -> dict[str, Sequence[Any]]:
        """The keys of each operator, which are of the type of its keys."""
        if isinstance(self.keys, Mapping):
            keys = {source[uid].uid or "": list(own) for uid, own in self.keys.items()}
        else:
            every = list(self.keys)
            keyed = [operator for operator in source.operators if operator.keyed_handles]
            keys = {operator.uid or "": every for operator in keyed}
        if not keys or not any(keys.values()):
            raise ConfigError("Erase keys of a pipeline: expected a key, got none.")
        purges_of(source, keys)  # refuses keys of other types
        return dict(keys)

    def _rows(self, keys: Keys) -> ErasedRows:
        types, stored = {}, {}
        source = self._latest()
        for operator_id, purge in purges_of(source, keys).items():
            operator = source[f"hash:{operator_id.hex}"]
            assert operator.key_type is not None  # of keyed state
            types[operator.uid or ""] = operator.key_type.serializer
            stored[operator.uid or ""] = frozenset(purge.keys)
        files = open_file_io(self.store.layout.root)
        columns = {source[uid].uid or "": own for uid, own in self.output_columns.items()}
        return ErasedRows(self.store, files, keys, types, stored, columns, self.drop_outputs)

    def _earlier(self, keys: Keys) -> Iterator[str]:
        """Checkpoints beside the latest one that have a key, or cannot be read."""
        for folder in self.store.left_folders():
            try:
                snapshot = self._snapshot(folder)
                if entries_in(snapshot, keys) or left_in(snapshot, keys):
                    yield folder.rsplit("/", 1)[1]
            # A part of it is gone or damaged, or its keys had another type.
            except (StateFileNotFoundError, ConfigError, FormatError) as error:
                self._check_claimed(f"{folder} cannot be read ({error.message})")
                _LOG.warning("%s cannot be read, and an erasure deletes it: %s", folder, error)
                yield folder.rsplit("/", 1)[1]

    def _check_claimed(self, problem: str) -> None:
        """Checks that a checkpoint that cannot be read is not alone in naming files of Flink's.

        Raises:
            SavepointError: It may.
        """
        needed = self.store.latest_files()
        for claimed in self.store.claimed_folders():
            unnamed = collect_garbage(
                claimed, older_than_ms=-_CLOCKS_APART_MS, flink_job_stopped=True, clock=self.clock
            )
            if unnamed.garbage:
                options = ("--older-than", "0s", "--flink-job-stopped", "--delete")
                collection = command_text("gc", str(claimed), *options)
                way_out = f"delete them ({collection})"
                if any(file.location in needed for file in unnamed.garbage):
                    way_out = "let the pipeline write bases of its own, for it needs some"
                raise SavepointError(
                    f"Keys cannot be found: {problem}, and it may name files that the pipeline has "
                    f"claimed from Flink, and that no checkpoint beside them names; {way_out}, and "
                    f"try again.",
                    location=str(self.store.layout.root),
                )

    def _in_savepoints(self, keys: Keys) -> dict[str, Entries]:
        """The entries of the keys, by savepoint; only of those that have some.

        Raises:
            SavepointError: A savepoint shares files of another snapshot.
        """
        every = {}
        for path in self.savepoints:
            try:
                every[path] = entries_in(self._snapshot(path), keys)
            except PathNotAllowedError as error:
                raise SavepointError(
                    f"Keys cannot be found in savepoint {path}: it shares files of another folder "
                    f"({error.message.partition(';')[0]}); delete it, and name the snapshot that "
                    f"has the files if it is one of the pipeline.",
                    location=str(self.store.layout.root),
                ) from error
        return {path: entries for path, entries in every.items() if entries}

    def _unread(self) -> list[str]:
        """Savepoints that commits name, that are there, and that are not among the named ones."""
        names = {
            name
            for commit in self.store.commits()
            for name in (
                commit.facts.savepoint,
                None if commit.facts.source is None else commit.facts.source.savepoint,
            )
            if name is not None
        }
        known = {Location.parse(path) for path in self.savepoints}
        places = {name: Location.parse(name) for name in sorted(names)}
        return [
            name
            for name, place in places.items()
            if place not in known
            and open_file_io(place).size(place.child(METADATA_FILE_NAME)) is not None
        ]

    def _commit(self, coordinator: JobCoordinator, source: Snapshot, state: ErasedState) -> int:
        """Commits the latest state without the keys."""
        latest = coordinator.require_latest()
        plans = [
            OperatorPlan(
                operator.operator_id,
                operator.uid or "",
                operator.parallelism,
                operator.max_parallelism,
                decimals=operator.state.decimals,
            )
            for operator in source.operators
        ]

        def facts(_: object) -> EpochFacts:
            known = latest.facts.keys
            return EpochFacts(
                kind="erasure",
                restored_from=latest.checkpoint_id,
                watermarks=latest.facts.watermarks,
                savepoint=latest.facts.savepoint,  # a pipeline that was stopped stays so
                keys={uid: own for uid, own in known.items() if uid not in state.entries},
                notes={ERASED_NOTE: state.entries},
            )

        after = source.metadata.checkpoint_id
        return coordinator.checkpoint(
            self._job_id, plans, state.reports, facts, after=after
        ).checkpoint_id

    def _sweep(self, check_claim: Callable[[], None]) -> int:
        """Deletes files of attempts, of runs and of migrations that were not committed."""
        unnamed = self.store.sweep_unnamed_outputs(check_claim)
        orphans = self.store.sweep_orphans(check_claim)
        return unnamed + len(orphans) + self.store.sweep_scratch()

    def _erase_in_savepoint(self, path: str, keys: Keys) -> None:
        """Writes a savepoint without the keys over itself, and deletes the files it had; also those
        that an interrupted call has left.
        """
        if keys:
            snapshot = self._snapshot(path)
            edit = replace(edit_savepoint(snapshot), purges=purges_of(snapshot, keys))
            edit.write(path, mode="overwrite", jobs=self.jobs)
        # The clock of the storage may be ahead of this one.
        age = -_CLOCKS_APART_MS
        report = collect_garbage(path, delete=True, older_than_ms=age, clock=self.clock)
        if report.deleted < len(report.garbage):
            raise StorageError(
                "Files of a savepoint could not be deleted; erase again.", location=path
            )

    def _prove(self) -> None:
        """Looks for the keys again in all that is left.

        Raises:
            SavepointError: Something is left. The message names no key.
        """
        left = self.find()
        unnamed = [str(file) for file in self.store.unnamed_outputs()]
        others = [*self.store.orphans(), *unnamed, *left.earlier]
        if left.is_nothing and not others:
            return
        counts = [*left.entries, *left.records, *left.rows, *left.savepoints, *others]
        raise SavepointError(
            f"Something of the keys may be left in {counts[0]!r}, and {len(counts) - 1} other "
            f"places: another driver works on the pipeline, or files could not be deleted; stop "
            f"it, and erase again.",
            location=str(self.store.layout.root),
        )
