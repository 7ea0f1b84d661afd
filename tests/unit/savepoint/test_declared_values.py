"""Decimals are shown with their declared digits; what does not fit is shown as it is stored."""

from __future__ import annotations

from typing import Any

import pytest

from dstl_core.codec.big_decimal import BigDecimal
from dstl_core.codec.serializers import AnySerializer, Types
from dstl_core.codec.serializers.structs import Row
from dstl_core.savepoint.read.entries import declared_value

BIG = Types.BIG_DEC
ROW = Types.ROW(Types.LONG, BIG, Types.LIST(BIG))
MAP = Types.MAP(BIG, ROW)
PAIR = Types.TUPLE(Types.STRING, BIG)


@pytest.mark.parametrize(
    ("serializer", "value", "decimals", "text"),
    [
        (BIG, BigDecimal(7, 0), (18, 2), "7.00"),
        (BIG, BigDecimal(-5, 2), (30, 6), "-0.050000"),
        (BIG, BigDecimal(125, 1), None, "12.5"),
        (BIG, BigDecimal(1255, 3), (18, 2), "1.255"),
        (BIG, BigDecimal(10**17, 0), (18, 2), "1" + "0" * 17),
        (BIG, BigDecimal(1, -(2**31)), (18, 2), "1E+2147483648"),
        (BIG, BigDecimal(1, 2**31 - 1), (18, 2), "1E-2147483647"),
        (BIG, None, (18, 2), None),
        (Types.STRING, "7", (18, 2), "7"),
        (Types.LIST(BIG), [BigDecimal(7, 0), BigDecimal(1, 1)], (9, 3), ["7.000", "0.100"]),
        (
            ROW,
            Row(0, (7, BigDecimal(7, 0), [BigDecimal(1, 0)])),
            {"f1": (18, 2), "f2": (9, 1)},
            [7, "7.00", ["1.0"]],
        ),
        (ROW, Row(0, (7, None, None)), {"f1": (18, 2)}, [7, None, None]),
        (ROW, Row(0, (7, BigDecimal(7, 0), None)), (18, 2), [7, "7", None]),
        (BIG, BigDecimal(7, 0), {"f0": (18, 2)}, "7"),
        (PAIR, ("a", BigDecimal(7, 0)), {"f1": (18, 2)}, ["a", "7.00"]),
        (
            MAP,
            [(BigDecimal(7, 0), Row(0, (1, BigDecimal(1, 0), None))), (BigDecimal(8, 0), None)],
            {"key": (9, 1), "value": {"f1": (18, 2)}},
            [["7.0", [1, "1.00", None]], ["8.0", None]],
        ),
        (
            Types.LIST(ROW),
            [Row(0, (1, BigDecimal(1, 0), None))],
            {"f1": (9, 1)},
            [[1, "1.0", None]],
        ),
    ],
)
def test_the_text_has_the_declared_digits(
    serializer: AnySerializer, value: Any, decimals: Any, text: Any
) -> None:
    shown = declared_value(serializer, value, decimals)
    assert (None if shown is None else serializer.to_text(shown)) == text
