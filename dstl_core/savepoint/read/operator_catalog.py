"""States, types and handles of an operator, found without reading state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from dstl_core.cached_property import cached_property
from dstl_core.changelog.reader import StateChangelogHandleReader
from dstl_core.checkpoint.store.metadata_file import MetadataFile
from dstl_core.codec.change_payload import MetadataChange, read_change
from dstl_core.codec.kryo.kryo_serializer import KryoClasses
from dstl_core.codec.operator_state import OperatorHeaders, OperatorStateReader
from dstl_core.codec.protobuf.descriptors import MessageType
from dstl_core.codec.protobuf.message_states import MessageStates
from dstl_core.codec.pyflink.declared import PythonStateType
from dstl_core.codec.pyflink.states import PREFIX, PythonStates, key_in_row
from dstl_core.codec.serializers import AnySerializer, SerializerRegistry
from dstl_core.codec.state_meta import (
    KEY_SERIALIZER,
    KeyedBackendHeader,
    StateMetaInfoSnapshot,
)
from dstl_core.errors import (
    DAMAGED,
    UNREADABLE,
    ConfigError,
    DstlError,
    NoSuchStateError,
    error_context,
)
from dstl_core.model.change import StateChange
from dstl_core.model.checkpoint import DeclaredDecimals, OperatorState
from dstl_core.model.handle import (
    ChangelogStateBackendHandle,
    IncrementalRemoteKeyedStateHandle,
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
    OperatorStateMode,
    OperatorStreamStateHandle,
)
from dstl_core.model.ids import OperatorID
from dstl_core.model.key_group import KeyGroupRange, divided
from dstl_core.savepoint.read.entries import (
    EVENT_TIMER,
    OP_BROADCAST,
    OP_LIST,
    OP_UNION,
    PROC_TIMER,
    StateForms,
)
from dstl_core.savepoint.read.handle_forms import descriptions, form_of, lacks_base, logs_of
from dstl_core.state.backends.timers import EVENT_TIMERS, PROCESSING_TIMERS
from dstl_core.state.restore.canonical import read_stream_header
from dstl_core.state.restore.into_tables import restore_keyed_state
from dstl_core.state.restore.open_tables import OpenTables
from dstl_core.state.restore.rocksdb import read_meta_header
from dstl_core.state.tables.key_type import (
    MAX_CHANGES,
    KeyType,
    key_type_of_changes,
    keys_fit,
)
from dstl_core.state.tables.keyed_state import (
    KeyedState,
    knowledge_of,
    state_key,
)
from dstl_core.storage.file_io import FileIO
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import Location

SAMPLE = 2 * MAX_CHANGES
"""Number of changes of a log to derive the type of the key from."""
OPERATOR_KINDS = {
    OperatorStateMode.SPLIT_DISTRIBUTE: OP_LIST,
    OperatorStateMode.UNION: OP_UNION,
    OperatorStateMode.BROADCAST: OP_BROADCAST,
}


@dataclass(frozen=True, slots=True)
class StateInfo:
    """Name, kind and type of a state."""

    name: str
    kind: str
    type: str
    meta: StateMetaInfoSnapshot

    @classmethod
    def of(cls, meta: StateMetaInfoSnapshot) -> StateInfo:
        return cls(meta.name, kind_of(meta), meta.value_serializer.type_name, meta)


def kind_of(meta: StateMetaInfoSnapshot) -> str:
    """The kind of a keyed state as text: value, list, map, .., event-timer, proc-timer, queue."""
    if meta.is_queue:
        if meta.name.startswith(EVENT_TIMERS):
            return EVENT_TIMER
        return PROC_TIMER if meta.name.startswith(PROCESSING_TIMERS) else "queue"
    return meta.keyed_state_type.value.lower()


class SnapshotFiles(Protocol):
    """The parts of a snapshot that readers of an operator's state need."""

    file_io: FileIO
    resolver: HandleResolver
    registry: SerializerRegistry
    folder: Location
    file: MetadataFile
    edited: frozenset[OperatorID]
    tables: OpenTables
    state_types: Mapping[str, PythonStateType | MessageType]
    kryo: KryoClasses

    @property
    def is_of_pyflink(self) -> bool: ...


class OperatorCatalog:
    """One operator: its states and types, and its keyed state in memory."""

    def __init__(
        self, snapshot: SnapshotFiles, state: OperatorState, uids: Mapping[OperatorID, str]
    ) -> None:
        self.snapshot = snapshot
        self.state = state
        self.operator_id = state.operator_id
        self.name = state.name
        self.uid = state.uid or uids.get(state.operator_id, "")
        self.parallelism = state.parallelism
        self.max_parallelism = state.max_parallelism
        self._operator_headers = OperatorHeaders()
        self.timer_queues: Sequence[KeyedStateHandle] = ()
        """Timers of raw keyed state as keyed state: see ``with_timer_queues``."""

    @property
    def label(self) -> str:
        """The uid, or the hash if the operator has no uid. It is ``op`` in dumps."""
        return self.uid or self.operator_id.hex

    @cached_property
    def keyed_handles(self) -> list[KeyedStateHandle]:
        """Handles of the managed keyed state of all subtasks, and ``timer_queues``."""
        handles = [subtask.managed_keyed_state for subtask in self.state.subtasks]
        return [each for each in (*handles, *self.timer_queues) if each is not None]

    @cached_property
    def keyed_size(self) -> int:
        """The stored bytes of ``keyed_handles``."""
        return sum(handle.state_size for handle in self.keyed_handles)

    @cached_property
    def key_type(self) -> KeyType | None:
        """The type of the key, and how it was found; None without keyed state."""
        with self._context():
            return self._recorded_key_type() or key_type_of_changes(
                self._logged_changes(), self.snapshot.registry, self.max_parallelism
            )

    def give_key_type(self, serializer: AnySerializer) -> None:
        """Sets the type of the key, for a changelog that does not record it.

        Raises:
            ConfigError: The files record another type, or hold keys of another type.
        """
        try:
            recorded = self._recorded_key_type()
            fits = recorded is not None or keys_fit(
                serializer, self._logged_changes(), self.snapshot.registry, self.max_parallelism
            )
        except UNREADABLE:
            recorded, fits = None, True  # the reader of the state says what is wrong
        if recorded is not None and recorded.serializer != serializer:
            raise ConfigError(
                f"The key type of operator {self.label!r} is wrong: the files record "
                f"{recorded.serializer.type_name}, got {serializer.type_name}; leave out the key "
                f"type (key_types, --key-type)."
            )
        if not fits:
            raise ConfigError(
                f"The key type of operator {self.label!r} is wrong: keys in the changelog are not "
                f"of type {serializer.type_name}, or belong to other key groups; give another key "
                f"type (key_types, --key-type)."
            )
        self.key_type = KeyType(serializer)

    def _recorded_key_type(self) -> KeyType | None:
        """The type in a header, or in the metadata of timers in a log."""
        for handle in self.keyed_handles:
            for header in self._headers(handle):
                return KeyType(header.key_serializer)
        reader = StateChangelogHandleReader(self.snapshot.resolver.read_segment)
        logs = [log for handle in self.keyed_handles for log in logs_of(handle)]
        described = (change for log in logs for change in descriptions(log, reader))
        return key_type_of_changes(described, self.snapshot.registry, self.max_parallelism)

    def _logged_changes(self) -> Iterator[StateChange]:
        """A sample of the changes in the logs."""
        reader = StateChangelogHandleReader(self.snapshot.resolver.read_segment)
        logs = [log for handle in self.keyed_handles for log in logs_of(handle)]
        return islice((each for log in logs for each in reader.get_changes(log)), SAMPLE)

    @cached_property
    def states(self) -> list[StateInfo]:
        """The keyed states, by name. It reads the header of each file, and the log of a changelog
        checkpoint, once.
        """
        by_key: dict[tuple[str, bool], StateInfo] = {}
        with self._context():
            for handle in self.keyed_handles:
                for meta in self._state_metas(handle):
                    known = by_key.get(state_key(meta))
                    if known is None or knowledge_of(meta) > knowledge_of(known.meta):
                        by_key[state_key(meta)] = StateInfo.of(meta)
        return sorted(by_key.values(), key=lambda info: (info.name, info.kind))

    @cached_property
    def forms(self) -> StateForms | None:
        """How states are shown whose stored form is another one: see ``_python_states``, and states
        of messages. It reads headers.
        """
        if not self.keyed_handles:
            return None
        names = {info.name for info in self.states}
        types = self.snapshot.state_types.items()
        messages = {
            name: message
            for name, message in types
            if isinstance(message, MessageType) and name in names
        }
        known = self.snapshot.kryo.layouts.messages
        if messages and known is not None:
            return MessageStates(known, messages)
        return self._python_states(
            names, {name: each for name, each in types if isinstance(each, PythonStateType)}
        )

    def _python_states(
        self, names: set[str], types: Mapping[str, PythonStateType]
    ) -> PythonStates | None:
        """A state of PyFlink has its prefix, or its type was given, or the job has an operator that
        PyFlink adds, and the key is a row of one field.
        """
        if any(name.startswith(PREFIX) or name in types for name in names):
            return PythonStates(types)
        is_python = self._has_row_of_key and self.snapshot.is_of_pyflink
        return PythonStates(types) if is_python else None

    @property
    def may_be_of_pyflink(self) -> bool:
        """Whether keyed states may be those of a job of PyFlink. Flink 1.x keeps no names of
        operators.
        """
        return self._has_row_of_key or any(info.name.startswith(PREFIX) for info in self.states)

    @property
    def _has_row_of_key(self) -> bool:
        key = self.key_type
        return key is not None and key_in_row(key.serializer) is not None

    def stored_name(self, name: str) -> str:
        """The stored name of a state. One of PyFlink may have the name that its job gave."""
        known = {info.name for info in self.states}
        return PREFIX + name if name not in known and PREFIX + name in known else name

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

    @cached_property
    def compresses_key_groups(self) -> bool:
        """Whether a handle of keyed state has compressed key groups. It reads headers."""
        with self._context():
            return any(
                header.compressed
                for handle in self.keyed_handles
                for header in self._headers(handle)
            )

    def _context(self) -> AbstractContextManager[None]:
        return error_context(location=str(self.snapshot.folder), operator=self.label)

    @cached_property
    def operator_states(self) -> list[StateInfo]:
        """The list, union and broadcast states, by name. It reads each subtask's stream, once."""
        by_kind: dict[tuple[str, str], StateInfo] = {}
        with self._context():
            for _, handle, reader in self.operator_state_readers():
                for info in handle.states:
                    meta = reader.header.state(info)
                    kind = OPERATOR_KINDS[info.mode]
                    type_name = meta.value_serializer.type_name
                    if kind == OP_BROADCAST:
                        key = meta.serializer(KEY_SERIALIZER).type_name
                        type_name = f"Map<{key}, {type_name}>"
                    by_kind.setdefault(
                        (info.name, kind), StateInfo(info.name, kind, type_name, meta)
                    )
        return [by_kind[key] for key in sorted(by_kind)]

    def operator_state_readers(
        self, name: str | None = None
    ) -> Iterator[tuple[int, OperatorStreamStateHandle, OperatorStateReader]]:
        """``(subtask, handle, reader)`` of every subtask with operator state, or with a state of
        this name. It reads no other streams.
        """
        resolver = self.snapshot.resolver
        for subtask in sorted(self.state.subtasks, key=lambda subtask_state: subtask_state.index):
            handle = subtask.managed_operator_state
            if handle is None or all(name not in (None, each.name) for each in handle.states):
                continue
            try:
                raw = resolver.read(handle.stream)
                registry = self.snapshot.registry
                reader = OperatorStateReader(raw, handle.states, registry, self._operator_headers)
                yield subtask.index, handle, reader
            except DstlError as error:
                error.context.setdefault("location", resolver.describe(handle.stream))
                raise

    def misplaced_elements(self) -> frozenset[str]:
        """The operator states whose elements Flink 1.19 and later do not find: see
        ``codec.operator_state``. It reads those that may be such.

        Raises:
            UnreadableValueError: Only a Java class knows where an element ends.
        """
        readers = (reader for _, _, reader in self.operator_state_readers())
        return frozenset[str]().union(*(reader.misplaced() for reader in readers))

    def has_state(self, name: str) -> bool:
        stored = self.stored_name(name)
        return any(info.name == stored for info in self.states + self.operator_states)

    def state_info(self, name: str, kind: str | None = None) -> StateInfo:
        """Finds a state by name, keyed states first.

        Raises:
            NoSuchStateError: There is no such state. The message lists the states.
        """
        states = self.states + self.operator_states
        stored = self.stored_name(name)
        for info in states:
            if info.name == stored and kind in (None, info.kind):
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
        within: KeyGroupRange | None = None,
    ) -> KeyedState:
        """Restores the keyed state of some key groups into memory.

        ``within`` are the key groups that the caller restores in all, by several calls.
        """
        snapshot = self.snapshot
        with self._context():
            key_type = self.key_type if any(lacks_base(handle) for handle in handles) else None
            return restore_keyed_state(
                [snapshot.tables.part_of(handle, key_groups, within) for handle in handles],
                key_groups,
                self.max_parallelism,
                snapshot.resolver,
                snapshot.registry,
                key_serializer=None if key_type is None else key_type.serializer,
                keep_going=keep_going,
                tables=snapshot.tables,
            )

    def key_group_splits(self, count: int) -> list[KeyGroupRange]:
        """All key groups in at most ``count`` ranges."""
        if count < 1:
            raise ConfigError(f"State is read in at least one split, got {count}.")
        return divided(KeyGroupRange(0, self.max_parallelism - 1), count)

    @property
    def decimals(self) -> Mapping[str, DeclaredDecimals]:
        """What the job declared of Java's decimals, by state."""
        return self.state.decimals

    def form(self) -> str:
        """The form in which keyed state is stored, as a text."""
        return ", ".join(sorted({form_of(handle) for handle in self.keyed_handles})) or "none"

    def problem(self) -> str | None:
        """The reason why keyed state cannot be read; None if it can."""
        try:
            self.states  # noqa: B018  # reading them is the test
            self.operator_states  # noqa: B018
        except DAMAGED as error:
            return str(error)
        return None
