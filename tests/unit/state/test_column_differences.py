"""A column is compared with another one value by value, by its bits."""

import math
from decimal import Decimal

import pyarrow as pa
import pytest

from dstl_core.job.task.column_subtask import differ
from dstl_core.state.columns.column_fit import fit

NUMBERS = pa.list_(pa.float64())
BIG_DECIMAL = pa.struct([("unscaled", pa.binary()), ("scale", pa.int32())])


@pytest.mark.parametrize(
    ("kind", "pairs"),
    [
        (pa.int64(), [(1, 1, False), (1, 2, True), (None, 2, True), (1, None, True)]),
        (pa.float64(), [(0.0, -0.0, True), (math.nan, math.nan, False), (None, None, False)]),
        (pa.string(), [("a", "a", False), ("a", "", True), (None, "", True)]),
        (NUMBERS, [([1.0], [1.0], False), ([], [], False), (None, None, False)]),
        (NUMBERS, [([1.0, 2.0], [1.0], True), ([], None, True), (None, [1.0], True)]),
        (
            NUMBERS,
            [
                ([1.0], [1.0], False),
                (None, [7.0], True),
                ([1.0, 2.0, 3.0], [1.0, 9.0, 3.0], True),
                ([5.0, None], [5.0, None], False),
                ([None], [6.0], True),
            ],
        ),
        (
            pa.map_(pa.string(), pa.int64()),
            [([("a", 1)], [("a", 1)], True), (None, None, False)],
        ),
    ],
)
def test_values_that_differ(kind, pairs):
    old, new = (pa.array([pair[at] for pair in pairs], kind) for at in (0, 1))
    assert differ(old, new).tolist() == [expected for _, _, expected in pairs]
    assert differ(old[1:], new[1:]).tolist() == [expected for _, _, expected in pairs[1:]]


def test_decimals_are_compared_by_their_parts():
    values = [Decimal("1.50"), Decimal("2.50"), None, None]
    others = [Decimal("1.50"), Decimal("2.25"), Decimal("0.00"), None]
    old, new = (
        fit(pa.array(numbers, pa.decimal128(10, 2)), BIG_DECIMAL, "x")
        for numbers in (values, others)
    )
    assert differ(old, new).tolist() == [False, True, True, False]
