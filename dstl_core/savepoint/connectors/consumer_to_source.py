"""A copy of a snapshot in which a ``FlinkKafkaConsumer`` has become a ``KafkaSource``.

The consumer keeps the last offset that it read, in a union state. The source keeps the next offset
to read, a split a partition, and its enumerator says which partitions are assigned. Layouts:
``codec.connectors.legacy_sources`` and ``codec.connectors.kafka_source``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from dstl_core.codec.connectors.connector_fields import Json, Position
from dstl_core.codec.connectors.envelope import Versioned, write_coordinator
from dstl_core.codec.connectors.kafka_source import (
    ASSIGNED,
    ENUMERATOR_VERSION,
    MARKERS,
    SPLIT_VERSION,
    write_enumerator,
    write_split,
)
from dstl_core.codec.operator_state import list_state_meta, write_operator_stream
from dstl_core.codec.serializers.arrays import BytePrimitiveArraySerializer
from dstl_core.errors import SavepointError
from dstl_core.model.checkpoint import OperatorState, OperatorSubtaskState
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    OperatorStateMode,
    OperatorStreamStateHandle,
)
from dstl_core.savepoint.connectors.kafka_topics import reader_element
from dstl_core.savepoint.connectors.known_states import KAFKA_CONSUMER, READER_STATE
from dstl_core.savepoint.connectors.legacy_positions import legacy_sources, read_positions
from dstl_core.savepoint.connectors.set_positions import MovedSplit
from dstl_core.savepoint.edit.changed_elements import with_operators
from dstl_core.savepoint.edit.operator_copy import check_aligned
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot


@dataclass(frozen=True)
class ConvertedConsumers:
    """Consumers that are sources now.

    Args:
        snapshot: The snapshot with the state of sources.
        moved: Each partition with the position of the consumer and that of the source.
        left_out: Partitions whose position the consumer had not set, as ``topic/partition``. The
            source discovers them anew, and reads them from the earliest offset.
    """

    snapshot: Snapshot
    moved: tuple[MovedSplit, ...]
    left_out: tuple[str, ...]


def with_kafka_sources(
    snapshot: Snapshot, consumers: Iterable[OperatorSnapshot]
) -> ConvertedConsumers:
    """The snapshot in which consumers of Kafka have the state of a ``KafkaSource``.

    Connectors since 3.1 read it. The operators keep their ids: an edit gives them the uid that the
    source has in the new job.

    Raises:
        SavepointError: An operator is no ``FlinkKafkaConsumer``, keeps state beside it, or has
            in-flight data.
    """
    states, moved, left_out = {}, list[MovedSplit](), list[str]()
    for consumer in consumers:
        # The subtasks of the source have no in-flight data, so a later check would see none.
        check_aligned(consumer)
        places = _places(consumer)
        splits = {name: _split(place) for name, (_, place) in places.items()}
        held = {name: split for name, split in splits.items() if split is not None}
        states[consumer.operator_id] = _state(consumer, list(held.values()))
        moved += [_moved(consumer, places[name][1], split) for name, split in held.items()]
        left_out += sorted(splits.keys() - held.keys())
    return ConvertedConsumers(with_operators(snapshot, states), tuple(moved), tuple(left_out))


def _places(consumer: OperatorSnapshot) -> dict[str, tuple[int, Position]]:
    """Each partition with its subtask and position. Flink's consumer takes the last of equal ones,
    in the order of subtasks.
    """
    states = [
        state
        for state in legacy_sources(consumer)
        if state.known is not None and state.known.connector == KAFKA_CONSUMER
    ]
    places = read_positions(states[0]) if states else None
    if places is None:
        raise SavepointError(
            f"Operator {consumer.label!r} cannot become a KafkaSource: it is no {KAFKA_CONSUMER}.",
            location=str(consumer.snapshot.folder),
        )
    others = {info.name for info in consumer.operator_states} - {states[0].name}
    filled = sorted(name for name in others if _elements(consumer, name))
    if filled or consumer.keyed_handles:
        raise SavepointError(
            f"Operator {consumer.label!r} cannot become a KafkaSource: it holds other state "
            f"({', '.join(filled) or 'keyed state'}), which a source does not take.",
            location=str(consumer.snapshot.folder),
        )
    return {place.split: (subtask, place) for subtask, place in places}


def _elements(operator: OperatorSnapshot, name: str) -> int:
    return sum(
        len(info.offsets)
        for _, handle, _ in operator.operator_state_readers(name)
        for info in handle.states
        if info.name == name
    )


def _split(place: Position) -> Json | None:
    """The split of a partition; None if the consumer had not set its position."""
    topic, _, partition = place.split.rpartition("/")
    if place.value in MARKERS:
        offset = MARKERS[place.value]
    elif place.word:
        offset = int(place.value) + 1  # the last one was read
    else:
        return None
    return {"topic": topic, "partition": int(partition), "offset": offset, "stop": None}


def _moved(consumer: OperatorSnapshot, place: Position, split: Json) -> MovedSplit:
    is_marker = place.value in MARKERS
    old = place.value if is_marker else f"{place.word} {place.value}"
    new = place.value if is_marker else f"next {split['offset']}"
    return MovedSplit(consumer.label, place.split, old, new, None if is_marker else 0)


def _state(consumer: OperatorSnapshot, splits: list[Json]) -> OperatorState:
    meta = list_state_meta(
        READER_STATE, OperatorStateMode.SPLIT_DISTRIBUTE, BytePrimitiveArraySerializer()
    )
    subtasks = []
    for index in range(consumer.parallelism):
        own = splits[index :: consumer.parallelism]
        elements = [reader_element(Versioned(SPLIT_VERSION, write_split(split))) for split in own]
        raw, infos = write_operator_stream([(meta, elements)], [])
        stream = ByteStreamStateHandle(f"{consumer.operator_id.hex}-{index}", raw)
        handle = OperatorStreamStateHandle(infos, stream)
        subtasks.append(OperatorSubtaskState(index, managed_operator_state=handle))
    partitions = [{**split, "status": ASSIGNED} for split in splits]
    enumerator = {"partitions": partitions, "initialDiscoveryFinished": True}
    stored = Versioned(*write_enumerator(ENUMERATOR_VERSION, enumerator))
    coordinator = ByteStreamStateHandle(
        f"{consumer.operator_id.hex}-coordinator", write_coordinator(stored)
    )
    return replace(consumer.state, subtasks=tuple(subtasks), coordinator_state=coordinator)
