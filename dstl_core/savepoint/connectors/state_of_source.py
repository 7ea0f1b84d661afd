"""The state of a source of FLIP-27 in place of that of a source function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dstl_core.codec.connectors.connector_fields import Position
from dstl_core.codec.connectors.envelope import Versioned, write_coordinator
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
from dstl_core.savepoint.connectors.known_states import READER_STATE, ConnectorState
from dstl_core.savepoint.connectors.legacy_positions import legacy_sources, read_positions
from dstl_core.savepoint.edit.operator_copy import check_aligned
from dstl_core.savepoint.read.snapshot import OperatorSnapshot


def state_of_consumer(
    consumer: OperatorSnapshot, connector: str, target: str
) -> tuple[ConnectorState, list[Position]]:
    """The state in which a consumer keeps its positions, which is all that it keeps.

    Raises:
        SavepointError: The operator is no such consumer, keeps state beside it, or has in-flight
            data.
    """
    # The subtasks of the source have no in-flight data, so a later check would see none.
    check_aligned(consumer)
    states = [
        state
        for state in legacy_sources(consumer)
        if state.known is not None and state.known.connector == connector
    ]
    places = read_positions(states[0]) if states else None
    if places is None:
        raise refusal(consumer, target, f"it is no {connector}")
    others = {info.name for info in consumer.operator_states} - {states[0].name}
    filled = sorted(name for name in others if _elements(consumer, name))
    if filled or consumer.keyed_handles:
        kept = ", ".join(filled) or "keyed state"
        raise refusal(
            consumer, target, f"it holds other state ({kept}), which a source does not take"
        )
    return states[0], [place for _, place in places]


def refusal(consumer: OperatorSnapshot, target: str, reason: str) -> SavepointError:
    return SavepointError(
        f"Operator {consumer.label!r} cannot become a {target}: {reason}.",
        location=str(consumer.snapshot.folder),
    )


def state_of_source(
    consumer: OperatorSnapshot, splits: Sequence[Versioned], enumerator: Versioned
) -> OperatorState:
    """The operator with the state of a source, whose splits are dealt out to its subtasks."""
    meta = list_state_meta(
        READER_STATE, OperatorStateMode.SPLIT_DISTRIBUTE, BytePrimitiveArraySerializer()
    )
    subtasks = []
    for index in range(consumer.parallelism):
        elements = [reader_element(split) for split in splits[index :: consumer.parallelism]]
        raw, infos = write_operator_stream([(meta, elements)], [])
        stream = ByteStreamStateHandle(f"{consumer.operator_id.hex}-{index}", raw)
        handle = OperatorStreamStateHandle(infos, stream)
        subtasks.append(OperatorSubtaskState(index, managed_operator_state=handle))
    coordinator = ByteStreamStateHandle(
        f"{consumer.operator_id.hex}-coordinator", write_coordinator(enumerator)
    )
    return replace(consumer.state, subtasks=tuple(subtasks), coordinator_state=coordinator)


def _elements(operator: OperatorSnapshot, name: str) -> int:
    return sum(
        len(info.offsets)
        for _, handle, _ in operator.operator_state_readers(name)
        for info in handle.states
        if info.name == name
    )
