"""Dates and times of ``java.util``, ``java.sql`` and ``java.time``.

Each type has its own byte pattern for null. Texts are those of Java's ``toString`` in UTC. For
classes of ``java.util`` and ``java.sql``, the text has the parts that Java omits, so that different
values always have different texts.

Source: the serializers of ``org.apache.flink.api.common.typeutils.base`` of Flink 2.2.1, which have
the same names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.serializers.base import JsonValue, TypeSerializer, bad_value, readers_of
from dstl_core.codec.serializers.primitives import long_java_hash

_BASE = "org.apache.flink.api.common.typeutils.base."
_NULL_LONG = -(1 << 63)
_NULL_INT = -(1 << 31)
_NULL_SHORT = -(1 << 15)
_NULL_BYTE = -(1 << 7)
_DAY_MS = 86_400_000
_MAX_YEAR = 999_999_999


class SqlTimestamp(NamedTuple):
    """``millis`` since 1970 UTC; ``nanos`` is the whole fraction of the second."""

    millis: int
    nanos: int


class Instant(NamedTuple):
    seconds: int
    nanos: int


class LocalDate(NamedTuple):
    year: int
    month: int
    day: int


class LocalTime(NamedTuple):
    hour: int
    minute: int
    second: int
    nano: int

    @property
    def nano_of_day(self) -> int:
        return ((self.hour * 60 + self.minute) * 60 + self.second) * 1_000_000_000 + self.nano


class LocalDateTime(NamedTuple):
    date: LocalDate
    time: LocalTime


# ------------------------------------------------------------------------------------- texts


def civil_from_days(days: int) -> LocalDate:
    """The date of a day number; day 0 is 1970-01-01. Proleptic Gregorian, any year."""
    shifted = days + 719468
    era, day_of_era = divmod(shifted, 146097)
    year = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    day_of_year = day_of_era - (365 * year + year // 4 - year // 100)
    month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    return LocalDate(year + era * 400 + (month <= 2), month, day)


def time_from_nano_of_day(nanos: int) -> LocalTime:
    seconds, nano = divmod(nanos, 1_000_000_000)
    return LocalTime(seconds // 3600, seconds // 60 % 60, seconds % 60, nano)


def date_text(date: LocalDate) -> str:
    year = date.year
    if abs(year) < 10000:
        text = f"{'-' if year < 0 else ''}{abs(year):04d}"
    else:
        text = f"{year:+d}" if year > 0 else str(year)
    return f"{text}-{date.month:02d}-{date.day:02d}"


def fraction_text(nanos: int) -> str:
    """A point with 3, 6 or 9 digits; empty for 0."""
    if nanos == 0:
        return ""
    digits = f"{nanos:09d}"
    size = 9 if nanos % 1000 else 6 if nanos % 1_000_000 else 3
    return f".{digits[:size]}"


def time_text(time: LocalTime) -> str:
    text = f"{time.hour:02d}:{time.minute:02d}"
    if time.second or time.nano:
        text += f":{time.second:02d}{fraction_text(time.nano)}"
    return text


def clock_text(time: LocalTime) -> str:
    """Like ``time_text``, but always with seconds."""
    return f"{time.hour:02d}:{time.minute:02d}:{time.second:02d}{fraction_text(time.nano)}"


def date_time_text(millis: int, nano_of_milli: int = 0) -> str:
    """The text of ``LocalDateTime.toString``, from milliseconds since 1970."""
    days, rest = divmod(millis, _DAY_MS)
    time = time_from_nano_of_day(rest * 1_000_000 + nano_of_milli)
    return f"{date_text(civil_from_days(days))}T{time_text(time)}"


def instant_text(seconds: int, nanos: int) -> str:
    days, rest = divmod(seconds, 86400)
    date = civil_from_days(days)
    time = LocalTime(rest // 3600, rest // 60 % 60, rest % 60, nanos)
    return f"{date_text(date)}T{clock_text(time)}Z"


def _millis_to_instant(millis: int) -> str:
    seconds, milli = divmod(millis, 1000)
    return instant_text(seconds, milli * 1_000_000)


# ------------------------------------------------------------------------------- java.util, sql


class _MillisSerializer(TypeSerializer[int | None]):
    """Milliseconds since 1970 as an int; the smallest long means null."""

    length: ClassVar[int] = 8

    def serialize(self, value: int | None, out: DataOutput) -> None:
        out.write_i64(_NULL_LONG if value is None else value)

    def deserialize(self, data: DataInput) -> int | None:
        value = data.read_i64(self.type_name)
        return None if value == _NULL_LONG else value

    def java_hash(self, value: int | None) -> int:
        return 0 if value is None else long_java_hash(value)


@dataclass(frozen=True)
class DateSerializer(_MillisSerializer):
    snapshot_class: ClassVar[str] = _BASE + "DateSerializer$DateSerializerSnapshot"
    type_name: ClassVar[str] = "java.util.Date"

    def to_text(self, value: int | None) -> JsonValue:
        return None if value is None else _millis_to_instant(value)


@dataclass(frozen=True)
class SqlDateSerializer(_MillisSerializer):
    snapshot_class: ClassVar[str] = _BASE + "SqlDateSerializer$SqlDateSerializerSnapshot"
    type_name: ClassVar[str] = "java.sql.Date"

    def to_text(self, value: int | None) -> JsonValue:
        if value is None:
            return None
        if value % _DAY_MS:
            return date_time_text(value)
        return date_text(civil_from_days(value // _DAY_MS))


@dataclass(frozen=True)
class SqlTimeSerializer(_MillisSerializer):
    snapshot_class: ClassVar[str] = _BASE + "SqlTimeSerializer$SqlTimeSerializerSnapshot"
    type_name: ClassVar[str] = "java.sql.Time"

    def to_text(self, value: int | None) -> JsonValue:
        if value is None:
            return None
        days, rest = divmod(value, _DAY_MS)
        if days:
            return date_time_text(value)
        return clock_text(time_from_nano_of_day(rest * 1_000_000))


@dataclass(frozen=True)
class SqlTimestampSerializer(TypeSerializer[SqlTimestamp | None]):
    snapshot_class: ClassVar[str] = _BASE + "SqlTimestampSerializer$SqlTimestampSerializerSnapshot"
    type_name: ClassVar[str] = "java.sql.Timestamp"
    length: ClassVar[int] = 12

    def serialize(self, value: SqlTimestamp | None, out: DataOutput) -> None:
        out.write_i64(_NULL_LONG if value is None else value.millis)
        out.write_i32(0 if value is None else value.nanos)

    def deserialize(self, data: DataInput) -> SqlTimestamp | None:
        millis = data.read_i64("timestamp")
        at = data.position
        nanos = data.read_i32("nanos of second")
        if millis == _NULL_LONG:
            return None
        if not 0 <= nanos < 1_000_000_000:
            raise bad_value("The nanos of a timestamp are out of bounds", at, "0..999999999", nanos)
        return SqlTimestamp(millis, nanos)

    def java_hash(self, value: SqlTimestamp | None) -> int:
        return 0 if value is None else long_java_hash(value.millis)

    def to_text(self, value: SqlTimestamp | None) -> JsonValue:
        if value is None:
            return None
        seconds = value.millis // 1000
        date = date_text(civil_from_days(seconds // 86400))
        rest = seconds % 86400
        fraction = f"{value.nanos:09d}".rstrip("0") or "0"
        return f"{date} {rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}.{fraction}"


# ----------------------------------------------------------------------------------- java.time


@dataclass(frozen=True)
class InstantSerializer(TypeSerializer[Instant | None]):
    snapshot_class: ClassVar[str] = _BASE + "InstantSerializer$InstantSerializerSnapshot"
    type_name: ClassVar[str] = "Instant"
    length: ClassVar[int] = 12

    def serialize(self, value: Instant | None, out: DataOutput) -> None:
        out.write_i64(_NULL_LONG if value is None else value.seconds)
        out.write_i32(_NULL_INT if value is None else value.nanos)

    def deserialize(self, data: DataInput) -> Instant | None:
        seconds = data.read_i64("Instant seconds")
        at = data.position
        nanos = data.read_i32("Instant nanos")
        if seconds == _NULL_LONG and nanos == _NULL_INT:
            return None
        if not 0 <= nanos < 1_000_000_000:
            raise bad_value("The nanos of an Instant are out of bounds", at, "0..999999999", nanos)
        return Instant(seconds, nanos)

    def java_hash(self, value: Instant | None) -> int:
        return 0 if value is None else long_java_hash(value.seconds) + 51 * value.nanos

    def to_text(self, value: Instant | None) -> JsonValue:
        return None if value is None else instant_text(value.seconds, value.nanos)


def _write_date(out: DataOutput, value: LocalDate | None) -> None:
    if value is None:
        out.write_i32(_NULL_INT)
        out.write_i16(_NULL_SHORT)
        return
    out.write_i32(value.year)
    out.write_i8(value.month)
    out.write_i8(value.day)


def _days_in(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def _read_date(data: DataInput) -> LocalDate | None:
    at = data.position
    year = data.read_i32("year")
    if year == _NULL_INT:
        data.read_i16("null date")
        return None
    month, day = data.read_i8("month"), data.read_i8("day")
    if not (abs(year) <= _MAX_YEAR and 1 <= month <= 12 and 1 <= day <= _days_in(year, month)):
        raise bad_value("A date does not exist", at, "year, month, day", f"{year}-{month}-{day}")
    return LocalDate(year, month, day)


def _write_time(out: DataOutput, value: LocalTime | None) -> None:
    if value is None:
        out.write_i8(_NULL_BYTE)
        out.write_i16(_NULL_SHORT)
        out.write_i32(_NULL_INT)
        return
    out.write_i8(value.hour)
    out.write_i8(value.minute)
    out.write_i8(value.second)
    out.write_i32(value.nano)


def _read_time(data: DataInput) -> LocalTime | None:
    at = data.position
    hour = data.read_i8("hour")
    if hour == _NULL_BYTE:
        data.read_i16("null time")
        data.read_i32("null time")
        return None
    time = LocalTime(hour, data.read_i8("minute"), data.read_i8("second"), data.read_i32("nano"))
    limits = (24, 60, 60, 1_000_000_000)
    if not all(0 <= part < limit for part, limit in zip(time, limits, strict=True)):
        raise bad_value("A time does not exist", at, "hour, minute, second, nano", tuple(time))
    return time


def local_date_java_hash(value: LocalDate) -> int:
    year, month, day = value
    return (year & 0xFFFFF800) ^ ((year << 11) + (month << 6) + day)


@dataclass(frozen=True)
class LocalDateSerializer(TypeSerializer[LocalDate | None]):
    snapshot_class: ClassVar[str] = _BASE + "LocalDateSerializer$LocalDateSerializerSnapshot"
    type_name: ClassVar[str] = "LocalDate"
    length: ClassVar[int] = 6

    def serialize(self, value: LocalDate | None, out: DataOutput) -> None:
        _write_date(out, value)

    def deserialize(self, data: DataInput) -> LocalDate | None:
        return _read_date(data)

    def java_hash(self, value: LocalDate | None) -> int:
        return 0 if value is None else local_date_java_hash(value)

    def to_text(self, value: LocalDate | None) -> JsonValue:
        return None if value is None else date_text(value)


@dataclass(frozen=True)
class LocalTimeSerializer(TypeSerializer[LocalTime | None]):
    snapshot_class: ClassVar[str] = _BASE + "LocalTimeSerializer$LocalTimeSerializerSnapshot"
    type_name: ClassVar[str] = "LocalTime"
    length: ClassVar[int] = 7

    def serialize(self, value: LocalTime | None, out: DataOutput) -> None:
        _write_time(out, value)

    def deserialize(self, data: DataInput) -> LocalTime | None:
        return _read_time(data)

    def java_hash(self, value: LocalTime | None) -> int:
        return 0 if value is None else long_java_hash(value.nano_of_day)

    def to_text(self, value: LocalTime | None) -> JsonValue:
        return None if value is None else time_text(value)


@dataclass(frozen=True)
class LocalDateTimeSerializer(TypeSerializer[LocalDateTime | None]):
    snapshot_class: ClassVar[str] = (
        _BASE + "LocalDateTimeSerializer$LocalDateTimeSerializerSnapshot"
    )
    type_name: ClassVar[str] = "LocalDateTime"
    length: ClassVar[int] = 13

    def serialize(self, value: LocalDateTime | None, out: DataOutput) -> None:
        _write_date(out, None if value is None else value.date)
        _write_time(out, None if value is None else value.time)

    def deserialize(self, data: DataInput) -> LocalDateTime | None:
        at = data.position
        date, time = _read_date(data), _read_time(data)
        if date is None and time is None:
            return None
        if date is None or time is None:
            raise bad_value("Half of a LocalDateTime is null", at, "both or none", "one")
        return LocalDateTime(date, time)

    def java_hash(self, value: LocalDateTime | None) -> int:
        if value is None:
            return 0
        return local_date_java_hash(value.date) ^ long_java_hash(value.time.nano_of_day)

    def to_text(self, value: LocalDateTime | None) -> JsonValue:
        return None if value is None else f"{date_text(value.date)}T{time_text(value.time)}"


READERS = readers_of(
    DateSerializer,
    SqlDateSerializer,
    SqlTimeSerializer,
    SqlTimestampSerializer,
    InstantSerializer,
    LocalDateSerializer,
    LocalTimeSerializer,
    LocalDateTimeSerializer,
)
