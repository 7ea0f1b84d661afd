"""Java's ``BigDecimal`` and ``BigInteger`` as values, text and bytes."""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple


class BigDecimal(NamedTuple):
    """``unscaled * 10 ** -scale``. 12.5 and 12.50 are different values, as in Java."""

    unscaled: int
    scale: int

    def __str__(self) -> str:
        return big_decimal_text(self.unscaled, self.scale)


def integer_text(value: int) -> str:
    """The decimal digits of an integer of any size; ``str`` refuses more than 4300 digits."""
    return str(value) if value.bit_length() < 10000 else format(Decimal(value), "f")


def big_decimal_text(unscaled: int, scale: int) -> str:
    """The text that Java's ``BigDecimal.toString`` returns."""
    if scale == 0:
        return integer_text(unscaled)
    sign, digits = "-" if unscaled < 0 else "", integer_text(abs(unscaled))
    exponent = len(digits) - 1 - scale
    if scale > 0 and exponent >= -6:
        return sign + plain_digits(digits, scale)
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    power = f"E{exponent:+d}" if exponent else ""
    return f"{sign}{digits[0]}{fraction}{power}"


def plain_digits(digits: str, scale: int) -> str:
    """The digits with a decimal point and without an exponent; ``scale`` is not negative."""
    if scale == 0:
        return digits
    padded = digits.rjust(scale + 1, "0")
    return f"{padded[:-scale]}.{padded[-scale:]}"


def two_s_complement(value: int) -> bytes:
    """The shortest two's complement bytes of a value, as by ``BigInteger.toByteArray``."""
    bits = value.bit_length() if value >= 0 else (value + 1).bit_length()
    return value.to_bytes(bits // 8 + 1, "big", signed=True)
