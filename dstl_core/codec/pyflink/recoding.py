"""Values of PyFlink's process mode in another type: ``INT`` as ``LONG``, a row with more fields.

A type is taken for another one only if no value can lose anything: what depends on the value is
checked at each value. Parts of the same type are copied as bytes. A pickle becomes typed values; no
pickle is written.
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Callable
from typing import Any

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.pyflink.coders import KIND_BITS, LEAVES, PICKLED, Coder, mask_bytes
from dstl_core.codec.pyflink.pickled_values import Pairs, PickledItems, Plain, pickled_text
from dstl_core.codec.pyflink.pickles import read_pickle
from dstl_core.errors import ConfigError, FormatError

_WHOLE = {"BYTE": 1, "SHORT": 2, "INT": 4, "LONG": 8, "BIG_INT": 8}
_FLOATS = ("FLOAT", "DOUBLE")
_TEXTS = ("STRING", "CHAR")
_LISTS = ("LIST", "BASIC_ARRAY", "OBJECT_ARRAY")
_EPOCH = datetime.datetime(1970, 1, 1)
_MS = datetime.timedelta(milliseconds=1)


def recoder(old: Coder, new: Coder) -> Callable[[bytes], bytes]:
    """What turns values of one type, which follow each other in some bytes, into another type.

    Raises:
        ConfigError: Values of the old type do not become values of the new one.
    """
    _check(old, new, old.name, new.name)

    def recoded(raw: bytes) -> bytes:
        data, out = DataInput(raw), DataOutput()
        while data.remaining:
            _recode(old, new, raw, data, out)
        return out.to_bytes()

    return recoded


def _check(old: Coder, new: Coder, whole: str, target: str) -> None:
    if old.name == new.name or (old is PICKLED and _is_written(new)):
        return
    kinds = {old.kind, new.kind}
    fits = (
        (old.kind in _WHOLE and (new.kind in _WHOLE or new.kind in (*_FLOATS, "BIG_DEC")))
        or kinds <= {*_FLOATS}
        or kinds <= {*_TEXTS}
        or (old.kind == new.kind == "ROW" and len(old.parts) <= len(new.parts))
        or (old.kind == new.kind and len(old.parts) == len(new.parts) > 0)
        or kinds <= {*_LISTS}
    )
    if not fits:
        raise ConfigError(
            f"Values of type {whole} of PyFlink do not become {target}: {old.name} is no "
            f"{new.name}; expected the same type, a wider number, or a ROW with more fields at its "
            f"end."
        )
    for before, after in zip(old.parts, new.parts, strict=False):
        _check(before, after, whole, target)


def _is_written(new: Coder) -> bool:
    """Whether plain data of a pickle can have a type."""
    leaf = new.kind in _WRITE or new.kind in ("ROW", "TUPLE", "MAP", "PRIMITIVE_ARRAY", *_LISTS)
    return leaf and all(map(_is_written, new.parts))


def _recode(old: Coder, new: Coder, raw: bytes, data: DataInput, out: DataOutput) -> None:
    start = data.position
    if old.name == new.name:
        old.read(data)
        out.write_bytes(raw[start : data.position])
    elif old is PICKLED:
        size = data.read_length("length")
        pickle = DataInput(data.read_bytes(size, "pickle"))
        value = read_pickle(pickle)
        pickle.expect_end("a pickle")
        pickled_text(value, size)  # refuses a value that names others too often
        _write(new, value, out)
    elif old.kind == "ROW":
        _recode_row(old, new, raw, data, out)
    elif old.kind == "TUPLE":
        for before, after in zip(old.parts, new.parts, strict=True):
            _recode(before, after, raw, data, out)
    elif old.kind in (*_LISTS, "PRIMITIVE_ARRAY", "MAP"):
        count = data.read_count("elements", 1)
        out.write_i32(count)
        for _ in range(count):
            _recode_element(old, new, raw, data, out)
    else:
        value = old.read(data)
        if old.kind in _FLOATS:
            value = float(str(value))  # JSON has no infinity, so it is a text
        _WRITE[new.kind](value, out)


def _recode_row(old: Coder, new: Coder, raw: bytes, data: DataInput, out: DataOutput) -> None:
    """The kind of the row and its nulls stay, and fields behind those of the old row are null."""
    size, new_size = mask_bytes(len(old.parts)), mask_bytes(len(new.parts))
    mask = int.from_bytes(data.read_bytes(size, "mask of a row"), "big") >> 8 * size - (
        KIND_BITS + len(old.parts)
    )
    added = len(new.parts) - len(old.parts)
    bits = mask << added | (1 << added) - 1
    unused = 8 * new_size - KIND_BITS - len(new.parts)
    out.write_bytes((bits << unused).to_bytes(new_size, "big"))
    for at, (before, after) in enumerate(zip(old.parts, new.parts, strict=False)):
        if not mask >> len(old.parts) - 1 - at & 1:
            _recode(before, after, raw, data, out)


def _recode_element(old: Coder, new: Coder, raw: bytes, data: DataInput, out: DataOutput) -> None:
    if old.kind == "PRIMITIVE_ARRAY":
        _recode(old.parts[0], new.parts[0], raw, data, out)
        return
    if old.kind == "MAP":
        _recode(old.parts[0], new.parts[0], raw, data, out)
        flag = data.read_bool("is null")
        is_there = not flag
    else:
        flag = is_there = data.read_bool("element is there")
    out.write_bool(flag)
    if is_there:
        _recode(old.parts[-1], new.parts[-1], raw, data, out)


# ----------------------------------------------------------------------------------- writing


def _write(new: Coder, value: Any, out: DataOutput) -> None:
    """Writes plain data of a pickle."""
    if new.kind in _WRITE:
        _WRITE[new.kind](value, out)
    elif new.kind == "MAP":
        if not isinstance(value, Pairs):
            raise _misfit(new.name, value)
        out.write_i32(len(value.pairs))
        for key, item in value.pairs:
            _write(new.parts[0], key, out)
            _write_flagged(new.parts[1], item, out, when_null=True)
    elif not isinstance(value, PickledItems) or value.kind == "set":
        raise _misfit(new.name, value)
    elif new.kind in ("ROW", "TUPLE"):
        _write_fields(new, value.items, out)
    else:
        out.write_i32(len(value.items))
        for item in value.items:
            if new.kind == "PRIMITIVE_ARRAY":
                _write(new.parts[0], item, out)
            else:
                _write_flagged(new.parts[0], item, out, when_null=False)


def _write_flagged(part: Coder, item: Any, out: DataOutput, *, when_null: bool) -> None:
    out.write_bool((item is None) is when_null)
    if item is not None:
        _write(part, item, out)


def _write_fields(new: Coder, items: list[Any], out: DataOutput) -> None:
    if len(items) != len(new.parts):
        raise _misfit(new.name, items)
    if new.kind == "ROW":
        mask = sum((item is None) << len(items) - 1 - at for at, item in enumerate(items))
        size = mask_bytes(len(items))
        out.write_bytes((mask << 8 * size - KIND_BITS - len(items)).to_bytes(size, "big"))
    for part, item in zip(new.parts, items, strict=True):
        if item is not None or new.kind == "TUPLE":
            _write(part, item, out)


def _whole(name: str, size: int) -> Callable[[Any, DataOutput], None]:
    limit = 1 << 8 * size - 1

    def write(value: Any, out: DataOutput) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or not -limit <= value < limit:
            raise _misfit(name, value)
        out.write_bytes(value.to_bytes(size, "big", signed=True))

    return write


def _write_double(value: Any, out: DataOutput) -> None:
    number = _number("DOUBLE", value)
    if isinstance(value, int) and int(number) != value:
        raise _misfit("DOUBLE", value)
    out.write_f64(number)


def _write_float(value: Any, out: DataOutput) -> None:
    number = _number("FLOAT", value)
    stored = DataOutput()
    try:
        stored.write_f32(number)
    except OverflowError as error:
        raise _misfit("FLOAT", value) from error
    read = LEAVES["FLOAT"].only(stored.to_bytes())
    if not math.isnan(number) and float(str(read)) != number:
        raise _misfit("FLOAT", value)
    out.write_bytes(stored.to_bytes())


def _number(name: str, value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _misfit(name, value)
    try:
        return float(value)
    except OverflowError as error:
        raise _misfit(name, value) from error


def _write_bool(value: Any, out: DataOutput) -> None:
    if not isinstance(value, bool):
        raise _misfit("BOOLEAN", value)
    out.write_bool(value)


def _write_text(value: Any, out: DataOutput) -> None:
    if not isinstance(value, str):
        raise _misfit("STRING", value)
    try:
        raw = value.encode()
    except UnicodeEncodeError as error:
        raise _misfit("STRING", value) from error
    out.write_sized(raw)


def _write_decimal(value: Any, out: DataOutput) -> None:
    text = str(value) if type(value) is int else value.text if isinstance(value, Plain) else None
    try:
        is_number = text is not None and decimal.Decimal(str(text)).is_finite()
    except decimal.InvalidOperation:
        is_number = False
    if not is_number:
        raise _misfit("BIG_DEC", value)
    _write_text(text, out)


def _moment(name: str, write: Callable[[str, DataOutput], None]) -> Callable[..., None]:
    """Times of a pickle, which are as exact as the type is, and in no time zone."""

    def write_moment(value: Any, out: DataOutput) -> None:
        try:
            if not isinstance(value, Plain) or not isinstance(value.text, str):
                raise ValueError("no time")
            write(value.text, out)
        except (ValueError, TypeError) as error:
            raise _misfit(name, value) from error

    return write_moment


def _put_date(text: str, out: DataOutput) -> None:
    out.write_i32((datetime.date.fromisoformat(text) - _EPOCH.date()).days)


def _put_time(text: str, out: DataOutput) -> None:
    time = datetime.time.fromisoformat(text)
    out.write_i32(_millis(datetime.datetime.combine(_EPOCH.date(), time)))


def _put_timestamp(text: str, out: DataOutput) -> None:
    if len(text) <= len("2024-01-02"):
        raise ValueError("a date has no time")
    out.write_i64(_millis(datetime.datetime.fromisoformat(text)))


def _millis(moment: datetime.datetime) -> int:
    whole, rest = divmod(moment - _EPOCH, _MS)
    if rest:
        raise ValueError("microseconds")
    return whole


def _misfit(name: str, value: Any) -> FormatError:
    return FormatError(
        f"A value of PyFlink does not fit into type {name}", expected=name, got=_kind_of(value)
    )


def _kind_of(value: Any) -> str:
    """What a value is. The value itself is not shown: it may be a secret."""
    if isinstance(value, PickledItems):
        return f"a {value.kind}"
    return _KINDS.get(type(value), "an object")


_KINDS: dict[type, str] = {
    bool: "a truth value",
    int: "a whole number",
    float: "a number in floating point",
    str: "a text",
    bytes: "bytes",
    type(None): "None",
    Pairs: "a dict",
    list: "another number of fields",
    Plain: "a date, a time, a decimal or alike",
}
_WRITE: dict[str, Callable[[Any, DataOutput], None]] = {
    **{name: _whole(name, size) for name, size in _WHOLE.items()},
    "FLOAT": _write_float,
    "DOUBLE": _write_double,
    "BOOLEAN": _write_bool,
    "STRING": _write_text,
    "CHAR": _write_text,
    "BIG_DEC": _write_decimal,
    "SQL_DATE": _moment("SQL_DATE", _put_date),
    "SQL_TIME": _moment("SQL_TIME", _put_time),
    "SQL_TIMESTAMP": _moment("SQL_TIMESTAMP", _put_timestamp),
}
