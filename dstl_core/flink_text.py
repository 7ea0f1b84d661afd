"""Whole numbers in texts, and memory sizes and durations as Flink writes them.

Source: ``MemorySize`` and ``TimeUtils`` of Flink 2.2.1.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TypeAlias

from dstl_core.errors import ConfigError

DurationLike: TypeAlias = int | str | timedelta
"""Milliseconds, a duration as Flink writes it, or a ``timedelta``."""

_MAX_LONG = (1 << 63) - 1
_WHOLE_NUMBER = re.compile(r"[+-]?0*(\d+)", re.ASCII)
_MILLISECOND = timedelta(milliseconds=1)
_MEMORY_UNITS = {
    label: 1 << 10 * power
    for power, labels in enumerate(
        (
            ("", "b", "bytes"),
            ("k", "kb", "kibibytes"),
            ("m", "mb", "mebibytes"),
            ("g", "gb", "gibibytes"),
            ("t", "tb", "tebibytes"),
        )
    )
    for label in labels
}
_DURATION_NANOS = {
    label: nanos
    for nanos, labels in (
        (86_400_000_000_000, ("d", "day", "days")),
        (3_600_000_000_000, ("h", "hour", "hours")),
        (60_000_000_000, ("min", "m", "minute", "minutes")),
        (1_000_000_000, ("s", "sec", "secs", "second", "seconds")),
        (1_000_000, ("", "ms", "milli", "millis", "millisecond", "milliseconds")),
        (1_000, ("µs", "micro", "micros", "microsecond", "microseconds")),
        (1, ("ns", "nano", "nanos", "nanosecond", "nanoseconds")),
    )
    for label in labels
}
_NUMBER_AND_UNIT = re.compile(r"(\d+)\s*(\D*)", re.ASCII)
_ISO_DURATION = re.compile(
    r"P(?=.)(?:(\d+)D)?(?:T(?=.)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{0,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)


def whole_number(text: str, digits: int = 19) -> int | None:
    """The number that a text of decimal ASCII digits writes, with an optional sign.

    Python refuses to convert more than 4,300 digits with a ``ValueError`` of its own.

    Args:
        text: The text.
        digits: The most digits that the number may have, without leading zeros.

    Returns:
        The number; None if the text is none, or one with more digits.
    """
    match = _WHOLE_NUMBER.fullmatch(text)
    if match is None or len(match[1]) > digits:
        return None
    sign = -1 if text.startswith("-") else 1
    return sign * int(match[1])


def parse_memory_size(text: str) -> int:
    """Bytes of a memory size as Flink writes it: ``10``, ``5MB``, ``1 gibibytes``.

    Raises:
        ConfigError: It is not one, or does not fit 63 bits.
    """
    match = _NUMBER_AND_UNIT.fullmatch(text.strip()) if isinstance(text, str) else None
    unit = _MEMORY_UNITS.get(match[2].strip().lower()) if match is not None else None
    if match is None or unit is None:
        raise ConfigError(
            f"Not a memory size: expected a whole number with b, kb, mb, gb or tb, got {text!r}."
        )
    return _fitting(_number(match[1], text) * unit, text)


def parse_duration_ms(text: str) -> int:
    """Whole milliseconds of a duration as Flink writes it: ``10``, ``1 s``, ``2min``, ``PT1.5S``.

    Raises:
        ConfigError: It is not one, or does not fit 63 bits.
    """
    trimmed = text.strip()
    iso = _ISO_DURATION.fullmatch(trimmed)
    if iso is not None:
        days, hours, minutes, seconds = (_number(part or "0", text) for part in iso.groups()[:4])
        nanos = int((iso[5] or "").ljust(9, "0"))
        whole = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        return _fitting(whole * 1_000_000_000 + nanos, text) // 1_000_000
    match = _NUMBER_AND_UNIT.fullmatch(trimmed)
    unit = _DURATION_NANOS.get(match[2].strip().lower()) if match is not None else None
    if match is None or unit is None:
        raise ConfigError(
            f"Not a duration: expected a whole number with d, h, min, s, ms, micros or ns, or "
            f"ISO-8601, got {text!r}."
        )
    return _fitting(_number(match[1], text) * unit, text) // 1_000_000


def duration_ms(duration: DurationLike, what: str, *, least: int = -_MAX_LONG) -> int:
    """Whole milliseconds of a duration in any form. It is rounded down.

    Args:
        duration: The duration.
        what: What has this duration, for the error.
        least: The least number of milliseconds that it may have.

    Raises:
        ConfigError: It is no duration, or out of range.
    """
    if isinstance(duration, timedelta):
        milliseconds: object = duration // _MILLISECOND
    else:
        milliseconds = _parsed(duration) if isinstance(duration, str) else duration
    if type(milliseconds) is not int or not least <= milliseconds <= _MAX_LONG:
        bound = f" of at least {least} ms" if least > -_MAX_LONG else ""
        raise ConfigError(
            f"{what} is wrong: expected a duration{bound} as whole milliseconds, as text such as "
            f"'90 s' or '1 h', or as a timedelta, got {duration!r}."
        )
    return milliseconds


def _parsed(text: str) -> int | None:
    try:
        return parse_duration_ms(text)
    except ConfigError:
        return None


def _number(digits: str, text: str) -> int:
    return _fitting(whole_number(digits), text)


def _fitting(value: int | None, text: str) -> int:
    if value is None or value > _MAX_LONG:
        raise ConfigError(f"A value is too large for 64 bits: {text!r}.")
    return value
