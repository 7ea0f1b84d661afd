"""What the source ``savepoint`` is asked for is checked before anything is read."""

from __future__ import annotations

import pytest
from pyspark.sql import types as T

from dstl_core.errors import ConfigError
from dstl_core.spark.savepoints.read_only_source import columns_asked_for
from dstl_core.spark.savepoints.source_options import spec_of

STORED = T.StructType(
    [
        T.StructField("key", T.StringType()),
        T.StructField("names", T.ArrayType(T.StringType())),
        T.StructField("row", T.StructType([T.StructField("a", T.LongType())])),
    ]
)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (T.StructType(), r"\.schema\(\.\.\) has no column; the state has: key, names, row"),
        (T.StructType([T.StructField("key", T.StringType(), False)]), "column 'key', .* NOT NULL"),
        (
            T.StructType([T.StructField("names", T.ArrayType(T.StringType(), False))]),
            "column 'names', or a part of it, NOT NULL",
        ),
        (
            T.StructType(
                [T.StructField("row", T.StructType([T.StructField("a", T.LongType(), False)]))]
            ),
            "column 'row', or a part of it, NOT NULL",
        ),
    ],
)
def test_a_schema_that_spark_would_refuse_in_a_worker_is_one_sentence(
    asked: T.StructType, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        columns_asked_for(asked, STORED, "the state")


def test_comments_of_columns_do_not_matter() -> None:
    asked = T.StructType(
        [
            T.StructField(
                "row", T.StructType([T.StructField("a", T.LongType(), True, {"c": "x"})])
            ),
            T.StructField("key", T.StringType(), True, {"comment": "the key"}),
        ]
    )
    assert columns_asked_for(asked, STORED, "the state") == ("row", "key")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, r"needs a path: use load\(path\), or CREATE TEMP VIEW"),
        ({"paths": '["a", "b"]'}, "reads one snapshot"),
        ({"path": "a", "split.bytes": "²"}, "split.bytes is wrong: .* got '²'"),
        ({"path": "a", "read.memory": "0"}, "read.memory is wrong: .* got '0'"),
    ],
)
def test_a_wrong_option_is_one_sentence(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        spec_of(options)
