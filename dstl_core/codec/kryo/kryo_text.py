"""Kryo values as ``dstl dump`` prints them.

An object is an object of its fields, with ``@class`` where its class is not the declared one of a
field, of the elements of an array or of the whole value. What the value holds twice is printed
twice; an object inside itself is ``@cycle``.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dstl_core.codec.big_decimal import big_decimal_text
from dstl_core.codec.classfile.generic_types import PRIMITIVE_NAMES, component_name
from dstl_core.codec.kryo.class_layouts import ClassLayouts
from dstl_core.codec.kryo.java_stream_writer import JavaStreamWriter
from dstl_core.codec.kryo.jdk_bodies import JavaSerialized, zone_text
from dstl_core.codec.kryo.kryo_objects import PRIMITIVE_OF, KryoObject
from dstl_core.codec.kryo.message_body import MessageBody
from dstl_core.codec.kryo.object_bodies import (
    CollectionBody,
    EnumBody,
    FieldsBody,
    MapBody,
    ObjectArrayBody,
    PrimitiveArrayBody,
    items_of,
)
from dstl_core.codec.kryo.scala_bodies import ScalaBody
from dstl_core.codec.serializers.base import JsonValue, opaque_text
from dstl_core.codec.serializers.collections import java_double_text, text_key
from dstl_core.codec.serializers.dates import (
    LocalDate,
    LocalTime,
    date_text,
    instant_text,
    time_text,
)
from dstl_core.codec.serializers.primitives import float_text

CYCLE = "@cycle"


def kryo_text(layouts: ClassLayouts, value: KryoObject | None, declared: str | None) -> JsonValue:
    """The text form of a value; ``declared`` is its declared class, None if there is none."""
    return _Text(layouts).of(value, declared)


class _Text:
    def __init__(self, layouts: ClassLayouts) -> None:
        self._layouts = layouts
        self._open: set[int] = set()

    def of(self, value: KryoObject | None, declared: str | None = None) -> JsonValue:
        if value is None:
            return None
        if id(value) in self._open:
            return CYCLE
        self._open.add(id(value))
        text = self._body(value, declared)
        self._open.discard(id(value))
        return text

    def _body(self, value: KryoObject, declared: str | None) -> JsonValue:
        name, content = value.class_name, value.value
        leaf = _LEAVES.get(name)
        if leaf is not None:
            return leaf(content)
        body: Any = self._layouts.body(name)
        if isinstance(body, MessageBody):
            return content.text
        if isinstance(body, ScalaBody):
            return body.text(content, self.of)
        if isinstance(body, FieldsBody):
            if name.startswith(_TUPLE) and name[len(_TUPLE) :].isdigit():
                return [self.of(content[f"f{at}"]) for at in range(len(content))]
            fields = content.get("fieldByPosition")
            if name == _ROW and fields is not None and fields.class_name == _OBJECTS:
                return [self.of(each) for each in fields.value]
            return self._fields(body, name, content, declared)
        if isinstance(body, EnumBody):
            return self._layouts.constant(name, content)
        if isinstance(body, MapBody) or name in _FIXED_MAPS:
            pairs = [[self.of(key), self.of(item)] for key, item in items_of(content)]
            return sorted(pairs, key=lambda pair: text_key(pair[0]))
        if isinstance(body, PrimitiveArrayBody):
            if name in ("[F", "[D"):
                return [float_text(each) for each in content]
            return content.hex() if name == "[B" else list(content)
        if isinstance(body, ObjectArrayBody):
            component = component_name(name)
            return [self.of(each, component) for each in content]
        if name in _ENUM_SETS:
            enum, ordinals = content
            return sorted(self._layouts.constant(enum, each) for each in ordinals)
        if isinstance(body, JavaSerialized):
            return opaque_text(name, JavaStreamWriter().value(content))
        items = [self.of(each) for each in items_of(content)]
        is_set = isinstance(body, CollectionBody) and self._is_set(name)
        return sorted(items, key=text_key) if is_set else items

    def _fields(
        self, body: FieldsBody, name: str, content: dict[str, Any], declared: str | None
    ) -> JsonValue:
        shown: dict[str, JsonValue] = {}
        if declared is not None and declared != name:
            shown["@class"] = name
        for slot in body.slots:
            if slot.key not in content:
                continue
            part = content[slot.key]
            if slot.type.is_primitive:
                shown[slot.key] = float_text(part) if isinstance(part, float) else part
            else:
                shown[slot.key] = self.of(part, slot.type.name)
        return shown

    def _is_set(self, name: str) -> bool:
        supertypes = self._layouts.classes.supertypes(name)
        return any(
            supertype.startswith("java.util.") and "Set" in supertype.rpartition(".")[2]
            for supertype in supertypes
        )


_TUPLE = "org.apache.flink.api.java.tuple.Tuple"
_ROW, _OBJECTS = "org.apache.flink.types.Row", "[Ljava.lang.Object;"
_FIXED_MAPS = ("java.util.Collections$EmptyMap", "java.util.Collections$SingletonMap")
_ENUM_SETS = ("java.util.RegularEnumSet", "java.util.JumboEnumSet", "java.util.EnumSet")


def _identity(content: Any) -> JsonValue:
    return content


def _bits_text(words: list[int]) -> str:
    bits = [64 * at + bit for at, word in enumerate(words) for bit in range(64) if word >> bit & 1]
    return f"{{{', '.join(map(str, bits))}}}"


def _uuid_text(halves: tuple[int, int]) -> str:
    high, low = (f"{half & 0xFFFFFFFFFFFFFFFF:016x}" for half in halves)
    return f"{high[:8]}-{high[8:12]}-{high[12:]}-{low[:4]}-{low[4:]}"


def _duration_text(content: tuple[int, int]) -> str:
    seconds, nanos = content
    if seconds == 0 and nanos == 0:
        return "PT0S"
    total = seconds * 1_000_000_000 + nanos
    sign, size = ("-", -total) if total < 0 else ("", total)
    whole, rest = divmod(size, 1_000_000_000)
    text = "PT"
    if whole >= 3600:
        text += f"{sign}{whole // 3600}H"
    if whole // 60 % 60:
        text += f"{sign}{whole // 60 % 60}M"
    if whole % 60 or rest:
        text += f"{sign}{whole % 60}"
        text += f".{rest:09d}".rstrip("0") + "S" if rest else "S"
    return text


def _optional_text(name: str, content: float | None) -> str:
    shown = java_double_text(content) if isinstance(content, float) else content
    return f"{name}.empty" if content is None else f"{name}[{shown}]"


def _period_text(content: tuple[int, int, int]) -> str:
    parts = [f"{size}{unit}" for size, unit in zip(content, "YMD", strict=True) if size]
    return f"P{''.join(parts) or '0D'}"


def _local_date_time(content: tuple[Any, Any]) -> str:
    return f"{date_text(content[0])}T{time_text(content[1])}"


def _zoned_text(content: tuple[Any, int | None, str | int]) -> str:
    local, offset, zone = content
    if isinstance(zone, int):
        return f"{_local_date_time(local)}{zone_text(zone)}"
    offset = _offset_of(local, zone) if offset is None else offset
    shown = "" if offset is None else zone_text(offset)
    return f"{_local_date_time(local)}{shown}[{zone}]"


def _offset_of(local: tuple[LocalDate, LocalTime], zone: str) -> int | None:
    """The offset of a zone at a local time, which Kryo 5 does not store; None if unknown."""
    date, time = local
    try:
        moment = datetime(*date, time.hour, time.minute, time.second, tzinfo=ZoneInfo(zone))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
    offset = moment.utcoffset()
    return None if offset is None else int(offset.total_seconds())


def _year_text(year: int) -> str:
    return date_text(LocalDate(year, 1, 1)).rpartition("-")[0].rpartition("-")[0]


def _class_text(name: str | None) -> str | None:
    if name is None or name in PRIMITIVE_NAMES.values():
        return name
    return f"class {name}"


def _millis_text(millis: int) -> str:
    return instant_text(millis // 1000, millis % 1000 * 1_000_000)


_LEAVES: dict[str, Callable[[Any], JsonValue]] = {
    **dict.fromkeys(
        (
            *PRIMITIVE_OF,
            "java.lang.StringBuilder",
            "java.lang.StringBuffer",
            "java.net.URI",
            "java.net.URL",
            "java.util.Currency",
            "java.util.TimeZone",
            "java.util.SimpleTimeZone",
            "sun.util.calendar.ZoneInfo",
            "java.nio.charset.Charset",
            "java.util.concurrent.atomic.AtomicLong",
            "java.util.concurrent.atomic.AtomicInteger",
            "java.time.ZoneRegion",
        ),
        _identity,
    ),
    "java.lang.Float": float_text,
    "java.lang.Double": float_text,
    "java.util.OptionalInt": lambda content: _optional_text("OptionalInt", content),
    "java.util.OptionalLong": lambda content: _optional_text("OptionalLong", content),
    "java.util.OptionalDouble": lambda content: _optional_text("OptionalDouble", content),
    "java.util.concurrent.atomic.AtomicBoolean": bool,
    "java.util.regex.Pattern": lambda content: content[0],
    "java.math.BigInteger": str,
    "java.math.BigDecimal": lambda content: big_decimal_text(*content),
    "java.util.Date": _millis_text,
    "java.sql.Date": _millis_text,
    "java.sql.Time": _millis_text,
    "java.sql.Timestamp": lambda content: instant_text(content[0] // 1000, content[1]),
    "java.util.UUID": _uuid_text,
    "java.util.BitSet": _bits_text,
    "java.util.GregorianCalendar": lambda content: f"{_millis_text(content[1])}[{content[0]}]",
    "java.net.InetSocketAddress": lambda content: f"{content[0]}:{content[1]}",
    "java.time.LocalDate": date_text,
    "java.time.LocalTime": time_text,
    "java.time.LocalDateTime": _local_date_time,
    "java.time.Instant": lambda content: instant_text(*content),
    "java.time.Duration": _duration_text,
    "java.time.Period": _period_text,
    "java.time.Year": str,
    "java.time.YearMonth": lambda content: f"{_year_text(content[0])}-{content[1]:02d}",
    "java.time.MonthDay": lambda content: f"--{content[0]:02d}-{content[1]:02d}",
    "java.time.ZoneOffset": zone_text,
    "java.time.ZonedDateTime": _zoned_text,
    "java.time.OffsetDateTime": lambda content: (
        f"{_local_date_time(content[0])}{zone_text(content[1])}"
    ),
    "java.time.OffsetTime": lambda content: f"{time_text(content[0])}{zone_text(content[1])}",
    "java.lang.Class": _class_text,
    "java.util.Locale": lambda content: content.text,
}
