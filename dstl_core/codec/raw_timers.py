"""Timers in raw keyed state: heap timers next to a RocksDB or ForSt database.

    key group := F1 CD 85 9F, i32 version 2, i32 n, n services
    service   := utf name, snapshot of the key, snapshot of the namespace,
                 i32 n, n event-time timers, i32 n, n processing-time timers
    timer     := key, namespace, i64 timestamp

Source: ``InternalTimerServiceSerializationProxy``, ``InternalTimersSnapshotReaderWriters`` and
``LegacyTimerSerializer`` of Flink 2.2.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.serializers import AnySerializer, SerializerRegistry, SnapshotContext
from dstl_core.codec.serializers.base import write_snapshot
from dstl_core.codec.serializers.runtime import Timer
from dstl_core.errors import FormatError, UnsupportedVersionError

VERSIONED_IDENTIFIER = bytes.fromhex("f1cd859f")
TIMERS_VERSION = 2
_TIME_BYTES = 8
_SIGN = 0x80


@dataclass(frozen=True)
class RawTimers:
    """The timers of one service in one key group."""

    service: str
    key: AnySerializer
    namespace: AnySerializer
    event_time: tuple[Timer, ...]
    processing_time: tuple[Timer, ...]


def read_raw_timers(data: DataInput, registry: SerializerRegistry) -> list[RawTimers]:
    """Reads the timers of one key group. ``data`` holds exactly that key group.

    Raises:
        FormatError: The data is damaged, or is not timers.
    """
    at = data.position
    identifier = data.read_bytes(4, "raw timers identifier")
    if identifier != VERSIONED_IDENTIFIER:
        raise FormatError(
            "Raw keyed state does not hold timers",
            offset=at,
            expected=VERSIONED_IDENTIFIER.hex(),
            got=identifier.hex(),
        )
    at = data.position
    version = data.read_i32("raw timers version")
    if version != TIMERS_VERSION:
        raise UnsupportedVersionError(
            "Raw timers of this version cannot be read",
            offset=at,
            expected=TIMERS_VERSION,
            got=version,
        )
    services = [
        _read_service(data, SnapshotContext(registry))
        for _ in range(data.read_count("timer services", 10))
    ]
    data.expect_end("the timers of a key group")
    return services


def _read_service(data: DataInput, context: SnapshotContext) -> RawTimers:
    name = data.read_utf("timer service")
    key, namespace = context.read_snapshot(data), context.read_snapshot(data)
    event_time = _read_timers(data, key, namespace)
    return RawTimers(name, key, namespace, event_time, _read_timers(data, key, namespace))


def _read_timers(
    data: DataInput, key: AnySerializer, namespace: AnySerializer
) -> tuple[Timer, ...]:
    timers = []
    for _ in range(data.read_count("timers", 9)):
        timer_key, timer_namespace = key.deserialize(data), namespace.deserialize(data)
        timers.append(Timer(data.read_i64("timestamp"), timer_key, timer_namespace))
    return tuple(timers)


@dataclass(frozen=True)
class StoredTimers:
    """The timers of one service in one key group, as bytes: see ``raw_timer``."""

    service: str
    key: AnySerializer
    namespace: AnySerializer
    event_time: Sequence[bytes]
    processing_time: Sequence[bytes]


def raw_timer(element: bytes) -> bytes:
    """A timer as raw keyed state has it, from the element of a queue, whose time stands first and
    has another sign bit.
    """
    flipped = bytes((element[0] ^ _SIGN,))
    return element[_TIME_BYTES:] + flipped + element[1:_TIME_BYTES]


def write_raw_timers(services: Iterable[StoredTimers]) -> bytes:
    """The timers of one key group."""
    every, out = [*services], DataOutput()
    out.write_bytes(VERSIONED_IDENTIFIER)
    out.write_i32(TIMERS_VERSION)
    out.write_i32(len(every))
    for service in every:
        out.write_utf(service.service)
        write_snapshot(out, service.key)
        write_snapshot(out, service.namespace)
        for timers in (service.event_time, service.processing_time):
            out.write_i32(len(timers))
            out.write_bytes(b"".join(timers))
    return out.to_bytes()
