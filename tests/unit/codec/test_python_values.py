"""Python's values for Flink's types: both ways, and what Python does not have."""

from __future__ import annotations

import datetime as dt
import pickle
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dstl_core.codec.big_decimal import BigDecimal
from dstl_core.codec.declared_type import declared_type, flink_type
from dstl_core.codec.python_values import AsPython, function_type
from dstl_core.codec.serializers import deserialize_exactly, serialize_to_bytes
from dstl_core.codec.serializers.dates import Instant, LocalDate, LocalDateTime, LocalTime
from dstl_core.codec.serializers.structs import Row
from dstl_core.errors import ConfigError, FormatError

TOKYO = dt.timezone(dt.timedelta(hours=9))


@dataclass
class Position:
    day: dt.date
    amount: Decimal | None


def both(declared: Any) -> tuple[Any, Any]:
    """The type as functions see it, and as it is stored."""
    type_ = declared_type(declared, "It")
    return function_type(type_), flink_type(type_)


CASES: list[tuple[Any, Any, Any]] = [
    ("timestamp", dt.datetime(2026, 1, 2, 3, 4, 5, 678901, dt.UTC), Instant(1767323045, 678901000)),
    ("timestamp", dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.UTC), Instant(-1, 999999000)),
    (
        "timestamp_ntz",
        dt.datetime(2026, 1, 2, 3, 4, 5, 678901),
        LocalDateTime(LocalDate(2026, 1, 2), LocalTime(3, 4, 5, 678901000)),
    ),
    (dt.date, dt.date(1, 1, 1), LocalDate(1, 1, 1)),
    (dt.time, dt.time(23, 59, 59, 1), LocalTime(23, 59, 59, 1000)),
    (Decimal, Decimal("12.50"), BigDecimal(1250, 2)),
    (Decimal, Decimal("-0.001"), BigDecimal(-1, 3)),
    (Decimal, Decimal("1E+3"), BigDecimal(1, -3)),
    (dict[str, dt.date], {"a": dt.date(2026, 1, 2)}, [("a", LocalDate(2026, 1, 2))]),
    (set[int], {1, 2}, [1, 2]),
    (list[dt.date], [dt.date(2026, 1, 2)], [LocalDate(2026, 1, 2)]),
    (list[dt.date | None], [None, dt.date(2026, 1, 2)], [None, LocalDate(2026, 1, 2)]),
    (tuple[str, dt.date], ("a", dt.date(2026, 1, 2)), ("a", LocalDate(2026, 1, 2))),
    (
        "struct<a: int, b: struct<c: date>>",
        {"a": None, "b": {"c": dt.date(2026, 1, 2)}},
        Row(0, (None, Row(0, (LocalDate(2026, 1, 2),)))),
    ),
    ("row<int, string>", (1, "a"), Row(0, (1, "a"))),
    (
        Position,
        Position(dt.date(2026, 1, 2), None),
        Row(0, (LocalDate(2026, 1, 2), None)),
    ),
]


@pytest.mark.parametrize(("declared", "python", "stored"), CASES, ids=str)
def test_a_value_is_stored_as_flinks_and_read_as_pythons(
    declared: Any, python: Any, stored: Any
) -> None:
    seen, flink = both(declared)
    raw = serialize_to_bytes(seen, python)
    assert raw == serialize_to_bytes(flink, stored)
    assert deserialize_exactly(seen, raw) == python
    assert deserialize_exactly(flink, raw) == stored
    assert pickle.loads(pickle.dumps(seen)) == seen


def test_flinks_own_type_has_flinks_own_values() -> None:
    seen, flink = both(flink_type(declared_type("timestamp", "It")))
    assert seen == flink
    assert not isinstance(seen, AsPython)


def test_a_moment_is_read_in_utc_whatever_zone_it_was_given_in() -> None:
    seen, _ = both("timestamp")
    moment = dt.datetime(2026, 1, 2, 3, 4, tzinfo=TOKYO)
    read = deserialize_exactly(seen, serialize_to_bytes(seen, moment))
    assert read == moment
    assert read.tzinfo is dt.UTC


@pytest.mark.parametrize(
    ("declared", "stored", "said"),
    [
        ("timestamp", Instant(0, 1), "of Python's datetime; declare the type as Types.INSTANT"),
        ("timestamp", Instant(1 << 40, 0), "Types.INSTANT"),
        ("date", LocalDate(10_000, 1, 1), "of Python's date; .* Types.LOCAL_DATE"),
        ("time", LocalTime(0, 0, 0, 1), "Types.LOCAL_TIME"),
        (
            "timestamp_ntz",
            LocalDateTime(LocalDate(0, 1, 1), LocalTime(0, 0, 0, 0)),
            "Types.LOCAL_DATE_TIME",
        ),
    ],
    ids=str,
)
def test_what_python_does_not_have_is_an_error_that_names_the_exact_type(
    declared: str, stored: Any, said: str
) -> None:
    seen, flink = both(declared)
    with pytest.raises(ConfigError, match=said):
        deserialize_exactly(seen, serialize_to_bytes(flink, stored))


@pytest.mark.parametrize(
    ("declared", "value", "said"),
    [
        (
            "timestamp",
            dt.datetime(2026, 1, 2),
            "got datetime .give it a time zone, or .*'timestamp_ntz'",
        ),
        ("timestamp", dt.date(2026, 1, 2), "got date .give a datetime"),
        ("timestamp_ntz", dt.datetime(2026, 1, 2, tzinfo=dt.UTC), "without a time zone"),
        ("date", dt.datetime(2026, 1, 2), "got datetime .give a date"),
        ("time", "12:00", "got str .give a time without a time zone"),
        ("decimal", 1.5, "got float .give a finite Decimal"),
        ("decimal", Decimal("NaN"), "give a finite Decimal"),
        ("decimal", Decimal("1E+2147483649"), "give a Decimal with an exponent of 32 bits"),
        ("decimal", Decimal("1E-2147483648"), "give a Decimal with an exponent of 32 bits"),
        ("struct<a: int>", {"b": 1}, "give a dict with the fields a"),
        (Position, {"b": 1}, "give a Position with the fields day, amount"),
        ("row<int, int>", (1,), "give a tuple of 2"),
        (tuple[int, dt.date], (1,), "give a tuple of 2"),
    ],
    ids=str,
)
def test_a_value_of_another_type_is_one_sentence(declared: Any, value: Any, said: str) -> None:
    seen, _ = both(declared)
    with pytest.raises(FormatError, match=f"^A value does not fit its type: .*{said}"):
        serialize_to_bytes(seen, value)


@pytest.mark.parametrize(
    "stored",
    [
        BigDecimal(5, (1 << 31) - 1),
        BigDecimal(-5, -(1 << 31)),
        BigDecimal(10**30 + 1, 1 << 30),
        BigDecimal(7, -(1 << 30) - 1),
    ],
    ids=str,
)
def test_every_scale_of_a_decimal_comes_back(stored: BigDecimal) -> None:
    seen, flink = both("decimal")
    value = deserialize_exactly(seen, serialize_to_bytes(flink, stored))
    assert value.as_tuple()[2] == -stored.scale
    assert int("".join(map(str, value.as_tuple()[1]))) == abs(stored.unscaled)
    assert serialize_to_bytes(seen, value) == serialize_to_bytes(flink, stored)


@given(st.datetimes(timezones=st.just(dt.UTC)), st.dates(), st.times(), st.datetimes())
def test_every_python_time_comes_back(
    moment: dt.datetime, day: dt.date, time: dt.time, local: dt.datetime
) -> None:
    for declared, value in (
        ("timestamp", moment),
        ("date", day),
        ("time", time.replace(fold=0)),
        ("timestamp_ntz", local.replace(fold=0)),
    ):
        seen, _ = both(declared)
        assert deserialize_exactly(seen, serialize_to_bytes(seen, value)) == value


@given(st.decimals(allow_nan=False, allow_infinity=False))
def test_every_decimal_comes_back_digit_for_digit(value: Decimal) -> None:
    seen, _ = both("decimal")
    read = deserialize_exactly(seen, serialize_to_bytes(seen, value))
    if value == 0:  # Java has no negative zero
        value = abs(value)
    assert read.as_tuple() == value.as_tuple()
