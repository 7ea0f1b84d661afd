"""A snapshot as a catalog: operators, their states with kind and type, and every entry.

Works on savepoints and retained checkpoints. Types come from the serializer snapshots in the files
themselves; no class of the job is needed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from dstl_core.checkpoint.metadata_file import MetadataFile, load_metadata_file
from dstl_core.codec.serializers import BUILT_IN, SerializerRegistry
from dstl_core.codec.state_meta import BackendStateType, StateMetaInfoSnapshot
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
    KeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
)
from dstl_core.model.ids import OperatorID, OperatorIdentifier, is_id_hex
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.canonical_reader import read_canonical_header
from dstl_core.state.keyed_state import KeyedState, restore_keyed_state, state_key
from dstl_core.storage.file_io import FileIO, open_file_io
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import Location

EVENT_TIMERS = "_timer_state/event_"
PROCESSING_TIMERS = "_timer_state/processing_"


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
    """The kind of a state as text: value, list, map, .., event-timer, proc-timer, queue."""
    if meta.backend_state_type is BackendStateType.PRIORITY_QUEUE:
        if meta.name.startswith(EVENT_TIMERS):
            return "event-timer"
        return "proc-timer" if meta.name.startswith(PROCESSING_TIMERS) else "queue"
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
    ) -> Snapshot:
        """Reads the metadata of a savepoint or checkpoint.

        Args:
            path: Its folder, or the ``_metadata`` file in it.
            allow_roots: Further folders that its handles may name.
            relocate: Old root to new root, for files that were moved.
            serializers: Where types of your own are registered.
            storage_options: Credentials and the like, for fsspec.

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
        )
        return cls(file, file_io, resolver, serializers)

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
        """An operator by its id."""
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

    @property
    def label(self) -> str:
        """The uid, or the hash of an operator without one: ``op`` in dumps."""
        return self.uid or self.operator_id.hex

    @property
    def keyed_handles(self) -> list[KeyedStateHandle]:
        """The managed keyed state of all subtasks."""
        handles = (subtask.managed_keyed_state for subtask in self.state.subtasks)
        return [handle for handle in handles if handle is not None]

    @property
    def states(self) -> list[StateInfo]:
        """The keyed states, by name. Reads headers, and the log of a changelog checkpoint."""
        found: dict[tuple[str, bool], StateInfo] = {}
        for handle in self.keyed_handles:
            for meta in self._state_metas(handle):
                found.setdefault(state_key(meta), StateInfo.of(meta))
        return sorted(found.values(), key=lambda info: (info.name, info.kind))

    def _state_metas(self, handle: KeyedStateHandle) -> Iterator[StateMetaInfoSnapshot]:
        snapshot = self.snapshot
        with error_context(operator=self.label):
            if isinstance(handle, KeyGroupsSavepointStateHandle):
                header = read_canonical_header(handle, snapshot.resolver, snapshot.registry)
                yield from header.states
            elif isinstance(handle, ChangelogStateBackendHandle) and not handle.non_materialized:
                for base in handle.materialized:
                    yield from self._state_metas(base)
            else:
                state = self.restore([handle], handle.key_group_range)
                yield from (table.meta for table in state.tables.values())

    def state_info(self, name: str) -> StateInfo:
        """A state by name.

        Raises:
            NoSuchStateError: Lists the states that there are.
        """
        states = self.states
        for info in states:
            if info.name == name:
                return info
        known = ", ".join(repr(info.name) for info in states) or "none"
        raise NoSuchStateError(
            f"State {name!r} is not in operator {self.label!r}; it has: {known}.",
            location=str(self.snapshot.folder),
        )

    def restore(self, handles: Sequence[KeyedStateHandle], key_groups: KeyGroupRange) -> KeyedState:
        """The keyed state of some key groups, in memory."""
        snapshot = self.snapshot
        with error_context(location=str(snapshot.folder), operator=self.label):
            return restore_keyed_state(
                handles, key_groups, self.max_parallelism, snapshot.resolver, snapshot.registry
            )

    def key_group_splits(self, count: int) -> list[KeyGroupRange]:
        """All key groups in at most ``count`` ranges."""
        if count < 1:
            raise ConfigError(f"State is read in at least one split, got {count}.")
        total = self.max_parallelism
        bounds = [total * index // count for index in range(count + 1)]
        return [KeyGroupRange(start, end - 1) for start, end in pairwise(bounds) if start < end]

    def dump(self, state: str | None = None) -> Iterator[dict[str, Any]]:
        """Every keyed entry as ``dstl dump`` prints it, one key-group range at a time."""
        if state is not None:
            self.state_info(state)
        for handle in self.keyed_handles:
            restored = self.restore([handle], handle.key_group_range)
            for key_group in handle.key_group_range:
                yield from self._dump_key_group(restored, key_group, state)

    def _dump_key_group(
        self, restored: KeyedState, key_group: int, only: str | None
    ) -> Iterator[dict[str, Any]]:
        for table, (key, namespace, value) in restored.rows(key_group):
            meta = table.meta
            if only is not None and meta.name != only:
                continue
            kind = kind_of(meta)
            line: dict[str, Any] = {"op": self.label, "kind": kind}
            if kind in ("event-timer", "proc-timer"):
                prefix = EVENT_TIMERS if kind == "event-timer" else PROCESSING_TIMERS
                timer = meta.value_serializer.to_text(value)
                line |= {"service": meta.name.removeprefix(prefix), "key": timer["key"]}
                line |= {"kg": key_group, "ns": timer["ns"], "ts": timer["ts"]}
            else:
                line |= {
                    "state": meta.name,
                    "key": table.codec.key_serializer.to_text(key),
                    "kg": key_group,
                    "ns": table.codec.namespace_serializer.to_text(namespace),
                    "value": meta.value_serializer.to_text(value),
                }
            yield line

    def form(self) -> str:
        """How the keyed state is stored, for people."""
        return ", ".join(sorted({_form_of(handle) for handle in self.keyed_handles})) or "none"

    def problem(self) -> str | None:
        """Why the keyed state cannot be read, or None if it can."""
        try:
            self.states  # noqa: B018  # reading them is the test
        except DstlError as error:
            return str(error)
        return None


def _form_of(handle: KeyedStateHandle) -> str:
    match handle:
        case KeyGroupsSavepointStateHandle():
            return "canonical"
        case KeyGroupsStateHandle():
            return "heap"
        case ChangelogStateBackendHandle():
            base = sorted({_form_of(each) for each in handle.materialized})
            return f"changelog on {' and '.join(base) or 'nothing'}"
        case _:
            return "rocksdb files"
