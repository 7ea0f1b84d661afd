"""``FileSource``: splits are parts of files.

    split v1      := utf id, path, i64 offset, i64 length, i64 modified, i64 file size, i32 n,
                     n utf hosts, bool has position, [i64 offset or -1, i64 records after it]
    path          := bool, [text scheme, user, host], i32 port, [text path, query, fragment]
    enumerator v1 := LE i32 0xDEADBEEF, LE i32 split version, LE i32 n splits, LE i32 n paths,
                     n (LE i32 length, split), n (LE i32 length, UTF-8)

Each text of a path is behind a boolean. Source: ``FileSourceSplitSerializer`` and
``PendingSplitsCheckpointSerializer`` of Flink 2.2.1.
"""

from __future__ import annotations

from dstl_core.codec.connectors.connector_fields import (
    Json,
    Position,
    SourceFormat,
    check_version,
    read_flag,
    read_le_i32,
    read_le_length,
    read_texts,
    whole,
)
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.serializers import Types
from dstl_core.errors import FormatError

_MAGIC = 0xDEADBEEF - (1 << 32)
_NO_OFFSET = -1
RECORDS_DONE = "records done"
"""The word of a position that is a number of records from the start of the split."""


def _text(data: DataInput, field: str) -> str | None:
    text = Types.STRING.deserialize(data) if read_flag(data, field) else None
    return None if text is None else str(text)


def _path(data: DataInput) -> str | None:
    if not read_flag(data, "path"):
        return None
    scheme, user, host = (_text(data, field) for field in ("scheme", "user", "host"))
    port = data.read_i32("port")
    path, query, fragment = (_text(data, field) for field in ("path", "query", "fragment"))
    place = f"//{f'{user}@' if user else ''}{host}{f':{port}' if port >= 0 else ''}" if host else ""
    rest = f"{path or ''}{f'?{query}' if query else ''}{f'#{fragment}' if fragment else ''}"
    return f"{scheme}:{place}{rest}" if scheme else f"{place}{rest}"


def _read_split(data: DataInput) -> Json:
    split: Json = {"splitId": data.read_utf("split id"), "path": _path(data)}
    for name in ("offset", "length", "modified", "fileSize"):
        split[name] = data.read_i64(name)
    split["hosts"] = read_texts(data, "hosts")
    has_position = read_flag(data, "has position")
    split["position"] = (
        [data.read_i64("offset"), data.read_i64("records")] if has_position else None
    )
    return split


def _split(version: int, raw: bytes) -> Json:
    check_version("A split of a file", version, (1,))
    return whole(raw, "a split of a file", _read_split)


def _read_enumerator(data: DataInput) -> Json:
    at = data.position
    if read_le_i32(data, "magic number") != _MAGIC:
        raise FormatError("Not the pending splits of files", offset=at, field="magic number")
    version = read_le_i32(data, "split version")
    splits = read_le_length(data, "splits", 4)
    paths = read_le_length(data, "paths", 4)
    return {
        "splits": [
            _split(version, data.read_bytes(read_le_length(data, "split"))) for _ in range(splits)
        ],
        "processed": [
            _utf8(data.read_bytes(read_le_length(data, "path")), data.position)
            for _ in range(paths)
        ],
    }


def _utf8(raw: bytes, end: int) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise FormatError("A path is not UTF-8", offset=end - len(raw)) from error


def _enumerator(version: int, raw: bytes) -> Json:
    check_version("Pending splits of files", version, (1,))
    return whole(raw, "pending splits of files", _read_enumerator)


def _position(split: Json) -> Position:
    name = f"{split['path']} [{split['splitId']}]"
    stop = f"byte {split['offset'] + split['length']}"
    if split["position"] is None:
        return Position(name, str(split["offset"]), "next byte", stop)
    offset, records = split["position"]
    if offset == _NO_OFFSET:
        return Position(name, str(records), RECORDS_DONE, stop)
    return Position(name, f"{offset}+{records}", "next byte + records", stop)


def _pending(enumerator: Json) -> list[Position]:
    return [_position(each) for each in enumerator["splits"]]


FILE_SOURCE = SourceFormat("files", _split, _enumerator, _position, _pending)
