"""Tasks hash rows as the JVM does: a batch has one fingerprint, whoever computes it."""

import pyarrow as pa
import pytest

from dstl_core import AggregateOperator, KeyedOperator, aggregates
from dstl_core.functions import KeyedProcessFunction
from dstl_core.job.spec.fingerprint import Fingerprint
from dstl_core.job.spec.output_types import as_stored, stored_arrow_schema
from dstl_core.job.spec.row_hashes import RowHash
from dstl_core.spark.job.inputs import fingerprint_of, header_of, place, row_hash_of
from dstl_core.spark.job.sent_rows import received

pytestmark = pytest.mark.spark

# Two columns of each type; a column has a null in every fifth row.
TYPES = {
    "boolean": "id % 3 = 0",
    "tinyint": "cast(id * 7 % 256 - 128 as tinyint)",
    "smallint": "cast(id * 7001 % 65536 - 32768 as smallint)",
    "int": "hash(id)",
    "bigint": "xxhash64(id)",
    "float": "element_at(array(float('NaN'), float('-0.0'), 0f, float('Infinity'), cast(hash(id) "
    "as float) / 7), cast(id % 5 + 1 as int))",
    "double": "element_at(array(double('NaN'), double('-0.0'), 0d, double('-Infinity'), "
    "cast(hash(id) as double) / 7), cast(id % 5 + 1 as int))",
    "string": "repeat(substring('aäß€😀 no', 1, cast(id % 8 as int)), cast(id % 23 as int))",
    "binary": "substring(unhex(repeat('00ff80', 60)), 1, cast(id % 100 as int))",
    "date": "date_add(date'1970-01-01', hash(id) % 100000)",
    "timestamp": "timestamp_micros(xxhash64(id) % 10000000000000000)",
    "timestamp_ntz": "timestamp_ntz'1970-01-01' + make_dt_interval(hash(id) % 10000, 1, 2, 3.25)",
    "decimal(18,2)": "cast(hash(id) / 100 as decimal(18,2))",
    "decimal(38,4)": "cast(concat(if(id % 2 = 0, '-', ''), repeat('9', cast(id % 31 as int)), "
    "cast(id % 7 * 43 as string)) as decimal(38,4))",
    "array": "transform(sequence(1, id % 4), x -> if(x = 2, null, hash(id, x)))",
    "arrays": "array(array(double('NaN'), double('-0.0'), id / 7), null, array())",
    "struct": "named_struct('a', if(id % 3 = 0, null, id), 'b', if(id % 4 = 0, null, "
    "named_struct('c', if(id % 7 = 0, null, string(id)))))",
    "map": "map_from_entries(transform(sequence(1, id % 4 + 1), x -> struct(string(hash(id, x)), "
    "if(x = 2, null, cast(x / 3 as decimal(20,1))))))",
    "structs": "transform(sequence(0, id % 3), x -> if(x = 1, null, struct(if(x = 2, null, x), "
    "if(x = 2, null, float(x)))))",
}


@pytest.fixture(scope="module")
def rows(spark):
    columns = [
        f"if(id % 5 = {at % 5}, NULL, {value}) AS `c.{name}`"
        for at, (name, value) in enumerate(TYPES.items())
    ]
    return spark.range(0, 400, 1, 3).selectExpr(*columns, "id")


def test_the_hash_of_each_row_is_that_of_spark(rows):
    fields = sorted(rows.schema.fields, key=lambda field: field.name)
    ours = RowHash(header_of(fields), tuple(each.name for each in fields))
    table = rows.withColumn("expected", row_hash_of(rows)).toArrow().combine_chunks()
    table = as_stored(table, stored_arrow_schema(table.schema))
    [batch] = table.to_batches()
    assert RowHash.of_schema(batch.drop_columns("expected").schema) == ours
    expected = batch.column("expected")
    assert len(expected.unique()) == 400
    assert ours.of(batch) == expected
    assert ours.of(batch.slice(7, 90)) == expected.slice(7, 90)
    wide = [pa.large_string() if each == pa.string() else each for each in batch.schema.types]
    large = batch.cast(pa.schema(zip(batch.schema.names, wide, strict=True)))
    assert ours.of(large) == expected


def test_a_batch_without_rows_has_no_hashes(rows):
    [batch] = rows.limit(1).toArrow().combine_chunks().to_batches()
    assert RowHash("", batch.schema.names).of(batch.slice(0, 0)) == pa.array([], pa.int64())


class Ordered(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield from ()


class Unordered(Ordered):
    order_insensitive = True


class UnorderedOfOneColumn(Unordered):
    columns = ("v",)


AGGREGATES = {"n": aggregates.count(), "total": aggregates.sum("v", "bigint")}


@pytest.mark.parametrize(
    ("operator", "query", "in_workers"),
    [
        (KeyedOperator("u", "k", "bigint", Unordered()), "id AS k, 'a' AS t", True),
        (KeyedOperator("u", "k", "bigint", Unordered()), "id AS k, array(1) AS a", False),
        (KeyedOperator("u", "k", "bigint", Unordered()), "id AS k, 1.5BD AS d", True),
        (KeyedOperator("u", "k", "bigint", UnorderedOfOneColumn()), "id AS k, 1 AS v", True),
        (
            KeyedOperator("u", "k", "bigint", UnorderedOfOneColumn()),
            "id AS k, 1 AS v, 2 AS w",
            False,
        ),
        (KeyedOperator("u", "k", "bigint", Ordered()), "id AS k, 1 AS v", False),
        (AggregateOperator("u", "k", AGGREGATES, "bigint"), "id AS k, 1L AS v", True),
        (AggregateOperator("u", "k", AGGREGATES, "bigint"), "id AS k, 1L AS v, 2 AS w", False),
        (
            AggregateOperator("u", "k", AGGREGATES, "string"),
            "cast(id AS string) AS k, 1L AS v",
            True,
        ),
    ],
)
def test_workers_hash_rows_if_all_simple_columns_reach_them_and_no_order_needs_the_hash(
    spark, operator, query, in_workers
):
    rows = spark.range(20).selectExpr(*query.split(", "))
    order = () if operator.function.order_insensitive else ["k"]
    placed = place(rows, operator, order, parallelism=2, max_parallelism=16)
    plan = placed.frame._jdf.queryExecution().executedPlan().toString()
    assert ("xxhash64" not in plan) == in_workers
    batches = placed.frame.toArrow().to_batches()
    sent = received(batches) if placed.in_messages else batches
    fingerprints = [Fingerprint.of_batch(each) for each in sent if each.num_rows]
    assert sum(fingerprints, Fingerprint(0, 0)) == fingerprint_of(rows)
