"""Timers in raw keyed state: heap timers next to a RocksDB or ForSt database.

    key group := F1 CD 85 9F, i32 version 2, i32 n, n services
    service   := utf name, snapshot of the key, snapshot of the namespace,
                 i32 n, n event-time timers, i32 n, n processing-time timers
    timer     := key, namespace, i64 timestamp

Source: ``InternalTimerServiceSerializationProxy``, ``InternalTimersSnapshotReaderWriters`` and
``LegacyTimerSerializer`` of Flink 2.2.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.serializers import (
    AnySerializer,
    SerializerRegistry,
    SnapshotContext,
    TimerSerializer,
)
from dstl_core.codec.serializers.base import write_snapshot
from dstl_core.codec.serializers.runtime import Timer
from dstl_core.errors import FormatError, UnsupportedVersionError

VERSIONED_IDENTIFIER = bytes.fromhex("f1cd859f")
TIMERS_VERSION = 2


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
    services = [_read_service(data, registry) for _ in range(read_services_count(data))]
    data.expect_end("the timers of a key group")
    return services


def read_services_count(data: DataInput) -> int:
    """Reads what stands before the services of a key group.

    Raises:
        FormatError: The data is not timers.
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
    return data.read_count("timer services", 10)


def read_service_types(
    data: DataInput, registry: SerializerRegistry
) -> tuple[str, TimerSerializer]:
    """Reads what stands before the timers of a service: its name, and the types in a timer."""
    context = SnapshotContext(registry)
    name = data.read_utf("timer service")
    return name, TimerSerializer(context.read_snapshot(data), context.read_snapshot(data))


def _read_service(data: DataInput, registry: SerializerRegistry) -> RawTimers:
    name, element = read_service_types(data, registry)
    event_time = _read_timers(data, element.key, element.namespace)
    processing_time = _read_timers(data, element.key, element.namespace)
    return RawTimers(name, element.key, element.namespace, event_time, processing_time)


def _read_timers(
    data: DataInput, key: AnySerializer, namespace: AnySerializer
) -> tuple[Timer, ...]:
    timers = []
    for _ in range(data.read_count("timers", 9)):
        timer_key, timer_namespace = key.deserialize(data), namespace.deserialize(data)
        timers.append(Timer(data.read_i64("timestamp"), timer_key, timer_namespace))
    return tuple(timers)


@dataclass(frozen=True)
class StoredRun:
    """A number of timers, as raw keyed state has them one after the other."""

    count: int
    data: bytes


@dataclass(frozen=True)
class StoredTimers:
    """The timers of one service in one key group, as bytes."""

    service: str
    element: TimerSerializer
    event_time: Sequence[StoredRun]
    processing_time: Sequence[StoredRun]


def write_raw_timers(services: Sequence[StoredTimers]) -> bytes:
    """The timers of one key group."""
    out = DataOutput()
    out.write_bytes(VERSIONED_IDENTIFIER)
    out.write_i32(TIMERS_VERSION)
    out.write_i32(len(services))
    for service in services:
        out.write_utf(service.service)
        write_snapshot(out, service.element.key)
        write_snapshot(out, service.element.namespace)
        for runs in (service.event_time, service.processing_time):
            out.write_i32(sum(run.count for run in runs))
            for run in runs:
                out.write_bytes(run.data)
    return out.to_bytes()
