"""Where sources before FLIP-27 stand, as far as their elements can be read without classes."""

from __future__ import annotations

from collections.abc import Callable

from dstl_core.codec.connectors.connector_fields import Position
from dstl_core.codec.connectors.legacy_sources import (
    acknowledged_messages,
    file_split,
    kafka_partition,
    kinesis_shard,
)
from dstl_core.codec.data_io import DataInput
from dstl_core.errors import FormatError
from dstl_core.savepoint.connectors.known_states import (
    DATA_GENERATOR,
    ELEMENTS,
    KAFKA_CONSUMER,
    KINESIS_CONSUMER,
    QUEUE,
    READ_FILE,
    READER_STATE,
    SEQUENCE,
    SOURCE,
    ConnectorState,
    connector_states,
)
from dstl_core.savepoint.read.snapshot import OperatorSnapshot

_LOWEST = -(1 << 63)


def legacy_sources(operator: OperatorSnapshot) -> list[ConnectorState]:
    """The states by which an operator is a source before FLIP-27, or may be one.

    Raises:
        FormatError: Operator state is damaged.
    """
    return [state for state in connector_states(operator, SOURCE) if state.name != READER_STATE]


def read_positions(state: ConnectorState) -> list[tuple[int, Position]] | None:
    """The positions of a source and the subtask of each; None if they cannot be read."""
    read = None if state.known is None else _reader_of(state)
    if read is None:
        return None
    positions = []
    for part in state.parts:
        elements = part.reader.raw_elements(part.info)
        try:
            places = [place for raw in elements for place in read(raw)]
        except FormatError:
            return None  # of another version of the connector, or another one with such a state
        positions += [(part.subtask, place) for place in places]
    is_sequence = state.known is not None and state.known.connector in (SEQUENCE, DATA_GENERATOR)
    return _rests(positions) if is_sequence else positions


def _reader_of(state: ConnectorState) -> Callable[[bytes], list[Position]] | None:
    assert state.known is not None, "only the elements of known states are read"
    by_state: dict[tuple[str, str], Callable[[bytes], list[Position]]] = {
        (KAFKA_CONSUMER, state.name): lambda raw: [kafka_partition(raw)],
        (KINESIS_CONSUMER, state.name): lambda raw: [kinesis_shard(raw).position],
        (READ_FILE, "splits"): lambda raw: [file_split(raw)],
        (READ_FILE, "file-monitoring-state"): _folder,
        (QUEUE, state.name): acknowledged_messages,
        (ELEMENTS, state.name): lambda raw: [Position("elements", str(_number(raw)), "done")],
        (SEQUENCE, state.name): _next_number,
        (DATA_GENERATOR, state.name): _next_number,
    }
    return by_state.get((state.known.connector, state.name))


def _next_number(raw: bytes) -> list[Position]:
    return [Position("sequence", str(_number(raw)), "next")]


def _folder(raw: bytes) -> list[Position]:
    """The time of the newest file that the monitor of a folder has handed out."""
    time_ms = _number(raw)
    if time_ms == _LOWEST:
        return [Position("folder", "no file yet")]
    return [Position("folder", str(time_ms), "files until", time_ms=time_ms)]


def _rests(places: list[tuple[int, Position]]) -> list[tuple[int, Position]]:
    """One position a subtask: the numbers of a sequence that are left."""
    left: dict[int, list[int]] = {}
    for subtask, place in places:
        left.setdefault(subtask, []).append(int(place.value))
    return [
        (subtask, Position(f"sequence {subtask}", str(min(numbers)), "next", str(max(numbers))))
        for subtask, numbers in left.items()
    ]


def _number(raw: bytes) -> int:
    data = DataInput(raw)
    number = int.from_bytes(data.read_bytes(4 if data.remaining == 4 else 8), "big", signed=True)
    data.expect_end("a number")
    return number
