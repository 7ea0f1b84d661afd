"""The calls in pickles that stand for plain data, and how dstl makes the data by itself.

Each function here takes the arguments of the call. A wrong argument raises ``TypeError`` or
``ValueError``.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from typing import Any

from dstl_core.codec.pyflink.pickled_values import Global, Pairs, PickledItems, Plain

_ROW_KINDS = 4
_MAX_DIGITS = 4096


def _texts(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("expected a text")
    return value


def _raw(value: Any, size: int) -> bytes:
    if isinstance(value, str):
        value = value.encode("latin-1")  # pickles of Python 2
    if not isinstance(value, bytes) or len(value) != size:
        raise ValueError("expected bytes of another size")
    return value


def _zone(value: Any) -> datetime.tzinfo | None:
    if value is None:
        return None
    if not isinstance(value, Plain) or not isinstance(value.source, datetime.tzinfo):
        raise TypeError("expected a time zone")
    return value.source


def _date(raw: Any) -> Plain:
    high, low, month, day = _raw(raw, 4)
    return Plain(datetime.date(high << 8 | low, month, day).isoformat())


def _time(raw: Any, zone: Any = None) -> Plain:
    hour, minute, second, *micros = _raw(raw, 6)
    made = datetime.time(
        hour & 0x7F,
        minute,
        second,
        int.from_bytes(micros, "big"),
        tzinfo=_zone(zone),
        fold=hour >> 7,
    )
    return Plain(made.isoformat())


def _datetime(raw: Any, zone: Any = None) -> Plain:
    high, low, month, day, hour, minute, second, *micros = _raw(raw, 10)
    made = datetime.datetime(
        high << 8 | low,
        month & 0x7F,
        day,
        hour,
        minute,
        second,
        int.from_bytes(micros, "big"),
        tzinfo=_zone(zone),
        fold=month >> 7,
    )
    return Plain(made.isoformat())


def _timedelta(days: int = 0, seconds: int = 0, micros: int = 0) -> Plain:
    made = datetime.timedelta(_number(days), _number(seconds), _number(micros))
    return Plain([made.days, made.seconds, made.microseconds], made)


def _number(value: Any) -> int:
    if not isinstance(value, int):
        raise TypeError("expected an integer")
    return value


def _timezone(offset: Any, name: Any = None) -> Plain:
    if not isinstance(offset, Plain) or not isinstance(offset.source, datetime.timedelta):
        raise TypeError("expected an offset")
    made = datetime.timezone(offset.source, *([] if name is None else [_texts(name)]))
    return Plain(str(made), made)


def _decimal(text: Any) -> Plain:
    if len(_texts(text)) > _MAX_DIGITS:
        raise ValueError("too many digits")
    try:
        decimal.Decimal(text)
    except decimal.InvalidOperation as error:
        raise ValueError("no decimal") from error
    return Plain(text)


def _row_kind(number: Any) -> Plain:
    if not 0 <= _number(number) < _ROW_KINDS:
        raise ValueError("no kind of a row")
    return Plain(number)


def _row(names: Any, values: Any, _kind: Any) -> PickledItems:
    """A row of PyFlink is the list of its values, as in state of the type ``ROW``."""
    if names is not None and not isinstance(names, PickledItems):
        raise TypeError("expected names")
    return _items("tuple")(values)


def _items(kind: str) -> Callable[..., PickledItems]:
    def make(values: Any = None, most: Any = None) -> PickledItems:
        if values is None:
            return PickledItems(kind)
        if not isinstance(values, PickledItems) or not isinstance(most, int | None):
            raise TypeError("expected items")
        return PickledItems(kind, list(values.items))

    return make


def _pairs(source: Any = None) -> Pairs:
    if source is None:
        return Pairs()
    if isinstance(source, Pairs):
        return Pairs(list(source.pairs))
    if not isinstance(source, PickledItems):
        raise TypeError("expected pairs")
    return Pairs([(key, value) for key, value in (each.items for each in source.items)])


def _default_dict(factory: Any = None) -> Pairs:
    if not isinstance(factory, Global | None):
        raise TypeError("expected the name of a class")
    return Pairs()


def _complex(real: float = 0.0, imaginary: float = 0.0) -> Plain:
    return Plain(str(complex(float(real), float(imaginary))))


def _bytes(value: Any = b"", encoding: Any = None) -> bytes:
    if isinstance(value, str) and encoding in ("latin1", "latin-1"):
        return value.encode("latin-1")
    if not isinstance(value, bytes):
        raise TypeError("expected bytes")
    return value


def _range(*numbers: Any) -> Plain:
    if not 1 <= len(numbers) <= 3:
        raise TypeError("expected one to three numbers")
    return Plain(f"range({', '.join(str(_number(each)) for each in numbers)})")


_BUILT_IN: dict[str, Callable[..., Any]] = {
    "set": _items("set"),
    "frozenset": _items("set"),
    "list": _items("list"),
    "tuple": _items("tuple"),
    "dict": _pairs,
    "bytes": _bytes,
    "bytearray": _bytes,
    "complex": _complex,
    "range": _range,
}
KNOWN_CALLS: dict[str, Callable[..., Any]] = {
    **{f"builtins.{name}": make for name, make in _BUILT_IN.items()},
    **{f"__builtin__.{name}": make for name, make in _BUILT_IN.items()},
    "__builtin__.xrange": _range,
    "_codecs.encode": _bytes,
    "datetime.date": _date,
    "datetime.time": _time,
    "datetime.datetime": _datetime,
    "datetime.timedelta": _timedelta,
    "datetime.timezone": _timezone,
    "decimal.Decimal": _decimal,
    "collections.OrderedDict": _pairs,
    "collections.Counter": _pairs,
    "collections.defaultdict": _default_dict,
    "collections.deque": _items("list"),
    "pyflink.common.types._create_row": _row,
    "pyflink.common.types.RowKind": _row_kind,
}
