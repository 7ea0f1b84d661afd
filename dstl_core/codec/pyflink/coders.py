"""Values in state of PyFlink's types, as its coders store them in process mode.

    PICKLED                i32 length, pickle
    BYTE, SHORT, INT       1, 2, 4 bytes;  LONG, BIG_INT 8;  BOOLEAN 1;  FLOAT 4;  DOUBLE 8
    STRING, CHAR, BIG_DEC  i32 length, UTF-8
    SQL_DATE               i32 days;  SQL_TIME i32 milliseconds;  SQL_TIMESTAMP i64 milliseconds
    INSTANT                i64 seconds, i32 nanoseconds
    ROW                    mask of (2 + fields) bits, highest first: kind of the row, nulls; fields
    TUPLE                  the fields
    LIST, .._ARRAY         i32 count, each: bool is there, [value]
    PRIMITIVE_ARRAY        i32 count, values
    MAP                    i32 count, each: key, bool is null, [value]

Source: ``pyflink.fn_execution`` of Flink 2.2.1, and savepoints of its jobs.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dstl_core.codec.data_io import DataInput
from dstl_core.codec.pyflink.pickled_values import pickled_text
from dstl_core.codec.pyflink.pickles import read_pickle
from dstl_core.codec.serializers.base import JsonValue, bad_value
from dstl_core.codec.serializers.collections import text_key
from dstl_core.codec.serializers.names import Types
from dstl_core.errors import FormatError

Read = Callable[[DataInput], JsonValue]
_DAY_MS = 86_400_000
_EPOCH = datetime.datetime(1970, 1, 1)
KIND_BITS = 2


@dataclass(frozen=True)
class Coder:
    """Reads values of one type as their text form.

    Args:
        name: The type as PyFlink writes it, such as ``TUPLE[INT, STRING]``.
        read: Reads one value.
        least: The fewest bytes that a value takes.
        kind: The type without the types in it, such as ``TUPLE``.
        parts: The types in it.
    """

    name: str
    read: Read
    least: int = 1
    kind: str = ""
    parts: tuple[Coder, ...] = ()

    def only(self, raw: bytes) -> JsonValue:
        """The one value in some bytes."""
        data = DataInput(raw)
        value = self.read(data)
        data.expect_end(f"a value of type {self.name}")
        return value

    def every(self, raw: bytes) -> list[JsonValue]:
        """The values that follow each other in some bytes."""
        data = DataInput(raw)
        values = []
        while data.remaining:
            values.append(self.read(data))
        return values


def pickled(raw: bytes) -> JsonValue:
    """The text form of the one pickle in some bytes."""
    data = DataInput(raw)
    value = read_pickle(data)
    data.expect_end("a pickle")
    return pickled_text(value, len(raw))


def _read_pickled(data: DataInput) -> JsonValue:
    return pickled(_sized(data))


def _sized(data: DataInput) -> bytes:
    return data.read_bytes(data.read_length("length"), "value")


def _text(data: DataInput) -> str:
    at = data.position
    try:
        return _sized(data).decode()
    except UnicodeDecodeError as error:
        raise FormatError("A text of PyFlink is not UTF-8", offset=at) from error


def _moment(make: Callable[[int], Any], number: int, at: int) -> str:
    try:
        return str(make(number).isoformat())
    except (OverflowError, ValueError) as error:
        raise FormatError("A date of PyFlink is outside of its range", offset=at) from error


def _date(data: DataInput) -> str:
    at = data.position
    return _moment(lambda days: (_EPOCH + datetime.timedelta(days)).date(), data.read_i32(), at)


def _time(data: DataInput) -> str:
    at = data.position
    millis = data.read_i32("time")
    if not 0 <= millis < _DAY_MS:
        raise bad_value("A time of PyFlink is outside of a day", at, f"< {_DAY_MS}", millis)
    return (_EPOCH + datetime.timedelta(milliseconds=millis)).time().isoformat()


def _timestamp(data: DataInput) -> str:
    at = data.position
    number = data.read_i64("timestamp")
    return _moment(lambda millis: _EPOCH + datetime.timedelta(milliseconds=millis), number, at)


def _of(serializer: Any) -> Read:
    return lambda data: serializer.to_text(serializer.deserialize(data))


_LEAVES: dict[str, tuple[Read, int]] = {
    "PICKLED": (_read_pickled, 4),
    "BYTE": (_of(Types.BYTE), 1),
    "SHORT": (_of(Types.SHORT), 2),
    "INT": (_of(Types.INT), 4),
    "LONG": (_of(Types.LONG), 8),
    "BIG_INT": (_of(Types.LONG), 8),
    "BOOLEAN": (_of(Types.BOOLEAN), 1),
    "FLOAT": (_of(Types.FLOAT), 4),
    "DOUBLE": (_of(Types.DOUBLE), 8),
    "STRING": (_text, 4),
    "CHAR": (_text, 4),
    "BIG_DEC": (_text, 4),
    "SQL_DATE": (_date, 4),
    "SQL_TIME": (_time, 4),
    "SQL_TIMESTAMP": (_timestamp, 8),
    "INSTANT": (_of(Types.INSTANT), 12),
    "BYTES": (lambda data: _sized(data).hex(), 4),
}
LEAVES = {name: Coder(name, read, least, name) for name, (read, least) in _LEAVES.items()}
PICKLED = LEAVES["PICKLED"]
STRING = LEAVES["STRING"]
PRIMITIVES = ("BYTE", "SHORT", "INT", "LONG", "BOOLEAN", "FLOAT", "DOUBLE", "CHAR")


def tuple_coder(parts: list[Coder]) -> Coder:
    def read(data: DataInput) -> JsonValue:
        if not parts:
            data.count_free(1)
        return [part.read(data) for part in parts]

    return _coder("TUPLE", parts, read, sum(part.least for part in parts))


def mask_bytes(fields: int) -> int:
    """The size of the mask in front of a row."""
    return (KIND_BITS + fields + 7) // 8


def row_coder(parts: list[Coder], names: list[str] | None = None) -> Coder:
    size = mask_bytes(len(parts))

    def read(data: DataInput) -> JsonValue:
        mask = int.from_bytes(data.read_bytes(size, "mask of a row"), "big")
        values = []
        for at, part in enumerate(parts, KIND_BITS):
            is_null = mask >> (8 * size - 1 - at) & 1
            values.append(None if is_null else part.read(data))
        return values if names is None else dict(zip(names, values, strict=True))

    return _coder("ROW", parts, read, size)


def list_coder(kind: str, part: Coder) -> Coder:
    def read(data: DataInput) -> JsonValue:
        return [
            part.read(data) if data.read_bool("element is there") else None
            for _ in range(data.read_count("elements", 1))
        ]

    return _coder(kind, [part], read, 4)


def primitive_array_coder(part: Coder) -> Coder:
    def read(data: DataInput) -> JsonValue:
        return [part.read(data) for _ in range(data.read_count("elements", part.least))]

    if part.name == "BYTE":
        return LEAVES["BYTES"]
    return _coder("PRIMITIVE_ARRAY", [part], read, 4)


def map_coder(key: Coder, value: Coder) -> Coder:
    def read(data: DataInput) -> JsonValue:
        pairs = []
        for _ in range(data.read_count("entries", key.least + 1)):
            shown = key.read(data)
            pairs.append([shown, None if data.read_bool("is null") else value.read(data)])
        return sorted(pairs, key=lambda pair: text_key(pair[0]))

    return _coder("MAP", [key, value], read, 4)


def _coder(kind: str, parts: list[Coder], read: Read, least: int) -> Coder:
    name = f"{kind}[{', '.join(part.name for part in parts)}]"
    return Coder(name, read, least, kind, tuple(parts))
