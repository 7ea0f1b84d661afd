"""The MySQL source of Flink CDC: splits are parts of tables, then the binlog.

    split v4      := i32 kind, 1: utf table, utf id, utf key type, utf start, utf end, offset,
                     schemas; 2: utf id, utf "", offset start, offset stop, i32 n, n finished
                     splits, schemas, i32 number of finished splits, bool suspended
    finished      := utf table, utf id, utf start, utf end, offset
    schemas       := i32 n, n (utf table, i32 length, JSON)
    offset        := bool, [i32 length, JSON map of texts]
    enumerator v5 := i32 split version, i32 kind, 2: bool is binlog assigned

Source: ``MySqlSplitSerializer`` and ``PendingSplitsStateSerializer`` of Flink CDC 3. What other
kinds of enumerators hold stays bytes.
"""

from __future__ import annotations

import json
import re

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

_SNAPSHOT, _BINLOG = 1, 2
_SECONDS = re.compile("[1-9][0-9]{0,11}")  # 0: not known
_KINDS = {1: "snapshot", 2: "binlog", 3: "hybrid"}


def _json(data: DataInput, field: str) -> Json:
    at = data.position
    raw = data.read_bytes(data.read_length(field), field)
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise FormatError("Not JSON", offset=at, field=field) from error
    if not isinstance(value, dict):
        raise FormatError("Not a JSON object", offset=at, field=field)
    return value


def _offset(data: DataInput, field: str) -> Json:
    return _json(data, field) if read_flag(data, field) else None


def _schemas(data: DataInput) -> None:
    """Schemas of tables, which do not tell a position."""
    for _ in range(data.read_count("schemas", 6)):
        data.read_utf("table")
        _json(data, "schema")


def _finished(data: DataInput) -> None:
    for _ in range(data.read_count("finished splits", 9)):
        for field in ("table", "split id", "start", "end"):
            data.read_utf(field)
        _offset(data, "high watermark")


def _read_split(data: DataInput) -> Json:
    at = data.position
    kind = data.read_i32("kind")
    if kind == _SNAPSHOT:
        split: Json = {"table": data.read_utf("table"), "splitId": data.read_utf("split id")}
        split["keyType"] = data.read_utf("key type")
        split["splitStart"], split["splitEnd"] = data.read_utf("start"), data.read_utf("end")
        split["highWatermark"] = _offset(data, "high watermark")
        _schemas(data)
        return split
    if kind != _BINLOG:
        raise FormatError("Not a split of MySQL", offset=at, expected="1 or 2", got=kind)
    split = {"splitId": data.read_utf("split id")}
    data.read_utf("reserved text")
    split["start"], split["end"] = _offset(data, "start"), _offset(data, "end")
    _finished(data)
    _schemas(data)
    split["finishedSplits"] = data.read_i32("finished splits")
    split["suspended"] = read_flag(data, "suspended") if data.remaining else False
    return split


def _split(version: int, raw: bytes) -> Json:
    check_version("A split of MySQL", version, (4,))
    return whole(raw, "a split of MySQL", _read_split)


def _read_enumerator(data: DataInput) -> Json:
    version = data.read_i32("split version")
    at = data.position
    kind = data.read_i32("kind")
    if kind not in _KINDS:
        raise FormatError("Not pending splits of MySQL", offset=at, expected="1..3", got=kind)
    enumerator: Json = {"splitVersion": version, "kind": _KINDS[kind]}
    if kind == _BINLOG:
        enumerator["binlogSplitAssigned"] = read_flag(data, "assigned")
    else:
        enumerator["raw"] = data.read_bytes(data.remaining).hex()
    return enumerator


def _enumerator(version: int, raw: bytes) -> Json:
    check_version("Pending splits of MySQL", version, (5,))
    return whole(raw, "pending splits of MySQL", _read_enumerator)


def _place(offset: Json) -> str | None:
    if offset is None or offset.get("kind") == "NON_STOPPING":
        return None
    return f"{offset.get('file', '')}:{offset.get('pos', '')}"


def _position(split: Json) -> Position:
    if "table" in split:
        done = split["highWatermark"] is not None
        return Position(f"{split['table']} [{split['splitId']}]", "read" if done else "not read")
    start = split["start"] or {}
    gtids, seconds = start.get("gtids"), str(start.get("ts_sec", ""))
    value = _place(split["start"]) or "not set"
    return Position(
        split["splitId"],
        f"{value} {gtids}" if gtids else value,
        "next",
        _place(split["end"]),
        int(seconds) * 1000 if _SECONDS.fullmatch(seconds) else None,
    )


def _pending(enumerator: Json) -> list[Position]:
    return []


MYSQL_CDC = SourceFormat("mysql cdc", _split, _enumerator, _position, _pending)
