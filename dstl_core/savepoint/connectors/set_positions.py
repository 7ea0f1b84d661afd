"""Copies a snapshot with new positions of its sources."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dstl_core.codec.connectors import kafka_source, number_sequence
from dstl_core.codec.connectors.envelope import Versioned, write_coordinator, write_versioned
from dstl_core.codec.connectors.file_source import FILE_SOURCE, RECORDS_DONE
from dstl_core.codec.connectors.kafka_source import KAFKA, MARKERS
from dstl_core.codec.connectors.number_sequence import NUMBER_SEQUENCE
from dstl_core.display import option_text
from dstl_core.errors import ConfigError, SavepointError
from dstl_core.flink_text import whole_number
from dstl_core.model.checkpoint import OperatorState
from dstl_core.model.handle import ByteStreamStateHandle
from dstl_core.model.ids import OperatorID
from dstl_core.savepoint.connectors.known_states import (
    KAFKA_CONSUMER,
    KINESIS_CONSUMER,
    READER_STATE,
)
from dstl_core.savepoint.connectors.source_positions import (
    UNASSIGNED,
    SourcePosition,
    SourceState,
    legacy_positions,
    sources_of,
)
from dstl_core.savepoint.edit.changed_elements import with_elements, with_operators
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.savepoint.read.snapshot_names import SnapshotNames, put_once

_POSITION_AT = {
    KAFKA.name: slice(-16, -8),
    NUMBER_SEQUENCE.name: slice(-16, -8),
    FILE_SOURCE.name: slice(-8, None),
}
"""The formats that can be set, and the long of a reader's split that is its position: the one
before the stop, or the number of records of a file that are done.
"""
_LIMIT = 1 << 63
_OPTION = "A position (positions, --set)"
SplitKey = tuple[OperatorID, str]
_PENDING_PLACES = {
    KAFKA.name: kafka_source.pending_places,
    NUMBER_SEQUENCE.name: number_sequence.pending_places,
}
"""Where the enumerator keeps offsets of splits. The pending splits of files have none."""


@dataclass(frozen=True, slots=True)
class MovedSplit:
    """A split whose position changes. ``records`` is how many are skipped; negative: read again;
    None if a marker takes part.
    """

    op: str
    split: str
    old: str
    new: str
    records: int | None

    def to_json(self) -> dict[str, Any]:
        return {
            "op": self.op,
            "split": self.split,
            "old": self.old,
            "new": self.new,
            "records": self.records,
        }


def set_positions(
    snapshot: Snapshot, positions: Mapping[str, str], *, earliest: bool = False
) -> tuple[Snapshot, list[MovedSplit]]:
    """The snapshot with other positions of sources, for ``edit_savepoint``, and what moves.

    Args:
        snapshot: The snapshot.
        positions: ``SPLIT`` or ``OP:SPLIT`` (OP is a uid, hash or name) to its new position: a
            number (for files, of records that are done), or for Kafka also ``earliest``,
            ``latest`` or ``committed``.
        earliest: Every split of Kafka that ``positions`` does not name starts over.

    Raises:
        SavepointError: The format of the source cannot be set.
        ConfigError: A position is none, no split has such a name, or several have.
    """
    sources = list(sources_of(snapshot))
    known = {
        (source.operator.operator_id, row.split): (source, row)
        for source in sources
        for row in source.positions()
        if row.position != "not held"
    }
    ids = {operator.label: operator.operator_id for operator in snapshot.operators}
    legacy = {(ids[row.op], row.split): row for row in legacy_positions(snapshot)}
    named = _named(snapshot, {**known, **legacy}, positions)
    _refuse_legacy(snapshot, legacy, named, earliest=earliest)
    wanted: dict[SplitKey, int] = {}
    if earliest:
        wanted = dict.fromkeys(_kafka(known), MARKERS["earliest"])
    wanted |= {key: _offset(*known[key], text) for key, text in named.items()}
    states, moved = {}, []
    for source in sources:
        operator_id = source.operator.operator_id
        mine = {split: value for (op, split), value in wanted.items() if op == operator_id}
        if not mine:
            continue
        moved += list(_moves(source, mine))
        states[operator_id] = _changed(source, mine)
    return with_operators(snapshot, states), moved


def _named(
    snapshot: Snapshot, known: Mapping[SplitKey, object], positions: Mapping[str, str]
) -> dict[SplitKey, str]:
    """The new position of each split that is named, as text."""
    names, texts = SnapshotNames(snapshot), dict[SplitKey, str]()
    for name, text in positions.items():
        key = names.split_key(_OPTION, name, known)
        put_once(_OPTION, texts, key, f"split {key[1]!r}", text)
    return texts


def _refuse_legacy(
    snapshot: Snapshot,
    legacy: Mapping[SplitKey, SourcePosition],
    named: Mapping[SplitKey, str],
    *,
    earliest: bool,
) -> None:
    """Refuses to leave a source where it is that the caller wants elsewhere.

    Raises:
        SavepointError: It is a source before FLIP-27, whose positions cannot be set.
    """
    for key, row in legacy.items():
        if key in named or (earliest and row.connector == KAFKA_CONSUMER):
            selected = SnapshotNames(snapshot).text_of(snapshot[f"hash:{key[0].hex}"])
            way_out = (
                f"start the job without the state of this operator to read from where its settings "
                f"say (dstl rewrite {option_text('--remove', selected)})"
            )
            if row.connector == KAFKA_CONSUMER:
                way_out += (
                    f", or turn it into the state of a KafkaSource, whose positions can be set "
                    f"(dstl offsets {option_text('--kafka-source', selected + '=UID')})"
                )
            if row.connector == KINESIS_CONSUMER:
                way_out += (
                    f", or turn it into the state of a KinesisStreamsSource, which goes on where "
                    f"it stands (dstl offsets "
                    f"{option_text('--kinesis-source', selected + '=UID')} --stream-arn ARN)"
                )
            raise SavepointError(
                f"The position of split {row.split!r} of operator {row.op!r} cannot be set: its "
                f"state is that of a source before FLIP-27 ({row.connector or 'unknown'}); "
                f"{way_out}.",
                location=str(snapshot.folder),
            )


def _kafka(known: Mapping[SplitKey, tuple[SourceState, SourcePosition]]) -> list[SplitKey]:
    """The splits that can be set to their start."""
    keys = [key for key, (source, _) in known.items() if source.form is KAFKA]
    if not keys:
        raise SavepointError(
            "Only partitions of Kafka are set to their start (earliest, --earliest), and the "
            "snapshot has none; set other splits by name (positions, --set)."
        )
    return keys


def _offset(source: SourceState, row: SourcePosition, text: str) -> int:
    form, split = source.form, row.split
    if form is None or form.name not in _POSITION_AT:
        name = "of unknown format" if form is None else f"of {form.name}"
        raise SavepointError(
            f"The position of split {split!r} cannot be set: it is {name}, and only splits "
            f"of Kafka, of files and of number sequences can."
        )
    if form is FILE_SOURCE and row.status != UNASSIGNED and row.word != RECORDS_DONE:
        raise SavepointError(
            f"The position of split {split!r} cannot be set: its reader stores a place in the "
            f"file ({row.word} {row.position}), and only a number of records that are done can "
            f"be set."
        )
    is_kafka = form is KAFKA
    if is_kafka and text in MARKERS:
        return MARKERS[text]
    number = whole_number(text)
    least = -_LIMIT if form is NUMBER_SEQUENCE else 0
    if number is not None and least <= number < _LIMIT:
        return number
    expected = {
        KAFKA.name: "a number from 0, earliest, latest or committed",
        FILE_SOURCE.name: "the number of records that are done, from 0",
    }.get(form.name, "a number")
    raise ConfigError(
        f"The position of split {split!r} is wrong: expected {expected}, got {text!r}."
    )


def _moves(source: SourceState, wanted: Mapping[str, int]) -> Iterator[MovedSplit]:
    names = {offset: name for name, offset in MARKERS.items()} if source.form is KAFKA else {}
    for row in source.positions():
        if row.split not in wanted:
            continue
        new = wanted[row.split]
        is_number = re.fullmatch(r"-?\d+", row.position) is not None and new not in names
        yield MovedSplit(
            row.op,
            row.split,
            row.position,
            names.get(new, str(new)),
            new - int(row.position) if is_number else None,
        )


def _changed(source: SourceState, wanted: Mapping[str, int]) -> OperatorState:
    form = source.form
    assert form is not None, "a split that can be set has a format"

    def change(_: int, elements: list[bytes]) -> list[bytes]:
        return [_element(each) for each in elements]

    def _element(element: bytes) -> bytes:
        # A length, then the frame: both as they were, since no length changes.
        framed = element[4:]
        version, raw = int.from_bytes(framed[:4], "big", signed=True), framed[8:]
        split = form.position(form.split(version, raw)).split
        if split not in wanted:
            return element
        new = bytearray(raw)
        new[_POSITION_AT[form.name]] = wanted[split].to_bytes(8, "big", signed=True)
        form.split(version, bytes(new))  # what is written can be read
        return element[:4] + write_versioned(Versioned(version, bytes(new)))

    state = with_elements(source.operator, READER_STATE, change)
    if source.enumerator is None or state.coordinator_state is None:
        return state
    raw = write_coordinator(_enumerator(source, source.enumerator, wanted))
    handle = ByteStreamStateHandle(state.coordinator_state.handle_name, raw)
    return replace(state, coordinator_state=handle)


def _enumerator(source: SourceState, stored: Versioned, wanted: Mapping[str, int]) -> Versioned:
    """The enumerator's checkpoint with the offsets of splits that no reader has."""
    assert source.form is not None, "a split that can be set has a format"
    pending_places = _PENDING_PLACES.get(source.form.name)
    places = {} if pending_places is None else pending_places(stored.version, stored.data)
    raw = bytearray(stored.data)
    pending = (row.split for row in source.positions() if row.status == UNASSIGNED)
    for split in (each for each in pending if each in wanted):
        if split not in places:
            raise SavepointError(
                f"The position of split {split!r} cannot be set: no reader has it yet, and this "
                f"version of the connector stores no offset for such a split."
            )
        raw[places[split] : places[split] + 8] = wanted[split].to_bytes(8, "big", signed=True)
    changed = Versioned(stored.version, bytes(raw))
    source.form.enumerator(changed.version, changed.data)  # what is written can be read
    return changed
