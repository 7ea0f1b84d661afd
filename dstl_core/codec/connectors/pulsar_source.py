"""``PulsarSource``: splits are partitions of topics with ranges of hashes.

    split v2      := partition, i32 length, stop cursor (Java), bool, [i32 length, id of the last
                     message], bool, [i64, i64 transaction]
    partition     := utf topic, i32 partition, i32 n, n (i32 first, i32 last)
    enumerator v3 := i32 n, n partitions

Source: ``PulsarPartitionSplitSerializer`` and ``PulsarSourceEnumStateSerializer`` of the connector.
"""

from __future__ import annotations

from dstl_core.codec.connectors.connector_fields import (
    Json,
    Position,
    SourceFormat,
    check_version,
    read_flag,
    whole,
)
from dstl_core.codec.data_io import DataInput
from dstl_core.errors import FormatError


def _partition(data: DataInput) -> Json:
    at = data.position
    topic, partition = data.read_utf("topic"), data.read_i32("partition")
    if partition < -1 or not topic:
        raise FormatError("Not a partition of Pulsar", offset=at, expected=">= -1", got=partition)
    ranges = [
        [data.read_i32("first"), data.read_i32("last")] for _ in range(data.read_count("ranges", 8))
    ]
    return {"topic": topic, "partition": partition, "ranges": ranges}


def _read_split(data: DataInput) -> Json:
    split = _partition(data)
    data.read_bytes(data.read_length("stop cursor"))
    has_id = read_flag(data, "has message id")
    split["latestConsumedId"] = (
        data.read_bytes(data.read_length("message id")).hex() if has_id else None
    )
    has_transaction = read_flag(data, "has transaction")
    split["transaction"] = (
        [data.read_i64("most"), data.read_i64("least")] if has_transaction else None
    )
    return split


def _split(version: int, raw: bytes) -> Json:
    check_version("A partition of Pulsar", version, (2,))
    return whole(raw, "a partition of Pulsar", _read_split)


def _enumerator(version: int, raw: bytes) -> Json:
    check_version("Partitions of Pulsar", version, (3,))
    return whole(
        raw,
        "partitions of Pulsar",
        lambda data: [_partition(data) for _ in range(data.read_count("partitions", 10))],
    )


def _position(split: Json) -> Position:
    name = f"{split['topic']}/{split['partition']}"
    if split["latestConsumedId"] is None:
        return Position(name, "start cursor")
    return Position(name, split["latestConsumedId"], "last")


def _pending(enumerator: Json) -> list[Position]:
    return []


PULSAR = SourceFormat("pulsar", _split, _enumerator, _position, _pending)
