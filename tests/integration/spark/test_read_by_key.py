"""Keys of every type, named by options and in Python; views of operators whose names are alike."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from dstl_core.errors import ConfigError
from dstl_core.functions import KeyedStateReaderFunction
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.operator_transformation import OperatorTransformation
from dstl_core.savepoint.bootstrap.savepoint_writer import SavepointWriter
from dstl_core.spark.savepoints.data_source import register
from dstl_core.spark.savepoints.savepoint_reader import SavepointReader

pytestmark = pytest.mark.spark

KEYS = {
    "date": "date '1969-12-31', date '2024-02-29'",
    "instant": "timestamp '1969-12-31 23:59:59.999999Z', timestamp '2020-11-01 06:30:00Z'",
    "local": "timestamp_ntz '1969-12-31 23:59:59.000001', timestamp_ntz '2020-11-01 06:30:00'",
    "decimal": "12.50bd, -1.28bd",
    "row": "struct('a' AS x, 1 AS y), struct('' AS x, int(null) AS y)",
    "double": "double('NaN'), -0.0d, 0.0d",
}


class Nothing(KeyedStateReaderFunction):
    def read_key(self, key, ctx):
        return ()


@pytest.fixture(scope="module")
def savepoint(spark, tmp_path_factory):
    writer = SavepointWriter.new_savepoint(spark, parallelism=1)
    for uid, keys in KEYS.items():
        rows = spark.sql(f"SELECT *, n AS m FROM (SELECT posexplode(array({keys})) AS (n, k))")
        transformation = OperatorTransformation.bootstrap_with(rows).key_by("k").transform_columns()
        writer = writer.with_operator(OperatorIdentifier.for_uid(uid), transformation)
    return writer.write(str(tmp_path_factory.mktemp("keys") / "savepoint"))


@pytest.mark.parametrize(
    ("uid", "text", "expected"),
    [
        ("date", "1969-12-31", [0]),
        ("date", '"2024-02-29"', [1]),
        ("instant", '"1969-12-31T23:59:59.999999Z"', [0]),
        ("local", "2020-11-01 06:30:00", [1]),
        ("decimal", "12.50", [0]),
        ("decimal", '"-1.28"', [1]),
        ("decimal", "12.5", []),
        ("row", '["", null]', [1]),
        ("row", '{"x": "a", "y": 1}', [0]),
        ("double", "-0.0", [1]),
        ("double", '"NaN"', [0]),
    ],
)
def test_an_option_names_a_key_of_any_type(spark, savepoint, uid, text, expected):
    reader = spark.read.format("savepoint").options(**{"operator.uid": uid, "key": text})
    assert [row.n for row in reader.load(savepoint).collect()] == expected


@pytest.mark.parametrize(
    ("uid", "key"),
    [
        ("date", date(1969, 12, 31)),
        ("instant", datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)),
        ("local", datetime(1969, 12, 31, 23, 59, 59, 1)),
        ("decimal", Decimal("12.50")),
        ("row", ("a", 1)),
        ("double", float("nan")),
    ],
)
def test_a_reader_takes_keys_as_a_dataframe_has_them(spark, savepoint, uid, key):
    rows = SavepointReader.read(spark, savepoint).read_keyed_state(uid, keys=[key])
    assert [row.n for row in rows.collect()] == [0]


def test_what_is_no_key_is_an_error(spark, savepoint):
    reader = SavepointReader.read(spark, savepoint)
    for uid, key in (("date", "Monday"), ("decimal", "x"), ("double", [1]), ("row", ["a"])):
        with pytest.raises(ConfigError, match="key is wrong: expected a "):
            reader.read_keyed_state(uid, keys=[key])
    with pytest.raises(ConfigError, match="are for reading without a function"):
        reader.read_keyed_state("date", Nothing(), out_type="n int", keys=[date(1969, 12, 31)])


def test_little_memory_is_enough(spark, savepoint):
    reader = spark.read.format("savepoint").options(**{"operator.uid": "row", "read.memory": "1"})
    assert reader.load(savepoint).count() == 2


def test_operators_whose_names_are_alike_have_views_of_their_own(spark, tmp_path):
    writer = SavepointWriter.new_savepoint(spark, parallelism=1)
    uids = ["a-b", "a_b", "A_B", "\u043a\u043b\u044e\u0447", "\u0434\u0430\u0442\u0430"]
    for number, uid in enumerate(uids):
        rows = spark.sql(f"SELECT 'k' AS k, {number} AS n")
        transformation = OperatorTransformation.bootstrap_with(rows).key_by("k").transform_columns()
        writer = writer.with_operator(OperatorIdentifier.for_uid(uid), transformation)
    views = register(spark, writer.write(str(tmp_path / "savepoint")))
    assert views[0] == "metadata"
    assert len({each.lower() for each in views}) == 1 + len(uids)
    numbers = [spark.sql(f"SELECT n FROM {each}").collect()[0].n for each in views[1:]]
    assert sorted(numbers) == list(range(len(uids)))
