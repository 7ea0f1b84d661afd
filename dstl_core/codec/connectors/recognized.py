"""Finds out which connector wrote the splits of a source.

No file names the class. A format fits if its versions are known and it consumes every byte of all
splits and of the enumerator. ``HybridSource`` wraps the splits of others:

    split v0      := i32 source, utf id, i32 version, i32 length, split
    enumerator v0 := i32 source, i32 version, i32 length, enumerator

Source: ``HybridSourceSplitSerializer`` of Flink 2.2.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dstl_core.codec.connectors.connector_fields import (
    Json,
    Position,
    SourceFormat,
    check_version,
    whole,
)
from dstl_core.codec.connectors.envelope import Versioned
from dstl_core.codec.connectors.file_source import FILE_SOURCE
from dstl_core.codec.connectors.kafka_source import KAFKA
from dstl_core.codec.connectors.kinesis_source import KINESIS
from dstl_core.codec.connectors.mysql_cdc import MYSQL_CDC
from dstl_core.codec.connectors.number_sequence import NUMBER_SEQUENCE
from dstl_core.codec.connectors.pulsar_source import PULSAR
from dstl_core.codec.data_io import DataInput
from dstl_core.errors import FormatError

_PLAIN = (NUMBER_SEQUENCE, FILE_SOURCE, KAFKA, KINESIS, MYSQL_CDC, PULSAR)


def recognized(splits: Sequence[Versioned], enumerator: Versioned | None) -> SourceFormat | None:
    """The one format that fits; None if none does, or several."""
    forms = [each for each in (*_PLAIN, HYBRID) if _fits(each, splits, enumerator)]
    return forms[0] if len(forms) == 1 else None


def _fits(form: SourceFormat, splits: Sequence[Versioned], enumerator: Versioned | None) -> bool:
    try:
        for split in splits:
            form.split(split.version, split.data)
        if enumerator is not None:
            form.enumerator(enumerator.version, enumerator.data)
    except FormatError:
        return False
    return True


# ------------------------------------------------------------------------------ HybridSource


def _read_split(data: DataInput) -> Json:
    split = {"sourceIndex": data.read_i32("source"), "splitId": data.read_utf("split id")}
    split["wrappedVersion"] = data.read_i32("version")
    split["wrapped"] = data.read_bytes(data.read_length("split")).hex()
    if _inner(split) is None:
        raise FormatError("The split in a hybrid split is of no known source")
    return split


def _read_enumerator(data: DataInput) -> Json:
    enumerator: Json = {"sourceIndex": data.read_i32("source")}
    enumerator["wrappedVersion"] = data.read_i32("version")
    enumerator["wrapped"] = data.read_bytes(data.read_length("enumerator")).hex()
    return enumerator


def _split(version: int, raw: bytes) -> Json:
    check_version("A hybrid split", version, (0,))
    return whole(raw, "a hybrid split", _read_split)


def _enumerator(version: int, raw: bytes) -> Json:
    check_version("The enumerator of a hybrid source", version, (0,))
    return whole(raw, "the enumerator of a hybrid source", _read_enumerator)


def _inner(split: Json) -> tuple[SourceFormat, Json] | None:
    wrapped = Versioned(split["wrappedVersion"], bytes.fromhex(split["wrapped"]))
    forms = [each for each in _PLAIN if _fits(each, [wrapped], None)]
    return (forms[0], forms[0].split(wrapped.version, wrapped.data)) if len(forms) == 1 else None


def _position(split: Json) -> Position:
    inner = _inner(split)
    assert inner is not None, "a split that was read has an inner one"
    form, fields = inner
    return _of_source(split["sourceIndex"], form.position(fields))


def _of_source(index: int, place: Position) -> Position:
    return replace(place, split=f"source {index}: {place.split}")


def _pending(enumerator: Json) -> list[Position]:
    """Splits that the enumerator of the current source keeps."""
    raw, version = bytes.fromhex(enumerator["wrapped"]), enumerator["wrappedVersion"]
    wrapped = Versioned(version, raw)
    forms = [each for each in _PLAIN if _fits(each, [], wrapped)]
    if len(forms) != 1:
        return []
    places = forms[0].pending(forms[0].enumerator(version, raw))
    return [_of_source(enumerator["sourceIndex"], each) for each in places]


HYBRID = SourceFormat("hybrid", _split, _enumerator, _position, _pending)
