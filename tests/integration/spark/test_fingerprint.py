"""What tells one batch from another: every value and where it stands, but not the order of rows."""

import pytest

from dstl_core.spark.inputs import Fingerprint

pytestmark = pytest.mark.spark

OTHERS = {
    "a null in another column": ("SELECT NULL::int a, 5 b", "SELECT 5 a, NULL::int b"),
    "a null in another field": (
        "SELECT named_struct('x', NULL::int, 'y', 5) s",
        "SELECT named_struct('x', 5, 'y', NULL::int) s",
    ),
    "a null at another place": ("SELECT array(NULL, 5) r", "SELECT array(5, NULL) r"),
    "null and empty": ("SELECT NULL::array<int> r", "SELECT array()::array<int> r"),
    "elements of another array": (
        "SELECT array(1, 2) r, array(3) t",
        "SELECT array(1) r, array(2, 3) t",
    ),
    "arrays in an array": ("SELECT array(array(1, 2)) r", "SELECT array(array(1), array(2)) r"),
    "null and no struct": (
        "SELECT NULL::struct<x: int> s",
        "SELECT named_struct('x', NULL::int) s",
    ),
    "a null in a map": ("SELECT map('a', NULL, 'b', 1) m", "SELECT map('a', 1, 'b', NULL) m"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_values_are_another_batch(spark, name):
    one, other = (Fingerprint.of(spark.sql(query)) for query in OTHERS[name])
    assert one.rows == other.rows == 1
    assert one != other


def test_the_same_rows_in_another_order_are_the_same_batch(spark):
    queries = [
        "SELECT map('a', 1, 'b', 2) m, array(1, NULL) r, named_struct('x', 1) s, NULL::int n",
        "SELECT map('b', 2, 'a', 1) m, array(1, NULL) r, named_struct('x', 1) s, NULL::int n",
    ]
    last = "SELECT map() m, array(7) r, named_struct('x', NULL) s, 1 n"
    one = spark.sql(f"{queries[0]} UNION ALL {last}")
    other = spark.sql(f"{last} UNION ALL {queries[1]}")
    assert Fingerprint.of(one) == Fingerprint.of(other)
    assert Fingerprint.of(one).rows == 2
