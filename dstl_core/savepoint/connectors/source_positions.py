"""Where every source of a snapshot stands: the state of its readers and of its coordinator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from dstl_core.codec.connectors.connector_fields import Position, SourceFormat
from dstl_core.codec.connectors.envelope import Versioned, parse_coordinator, parse_versioned
from dstl_core.codec.connectors.kafka_source import KAFKA, assigned_partitions
from dstl_core.codec.connectors.recognized import recognized
from dstl_core.errors import FormatError
from dstl_core.savepoint.connectors.known_states import (
    READER_STATE,
    ConnectorState,
    may_coordinate_source,
)
from dstl_core.savepoint.connectors.legacy_positions import legacy_sources, read_positions
from dstl_core.savepoint.read.entries import OP_LIST
from dstl_core.savepoint.read.operator_catalog import OPERATOR_KINDS
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot

ASSIGNED, UNASSIGNED, LOST, TWICE = "assigned", "unassigned", "lost", "held twice"
UNKNOWN, SUSPECTED, EMPTY = "unknown", "suspected", "empty"


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """Where one split stands.

    Args:
        op: The source: its uid, or its hash.
        connector: Name of the format; None if no format fits, or several.
        split: Name of the split; of the state, if its elements cannot be read.
        position: The stored position; hex without a format; how many elements a state holds that
            cannot be read.
        word: What the position is: ``next`` to read, ``last`` read, ``from`` a time.
        stop: Where the split ends, if it does.
        subtask: Who holds the split; None for the enumerator, and for a whole state.
        status: ``assigned``, ``unassigned``, ``lost`` (assigned, and held by no reader), ``held
            twice``, ``unknown`` for what cannot be read, ``suspected`` for the state of an operator
            that may be a source, ``empty`` for the state of a source without elements.
        version: Version of the payload; None for a source before FLIP-27.
        time_ms: The time of the position in milliseconds, where the connector stores one: the time
            stamp of the binlog event, the time from which a shard of Kinesis is read.
        snapshot_ms: When the snapshot was written, in milliseconds; None if the store does not
            tell.
    """

    op: str
    connector: str | None
    split: str
    position: str
    word: str
    stop: str | None
    subtask: int | None
    status: str
    version: int | None
    time_ms: int | None = None
    snapshot_ms: int | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def problem(self) -> str | None:
        """What a person has to know of the split; None if all is well."""
        held = f"{self.split} {self.word} {self.position}"
        match self.status:
            case "lost" | "held twice":
                return f"split {self.split!r} is {self.status}"
            case "suspected":
                return f"it may be a source, and where it stands is not known: {held}"
            case "unknown":
                return f"where the source stands is not known: {held}"
        return None

    @property
    def holder(self) -> str:
        """Who holds the split, in words."""
        return holder_text(self.subtask, self.version)


def holder_text(subtask: int | None, version: int | None) -> str:
    """Who holds a split: a subtask, the enumerator, or several subtasks parts of a whole state."""
    if subtask is not None:
        return f"subtask {subtask}"
    return "" if version is None else "enumerator"


@dataclass(frozen=True)
class SourceState:
    """The stored state of one source.

    Args:
        operator: The operator of the source.
        splits: The splits of each subtask.
        enumerator: The enumerator's checkpoint; None without coordinator state.
        form: The format of the splits, if exactly one fits.
    """

    operator: OperatorSnapshot
    splits: tuple[tuple[int, Versioned], ...]
    enumerator: Versioned | None
    form: SourceFormat | None

    @classmethod
    def of(cls, operator: OperatorSnapshot) -> SourceState | None:
        """The state of a source; None for an operator that is none.

        Raises:
            FormatError: The state is damaged.
        """
        splits: list[tuple[int, Versioned]] = []
        is_source = False
        for subtask, handle, reader in operator.operator_state_readers(READER_STATE):
            for info in handle.states:
                if info.name == READER_STATE and OPERATOR_KINDS[info.mode] == OP_LIST:
                    is_source = True
                    splits += [
                        (subtask, parse_versioned(_bytes(element)))
                        for element in reader.elements(info)
                    ]
        coordinator = operator.state.coordinator_state
        if is_source:
            enumerator = None if coordinator is None else parse_coordinator(coordinator.data)
        else:
            # All of its readers have finished, or it is another operator with a coordinator.
            enumerator = _enumerator_alone(operator)
            if enumerator is None:
                return None
        form = recognized([each for _, each in splits], enumerator)
        return cls(operator, tuple(splits), enumerator, form)

    def positions(self) -> Iterator[SourcePosition]:
        """Every split: those of readers, then those that no reader has."""
        if self.form is None:
            yield from self._unknown()
            return
        placed = [
            (subtask, split.version, self.form.position(self.form.split(split.version, split.data)))
            for subtask, split in self.splits
        ]
        held = Counter(place.split for _, _, place in placed)
        for subtask, version, place in placed:
            status = TWICE if held[place.split] > 1 else ASSIGNED
            yield self._row(place, subtask, status, version)
        if self.enumerator is None:
            return
        fields = self.form.enumerator(self.enumerator.version, self.enumerator.data)
        for place in self.form.pending(fields):
            yield self._row(place, None, UNASSIGNED, self.enumerator.version)
        if self.form is KAFKA:
            for name in sorted(assigned_partitions(fields) - set(held)):
                yield self._row(Position(name, "not held"), None, LOST, self.enumerator.version)

    def _unknown(self) -> Iterator[SourcePosition]:
        for number, (subtask, split) in enumerate(self.splits):
            place = Position(f"#{number}", split.data.hex(), "bytes")
            yield self._row(place, subtask, ASSIGNED, split.version)
        if self.enumerator is not None:
            place = Position("enumerator", self.enumerator.data.hex(), "bytes")
            yield self._row(place, None, UNKNOWN, self.enumerator.version)

    def _row(
        self, place: Position, subtask: int | None, status: str, version: int
    ) -> SourcePosition:
        form = None if self.form is None else self.form.name
        return _at(place, self.operator, form, subtask, status, version)


def _at(
    place: Position,
    operator: OperatorSnapshot,
    connector: str | None,
    subtask: int | None,
    status: str,
    version: int | None,
) -> SourcePosition:
    return SourcePosition(
        operator.label,
        connector,
        place.split,
        place.value,
        place.word,
        place.stop,
        subtask,
        status,
        version,
        place.time_ms,
    )


def sources_of(snapshot: Snapshot) -> Iterator[SourceState]:
    for operator in snapshot.operators:
        source_state = SourceState.of(operator)
        if source_state is not None:
            yield source_state


def source_positions(snapshot: Snapshot) -> Iterator[SourcePosition]:
    """Where every split of every source stands.

    Sources before FLIP-27 come last. What of them cannot be read, and operators that may be
    sources, have a row a state: ``known_states`` says which.

    Raises:
        FormatError: The state of a source is damaged.
    """
    for source in sources_of(snapshot):
        for position in source.positions():
            yield replace(position, snapshot_ms=snapshot.written_ms)
    for position in legacy_positions(snapshot):
        yield replace(position, snapshot_ms=snapshot.written_ms)


def legacy_positions(snapshot: Snapshot) -> Iterator[SourcePosition]:
    """The rows of sources before FLIP-27, and of operators that may be sources."""
    for operator in snapshot.operators:
        for state in legacy_sources(operator):
            places = read_positions(state)
            if places is None:
                status = SUSPECTED if state.known is None else UNKNOWN
                yield _legacy_row(state, status if state.elements else EMPTY)
            elif not places:
                yield _legacy_row(state, EMPTY)
            for subtask, place in places or ():
                yield _legacy_row(state, ASSIGNED, place, subtask)
        coordinator = operator.state.coordinator_state
        is_read = _enumerator_alone(operator) is not None
        if coordinator is not None and may_coordinate_source(operator) and not is_read:
            held = f"{coordinator.state_size} bytes"
            yield SourcePosition(
                operator.label, None, "coordinator", held, "holds", None, None, SUSPECTED, None
            )


def _enumerator_alone(operator: OperatorSnapshot) -> Versioned | None:
    """The enumerator of a source without state of readers; None if the bytes are of another
    coordinator.
    """
    coordinator = operator.state.coordinator_state
    if coordinator is None or not may_coordinate_source(operator):
        return None
    try:
        return parse_coordinator(coordinator.data)
    except FormatError:
        return None


def _legacy_row(
    state: ConnectorState, status: str, place: Position | None = None, subtask: int | None = None
) -> SourcePosition:
    if place is None:
        place = Position(state.name, f"{state.elements} of {state.type_name}", "holds")
    connector = None if state.known is None else state.known.connector
    return _at(place, state.operator, connector, subtask, status, None)


def _bytes(element: object) -> bytes:
    if not isinstance(element, bytes):
        raise FormatError(
            "A split is no byte array", field=READER_STATE, got=type(element).__name__
        )
    return element
