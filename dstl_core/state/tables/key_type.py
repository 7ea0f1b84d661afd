"""Finds the type of an operator's keys if no header has it.

A changelog without a materialized base describes the states, but not the key. The type of a timer
includes the type of the key. Without timers, this module tries the common types. With the right
type every change parses to its last byte, and every key hashes to the key group of its change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from dstl_core.codec.change_payload import (
    DataChange,
    MetadataChange,
    StateChangeOperation,
    read_change,
)
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.serializers import (
    AnySerializer,
    ListSerializer,
    MapSerializer,
    SerializerRegistry,
    TimerSerializer,
    TupleSerializer,
    Types,
)
from dstl_core.codec.serializers.table_types import BinaryRowDataSerializer
from dstl_core.codec.state_meta import BackendStateType, KeyedStateType, StateMetaInfoSnapshot
from dstl_core.errors import ConfigError, FormatError, RestoreError
from dstl_core.model.change import META_KEY_GROUP, StateChange
from dstl_core.model.key_group import assign_to_key_group

MAX_CHANGES = 500
MIN_CERTAINTY = 1_000_000
"""A type is accepted if a wrong type fits with a probability of at most one in this number."""

_BASIC: tuple[AnySerializer, ...] = (
    Types.STRING,
    Types.LONG,
    Types.INT,
    Types.SHORT,
    Types.BYTE,
    Types.BOOLEAN,
    Types.CHAR,
    Types.BIG_INT,
    Types.BIG_DEC,
    Types.INSTANT,
    Types.SQL_TIMESTAMP,
    Types.LOCAL_DATE,
    Types.LOCAL_TIME,
    Types.LOCAL_DATE_TIME,
)
_IN_TUPLES: tuple[AnySerializer, ...] = (Types.STRING, Types.LONG, Types.INT, Types.BOOLEAN)
_LIKE = {
    "Long": "Double and java.util.Date have the same bytes and hashes",
    "Integer": "Float has the same bytes and hashes",
}


@dataclass(frozen=True, slots=True)
class KeyType:
    """A key type; ``note`` explains how it was found, if it is not from the files."""

    serializer: AnySerializer
    note: str | None = None


def key_type_of_changes(
    changes: Iterable[StateChange], registry: SerializerRegistry, max_parallelism: int
) -> KeyType | None:
    """The key type of a log: from its timers, or by trial. None if it has no keyed changes.

    Raises:
        RestoreError: No type fits, or there are too few keys to be sure of one.
    """
    timer, samples = _sampled(changes, registry)
    if timer is not None:
        return KeyType(timer.key)
    return _by_trial(samples, max_parallelism) if samples else None


def keys_fit(
    key_type: AnySerializer,
    changes: Iterable[StateChange],
    registry: SerializerRegistry,
    max_parallelism: int,
) -> bool:
    """Whether the keys of a log's changes can be of a type, by their bytes and key groups."""
    for key_group, _, change in _sampled(changes, registry)[1]:
        try:
            key = key_type.deserialize(DataInput(change.body.peek(change.body.position)))
            if assign_to_key_group(key_type.java_hash(key), max_parallelism) != key_group:
                return False
        except FormatError:
            return False
        except ConfigError:
            continue  # a type whose hash is not known
    return True


_Sample = tuple[int, StateMetaInfoSnapshot, DataChange]


def _sampled(
    changes: Iterable[StateChange], registry: SerializerRegistry
) -> tuple[TimerSerializer | None, list[_Sample]]:
    """The type of timers as soon as a change describes one, else changes of key-value states."""
    states: dict[int, StateMetaInfoSnapshot] = {}
    samples: list[_Sample] = []
    for change in changes:
        parsed = read_change(change.change, registry)
        if isinstance(parsed, MetadataChange):
            states[parsed.state_id] = parsed.state
            if (timer := _timer_of(parsed.state)) is not None:
                return timer, samples
        elif change.key_group != META_KEY_GROUP and len(samples) < MAX_CHANGES:
            meta = states.get(parsed.state_id)
            if meta is not None and meta.backend_state_type is BackendStateType.KEY_VALUE:
                samples.append((change.key_group, meta, parsed))
    return None, samples


def _timer_of(state: StateMetaInfoSnapshot) -> TimerSerializer | None:
    if state.is_queue:
        serializer = state.value_serializer
        return serializer if isinstance(serializer, TimerSerializer) else None
    return None


def _candidates() -> Iterator[AnySerializer]:
    yield from _BASIC
    for size in (2, 3):
        yield from (TupleSerializer(fields) for fields in product(_IN_TUPLES, repeat=size))
    yield BinaryRowDataSerializer(0)


def _by_trial(samples: list[_Sample], max_parallelism: int) -> KeyType:
    for candidate in _candidates():
        keys = _fitting_keys(candidate, samples, max_parallelism)
        if keys is None:
            continue
        if max_parallelism**keys < MIN_CERTAINTY:
            raise RestoreError(
                f"The type of the key is unknown: the changelog has no materialized base, and its "
                f"{keys} keys are too few to derive it; give the key type (key_types, --key-type)."
            )
        name = candidate.type_name
        also = f" ({_LIKE[name]})" if name in _LIKE else ""
        return KeyType(
            candidate,
            f"no file says the type of the key; {name} fits all {keys} keys and their key "
            f"groups{also}",
        )
    raise RestoreError(
        "The type of the key is unknown: the changelog has no materialized base, and none of the "
        "common types fits; give the key type (key_types, --key-type)."
    )


def _fitting_keys(
    candidate: AnySerializer,
    samples: list[_Sample],
    max_parallelism: int,
) -> int | None:
    """The number of different keys, if all changes fit the candidate; otherwise None."""
    seen: set[bytes] = set()
    for key_group, meta, change in samples:
        data = DataInput(change.body.peek(change.body.position))
        try:
            raw = data.read_value(candidate)
            if raw not in seen:
                key = candidate.deserialize(DataInput(raw))
                if assign_to_key_group(candidate.java_hash(key), max_parallelism) != key_group:
                    return None
                seen.add(raw)
            data.read_value(meta.namespace_serializer)
            _skip_operands(change.operation, meta, data)
            data.expect_end("a change")
        except (FormatError, ConfigError):
            return None
    return len(seen)


def _skip_operands(
    operation: StateChangeOperation, meta: StateMetaInfoSnapshot, data: DataInput
) -> None:
    value = meta.value_serializer
    match operation:
        case StateChangeOperation.CLEAR:
            return
        case (
            StateChangeOperation.SET | StateChangeOperation.SET_INTERNAL | StateChangeOperation.ADD
        ):
            data.read_value(value)
        case StateChangeOperation.ADD_ELEMENT if (
            meta.keyed_state_type is KeyedStateType.LIST and isinstance(value, ListSerializer)
        ):
            data.read_value(value.element)
        case (
            StateChangeOperation.ADD_OR_UPDATE_ELEMENT
            | StateChangeOperation.ADD_ELEMENT
            | StateChangeOperation.REMOVE_ELEMENT
        ) if isinstance(value, MapSerializer):
            data.read_value(value.key)
            if operation is not StateChangeOperation.REMOVE_ELEMENT:
                data.read_value(value.value)
        case StateChangeOperation.MERGE_NS:
            data.read_value(meta.namespace_serializer)
            for _ in range(data.read_count("merged namespaces", 1)):
                data.read_value(meta.namespace_serializer)
        case _:
            data.read_bytes(data.remaining)
