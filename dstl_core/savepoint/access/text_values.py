"""Values of the forms that a dump shows, where the text itself is not the value."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any

from dstl_core.codec.binary_row import RowData, TimestampData
from dstl_core.codec.serializers import AnySerializer, TupleSerializer
from dstl_core.codec.serializers.dates import (
    Instant,
    InstantSerializer,
    LocalDate,
    LocalDateSerializer,
    LocalDateTime,
    LocalDateTimeSerializer,
    LocalTime,
    LocalTimeSerializer,
    SqlTimestamp,
    SqlTimestampSerializer,
)
from dstl_core.codec.serializers.pojo import Pojo, PojoSerializer
from dstl_core.codec.serializers.scala import (
    Option,
    ScalaCaseClassSerializer,
    ScalaOptionSerializer,
)
from dstl_core.codec.serializers.structs import (
    ROW_KINDS,
    Either,
    Row,
    RowSerializer,
    TwoSidesSerializer,
)
from dstl_core.codec.serializers.table_types import (
    RowDataSerializer,
    TimestampDataSerializer,
)

_DATE = r"([+-]?\d{4,9})-(\d\d)-(\d\d)"
_TIME = r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?"
_YEARS = 400
"""The calendar repeats itself after so many years, of ``_DAYS`` days."""
_DAYS = 146_097
_EPOCH = date(1970, 1, 1).toordinal()


def value_of_text(serializer: AnySerializer, text: Any) -> Any:
    """The value that a dump shows as ``text``.

    Args:
        serializer: The type of the value.
        text: What the JSON of a dump has.

    Raises:
        ValueError: No value of the type has this form. Values of many types are their own form;
            for these, the text is returned as it is.
    """
    reader = next((read for kind, read in _READERS.items() if isinstance(serializer, kind)), None)
    return text if reader is None or text is None else reader(serializer, text)


def row_parts(text: Any, width: int) -> tuple[int, Any]:
    """The kind of a row of SQL, and its fields. A dump shows both; a person may leave the kind out.

    Args:
        text: What the JSON of a dump has.
        width: The number of fields.
    """
    if isinstance(text, list | tuple) and len(text) == width + 1 and text[0] in ROW_KINDS:
        return ROW_KINDS.index(text[0]), text[1:]
    return 0, text


def _parts(pattern: str, text: Any) -> Sequence[str | None]:
    match = re.fullmatch(pattern, text, re.ASCII) if isinstance(text, str) else None
    if match is None:
        raise ValueError("another form")
    return match.groups()


def _date(parts: Sequence[Any]) -> LocalDate:
    year, month, day = map(int, parts)
    date(2000 + year % _YEARS, month, day)  # refuses a day that no calendar has
    return LocalDate(year, month, day)


def _time(parts: Sequence[Any]) -> LocalTime:
    hour, minute, second = (int(part or 0) for part in parts[:3])
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError("no time of a day")
    return LocalTime(hour, minute, second, int((parts[3] or "").ljust(9, "0")))


def _seconds(parts: Sequence[Any]) -> tuple[int, int]:
    """The seconds since 1970 of a date and time in UTC, and the nanoseconds behind them."""
    day, time = _date(parts[:3]), _time(parts[3:])
    cycles, year = divmod(day.year - 1, _YEARS)
    days = date(year + 1, day.month, day.day).toordinal() - _EPOCH + cycles * _DAYS
    return days * 86_400 + time.nano_of_day // 1_000_000_000, time.nano


def _local_date_time(_: Any, text: Any) -> LocalDateTime:
    parts = _parts(f"{_DATE}[T ]{_TIME}", text)
    return LocalDateTime(_date(parts[:3]), _time(parts[3:]))


def _sql_timestamp(_: Any, text: Any) -> SqlTimestamp:
    seconds, nanos = _seconds(_parts(f"{_DATE}[T ]{_TIME}", text))
    return SqlTimestamp(seconds * 1000 + nanos // 1_000_000, nanos)


def _timestamp_data(_: Any, text: Any) -> TimestampData:
    seconds, nanos = _seconds(_parts(f"{_DATE}[T ]{_TIME}", text))
    return TimestampData(seconds * 1000 + nanos // 1_000_000, nanos % 1_000_000)


def _case_class(serializer: ScalaCaseClassSerializer, text: Any) -> tuple[Any, ...]:
    if isinstance(text, Mapping):
        if set(text) != set(serializer.field_names):
            raise ValueError("other fields")
        text = [text[name] for name in serializer.field_names]
    return _tuple(serializer, text)


def _tuple(serializer: AnySerializer, text: Any) -> tuple[Any, ...]:
    if not isinstance(text, list):
        raise ValueError("no list")
    pairs = zip(serializer.nested, text, strict=True)
    return tuple(value_of_text(kind, part) for kind, part in pairs)


def _row_data(serializer: RowDataSerializer, text: Any) -> RowData:
    kind, fields = row_parts(text, len(serializer.types))
    return RowData(kind, _tuple(serializer, fields))


def _pojo(serializer: PojoSerializer, text: Any) -> Pojo:
    if not isinstance(text, Mapping) or set(text) != {name for name, _, _ in serializer.fields}:
        raise ValueError("other fields")
    values = {
        name: None if kind is None else value_of_text(kind, text[name])
        for name, _, kind in serializer.fields
    }
    return Pojo(serializer.pojo_class, values)


def _option(serializer: ScalaOptionSerializer, text: Any) -> Option:
    if not isinstance(text, list) or len(text) > 1:
        raise ValueError("no list of one value or none")
    return Option(bool(text), value_of_text(serializer.inner, text[0]) if text else None)


def _either(serializer: TwoSidesSerializer, text: Any) -> Either:
    sides = dict(text) if isinstance(text, Mapping) else {}
    if [*sides] not in (["left"], ["right"]):
        raise ValueError("no left or right value")
    [(side, value)] = sides.items()
    kind = serializer.left if side == "left" else serializer.right
    return Either(side == "left", value_of_text(kind, value))


_READERS: dict[type[AnySerializer], Callable[[Any, Any], Any]] = {
    LocalDateSerializer: lambda _, text: _date(_parts(_DATE, text)),
    LocalTimeSerializer: lambda _, text: _time(_parts(_TIME, text)),
    LocalDateTimeSerializer: _local_date_time,
    InstantSerializer: lambda _, text: Instant(*_seconds(_parts(f"{_DATE}[T ]{_TIME}Z?", text))),
    SqlTimestampSerializer: _sql_timestamp,
    TimestampDataSerializer: _timestamp_data,
    TupleSerializer: _tuple,
    RowDataSerializer: _row_data,
    RowSerializer: lambda kind, text: Row(0, _tuple(kind, text)),
    PojoSerializer: _pojo,
    ScalaCaseClassSerializer: _case_class,
    ScalaOptionSerializer: _option,
    TwoSidesSerializer: _either,
}
