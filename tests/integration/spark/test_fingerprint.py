"""What tells one batch from another: every value and where it stands, but not the order of rows."""

import pytest

from dstl_core.checkpoint.store.epoch_facts import InputFacts
from dstl_core.errors import ConfigError, FormatError
from dstl_core.job.spec.fingerprint import Fingerprint
from dstl_core.spark.job.inputs import fingerprint_of

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
    "the names of two columns exchanged": ("SELECT 1 a, 2 b", "SELECT 1 b, 2 a"),
    "another name": ("SELECT 1 a", "SELECT 1 b"),
    "another type": ("SELECT 5 a", "SELECT 5L a"),
    "another field": (
        "SELECT named_struct('x', 1) s",
        "SELECT named_struct('y', 1) s",
    ),
    "names that read as one": ("SELECT 1 `a`, 2 `b int`", "SELECT 1 `a int`, 2 `b`"),
    "another sign of zero": ("SELECT 0.0D a", "SELECT -0.0D a"),
    "another sign of zero in an array": (
        "SELECT array(0.0F) a",
        "SELECT array(float('-0.0')) a",
    ),
    "a null in a map": ("SELECT map('a', NULL, 'b', 1) m", "SELECT map('a', 1, 'b', NULL) m"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_values_are_another_batch(spark, name):
    one, other = (fingerprint_of(spark.sql(query)) for query in OTHERS[name])
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
    assert fingerprint_of(one) == fingerprint_of(other)
    assert fingerprint_of(one).rows == 2


def test_the_same_columns_in_another_order_are_the_same_batch(spark):
    one = spark.sql("SELECT 1 a, 'x' b, map(1, 2) m")
    other = spark.sql("SELECT map(1, 2) m, 1 a, 'x' b")
    assert fingerprint_of(one) == fingerprint_of(other)


def test_what_was_committed_by_the_first_rule_is_compared_by_it(spark):
    # Commit f2ffa34 stored this hash of these rows.
    rows = spark.sql("SELECT * FROM VALUES (1, 'x'), (2, 'y') AS t(a, b)")
    stored = InputFacts(id=1, rows=2, hash_sum="00b525f40ff02cf4")
    assert fingerprint_of(rows, version=1) == Fingerprint.of_committed(stored)
    assert fingerprint_of(rows.select("b", "a"), version=1) != Fingerprint.of_committed(stored)
    assert Fingerprint.of_committed(fingerprint_of(rows).of_input(1)) == fingerprint_of(rows)


def test_a_fingerprint_of_a_newer_release_is_refused():
    stored = InputFacts(id="monday", rows=2, hash_sum="0", fingerprint_version=3)
    with pytest.raises(ConfigError, match="newer release of dstl committed the input 'monday'"):
        Fingerprint.of_committed(stored)


def test_a_fingerprint_that_is_none_is_damage():
    stored = InputFacts(id="monday", rows=2, hash_sum="many")
    with pytest.raises(FormatError, match="expected hexadecimal digits, got 'many'"):
        Fingerprint.of_committed(stored)
