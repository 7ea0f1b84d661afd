"""A copy of a snapshot in which ``KafkaSource`` reads topics of other names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dstl_core.codec.connectors.connector_fields import Json
from dstl_core.codec.connectors.envelope import (
    Versioned,
    parse_versioned,
    write_coordinator,
    write_versioned,
)
from dstl_core.codec.connectors.kafka_source import KAFKA, write_enumerator, write_split
from dstl_core.codec.data_io import DataOutput
from dstl_core.errors import ConfigError
from dstl_core.model.checkpoint import OperatorState
from dstl_core.model.handle import ByteStreamStateHandle
from dstl_core.savepoint.connectors.known_states import READER_STATE
from dstl_core.savepoint.connectors.source_positions import SourceState, sources_of
from dstl_core.savepoint.edit.changed_elements import with_elements, with_operators
from dstl_core.savepoint.read.snapshot import Snapshot

_LONGEST_TOPIC = 249
"""Characters of a name that a broker takes."""
_TOPIC = re.compile(r"(?!\.\.?\Z)[a-zA-Z0-9._-]+")
"""``Topic.validate`` of Kafka."""


@dataclass(frozen=True, slots=True)
class RenamedTopic:
    """A topic of a source that has another name, and how many partitions of it the source holds."""

    op: str
    old: str
    new: str
    partitions: int

    def to_json(self) -> dict[str, Any]:
        return {"op": self.op, "old": self.old, "new": self.new, "partitions": self.partitions}


def with_topics(
    snapshot: Snapshot, topics: Mapping[str, str]
) -> tuple[Snapshot, list[RenamedTopic]]:
    """The snapshot with other names of topics, for ``edit_savepoint``, and what changes.

    Offsets stay as they are: another cluster has other ones. ``set_positions`` sets them.

    Args:
        snapshot: The snapshot.
        topics: A topic to its new name. Two topics may swap their names.

    Raises:
        ConfigError: A name is none that a broker takes, no source reads a topic, or two topics of
            a source would have one name.
    """
    for new in topics.values():
        if len(new) > _LONGEST_TOPIC or _TOPIC.fullmatch(new) is None:
            raise ConfigError(
                f"The new name of a topic is wrong: expected 1 to {_LONGEST_TOPIC} characters of "
                f"a-z, A-Z, 0-9, '.', '_' and '-', and neither '.' nor '..', got {new!r}."
            )
    sources = [source for source in sources_of(snapshot) if source.form is KAFKA]
    held = {source.operator.operator_id: _topics(source) for source in sources}
    known = {topic for counts in held.values() for topic in counts}
    unknown = sorted(topics.keys() - known)
    if unknown:
        raise ConfigError(
            f"No KafkaSource of the snapshot reads the topic {unknown[0]!r}; the topics are: "
            f"{', '.join(sorted(known)) or 'none'}."
        )
    renamed, states = [], {}
    for source in sources:
        counts = held[source.operator.operator_id]
        names = [topics.get(topic, topic) for topic in counts]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ConfigError(
                f"Two topics of source {source.operator.label!r} would have the name {twice!r}; "
                f"partitions of one topic cannot be read twice."
            )
        renamed += [
            RenamedTopic(source.operator.label, topic, topics[topic], count)
            for topic, count in counts.items()
            if topic in topics
        ]
        if counts.keys() & topics.keys():
            states[source.operator.operator_id] = _changed(source, topics)
    return with_operators(snapshot, states), renamed


def _topics(source: SourceState) -> dict[str, int]:
    """The topics of a source, and how many partitions of each."""
    partitions = {
        (split["topic"], split["partition"])
        for split in (KAFKA.split(stored.version, stored.data) for _, stored in source.splits)
    }
    if source.enumerator is not None:
        enumerator = KAFKA.enumerator(source.enumerator.version, source.enumerator.data)
        partitions |= {(split["topic"], split["partition"]) for split in enumerator["partitions"]}
    counts: dict[str, int] = {}
    for topic, _ in sorted(partitions):
        counts[topic] = counts.get(topic, 0) + 1
    return counts


def _changed(source: SourceState, topics: Mapping[str, str]) -> OperatorState:
    def change(_: int, elements: list[bytes]) -> list[bytes]:
        return [_element(element, topics) for element in elements]

    state = with_elements(source.operator, READER_STATE, change)
    if source.enumerator is None or state.coordinator_state is None:
        return state
    enumerator = KAFKA.enumerator(source.enumerator.version, source.enumerator.data)
    partitions = [_renamed(split, topics) for split in enumerator["partitions"]]
    stored = write_enumerator(source.enumerator.version, {**enumerator, "partitions": partitions})
    handle = ByteStreamStateHandle(
        state.coordinator_state.handle_name, write_coordinator(Versioned(*stored))
    )
    return replace(state, coordinator_state=handle)


def _element(element: bytes, topics: Mapping[str, str]) -> bytes:
    stored = parse_versioned(element[4:])  # of an array: its length, then its bytes
    split = _renamed(KAFKA.split(stored.version, stored.data), topics)
    return reader_element(Versioned(stored.version, write_split(split)))


def _renamed(split: Json, topics: Mapping[str, str]) -> Json:
    return {**split, "topic": topics.get(split["topic"], split["topic"])}


def reader_element(split: Versioned) -> bytes:
    """An element of the state of a source's readers: an array of bytes, with its length."""
    raw = write_versioned(split)
    out = DataOutput()
    out.write_sized(raw)
    return out.to_bytes()
