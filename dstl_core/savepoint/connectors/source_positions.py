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
from dstl_core.savepoint.read.entries import OP_LIST
from dstl_core.savepoint.read.operator_catalog import OPERATOR_KINDS
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot

READER_STATE = "SourceReaderState"
ASSIGNED, UNASSIGNED, LOST, TWICE = "assigned", "unassigned", "lost", "held twice"
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """Where one split stands.

    Args:
        op: The source: its uid, or its hash.
        connector: Name of the format; None if no format fits, or several.
        split: Name of the split.
        position: The stored position; hex without a format.
        word: What the position is: ``next`` to read, ``last`` read, ``from`` a time.
        stop: Where the split ends, if it does.
        subtask: Who holds the split; None for the enumerator.
        status: ``assigned``, ``unassigned``, ``lost`` (assigned, and held by no reader) ``held
            twice``, or ``unknown`` for the bytes of an enumerator without a format.
        version: Version of the payload.
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
    version: int
    time_ms: int | None = None
    snapshot_ms: int | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


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
        for subtask, handle, reader in operator.operator_state_readers():
            for info in handle.states:
                if info.name == READER_STATE and OPERATOR_KINDS[info.mode] == OP_LIST:
                    is_source = True
                    splits += [
                        (subtask, parse_versioned(_bytes(each))) for each in reader.elements(info)
                    ]
        coordinator = operator.state.coordinator_state
        if not is_source:
            return None
        enumerator = None if coordinator is None else parse_coordinator(coordinator.data)
        form = recognized([each for _, each in splits], enumerator)
        return cls(operator, tuple(splits), enumerator, form)

    def positions(self) -> Iterator[SourcePosition]:
        """Every split: those of readers, then those that no reader has."""
        if self.form is None:
            yield from self._unknown()
            return
        placed = [
            (subtask, each.version, self.form.position(self.form.split(each.version, each.data)))
            for subtask, each in self.splits
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
        for number, (subtask, each) in enumerate(self.splits):
            place = Position(f"#{number}", each.data.hex(), "bytes")
            yield self._row(place, subtask, ASSIGNED, each.version)
        if self.enumerator is not None:
            place = Position("enumerator", self.enumerator.data.hex(), "bytes")
            yield self._row(place, None, UNKNOWN, self.enumerator.version)

    def _row(
        self, place: Position, subtask: int | None, status: str, version: int
    ) -> SourcePosition:
        return SourcePosition(
            self.operator.label,
            None if self.form is None else self.form.name,
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
    """The sources of a snapshot."""
    for operator in snapshot.operators:
        found = SourceState.of(operator)
        if found is not None:
            yield found


def source_positions(snapshot: Snapshot) -> Iterator[SourcePosition]:
    """Where every split of every source stands.

    Raises:
        FormatError: The state of a source is damaged.
    """
    for each in sources_of(snapshot):
        for position in each.positions():
            yield replace(position, snapshot_ms=snapshot.written_ms)


def _bytes(element: object) -> bytes:
    if not isinstance(element, bytes):
        raise FormatError(
            "A split is no byte array", field=READER_STATE, got=type(element).__name__
        )
    return element
