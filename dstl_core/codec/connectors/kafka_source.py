"""``KafkaSource``: splits are partitions of topics.

    split v0      := utf topic, i32 partition, i64 next offset, i64 stop
    enumerator v0 := i32 subtasks, i32 split version, each: i32 subtask, i32 n,
                     n (i32 length, split)
    enumerator v1 := i32 n, n (utf topic, i32 partition)
    enumerator v2 := i32 n, n (utf topic, i32 partition, i32 status), bool discovery finished
    enumerator v3 := i32 n, i32 split version, n (i32 length, split, i32 status), bool

Negative offsets are markers. Source: ``KafkaPartitionSplitSerializer`` and
``KafkaSourceEnumStateSerializer`` of the connector 5.0.
"""

from __future__ import annotations

from dstl_core.codec.connectors.connector_fields import (
    Json,
    Position,
    SourceFormat,
    check_version,
    read_choice,
    read_flag,
    whole,
)
from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.errors import FormatError

SPLIT_VERSION = 0
ENUMERATOR_VERSION = 2
"""The version without offsets; connectors since 3.1 read it."""
LATEST, EARLIEST, COMMITTED = -1, -2, -3
MARKERS = {"earliest": EARLIEST, "latest": LATEST, "committed": COMMITTED}
_NAMES = {offset: name for name, offset in MARKERS.items()}
_NONE = -(1 << 63)
_STATUS = ("ASSIGNED", "UNASSIGNED")
ASSIGNED, UNASSIGNED = _STATUS
_WITH_SPLITS = 3


def _partition(data: DataInput) -> Json:
    topic = data.read_utf("topic")
    at = data.position
    partition = data.read_i32("partition")
    if partition < 0 or not topic:
        raise FormatError("Not a partition of a topic", offset=at, expected=">= 0", got=partition)
    return {"topic": topic, "partition": partition}


def _read_split(data: DataInput) -> Json:
    partition = _partition(data)
    at = data.position
    offset, stop = data.read_i64("offset"), data.read_i64("stop")
    if offset < COMMITTED and offset != _NONE:
        raise FormatError("Not an offset", offset=at, expected=">= -3", got=offset)
    return {**partition, "offset": offset, "stop": None if stop == _NONE else stop}


def _split(version: int, raw: bytes) -> Json:
    check_version("A partition of Kafka", version, (SPLIT_VERSION,))
    return whole(raw, "a partition of Kafka", _read_split)


def _sized_split(data: DataInput, version: int) -> Json:
    return _split(version, data.read_bytes(data.read_length("split")))


def _enumerator_0(data: DataInput) -> Json:
    subtasks, version = data.read_count("subtasks", 8), data.read_i32("split version")
    partitions = []
    for _ in range(subtasks):
        data.read_i32("subtask")
        splits = [_sized_split(data, version) for _ in range(data.read_count("splits", 4))]
        partitions += [{**each, "status": _STATUS[0]} for each in splits]
    return {"partitions": partitions, "initialDiscoveryFinished": None}


def _enumerator_1(data: DataInput) -> Json:
    partitions = [
        {**_partition(data), "status": _STATUS[0]} for _ in range(data.read_count("partitions", 6))
    ]
    return {"partitions": partitions, "initialDiscoveryFinished": None}


def _enumerator_2(data: DataInput) -> Json:
    partitions = [
        {**_partition(data), "status": read_choice(data, "status", _STATUS)}
        for _ in range(data.read_count("partitions", 10))
    ]
    return {"partitions": partitions, "initialDiscoveryFinished": read_flag(data, "discovery")}


def _enumerator_3(data: DataInput) -> Json:
    count, version = data.read_count("partitions", 8), data.read_i32("split version")
    partitions = [
        {**_sized_split(data, version), "status": read_choice(data, "status", _STATUS)}
        for _ in range(count)
    ]
    return {"partitions": partitions, "initialDiscoveryFinished": read_flag(data, "discovery")}


_ENUMERATORS = {0: _enumerator_0, 1: _enumerator_1, 2: _enumerator_2, 3: _enumerator_3}


def _enumerator(version: int, raw: bytes) -> Json:
    check_version("Partitions of Kafka", version, _ENUMERATORS)
    return whole(raw, "partitions of Kafka", _ENUMERATORS[version])


def partition_name(split: Json) -> str:
    """``topic/partition``."""
    return f"{split['topic']}/{split['partition']}"


def _position(split: Json) -> Position:
    stop = split.get("stop")
    shown = None if stop is None else _NAMES.get(stop, str(stop))
    offset = split.get("offset")
    if offset is None or offset == _NONE:
        return Position(partition_name(split), "not set", "", shown)
    word = "" if offset in _NAMES else "next"
    return Position(partition_name(split), _NAMES.get(offset, str(offset)), word, shown)


def _pending(enumerator: Json) -> list[Position]:
    return [_position(each) for each in enumerator["partitions"] if each["status"] == UNASSIGNED]


def assigned_partitions(enumerator: Json) -> set[str]:
    """The partitions that some reader is said to hold."""
    return {
        partition_name(split) for split in enumerator["partitions"] if split["status"] != UNASSIGNED
    }


KAFKA = SourceFormat("kafka", _split, _enumerator, _position, _pending)


def write_split(split: Json) -> bytes:
    """The bytes of a split, as ``KAFKA.split`` reads them."""
    out = DataOutput()
    _write_partition(out, split)
    out.write_i64(split["offset"])
    out.write_i64(_NONE if split["stop"] is None else split["stop"])
    return out.to_bytes()


def write_enumerator(version: int, enumerator: Json) -> tuple[int, bytes]:
    """A version and the bytes of the enumerator's checkpoint, as ``KAFKA.enumerator`` reads them.

    Version 0 becomes 1: its fields do not say which subtask holds a split. Connectors since Flink
    1.14 read version 1.
    """
    version = max(version, 1)
    out = DataOutput()
    out.write_i32(len(enumerator["partitions"]))
    if version == _WITH_SPLITS:
        out.write_i32(SPLIT_VERSION)
    for split in enumerator["partitions"]:
        if version == _WITH_SPLITS:
            out.write_sized(write_split(split))
        else:
            _write_partition(out, split)
        if version > 1:
            out.write_i32(_STATUS.index(split["status"]))
    if version > 1:
        out.write_bool(enumerator["initialDiscoveryFinished"])
    return version, out.to_bytes()


def _write_partition(out: DataOutput, split: Json) -> None:
    out.write_utf(split["topic"])
    out.write_i32(split["partition"])


def pending_places(version: int, raw: bytes) -> dict[str, int]:
    """Where the offset of each unassigned partition stands in an enumerator's bytes. Only version
    3 has offsets of its own.
    """
    if version != _WITH_SPLITS:
        return {}
    data = DataInput(raw)
    count = data.read_count("partitions", 8)
    split_version = data.read_i32("split version")
    places = {}
    for _ in range(count):
        split = _sized_split(data, split_version)
        if read_choice(data, "status", _STATUS) == UNASSIGNED:
            places[partition_name(split)] = data.position - 4 - 16
    return places
