"""``NumberSequenceSource``, ``DataGeneratorSource``, ``fromSequence``: splits are ranges.

    split v1      := utf id, i64 next, i64 last
    enumerator v1 := i32 n, n splits

Source: ``NumberSequenceSource`` of Flink 2.2.1; the same in 1.20.
"""

from __future__ import annotations

from dstl_core.codec.connectors.connector_fields import (
    Json,
    Position,
    SourceFormat,
    check_version,
    whole,
)
from dstl_core.codec.data_io import DataInput
from dstl_core.errors import FormatError


def _read_split(data: DataInput) -> Json:
    at = data.position
    split_id = data.read_utf("split id")
    start, end = data.read_i64("from"), data.read_i64("to")
    if not split_id.isdecimal() or start > end + 1:
        raise FormatError(
            "Not a range of numbers", offset=at, expected="a decimal id and from <= to + 1"
        )
    return {"splitId": split_id, "from": start, "to": end}


def _split(version: int, raw: bytes) -> Json:
    check_version("A range of numbers", version, (1,))
    return whole(raw, "a range of numbers", _read_split)


def _enumerator(version: int, raw: bytes) -> Json:
    check_version("Ranges of numbers", version, (1,))
    return whole(
        raw,
        "ranges of numbers",
        lambda data: [_read_split(data) for _ in range(data.read_count("splits", 18))],
    )


def _position(split: Json) -> Position:
    return Position(split["splitId"], str(split["from"]), "next", str(split["to"]))


def _pending(enumerator: Json) -> list[Position]:
    return [_position(each) for each in enumerator]


NUMBER_SEQUENCE = SourceFormat("number sequence", _split, _enumerator, _position, _pending)


def pending_places(_: int, raw: bytes) -> dict[str, int]:
    """Where the next number of each range stands in an enumerator's bytes, by split."""
    data = DataInput(raw)
    places = {}
    for _ in range(data.read_count("splits", 18)):
        split_id = data.read_utf("split id")
        places[split_id] = data.position
        data.read_bytes(16)
    return places
