"""A snapshot as a catalog: operators, their states with kind and type, and every entry.

It reads savepoints and retained checkpoints. Types come from the serializer snapshots in the files,
so no class of the job is needed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dstl_core.cached_property import cached_property
from dstl_core.checkpoint.store.metadata_file import MetadataFile, load_metadata_file
from dstl_core.codec.classfile.job_jar import JobClasses
from dstl_core.codec.kryo.class_layouts import ClassLayouts
from dstl_core.codec.kryo.job_types import with_job_types
from dstl_core.codec.kryo.kryo_serializer import KryoClasses, dialect_of
from dstl_core.codec.metadata.checkpoint_kind import checkpoint_kind
from dstl_core.codec.protobuf.descriptors import Messages, MessageType
from dstl_core.codec.pyflink.declared import PythonStateType, parse_python_type
from dstl_core.codec.pyflink.states import STREAM_KEY
from dstl_core.codec.serializers import (
    BUILT_IN,
    AnySerializer,
    OpaqueValue,
    SerializerRegistry,
)
from dstl_core.display import html_table, html_text, size_text
from dstl_core.errors import (
    ConfigError,
    NoSuchOperatorError,
)
from dstl_core.model.ids import OperatorID, OperatorIdentifier, is_id_hex
from dstl_core.savepoint.read.entries import (
    OP_BROADCAST,
    OP_LIST,
    OP_UNION,
    KeyedEntry,
    TimerEntry,
    Unreadable,
)
from dstl_core.savepoint.read.entry_reader import EntryReader
from dstl_core.savepoint.read.job_classes import open_job_classes, read_protos
from dstl_core.savepoint.read.operator_catalog import OperatorCatalog, StateInfo
from dstl_core.savepoint.read.window_entries import WindowEntry, windows_of
from dstl_core.state.restore.open_tables import OpenTables
from dstl_core.storage.file_io import FileIO, open_file_io
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import METADATA_FILE_NAME, Location, further_roots

if TYPE_CHECKING:
    from dstl_core.savepoint.read.change_reader import StateChangeReader
    from dstl_core.savepoint.read.keyed_reader import KeyedStateReader

Values = list[Any]


class Snapshot:
    """A savepoint or checkpoint. Loading reads its metadata; methods read state when called."""

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
        self.tables = OpenTables(resolver, registry)
        """The table files of the handle that is being read."""
        self.kryo = KryoClasses(dialect_of(file.metadata.version), ClassLayouts(JobClasses()))
        """Which Kryo wrote the values, and what is known of the job's classes."""
        self.state_types: Mapping[str, PythonStateType | MessageType] = {}
        """What a person says of states, by the names that the job gave."""
        self.loaded_with: list[Any] = [str(file.folder)]
        """Where it was loaded from, and the options that decide what is read, as JSON values: a
        copy has the same metadata and other files.
        """
        self.edited: frozenset[OperatorID] = frozenset()
        """Operators whose inline state is that of an edit, and was in no file yet."""
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
        jars: Sequence[str | os.PathLike[str]] = (),
        state_types: Mapping[str, str] | None = None,
        protos: Sequence[str | os.PathLike[str]] = (),
    ) -> Snapshot:
        """Reads the metadata of a savepoint or checkpoint.

        Args:
            path: The folder of the snapshot, or the ``_metadata`` file in it.
            allow_roots: Further folders from which files may be read.
            relocate: Old root to new root, for files that were moved.
            serializers: The registry of types; register your own types there.
            storage_options: Options for fsspec, e.g. credentials.
            changelog_base: Folder of the changelog, if it is outside the checkpoints' folder.
            key_types: Operator (uid, hash or name) to the type of its key, for changelogs that do
                not record it.
            jars: Jars of the job, for values that only its classes explain: those of Kryo, and
                POJOs of classes that are not registered. No class is loaded.
            state_types: State to a type that the files do not have: the full name of a message of
                ``protos``, or what a job of PyFlink declares, such as ``map[STRING, LONG]``.
            protos: Descriptor sets of the messages in the state, as ``protoc`` writes them.

        Raises:
            StateFileNotFoundError: There is no snapshot.
            FormatError: The metadata is damaged.
            ConfigError: The files record another type of a key than ``key_types``, or a type of
                ``state_types`` is neither a message nor one of PyFlink.
        """
        location = Location.parse(path)
        file_io = open_file_io(location, storage_options)
        file = load_metadata_file(file_io, location)
        resolver = HandleResolver(
            file_io,
            file.folder,
            allow_roots=[Location.parse(root) for root in further_roots(allow_roots)],
            relocate={old: Location.parse(new) for old, new in (relocate or {}).items()},
            changelog_base=None if changelog_base is None else Location.parse(changelog_base),
        )
        messages = read_protos(protos, storage_options)
        kryo = KryoClasses(
            dialect_of(file.metadata.version),
            ClassLayouts(open_job_classes(jars, storage_options), messages=messages),
        )
        snapshot = cls(file, file_io, resolver, with_job_types(serializers, kryo))
        snapshot.kryo = kryo
        snapshot.loaded_with += [
            [*allow_roots],
            dict(relocate or {}),
            changelog_base,
            {name: serializer.type_name for name, serializer in (key_types or {}).items()},
            dict(state_types or {}),
            [str(proto) for proto in protos],
            kryo.layouts.classes.digest,
        ]
        for name, serializer in (key_types or {}).items():
            snapshot[name].give_key_type(serializer)
        snapshot.state_types = {
            name: _state_type(text, messages) for name, text in (state_types or {}).items()
        }
        return snapshot

    def require_typed_states(self, *others: Snapshot) -> None:
        """Checks that the states of ``state_types`` are there, here or in other snapshots that were
        loaded with them, and may have such types. It reads headers.

        Raises:
            ConfigError: No operator has one of them, or none that has it is one of PyFlink.
        """
        keyed = [each for own in (self, *others) for each in own.operators if each.keyed_handles]
        for name, state_type in self.state_types.items():
            having = [operator for operator in keyed if operator.has_state(name)]
            if not having:
                raise ConfigError(
                    f"The type of state {name!r} cannot be used: no operator with keyed state has "
                    f"such a state; `dstl inspect` lists the states."
                )
            of_python = isinstance(state_type, PythonStateType)
            if of_python and not any(operator.may_be_of_pyflink for operator in having):
                places = (f"{e.label}/{name} of {e.state_info(name).type}" for e in having)
                types = ", ".join(dict.fromkeys(places))
                raise ConfigError(
                    f"The type of state {name!r} cannot be used: it is one of PyFlink, and the "
                    f"files of other jobs have the types of their states ({types}); leave it out."
                )

    @cached_property
    def is_of_pyflink(self) -> bool:
        """Whether an operator is one that PyFlink adds to its jobs. Flink 1.x keeps no names."""
        return any(STREAM_KEY in each.name for each in self.operators)

    @cached_property
    def written_ms(self) -> int | None:
        """When ``_metadata`` was written, in milliseconds; None if the store does not tell. A copy
        has the time of the copy.
        """
        # The folder may have a million files, so it is not listed.
        return self.file_io.modified_ms(self.folder.child(METADATA_FILE_NAME))

    def __repr__(self) -> str:
        kind = checkpoint_kind(self.metadata.properties)
        parts = [
            " ".join(each for each in (kind.name, kind.format) if each),
            f"checkpoint {self.metadata.checkpoint_id}",
            f"{len(self.operators)} operators",
            size_text(sum(operator.state.state_size for operator in self.operators)),
        ]
        return f"<Snapshot {self.folder}: {', '.join(each for each in parts if each)}>"

    def _repr_html_(self) -> str:
        """The operators as a table, for notebooks. It reads the headers of their state."""
        rows = [
            (
                operator.label,
                f"{operator.parallelism} of {operator.max_parallelism}",
                size_text(operator.state.state_size),
                ", ".join(f"{info.name}: {info.type}" for info in operator.states_or_none()),
            )
            for operator in self.operators
        ]
        table = html_table(("operator", "parallelism", "state", "states"), rows)
        return f"<p>{html_text(repr(self))}</p>{table}"

    def __getitem__(self, name: str) -> OperatorSnapshot:
        """Finds an operator by uid, by hash (32 hex digits), or by unique name. The prefixes
        ``uid:``, ``hash:`` and ``name:`` select one of these, and go before a uid that starts so.

        Raises:
            NoSuchOperatorError: No operator fits, or several do. The message lists the operators.
        """
        operators = self.named(name)
        if len(operators) == 1:
            return operators[0]
        known = ", ".join(sorted(repr(operator.label) for operator in self.operators)) or "none"
        problem = "is in the snapshot more than once" if operators else "is not in the snapshot"
        raise NoSuchOperatorError(
            f"Operator {name!r} {problem}; it has: {known}.", location=str(self.folder)
        )

    def operator(self, identifier: OperatorIdentifier) -> OperatorSnapshot:
        """Finds an operator by its identifier. Raises the errors of ``snapshot[..]``."""
        if identifier.uid:
            return self[f"uid:{identifier.uid}"]
        return self[f"hash:{identifier.operator_id.hex}"]

    def named(self, name: str) -> Sequence[OperatorSnapshot]:
        """Finds every operator that a name fits, by the rules of ``snapshot[..]``."""
        form, _, rest = name.partition(":")
        selected = self._find(form, rest) if form in ("uid", "hash", "name") and rest else ()
        return (
            selected
            or self._find("uid", name)
            or self._find("hash", name)
            or self._find("name", name)
        )

    def _find(self, form: str, text: str) -> Sequence[OperatorSnapshot]:
        match form:
            case "uid":
                return self._by_id.get(OperatorID.for_uid(text), ())
            case "hash":
                return self._by_id.get(OperatorID.from_hex(text), ()) if is_id_hex(text) else ()
            case _:
                return self._by_name.get(text, ())

    @cached_property
    def _by_id(self) -> Mapping[OperatorID, list[OperatorSnapshot]]:
        # Names are resolved for each operator of a snapshot, so a search would be quadratic.
        operators: dict[OperatorID, list[OperatorSnapshot]] = {}
        for operator in self.operators:
            operators.setdefault(operator.operator_id, []).append(operator)
        return operators

    @cached_property
    def _by_name(self) -> Mapping[str, list[OperatorSnapshot]]:
        operators: dict[str, list[OperatorSnapshot]] = {}
        for operator in self.operators:
            operators.setdefault(operator.name, []).append(operator)
        return operators


def _state_type(text: str, messages: Messages | None) -> PythonStateType | MessageType:
    message = None if messages is None else messages.messages.get(text.strip())
    if message is not None:
        return message
    try:
        return parse_python_type(text)
    except ConfigError as error:
        if messages is None:
            raise
        raise ConfigError(f"{error.message}; it is no message of the descriptor sets") from None


class OperatorSnapshot(OperatorCatalog):
    """One operator of a snapshot. Its methods read its state."""

    def __repr__(self) -> str:
        return (
            f"<OperatorSnapshot {self.label!r}: parallelism {self.parallelism} of "
            f"{self.max_parallelism}, {size_text(self.state.state_size)}, "
            f"keyed state: {self.form()}>"
        )

    def states_or_none(self) -> Sequence[StateInfo]:
        """The keyed states, then those of the operator; none if their headers cannot be read."""
        return () if self.problem() else self.states + self.operator_states

    @cached_property
    def with_timer_queues(self) -> OperatorSnapshot:
        """The operator with timers of raw keyed state as timer queues, as in canonical savepoints.

        Raises:
            SavepointError: Raw keyed state holds other data than timers.
        """
        from dstl_core.savepoint.read.timer_queues import (
            with_timer_queues,
        )  # only rewriting needs it

        return with_timer_queues(self)

    def entries(self, state: str | None = None) -> EntryReader:
        """Reads all states of the operator, or one, entry by entry.

        Raises:
            NoSuchStateError: The operator has no such state.
        """
        return EntryReader(self, None if state is None else self.state_info(state).name)

    def keyed_entries(self, state: str | None = None) -> Iterator[KeyedEntry]:
        """Yields the entries of keyed states one by one. A value that only Java can read is an
        ``OpaqueValue``. ``keyed`` is the fast way to read large state.
        """
        return self.entries(state).keyed_entries()

    def timer_entries(self) -> Iterator[TimerEntry]:
        """Yields every timer, also timers in raw keyed state."""
        return EntryReader(self, None).timer_entries()

    def window_entries(self) -> Iterator[WindowEntry]:
        """Yields the contents of windows: an entry per key and window, with the window's timers."""
        return windows_of(EntryReader(self, None).keyed_and_timers())

    def keyed(self, **options: Any) -> KeyedStateReader:
        """Reads one row per key over all states, as Arrow record batches.

        Args:
            options: Fields of ``ReadOptions``: columns, keys, types, memory.
        """
        return self._reader("keyed", options)

    def flat(self, name: str, **options: Any) -> KeyedStateReader:
        """Reads one keyed state or timer service as Arrow record batches: a row for each value,
        list element, map entry or timer.

        Args:
            name: The state.
            options: See ``keyed``.

        Raises:
            NoSuchStateError: The operator has no such state.
        """
        return self._reader(name, options)

    def windows(self, **options: Any) -> KeyedStateReader:
        """Reads one row per key and window over all window states, as Arrow record batches.

        Args:
            options: See ``keyed``.

        Raises:
            SavepointError: The operator has no windows, or windows of several types.
        """
        return self._reader("windows", options)

    def changes(self, name: str, **types: Any) -> StateChangeReader:
        """Reads the changes of a keyed state in the changelog, as Arrow record batches.

        Args:
            name: The state.
            types: Fields of ``ColumnOptions``.

        Raises:
            NoSuchStateError: The operator has no such state.
        """
        from dstl_core.codec.columnar.types.type_layouts import ColumnOptions
        from dstl_core.savepoint.read.change_reader import StateChangeReader

        return StateChangeReader(self, name, ColumnOptions(**types))

    def _reader(self, form: str, options: dict[str, Any]) -> KeyedStateReader:
        # Inspecting a snapshot loads neither Arrow nor the compiler.
        from dstl_core.savepoint.read.keyed_reader import KeyedStateReader, ReadOptions

        return KeyedStateReader(self, form, ReadOptions(**options))

    def unreadable(self) -> list[Unreadable]:
        """Lists the entries that only Java classes of the job can read. It reads all state."""
        reader = EntryReader(self, None)
        for _ in reader:
            pass
        return reader.unreadable

    def dump(self, state: str | None = None) -> Iterator[dict[str, Any]]:
        """Yields every readable entry as ``dstl dump`` prints it. It holds a range of key groups in
        memory.
        """
        return (entry.to_line() for entry in self.entries(state))

    # The names are those of Flink's State Processor API; ``list`` hides the type from here on.

    def list(self, name: str) -> Values:
        """Reads the elements of a list state, over all subtasks.

        Raises:
            NoSuchStateError: The operator has no such list state.
        """
        return self._elements(name, OP_LIST)

    def union(self, name: str) -> Values:
        """Reads the elements of a union list state, over all subtasks.

        Raises:
            NoSuchStateError: The operator has no such union state.
        """
        return self._elements(name, OP_UNION)

    def broadcast(self, name: str) -> Values:
        """Reads the ``(key, value)`` pairs of a broadcast state, which all subtasks share.

        Raises:
            NoSuchStateError: The operator has no such broadcast state.
        """
        return self._elements(name, OP_BROADCAST)

    def _elements(self, name: str, kind: str) -> Values:
        self.state_info(name, kind)
        values: Values = []
        for entry in EntryReader(self, name).operator_state_entries():
            if entry.kind == kind:
                values += [entry.value] if isinstance(entry.value, OpaqueValue) else entry.value
        return values
