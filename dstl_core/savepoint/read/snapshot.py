"""A snapshot as a catalog: operators, their states with kind and type, and every entry.

Works on savepoints and retained checkpoints. Types come from the serializer snapshots in the files
themselves; no class of the job is needed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

from dstl_core.changelog.reader import StateChangelogHandleReader
from dstl_core.checkpoint.metadata_file import MetadataFile, load_metadata_file
from dstl_core.codec.change_payload import MetadataChange, read_change
from dstl_core.codec.operator_state import OperatorStateReader
from dstl_core.codec.serializers import (
    BUILT_IN,
    AnySerializer,
    OpaqueValue,
    SerializerRegistry,
)
from dstl_core.codec.state_meta import (
    KEY_SERIALIZER,
    BackendStateType,
    KeyedBackendHeader,
    StateMetaInfoSnapshot,
)
from dstl_core.errors import (
    ConfigError,
    DstlError,
    NoSuchOperatorError,
    NoSuchStateError,
    error_context,
)
from dstl_core.model.checkpoint import OperatorState
from dstl_core.model.handle import (
    ChangelogStateBackendHandle,
    IncrementalRemoteKeyedStateHandle,
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
    OperatorStateMode,
    OperatorStreamStateHandle,
)
from dstl_core.model.ids import OperatorID, OperatorIdentifier, is_id_hex
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.read.entries import (
    EVENT_TIMER,
    OP_BROADCAST,
    OP_LIST,
    OP_UNION,
    PROC_TIMER,
    KeyedEntry,
    TimerEntry,
    Unreadable,
)
from dstl_core.savepoint.read.entry_reader import EntryReader
from dstl_core.savepoint.read.handle_forms import descriptions, form_of, lacks_base, logs_of
from dstl_core.savepoint.read.windows import WindowEntry, windows_of
from dstl_core.state.backends.timers import EVENT_TIMERS, PROCESSING_TIMERS
from dstl_core.state.restore.canonical_reader import read_stream_header
from dstl_core.state.restore.rocksdb_reader import read_meta_header
from dstl_core.state.tables.key_type import MAX_CHANGES, KeyType, key_type_of_changes
from dstl_core.state.tables.keyed_state import (
    KeyedState,
    knowledge_of,
    restore_keyed_state,
    state_key,
)
from dstl_core.storage.file_io import FileIO, open_file_io
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import Location

if TYPE_CHECKING:
    from dstl_core.savepoint.read.change_reader import StateChangeReader
    from dstl_core.savepoint.read.keyed_reader import KeyedStateReader

Values = list[Any]
SAMPLE = 2 * MAX_CHANGES
"""Changes of a log that are looked at for the type of the key."""
OPERATOR_KINDS = {
    OperatorStateMode.SPLIT_DISTRIBUTE: OP_LIST,
    OperatorStateMode.UNION: OP_UNION,
    OperatorStateMode.BROADCAST: OP_BROADCAST,
}


@dataclass(frozen=True, slots=True)
class StateInfo:
    """One state of an operator, for people and for schemas."""

    name: str
    kind: str
    type: str
    meta: StateMetaInfoSnapshot

    @classmethod
    def of(cls, meta: StateMetaInfoSnapshot) -> StateInfo:
        return cls(meta.name, kind_of(meta), meta.value_serializer.type_name, meta)


def kind_of(meta: StateMetaInfoSnapshot) -> str:
    """The kind of a keyed state as text: value, list, map, .., event-timer, proc-timer, queue."""
    if meta.backend_state_type is BackendStateType.PRIORITY_QUEUE:
        if meta.name.startswith(EVENT_TIMERS):
            return EVENT_TIMER
        return PROC_TIMER if meta.name.startswith(PROCESSING_TIMERS) else "queue"
    return meta.keyed_state_type.value.lower()


class Snapshot:
    """A loaded ``_metadata``. State is read only when it is asked for."""

    def __init__(
        self,
        file: MetadataFile,
        file_io: FileIO,
        resolver: HandleResolver,
        registry: SerializerRegistry,
    ) -> None:
        self.file = file
        self.metadata = file.metadata
        self.folder = file.folder
        self.file_io = file_io
        self.resolver = resolver
        self.registry = registry
        uids = file.sidecar.uids if file.sidecar is not None else {}
        self.operators = [OperatorSnapshot(self, each, uids) for each in file.metadata.operators]

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        allow_roots: Sequence[str] = (),
        relocate: Mapping[str, str] | None = None,
        serializers: SerializerRegistry = BUILT_IN,
        storage_options: dict[str, Any] | None = None,
        changelog_base: str | None = None,
        key_types: Mapping[str, AnySerializer] | None = None,
    ) -> Snapshot:
        """Reads the metadata of a savepoint or checkpoint.

        Args:
            path: Its folder, or the ``_metadata`` file in it.
            allow_roots: Further folders that its handles may name.
            relocate: Old root to new root, for files that were moved.
            serializers: Where types of your own are registered.
            storage_options: Credentials and the like, for fsspec.
            changelog_base: Where the changelog lies, if that is beside the checkpoints' folder.
            key_types: Operator (uid, hash or name) to the type of its key, for changelogs that do
                not tell it.

        Raises:
            StateFileNotFoundError: There is no snapshot.
            FormatError: Its metadata is damaged.
        """
        location = Location.parse(path)
        file_io = open_file_io(location, storage_options)
        file = load_metadata_file(file_io, location)
        resolver = HandleResolver(
            file_io,
            file.folder,
            allow_roots=[Location.parse(root) for root in allow_roots],
            relocate={old: Location.parse(new) for old, new in (relocate or {}).items()},
            changelog_base=None if changelog_base is None else Location.parse(changelog_base),
        )
        snapshot = cls(file, file_io, resolver, serializers)
        for name, serializer in (key_types or {}).items():
            snapshot[name].key_type = KeyType(serializer)
        return snapshot

    def __getitem__(self, name: str) -> OperatorSnapshot:
        """An operator by uid, by 32 hex digits, or by unique name; ``uid:``, ``hash:`` and
        ``name:`` force one of them.

        Raises:
            NoSuchOperatorError: None, or more than one. Lists the operators.
        """
        form, _, rest = name.partition(":")
        if form in ("uid", "hash", "name") and rest:
            found = self._find(form, rest)
        else:
            found = self._find("uid", name) or self._find("hash", name) or self._find("name", name)
        if len(found) == 1:
            return found[0]
        known = ", ".join(sorted(repr(operator.label) for operator in self.operators)) or "none"
        problem = "is in it more than once" if found else "is not in it"
        raise NoSuchOperatorError(
            f"Operator {name!r} {problem}; the snapshot has: {known}.", location=str(self.folder)
        )

    def operator(self, identifier: OperatorIdentifier) -> OperatorSnapshot:
        """An operator by its id; an error shows the uid if there is one."""
        if identifier.uid:
            return self[f"uid:{identifier.uid}"]
        return self[f"hash:{identifier.operator_id.hex}"]

    def _find(self, form: str, text: str) -> list[OperatorSnapshot]:
        match form:
            case "uid":
                wanted = OperatorID.for_uid(text)
                return [each for each in self.operators if each.operator_id == wanted]
            case "hash":
                if not is_id_hex(text):
                    return []
                wanted = OperatorID.from_hex(text)
                return [each for each in self.operators if each.operator_id == wanted]
            case _:
                return [each for each in self.operators if each.name == text]


class OperatorSnapshot:
    """One operator of a snapshot."""

    def __init__(
        self, snapshot: Snapshot, state: OperatorState, uids: Mapping[OperatorID, str]
    ) -> None:
        self.snapshot = snapshot
        self.state = state
        self.operator_id = state.operator_id
        self.name = state.name
        self.uid = state.uid or uids.get(state.operator_id, "")
        self.parallelism = state.parallelism
        self.max_parallelism = state.max_parallelism
        self.timer_queues: Sequence[KeyedStateHandle] = ()
        """Timers of raw keyed state, if they are to be keyed state: see ``with_timer_queues``."""

    @property
    def label(self) -> str:
        """The uid, or the hash of an operator without one: ``op`` in dumps."""
        return self.uid or self.operator_id.hex

    @property
    def keyed_handles(self) -> list[KeyedStateHandle]:
        """The managed keyed state of all subtasks, and ``timer_queues``."""
        handles = [subtask.managed_keyed_state for subtask in self.state.subtasks]
        return [each for each in (*handles, *self.timer_queues) if each is not None]

    @cached_property
    def with_timer_queues(self) -> OperatorSnapshot:
        """The operator with timers of raw keyed state as queues, as canonical savepoints have them.

        Raises:
            SavepointError: Raw keyed state holds something else.
        """
        from dstl_core.savepoint.read.timer_queues import (
            with_timer_queues,  # only rewriting needs it
        )

        return with_timer_queues(self)

    @cached_property
    def key_type(self) -> KeyType | None:
        """The type of the key, and how it was found; None if there is no keyed state."""
        with self._context():
            for handle in self.keyed_handles:
                for header in self._headers(handle):
                    return KeyType(header.key_serializer)
            logs = [log for handle in self.keyed_handles for log in logs_of(handle)]
            reader = StateChangelogHandleReader(self.snapshot.resolver.read_segment)
            registry, total = self.snapshot.registry, self.max_parallelism
            described = (change for log in logs for change in descriptions(log, reader))
            changes = islice((each for log in logs for each in reader.get_changes(log)), SAMPLE)
            # A description of timers says it; else a sample of the changes has to.
            return key_type_of_changes(described, registry, total) or key_type_of_changes(
                changes, registry, total
            )

    @property
    def states(self) -> list[StateInfo]:
        """The keyed states, by name. Reads headers, and the log of a changelog checkpoint."""
        found: dict[tuple[str, bool], StateInfo] = {}
        with self._context():
            for handle in self.keyed_handles:
                for meta in self._state_metas(handle):
                    known = found.get(state_key(meta))
                    if known is None or knowledge_of(meta) > knowledge_of(known.meta):
                        found[state_key(meta)] = StateInfo.of(meta)
        return sorted(found.values(), key=lambda info: (info.name, info.kind))

    def _state_metas(self, handle: KeyedStateHandle) -> Iterator[StateMetaInfoSnapshot]:
        for header in self._headers(handle):
            yield from (meta.as_key_value() for meta in header.states)
        snapshot = self.snapshot
        reader = StateChangelogHandleReader(snapshot.resolver.read_segment)
        for log in logs_of(handle):
            for change in descriptions(log, reader):
                parsed = read_change(change.change, snapshot.registry)
                if isinstance(parsed, MetadataChange):
                    yield parsed.state

    def _headers(self, handle: KeyedStateHandle) -> Iterator[KeyedBackendHeader]:
        resolver, registry = self.snapshot.resolver, self.snapshot.registry
        match handle:
            case KeyGroupsSavepointStateHandle() | KeyGroupsStateHandle():
                yield read_stream_header(handle, resolver, registry)
            case IncrementalRemoteKeyedStateHandle():
                yield read_meta_header(handle, resolver, registry)
            case ChangelogStateBackendHandle():
                for base in handle.materialized:
                    yield from self._headers(base)

    def _context(self) -> AbstractContextManager[None]:
        return error_context(location=str(self.snapshot.folder), operator=self.label)

    @property
    def operator_states(self) -> list[StateInfo]:
        """The list, union and broadcast states, by name."""
        found: dict[tuple[str, str], StateInfo] = {}
        with self._context():
            for _, handle, reader in self.operator_state_readers():
                for info in handle.states:
                    meta = reader.header.state(info)
                    kind = OPERATOR_KINDS[info.mode]
                    type_name = meta.value_serializer.type_name
                    if kind == OP_BROADCAST:
                        key = meta.serializer(KEY_SERIALIZER).type_name
                        type_name = f"Map<{key}, {type_name}>"
                    found.setdefault((info.name, kind), StateInfo(info.name, kind, type_name, meta))
        return [found[key] for key in sorted(found)]

    def operator_state_readers(
        self,
    ) -> Iterator[tuple[int, OperatorStreamStateHandle, OperatorStateReader]]:
        """``(subtask, handle, reader)`` of every subtask with operator state."""
        resolver = self.snapshot.resolver
        for subtask in sorted(self.state.subtasks, key=lambda each: each.index):
            handle = subtask.managed_operator_state
            if handle is None or not handle.states:
                continue
            with error_context(location=resolver.describe(handle.stream)):
                raw = resolver.read(handle.stream)
                reader = OperatorStateReader(raw, handle.states, self.snapshot.registry)
                yield subtask.index, handle, reader

    def has_state(self, name: str) -> bool:
        """Whether there is a state of this name."""
        return any(info.name == name for info in self.states + self.operator_states)

    def state_info(self, name: str, kind: str | None = None) -> StateInfo:
        """A state by name, keyed ones first.

        Raises:
            NoSuchStateError: Lists the states that there are.
        """
        states = self.states + self.operator_states
        for info in states:
            if info.name == name and kind in (None, info.kind):
                return info
        known = ", ".join(repr(info.name) for info in states) or "none"
        raise NoSuchStateError(
            f"State {name!r} is not in operator {self.label!r}; it has: {known}.",
            location=str(self.snapshot.folder),
        )

    def restore(
        self,
        handles: Sequence[KeyedStateHandle],
        key_groups: KeyGroupRange,
        *,
        keep_going: bool = False,
    ) -> KeyedState:
        """The keyed state of some key groups, in memory."""
        snapshot = self.snapshot
        with self._context():
            found = self.key_type if any(lacks_base(handle) for handle in handles) else None
            return restore_keyed_state(
                handles,
                key_groups,
                self.max_parallelism,
                snapshot.resolver,
                snapshot.registry,
                key_serializer=None if found is None else found.serializer,
                keep_going=keep_going,
            )

    def key_group_splits(self, count: int) -> list[KeyGroupRange]:
        """All key groups in at most ``count`` ranges."""
        if count < 1:
            raise ConfigError(f"State is read in at least one split, got {count}.")
        total = self.max_parallelism
        bounds = [total * index // count for index in range(count + 1)]
        return [KeyGroupRange(start, end - 1) for start, end in pairwise(bounds) if start < end]

    def entries(self, state: str | None = None) -> EntryReader:
        """Everything the operator holds, or one state of it, entry by entry.

        Raises:
            NoSuchStateError: There is no such state.
        """
        if state is not None:
            self.state_info(state)
        return EntryReader(self, state)

    def keyed_entries(self, state: str | None = None) -> Iterator[KeyedEntry]:
        """The entries of keyed states one by one; a value that only Java can read is an
        ``OpaqueValue``. For bulk, see ``keyed``.
        """
        return self.entries(state).keyed_entries()

    def timer_entries(self) -> Iterator[TimerEntry]:
        """Every timer one by one, also those in raw keyed state."""
        return EntryReader(self, None).timer_entries()

    def window_entries(self) -> Iterator[WindowEntry]:
        """What window operators keep: one entry a key and window, with the timers of the window."""
        return windows_of(EntryReader(self, None).keyed_and_timers())

    def keyed(self, **options: Any) -> KeyedStateReader:
        """One row per key over all states, as Arrow record batches.

        Args:
            options: Those of ``savepoint.keyed_reader.ReadOptions``: columns, keys, types, memory.
        """
        return self._reader("keyed", options)

    def flat(self, name: str, **options: Any) -> KeyedStateReader:
        """One keyed state or timer service in flat form, as Arrow record batches: a row for each
        value, list element, map entry or timer. Arguments as ``keyed``; ``NoSuchStateError``.
        """
        return self._reader(name, options)

    def windows(self, **options: Any) -> KeyedStateReader:
        """One row per key and window over all states of windows, as Arrow record batches;
        arguments as ``keyed``. A ``SavepointError`` if there are none, or of several types.
        """
        return self._reader("windows", options)

    def changes(self, name: str, **types: Any) -> StateChangeReader:
        """The changes of a keyed state in the changelog, as Arrow record batches; ``types`` as in
        ``ColumnOptions``. Raises as ``flat``.
        """
        from dstl_core.codec.columnar.types.type_layouts import ColumnOptions
        from dstl_core.savepoint.read.change_reader import StateChangeReader

        return StateChangeReader(self, name, ColumnOptions(**types))

    def _reader(self, form: str, options: dict[str, Any]) -> KeyedStateReader:
        # Looking into a snapshot loads neither Arrow nor the compiler.
        from dstl_core.savepoint.read.keyed_reader import KeyedStateReader, ReadOptions

        return KeyedStateReader(self, form, ReadOptions(**options))

    def unreadable(self) -> list[Unreadable]:
        """All that only Java classes of the job could read. Reads everything."""
        reader = EntryReader(self, None)
        for _ in reader:
            pass
        return reader.unreadable

    def dump(self, state: str | None = None) -> Iterator[dict[str, Any]]:
        """Every readable entry as ``dstl dump`` prints it, a range of key groups at a time."""
        return (entry.to_line() for entry in self.entries(state))

    # The names are those of Flink's State Processor API; ``list`` hides the type from here on.

    def list(self, name: str) -> Values:
        """The elements of a list state of all subtasks.

        Raises:
            NoSuchStateError: There is no such list state.
        """
        return self._elements(name, OP_LIST)

    def union(self, name: str) -> Values:
        """The elements of a union list state of all subtasks.

        Raises:
            NoSuchStateError: There is no such union state.
        """
        return self._elements(name, OP_UNION)

    def broadcast(self, name: str) -> Values:
        """The ``(key, value)`` pairs of a broadcast state; every subtask has the same.

        Raises:
            NoSuchStateError: There is no such broadcast state.
        """
        return self._elements(name, OP_BROADCAST)

    def _elements(self, name: str, kind: str) -> Values:
        self.state_info(name, kind)
        found: Values = []
        for entry in EntryReader(self, name).operator_state_entries():
            if entry.kind == kind:
                found += [entry.value] if isinstance(entry.value, OpaqueValue) else entry.value
        return found

    def form(self) -> str:
        """How the keyed state is stored, for people."""
        return ", ".join(sorted({form_of(handle) for handle in self.keyed_handles})) or "none"

    def problem(self) -> str | None:
        """Why the keyed state cannot be read, or None if it can."""
        try:
            self.states  # noqa: B018  # reading them is the test
            self.operator_states  # noqa: B018
        except DstlError as error:
            return str(error)
        return None
