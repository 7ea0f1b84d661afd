"""How Kryo stores classes of the JDK: numbers, dates, texts, and what ``java.time`` has.

Kryo 2.24 stores the private fields of ``java.time``; Kryo 5 has a form of its own for each class.
Source: ``DefaultSerializers`` and ``TimeSerializers`` of Kryo, and the fields of Java 11 and 17.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dstl_core.codec.data_io import DataInput
from dstl_core.codec.java_stream import JavaObject, JavaStream
from dstl_core.codec.kryo.java_stream_writer import JavaStreamWriter
from dstl_core.codec.kryo.kryo_input import KryoInput, KryoOutput
from dstl_core.codec.kryo.kryo_objects import PRIMITIVE_OF, KryoObject
from dstl_core.codec.kryo.kryo_reader import Arguments, Body, KryoValueReader, KryoValueWriter
from dstl_core.codec.kryo.locales import NO_LOCALE_FORM, Locale
from dstl_core.codec.kryo.object_bodies import PRIMITIVES, EnumBody, Scalar
from dstl_core.codec.serializers.dates import LocalDate, LocalTime
from dstl_core.errors import FormatError, UnreadableValueError


def _put_each(*puts: Callable[[KryoOutput, Any], None]) -> Callable[[KryoOutput, Any], None]:
    def put(out: KryoOutput, value: Any) -> None:
        for put, part in zip(puts, value, strict=True):
            put(out, part)

    return put


def _signed(source: KryoInput) -> int:
    number = source.varint()
    return number - (1 << 32) if number >> 31 else number


def _i8(source: KryoInput) -> int:
    return int(source.fixed("b"))


def _i16(source: KryoInput) -> int:
    return int(source.fixed("h"))


def _put_i8(out: KryoOutput, value: int) -> None:
    out.fixed("b", value)


# ------------------------------------------------------------------------- numbers and texts


def _big_integer(source: KryoInput) -> int:
    size = source.count("size of a number", 1)
    if size == 0:
        raise FormatError("A BigInteger of Kryo is empty", offset=source.position)
    return int.from_bytes(source.take(size), "big", signed=True)


def _put_big_integer(out: KryoOutput, value: int) -> None:
    size = (value if value >= 0 else ~value).bit_length() // 8 + 1
    out.varint(size + 1)
    out.bytes(value.to_bytes(size, "big", signed=True))


def _uuid(source: KryoInput) -> tuple[int, int]:
    return int(source.fixed("q")), int(source.fixed("q"))


def _bits(source: KryoInput) -> list[int]:
    count = source.count("words of a BitSet", item_bytes=8)
    return [int(source.fixed("Q")) for _ in range(count)]


def _put_bits(out: KryoOutput, words: list[int]) -> None:
    out.varint(len(words))
    for word in words:
        out.fixed("Q", word)


def _put_longs(out: KryoOutput, value: tuple[int, int]) -> None:
    for part in value:
        out.fixed("q", part)


def _timestamp(source: KryoInput) -> tuple[int, int]:
    """Whole seconds as milliseconds, and nanoseconds."""
    millis, nanos = source.varlong(), source.varint("nanoseconds")
    return millis - millis % 1000, nanos


_CALENDAR: tuple[Callable[[KryoInput], Any], ...] = (
    KryoInput.text,
    KryoInput.varlong,
    KryoInput.boolean,
    KryoInput.varint,
    KryoInput.varint,
    KryoInput.zigzag_long,
)


def _optional_number(code: str) -> Scalar:
    old = {"i": "int", "q": "long", "d": "double"}[code]

    def read(source: KryoInput) -> Any:
        is_there = source.boolean()
        value = PRIMITIVES[old].get(source)
        return value if is_there else None

    def read_new(source: KryoInput) -> Any:
        return source.fixed(code) if source.boolean() else None

    def put(out: KryoOutput, value: Any) -> None:
        out.boolean(value is not None)
        if value is not None:
            out.fixed(code, value)

    return Scalar(read, put, read_new)


# --------------------------------------------------------------------------------- java.time


def _local_date(source: KryoInput) -> LocalDate:
    day, month = _i16(source), _i16(source)
    return _checked_date(source, source.zigzag(), month, day)


def _new_local_date(source: KryoInput) -> LocalDate:
    return _checked_date(source, _signed(source), _i8(source), _i8(source))


def _checked_date(source: KryoInput, year: int, month: int, day: int) -> LocalDate:
    if not (1 <= month <= 12 and 1 <= day <= 31):
        raise FormatError(
            "A date of Kryo does not exist",
            offset=source.position,
            got=f"month {month}, day {day}",
        )
    return LocalDate(year, month, day)


def _put_local_date(out: KryoOutput, value: LocalDate) -> None:
    out.varint(value.year)
    _put_i8(out, value.month)
    _put_i8(out, value.day)


def _local_time(source: KryoInput) -> LocalTime:
    hour, minute, nano, second = _i8(source), _i8(source), source.zigzag(), _i8(source)
    return _checked_time(source, LocalTime(hour, minute, second, nano))


def _new_local_time(source: KryoInput) -> LocalTime:
    parts: list[int] = []
    for _ in range(3):
        part = _i8(source)
        if part < 0:
            parts.append(~part)
            break
        parts.append(part)
    else:
        parts.append(source.varint("nanoseconds"))
    parts += [0] * (4 - len(parts))
    return _checked_time(source, LocalTime(*parts))


def _checked_time(source: KryoInput, local_time: LocalTime) -> LocalTime:
    limits = (24, 60, 60, 1_000_000_000)
    if not all(0 <= part < limit for part, limit in zip(local_time, limits, strict=True)):
        raise FormatError("A time of Kryo does not exist", offset=source.position)
    return local_time


def _put_local_time(out: KryoOutput, value: LocalTime) -> None:
    parts = [value.hour, value.minute, value.second]
    if value.nano:
        for part in parts:
            _put_i8(out, part)
        out.varint(value.nano)
        return
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    for part in parts[:-1]:
        _put_i8(out, part)
    _put_i8(out, ~parts[-1])


def _new_offset(source: KryoInput) -> int:
    quarter = _i8(source)
    return int(source.fixed("i")) if quarter == 127 else quarter * 900


def _put_offset(out: KryoOutput, seconds: int) -> None:
    if seconds % 900:
        _put_i8(out, 127)
        out.fixed("i", seconds)
    else:
        _put_i8(out, seconds // 900)


def _nanos_then_seconds(source: KryoInput) -> tuple[int, int]:
    nanos, seconds = source.zigzag(), source.zigzag_long()
    return seconds, nanos


def _period(source: KryoInput) -> tuple[int, int, int]:
    days, months, years = (source.zigzag() for _ in range(3))
    return years, months, days


def _swapped(source: KryoInput) -> tuple[int, int]:
    first, second = source.zigzag(), source.zigzag()
    return second, first


class _Composed(Body):
    """A class of ``java.time`` made of others, which Kryo 2.24 stores as objects.

    Args:
        parts: Their classes; None stores the class with the object.
        get: Reads the values of the parts as Kryo 5 stores them.
        put: Appends these.
        is_reversed: Whether Kryo 5 stores the parts in the other order.
    """

    def __init__(
        self,
        parts: tuple[str | None, ...],
        get: Callable[[KryoInput], tuple[Any, ...]],
        put: Callable[[KryoOutput, Any], None],
        *,
        is_reversed: bool = False,
    ) -> None:
        self._parts, self._get, self._put = parts, get, put
        self._is_reversed = is_reversed

    def read(self, reader: KryoValueReader, arguments: Arguments) -> tuple[Any, ...]:
        if not reader.is_old:
            return self._get(reader.input)
        values = []
        for name in self._parts:
            at = reader.input.position
            part = reader.class_and_object() if name is None else reader.object_or_null(name)
            if part is None or part.value is None:
                raise FormatError("A part of a date or time of Kryo is null", offset=at)
            values.append(part.value)
        return tuple(reversed(values) if self._is_reversed else values)

    def write(self, writer: KryoValueWriter, value: Any) -> None:
        self._put(writer.output, value)


def _date_time(source: KryoInput) -> tuple[LocalDate, LocalTime]:
    return _new_local_date(source), _new_local_time(source)


def _put_date_time(out: KryoOutput, value: tuple[LocalDate, LocalTime]) -> None:
    _put_local_date(out, value[0])
    _put_local_time(out, value[1])


def zone_text(zone: str | int) -> str:
    """The id of a zone, or of an offset in seconds."""
    if isinstance(zone, str):
        return zone
    if zone == 0:
        return "Z"
    sign, size = ("-", -zone) if zone < 0 else ("+", zone)
    text = f"{sign}{size // 3600:02}:{size // 60 % 60:02}"
    return text + (f":{size % 60:02}" if size % 60 else "")


def _put_zoned(out: KryoOutput, value: tuple[Any, ...]) -> None:
    _put_date_time(out, value[0])
    out.string(zone_text(value[2]))


# ------------------------------------------------------------------------------------ others


class ClassBody(Body):
    """A class; numbers and booleans say whether the primitive type is meant."""

    def read(self, reader: KryoValueReader, arguments: Arguments) -> str | None:
        name = reader.class_name()
        has_flag = reader.is_old or (name in PRIMITIVE_OF and name != "java.lang.String")
        is_primitive = reader.input.boolean() if has_flag else False
        return PRIMITIVE_OF[name] if is_primitive and name in PRIMITIVE_OF else name

    def write(self, writer: KryoValueWriter, value: Any) -> None:
        if value is None:
            writer.output.u8(0)
            return
        for name, primitive in PRIMITIVE_OF.items():
            if name != "java.lang.String" and value in (name, primitive):
                writer.class_name(name)
                writer.output.boolean(value == primitive)
                return
        writer.class_name(value)


class JavaSerialized(Body):
    """A value in a stream of Java's own serialization.

    Both versions keep one stream for all values of a serializer in one Kryo value.
    """

    def read(self, reader: KryoValueReader, arguments: Arguments) -> Any:
        source = reader.input
        data = DataInput(source.buffer, source.position, source.end)
        value = reader.streams.setdefault(self, JavaStream()).read(data)
        source.position = data.position
        return value

    def write(self, writer: KryoValueWriter, value: Any) -> None:
        stream = writer.streams.setdefault(self, JavaStreamWriter())
        writer.output.bytes(stream.value(value))


THROWABLES = JavaSerialized()
"""All of them have one serializer."""


class LocaleBody(JavaSerialized):
    """Language, country and variant; Kryo 2.24 stores the script and the extensions, too."""

    def read(self, reader: KryoValueReader, arguments: Arguments) -> Locale:
        if not reader.is_old:
            return Locale(reader.input.text(), reader.input.text(), reader.input.text())
        at = reader.input.position
        content = super().read(reader, arguments)
        fields = content.fields if isinstance(content, JavaObject) else {}
        parts = [fields.get(name) for name in ("language", "country", "variant")]
        parts += [fields.get(name) or "" for name in ("script", "extensions")]
        if not all(isinstance(each, str) for each in parts):
            raise FormatError("A Locale of Kryo is malformed", offset=at)
        return Locale(*map(str, parts))

    def write(self, writer: KryoValueWriter, value: Locale) -> None:
        if value.script or value.extensions:
            raise UnreadableValueError(NO_LOCALE_FORM)
        for part in value[:3]:
            writer.output.string(part)


class EnumSetBody(Body):
    """The class of the enum, and ordinals."""

    def read(self, reader: KryoValueReader, arguments: Arguments) -> tuple[str, list[int]]:
        at = reader.input.position
        name = reader.class_name()
        if name is None:
            raise FormatError("An EnumSet of Kryo has no class", offset=at)
        enum = reader.body(name)
        if not isinstance(enum, EnumBody):
            raise FormatError("An EnumSet of Kryo has no enum", offset=at, got=name)
        count = reader.input.count("EnumSet size")
        return name, [enum.read(reader, ()) for _ in range(count)]

    def write(self, writer: KryoValueWriter, value: Any) -> None:
        name, ordinals = value
        writer.class_name(name)
        writer.output.varint(len(ordinals))
        for ordinal in ordinals:
            writer.output.varint(ordinal + 1)


class RegionBody(Body):
    """The id of a zone: in Kryo 2.24 a field, so an object of its own."""

    def read(self, reader: KryoValueReader, arguments: Arguments) -> str:
        if not reader.is_old:
            return reader.input.text("zone")
        at = reader.input.position
        region = reader.object_or_null("java.lang.String")
        if region is None or not isinstance(region.value, str):
            raise FormatError("A zone of Kryo has no id", offset=at)
        return region.value

    def write(self, writer: KryoValueWriter, value: Any) -> None:
        writer.output.string(value)


class AsListBody(Body):
    """``Arrays.asList``: Kryo 2.24 stores the class of the elements in front of them."""

    def __init__(self, collection: Any) -> None:
        self._collection = collection

    def read(self, reader: KryoValueReader, arguments: Arguments) -> Any:
        if not reader.is_old:
            return self._collection.read(reader, arguments)
        count = reader.input.count("list size")
        reader.class_name()
        return [reader.class_and_object() for _ in range(count)]

    def write(self, writer: KryoValueWriter, value: Any) -> None:
        self._collection.write(writer, value)


class FixedSizeBody(Body):
    """A collection or map with a fixed number of elements, which are stored without a count."""

    def __init__(self, elements: int, *, is_map: bool = False) -> None:
        self.elements, self.is_map = elements, is_map

    def read(self, reader: KryoValueReader, arguments: Arguments) -> list[Any]:
        items = [reader.class_and_object() for _ in range(self.elements)]
        return [(items[0], items[1])] if self.is_map and items else items

    def write(self, writer: KryoValueWriter, value: Any) -> None:
        for item in value[0] if self.is_map and value else value:
            writer.class_and_object(item)


class OptionalBody(Body):
    """What it holds, or null. Kryo 2.24 stores it as a field of the declared type."""

    def read(self, reader: KryoValueReader, arguments: Arguments) -> list[KryoObject]:
        declared = arguments[0] if len(arguments) == 1 else None
        if reader.is_old and declared is not None:
            content = reader.typed(declared.raw)
        else:
            content = reader.class_and_object()
        return [] if content is None else [content]

    def write(self, writer: KryoValueWriter, value: Any) -> None:
        writer.class_and_object(value[0] if value else None)


_TEXT = Scalar(KryoInput.text, KryoOutput.string)
_DATE = Scalar(KryoInput.varlong, KryoOutput.varlong)

SCALARS: dict[str, Any] = {
    name: PRIMITIVES[primitive]
    for name, primitive in PRIMITIVE_OF.items()
    if primitive in PRIMITIVES
} | {
    "java.lang.String": _TEXT,
    "java.lang.StringBuilder": _TEXT,
    "java.lang.StringBuffer": _TEXT,
    "java.net.URI": _TEXT,
    "java.net.URL": _TEXT,
    "java.util.Currency": _TEXT,
    "java.util.TimeZone": _TEXT,
    "sun.util.calendar.ZoneInfo": _TEXT,
    "java.util.SimpleTimeZone": _TEXT,
    "java.nio.charset.Charset": _TEXT,
    "java.util.regex.Pattern": Scalar(
        lambda source: (source.text(), 0),
        _put_each(KryoOutput.string, KryoOutput.varint),
        lambda source: (source.text(), source.varint("flags")),
    ),
    "java.math.BigInteger": Scalar(_big_integer, _put_big_integer),
    "java.math.BigDecimal": Scalar(
        lambda source: (_big_integer(source), source.zigzag()),
        _put_each(_put_big_integer, KryoOutput.zigzag),
    ),
    "java.util.Date": _DATE,
    "java.sql.Date": _DATE,
    "java.sql.Time": _DATE,
    "java.sql.Timestamp": Scalar(_timestamp, _put_each(KryoOutput.varlong, KryoOutput.varint)),
    "java.util.UUID": Scalar(
        lambda source: (source.zigzag_long(), source.zigzag_long()), _put_longs, _uuid
    ),
    "java.util.BitSet": Scalar(_bits, _put_bits),
    "java.util.GregorianCalendar": Scalar(
        lambda source: tuple(read(source) for read in _CALENDAR),
        _put_each(
            KryoOutput.string,
            KryoOutput.varlong,
            KryoOutput.boolean,
            KryoOutput.varint,
            KryoOutput.varint,
            KryoOutput.zigzag_long,
        ),
    ),
    "java.net.InetSocketAddress": Scalar(
        lambda source: (source.text(), source.varint("port")),
        _put_each(KryoOutput.string, KryoOutput.varint),
    ),
    "java.util.concurrent.atomic.AtomicLong": Scalar(KryoInput.zigzag_long, KryoOutput.zigzag_long),
    "java.util.concurrent.atomic.AtomicInteger": Scalar(KryoInput.zigzag, KryoOutput.zigzag),
    "java.util.concurrent.atomic.AtomicBoolean": Scalar(
        KryoInput.zigzag, lambda out, value: out.boolean(bool(value)), KryoInput.boolean
    ),
    "java.util.OptionalInt": _optional_number("i"),
    "java.util.OptionalLong": _optional_number("q"),
    "java.util.OptionalDouble": _optional_number("d"),
    "java.time.LocalDate": Scalar(_local_date, _put_local_date, _new_local_date),
    "java.time.LocalTime": Scalar(_local_time, _put_local_time, _new_local_time),
    "java.time.LocalDateTime": _Composed(
        ("java.time.LocalDate", "java.time.LocalTime"), _date_time, _put_date_time
    ),
    "java.time.Instant": Scalar(
        _nanos_then_seconds,
        _put_each(KryoOutput.varlong, KryoOutput.varint),
        lambda source: (source.varlong(), source.varint("nanoseconds")),
    ),
    "java.time.Duration": Scalar(
        _nanos_then_seconds,
        _put_each(lambda out, value: out.fixed("q", value), KryoOutput.varint),
        lambda source: (int(source.fixed("q")), source.varint("nanoseconds")),
    ),
    "java.time.Period": Scalar(
        _period,
        _put_each(KryoOutput.varint, KryoOutput.varint, KryoOutput.varint),
        lambda source: tuple(_signed(source) for _ in range(3)),
    ),
    "java.time.Year": Scalar(KryoInput.zigzag, KryoOutput.varint, _signed),
    "java.time.YearMonth": Scalar(
        _swapped,
        _put_each(KryoOutput.varint, _put_i8),
        lambda source: (_signed(source), _i8(source)),
    ),
    "java.time.MonthDay": Scalar(
        _swapped, _put_each(_put_i8, _put_i8), lambda source: (_i8(source), _i8(source))
    ),
    "java.time.ZoneOffset": Scalar(KryoInput.zigzag, _put_offset, _new_offset),
    "java.time.ZoneRegion": RegionBody(),
    "java.time.ZonedDateTime": _Composed(
        ("java.time.LocalDateTime", "java.time.ZoneOffset", None),
        lambda source: (_date_time(source), None, source.text("zone")),
        _put_zoned,
    ),
    "java.time.OffsetDateTime": _Composed(
        ("java.time.LocalDateTime", "java.time.ZoneOffset"),
        lambda source: (_date_time(source), _new_offset(source)),
        _put_each(_put_date_time, _put_offset),
    ),
    "java.time.OffsetTime": _Composed(
        ("java.time.ZoneOffset", "java.time.LocalTime"),
        lambda source: (_new_local_time(source), _new_offset(source)),
        _put_each(_put_local_time, _put_offset),
        is_reversed=True,
    ),
    "java.lang.Class": ClassBody(),
    "java.util.Locale": LocaleBody(),
    "java.text.SimpleDateFormat": JavaSerialized(),
}
