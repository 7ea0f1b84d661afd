"""``KinesisStreamsSource``: splits are shards.

    split v2      := utf stream, utf shard, utf iterator, bool has marker, [bool is time, [i64 ms],
                     bool is text, [utf sequence number]], i32 n, n utf parents, utf first hash key,
                     utf last hash key, bool finished
    enumerator v1 := bool, [utf last shard seen], i32 n, i32 split version, n (i32 length, split,
                     i32 status)

Version 1 of a split ends before ``finished``, version 0 before the parents. Version 0 of the
enumerator has no status. Source: ``KinesisShardSplitSerializer`` and
``KinesisStreamsSourceEnumeratorStateSerializer`` of the connector 5.0.
"""

from __future__ import annotations

from dstl_core.codec.connectors.connector_fields import (
    Json,
    Position,
    SourceFormat,
    check_version,
    read_flag,
    read_optional_utf,
    read_texts,
    whole,
)
from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.errors import FormatError

SPLIT_VERSION, ENUMERATOR_VERSION = 2, 1
"""What connectors since 5.0 write."""
_STATUSES = (0, 1)
ASSIGNED, _UNASSIGNED = _STATUSES
TRIM_HORIZON, LATEST = "TRIM_HORIZON", "LATEST"
AFTER, AT = "AFTER_SEQUENCE_NUMBER", "AT_SEQUENCE_NUMBER"


def _marker(data: DataInput) -> str | int | None:
    if not read_flag(data, "has marker"):
        return None
    time = data.read_i64("time") if read_flag(data, "is time") else None
    number = read_optional_utf(data, "sequence number")
    return number if number is not None else time


def _split(version: int, raw: bytes) -> Json:
    check_version("A shard of Kinesis", version, (0, 1, 2))

    def read(data: DataInput) -> Json:
        arn = data.read_utf("stream")
        if not arn.startswith("arn:"):
            raise FormatError("Not a shard of Kinesis", field="stream", expected="arn:..")
        split: Json = {"streamArn": arn, "shardId": data.read_utf("shard")}
        split["iterator"] = data.read_utf("iterator")
        split["marker"] = _marker(data)
        if version >= 1:
            split["parents"] = read_texts(data, "parents")
            split["startingHashKey"] = data.read_utf("first hash key")
            split["endingHashKey"] = data.read_utf("last hash key")
        if version >= 2:
            split["finished"] = read_flag(data, "finished")
        return split

    return whole(raw, "a shard of Kinesis", read)


def _enumerator(version: int, raw: bytes) -> Json:
    check_version("Shards of Kinesis", version, (0, 1))

    def read(data: DataInput) -> Json:
        last = read_optional_utf(data, "last shard seen")
        count, split_version = data.read_count("shards", 4), data.read_i32("split version")
        splits = []
        for _ in range(count):
            split = _split(split_version, data.read_bytes(data.read_length("shard")))
            if version >= 1:
                at = data.position
                split["statusCode"] = data.read_i32("status")
                if split["statusCode"] not in _STATUSES:
                    raise FormatError("Not a status", offset=at, expected="0 or 1")
            splits.append(split)
        return {"lastSeenShardId": last, "splits": splits}

    return whole(raw, "shards of Kinesis", read)


_WORDS = {AFTER: "last", AT: "next", "AT_TIMESTAMP": "from"}


def _position(split: Json) -> Position:
    stream = split["streamArn"].rpartition("/")[2]
    name = f"{stream}/{split['shardId']}"
    stop = "finished" if split.get("finished") else None
    if split["marker"] is None:
        return Position(name, split["iterator"].lower(), "", stop)
    word = _WORDS.get(split["iterator"], split["iterator"].lower())
    time_ms = split["marker"] if isinstance(split["marker"], int) else None
    return Position(name, str(split["marker"]), word, stop, time_ms)


def _pending(enumerator: Json) -> list[Position]:
    shards = enumerator["splits"]
    return [_position(each) for each in shards if each.get("statusCode") == _UNASSIGNED]


KINESIS = SourceFormat("kinesis", _split, _enumerator, _position, _pending)


def write_split(split: Json) -> bytes:
    """The bytes of a split that starts at a sequence number or a marker, as version 2 has them."""
    out = DataOutput()
    for field in ("streamArn", "shardId", "iterator"):
        out.write_utf(split[field])
    out.write_bool(split["marker"] is not None)
    if split["marker"] is not None:
        out.write_bool(False)  # no time
        out.write_bool(True)
        out.write_utf(split["marker"])
    out.write_i32(len(split["parents"]))
    for parent in split["parents"]:
        out.write_utf(parent)
    out.write_utf(split["startingHashKey"])
    out.write_utf(split["endingHashKey"])
    out.write_bool(False)  # not finished
    return out.to_bytes()


def write_enumerator(last_seen: str, splits: list[Json]) -> bytes:
    """The bytes of an enumerator that has assigned these splits, as version 1 has them."""
    out = DataOutput()
    out.write_bool(True)
    out.write_utf(last_seen)
    out.write_i32(len(splits))
    out.write_i32(SPLIT_VERSION)
    for split in splits:
        out.write_sized(write_split(split))
        out.write_i32(ASSIGNED)
    return out.to_bytes()
