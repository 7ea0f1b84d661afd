"""Columns in the exact types that an encoder takes."""

from decimal import Context, Decimal

import pyarrow as pa
import pytest

from dstl_core.codec.serializers import Types, serialize_to_bytes
from dstl_core.codec.serializers.numbers import BigDecimal
from dstl_core.state.columns.arrow_values import column_type
from dstl_core.state.columns.column_fit import elements_of_column, fit

# Where Java's shortest form of a number gets another byte, and the ends of 38 digits.
EDGES = [0, 1, 127, 128, 129, 255, 256, 257, 32767, 32768, 32769, 10**28, 10**37, 10**38 - 1]
BIG_DECIMAL = column_type(Types.BIG_DEC)
UNSCALED = [sign * each for each in EDGES for sign in (1, -1)]


def decimals(scale):
    exact = Context(prec=38)
    values = [Decimal(each).scaleb(-scale, exact) for each in UNSCALED]
    return pa.array([None, *values], pa.decimal128(38, scale))


@pytest.mark.parametrize("scale", [0, 2, 38])
def test_decimals_are_big_decimals_to_their_last_digit(scale):
    fitted = fit(decimals(scale), column_type(Types.BIG_DEC), "Column")

    fitted.validate(full=True)
    pairs = [
        pair and (int.from_bytes(pair["unscaled"], "big", signed=True), pair["scale"])
        for pair in fitted.to_pylist()
    ]
    assert pairs == [None, *((each, scale) for each in UNSCALED)]


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0, 2, 38])
def test_decimals_have_the_bytes_of_java(scale):
    column = decimals(scale)[1:]

    elements = elements_of_column(Types.BIG_DEC, column, "Column")

    expected = [serialize_to_bytes(Types.BIG_DEC, BigDecimal(each, scale)) for each in UNSCALED]
    assert elements == expected
    assert expected[UNSCALED.index(-128)] == bytes.fromhex("00000005 80") + scale.to_bytes(4, "big")


def test_decimals_have_the_bytes_of_java_where_another_byte_begins():
    ends = [sign * (1 << 8 * size - 1) for size in range(1, 9) for sign in (1, -1)]
    whole = [end + step for end in ends for step in (-1, 0, 1) if abs(end + step) < 10**18]
    fitted = fit(pa.array(map(Decimal, whole), pa.decimal128(18, 0)), BIG_DECIMAL, "Column")
    sizes = [(value if value >= 0 else ~value).bit_length() // 8 + 1 for value in whole]
    expected = [
        value.to_bytes(size, "big", signed=True) for value, size in zip(whole, sizes, strict=True)
    ]
    assert fitted.field("unscaled").to_pylist() == expected


@pytest.mark.parametrize("number", [1 << 62, (1 << 63) - 1, 1 << 63, (1 << 63) + 1, 1 << 64])
def test_decimals_have_the_bytes_of_java_where_half_of_them_ends(number):
    whole = [number, -number, -1, 0, 300]
    fitted = fit(pa.array(map(Decimal, whole), pa.decimal128(38, 0)), BIG_DECIMAL, "Column")
    expected = [
        value.to_bytes(
            (value if value >= 0 else value + 1).bit_length() // 8 + 1, "big", signed=True
        )
        for value in whole
    ]
    assert fitted.field("unscaled").to_pylist() == expected


@pytest.mark.parametrize(
    ("narrow", "wide", "rows"),
    [
        (
            pa.map_(pa.string(), pa.int32()),
            pa.map_(pa.string(), pa.int64()),
            [[("a", 1)], None, [("b", 2), ("c", 3)], [("d", 4)], None, []],
        ),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), [[1], None, [2, 3], [4], None, []]),
        (
            pa.struct([("f", pa.int32())]),
            pa.struct([("f", pa.int64())]),
            [{"f": 1}, None, {"f": 2}, {"f": None}],
        ),
        (pa.decimal128(10, 2), column_type(Types.BIG_DEC), None),
    ],
    ids=["map", "list", "struct", "decimal"],
)
def test_a_part_of_a_column_is_that_part(narrow, wide, rows):
    column = decimals(2).slice(0, 7).cast(narrow) if rows is None else pa.array(rows, narrow)
    whole = fit(column, wide, "Column").to_pylist()
    for start in range(len(column) + 1):
        for length in range(len(column) - start + 1):
            part = fit(column.slice(start, length), wide, "Column")
            part.validate(full=True)
            assert part.to_pylist() == whole[start : start + length]
            assert rows is None or part.to_pylist() == rows[start : start + length]
