"""A copy of a snapshot in which a ``FlinkKafkaConsumer`` has become a ``KafkaSource``.

The consumer keeps the last offset that it read, in a union state. The source keeps the next offset
to read, a split a partition, and its enumerator says which partitions are assigned. Layouts:
``codec.connectors.legacy_sources`` and ``codec.connectors.kafka_source``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dstl_core.codec.connectors.connector_fields import Json, Position
from dstl_core.codec.connectors.envelope import Versioned
from dstl_core.codec.connectors.kafka_source import (
    ASSIGNED,
    ENUMERATOR_VERSION,
    MARKERS,
    SPLIT_VERSION,
    write_enumerator,
    write_split,
)
from dstl_core.model.checkpoint import OperatorState
from dstl_core.savepoint.connectors.known_states import KAFKA_CONSUMER
from dstl_core.savepoint.connectors.set_positions import MovedSplit
from dstl_core.savepoint.connectors.state_of_source import state_of_consumer, state_of_source
from dstl_core.savepoint.edit.changed_elements import with_operators
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
        _, read = state_of_consumer(consumer, KAFKA_CONSUMER, "KafkaSource")
        # Flink's consumer takes the last of equal partitions, in the order of subtasks.
        places = {place.split: place for place in read}
        splits = {name: _split(place) for name, place in places.items()}
        held = {name: split for name, split in splits.items() if split is not None}
        states[consumer.operator_id] = _state(consumer, list(held.values()))
        moved += [_moved(consumer, places[name], split) for name, split in held.items()]
        left_out += sorted(splits.keys() - held.keys())
    return ConvertedConsumers(with_operators(snapshot, states), tuple(moved), tuple(left_out))


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
    partitions = [{**split, "status": ASSIGNED} for split in splits]
    enumerator = {"partitions": partitions, "initialDiscoveryFinished": True}
    return state_of_source(
        consumer,
        [Versioned(SPLIT_VERSION, write_split(split)) for split in splits],
        Versioned(*write_enumerator(ENUMERATOR_VERSION, enumerator)),
    )
