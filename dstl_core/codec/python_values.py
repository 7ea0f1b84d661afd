"""Python forms of values, for types that were not declared as Flink types.

| Flink | Python |
|---|---|
| Instant | ``datetime`` with a time zone; read in UTC |
| LocalDateTime, LocalDate, LocalTime | ``datetime`` without one, ``date``, ``time`` |
| BigDecimal | ``Decimal`` |
| Map, Set | ``dict``, ``set`` |
| Row | ``dict``, or a dataclass |

Python has microseconds and the years 1 to 9999. A stored value outside of that raises an error that
tells the user to declare the state as a Flink type (``Types.INSTANT``), whose values are exact.
"""

from __future__ import annotations

import datetime
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any

from dstl_core.codec.big_decimal import BigDecimal
from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.declared_type import flink_type
from dstl_core.codec.serializers import AnySerializer, JsonValue, TypeSerializer
from dstl_core.codec.serializers.dates import Instant, LocalDate, LocalDateTime, LocalTime
from dstl_core.codec.serializers.runtime import StreamElementSerializer, StreamRecord
from dstl_core.codec.serializers.structs import Row
from dstl_core.codec.type_text import DeclaredType
from dstl_core.errors import ConfigError

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_SECOND = datetime.timedelta(seconds=1)
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)


class PythonForm(ABC):
    """Converts values between Flink form and Python form. Instances are sent to tasks."""

    @abstractmethod
    def to_python(self, value: Any) -> Any: ...

    @abstractmethod
    def from_python(self, value: Any) -> Any: ...


class AsPython(TypeSerializer[Any]):
    """A Flink type whose values functions see in their Python form.

    Only functions see that form. Stored bytes and serializer snapshots are those of the Flink type.
    """

    def __init__(self, flink: AnySerializer, form: PythonForm) -> None:
        self.flink = flink
        self.form = form

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsPython) and (self.flink, self.form) == (other.flink, other.form)

    def __hash__(self) -> int:
        return hash((self.flink, self.form))

    @property
    def type_name(self) -> str:  # that of the Flink type
        return self.flink.type_name

    def serialize(self, value: Any, out: DataOutput) -> None:
        self.flink.serialize(self.form.from_python(value), out)

    def deserialize(self, data: DataInput) -> Any:
        return self.form.to_python(self.flink.deserialize(data))

    def to_text(self, value: Any) -> JsonValue:
        return self.flink.to_text(self.form.from_python(value))


def stored_type(serializer: AnySerializer) -> AnySerializer:
    """The Flink type of a type that functions see."""
    return serializer.flink if isinstance(serializer, AsPython) else serializer


def seen_as(declared: AnySerializer, stored: AnySerializer) -> AnySerializer:
    """The stored type, with the Python form of the declared type."""
    return AsPython(stored, declared.form) if isinstance(declared, AsPython) else stored


def seen_by_functions(value: Any, serializer: AnySerializer | None) -> Any:
    """Converts a Flink value to the form that functions see."""
    return serializer.form.to_python(value) if isinstance(serializer, AsPython) else value


def seen_records(elements: AnySerializer) -> AnySerializer:
    """The type of elements with timestamps, for windows that keep every element."""
    records = StreamElementSerializer(stored_type(elements))
    return AsPython(records, _Record(elements.form)) if isinstance(elements, AsPython) else records


def function_type(declared: DeclaredType) -> AnySerializer:
    """The type that functions see. It is the Flink type if the user declared a Flink type."""
    serializer, form = flink_type(declared), form_of(declared)
    return serializer if form is None else AsPython(serializer, form)


def form_of(declared: DeclaredType) -> PythonForm | None:
    """The Python form of a type's values; None if it equals the Flink form."""
    if declared.name in _FORMS:
        return _FORMS[declared.name]
    forms = tuple(form_of(each) for each in declared.parts)
    match declared.name:
        case "map":
            return _Dict(forms[0], forms[1])
        case "set":
            return _Set(forms[0])
        case "struct":
            return _Struct(declared.names, forms, declared.made)
        case "row":
            return _PlainRow(forms)
        case "array" | "tuple" | "nullable" if any(forms):
            kinds: dict[str, Callable[..., PythonForm]] = {
                "array": _ListForm,
                "tuple": _Tuple,
                "nullable": _Nullable,
            }
            return kinds[declared.name](forms)
        case "either" if any(forms):
            raise ConfigError(
                "an Either has no Python form for its sides; declare it as Types.EITHER(..)."
            )
        case _:
            return None


def _out(form: PythonForm | None, value: Any) -> Any:
    return value if form is None or value is None else form.to_python(value)


def _in(form: PythonForm | None, value: Any) -> Any:
    return value if form is None or value is None else form.from_python(value)


def _expected(what: str) -> TypeError:
    """The error for a value of the wrong type. It never quotes the value."""
    return TypeError(f"give {what}")


def _not_in_python(what: str, type_name: str) -> ConfigError:
    return ConfigError(
        f"A stored value is outside the range or precision of Python's {what}; declare the type as "
        f"Types.{type_name} to get Flink's exact values."
    )


# ----------------------------------------------------------------------------------- leaves


def _micros(nanos: int, what: str, type_name: str) -> int:
    micros, rest = divmod(nanos, 1000)
    if rest:
        raise _not_in_python(what, type_name)
    return micros


@dataclass(frozen=True)
class _Instant(PythonForm):
    def to_python(self, value: Instant) -> datetime.datetime:
        micros = _micros(value.nanos, "datetime", "INSTANT")
        try:
            return _EPOCH + datetime.timedelta(seconds=value.seconds, microseconds=micros)
        except OverflowError:
            raise _not_in_python("datetime", "INSTANT") from None

    def from_python(self, value: Any) -> Instant:
        if not isinstance(value, datetime.datetime):
            raise _expected("a datetime")
        if value.tzinfo is None:
            raise _expected("it a time zone, or declare the type as 'timestamp_ntz'")
        seconds, rest = divmod(value - _EPOCH, _SECOND)
        return Instant(seconds, rest.microseconds * 1000)


@dataclass(frozen=True)
class _LocalDate(PythonForm):
    def to_python(self, value: LocalDate) -> datetime.date:
        try:
            return datetime.date(*value)
        except ValueError:
            raise _not_in_python("date", "LOCAL_DATE") from None

    def from_python(self, value: Any) -> LocalDate:
        if not isinstance(value, datetime.date) or isinstance(value, datetime.datetime):
            raise _expected("a date")
        return LocalDate(value.year, value.month, value.day)


@dataclass(frozen=True)
class _LocalTime(PythonForm):
    def to_python(self, value: LocalTime) -> datetime.time:
        micros = _micros(value.nano, "time", "LOCAL_TIME")
        return datetime.time(value.hour, value.minute, value.second, micros)

    def from_python(self, value: Any) -> LocalTime:
        if not isinstance(value, datetime.time) or value.tzinfo is not None:
            raise _expected("a time without a time zone")
        return LocalTime(value.hour, value.minute, value.second, value.microsecond * 1000)


@dataclass(frozen=True)
class _LocalDateTime(PythonForm):
    def to_python(self, value: LocalDateTime) -> datetime.datetime:
        date, time = value
        micros = _micros(time.nano, "datetime", "LOCAL_DATE_TIME")
        try:
            return datetime.datetime(*date, time.hour, time.minute, time.second, micros)
        except ValueError:
            raise _not_in_python("datetime", "LOCAL_DATE_TIME") from None

    def from_python(self, value: Any) -> LocalDateTime:
        if not isinstance(value, datetime.datetime) or value.tzinfo is not None:
            raise _expected("a datetime without a time zone")
        return LocalDateTime(
            _LocalDate().from_python(value.date()), _LocalTime().from_python(value.time())
        )


@dataclass(frozen=True)
class _Decimal(PythonForm):
    def to_python(self, value: BigDecimal) -> Decimal:
        return Decimal(value.unscaled).scaleb(-value.scale, _EXACT)

    def from_python(self, value: Any) -> BigDecimal:
        if not isinstance(value, Decimal) or not value.is_finite():
            raise _expected("a finite Decimal")
        sign, digits, exponent = value.as_tuple()
        if not -(1 << 31) < int(exponent) <= 1 << 31:
            raise _expected("a Decimal with an exponent of 32 bits")
        unscaled = int(Decimal((sign, digits, 0)))
        return BigDecimal(unscaled, -int(exponent))


# ------------------------------------------------------------------------------- composites


@dataclass(frozen=True)
class _ListForm(PythonForm):
    parts: tuple[PythonForm | None, ...]

    def to_python(self, value: Any) -> list[Any]:
        return [_out(self.parts[0], each) for each in value]

    def from_python(self, value: Any) -> list[Any]:
        return [_in(self.parts[0], each) for each in value]


@dataclass(frozen=True)
class _Tuple(PythonForm):
    parts: tuple[PythonForm | None, ...]

    def to_python(self, value: Any) -> tuple[Any, ...]:
        return tuple(map(_out, self.parts, value))

    def from_python(self, value: Any) -> tuple[Any, ...]:
        if len(value) != len(self.parts):
            raise _expected(f"a tuple of {len(self.parts)}")
        return tuple(map(_in, self.parts, value))


@dataclass(frozen=True)
class _Nullable(PythonForm):
    parts: tuple[PythonForm | None, ...]

    def to_python(self, value: Any) -> Any:
        return _out(self.parts[0], value)

    def from_python(self, value: Any) -> Any:
        return _in(self.parts[0], value)


@dataclass(frozen=True)
class _Set(PythonForm):
    part: PythonForm | None

    def to_python(self, value: Any) -> set[Any]:
        return {_out(self.part, each) for each in value}

    def from_python(self, value: Any) -> list[Any]:
        return [_in(self.part, each) for each in value]


@dataclass(frozen=True)
class _Dict(PythonForm):
    key: PythonForm | None
    value: PythonForm | None

    def to_python(self, value: Any) -> dict[Any, Any]:
        return {_out(self.key, key): _out(self.value, each) for key, each in value}

    def from_python(self, value: Any) -> list[tuple[Any, Any]]:
        # Arrow returns maps inside rows as pairs.
        pairs = value.items() if isinstance(value, Mapping) else value
        return [(_in(self.key, key), _in(self.value, each)) for key, each in pairs]


@dataclass(frozen=True)
class _Struct(PythonForm):
    names: tuple[str, ...]
    parts: tuple[PythonForm | None, ...]
    made: type | None

    def to_python(self, value: Row) -> Any:
        named = dict(zip(self.names, map(_out, self.parts, value.fields), strict=True))
        return named if self.made is None else self.made(**named)

    def from_python(self, value: Any) -> Row:
        if self.made is not None and isinstance(value, self.made):
            fields = [getattr(value, name) for name in self.names]
        elif isinstance(value, Mapping) and set(value) <= set(self.names):
            fields = [value.get(name) for name in self.names]
        else:
            what = "a dict" if self.made is None else f"a {self.made.__name__}"
            raise _expected(f"{what} with the fields {', '.join(self.names)}")
        return Row(0, tuple(map(_in, self.parts, fields)))


@dataclass(frozen=True)
class _PlainRow(PythonForm):
    parts: tuple[PythonForm | None, ...]

    def to_python(self, value: Row) -> tuple[Any, ...]:
        return tuple(map(_out, self.parts, value.fields))

    def from_python(self, value: Any) -> Row:
        if isinstance(value, Row):
            return value
        if len(value) != len(self.parts):
            raise _expected(f"a tuple of {len(self.parts)}")
        return Row(0, tuple(map(_in, self.parts, value)))


@dataclass(frozen=True)
class _Record(PythonForm):
    part: PythonForm

    def to_python(self, value: StreamRecord) -> StreamRecord:
        return value._replace(value=_out(self.part, value.value))

    def from_python(self, value: StreamRecord) -> StreamRecord:
        return value._replace(value=_in(self.part, value.value))


_FORMS: dict[str, PythonForm] = {
    "timestamp": _Instant(),
    "timestamp_ntz": _LocalDateTime(),
    "date": _LocalDate(),
    "time": _LocalTime(),
    "decimal": _Decimal(),
}
