"""A batch, and what becomes of it upstream later: changes that a job does not see, and others."""

from datetime import timedelta

import pyarrow as pa

from dstl_core import AggregateOperator, aggregates

ROWS = pa.table(
    {
        "k": ["a", "b", "a", "c"],
        "v": pa.array([1, 2, 3, 4], pa.int32()),
        "price": pa.array(["1.50", "2.00", "0.25", None]).cast(pa.decimal128(6, 2)),
        "note": ["x", None, "z", "x"],
    }
)


def sums() -> AggregateOperator:
    """It reads all columns of the batch but the note."""
    states = {"total": aggregates.sum("v"), "spent": aggregates.sum("price")}
    return AggregateOperator("sums", "k", states, schema="k string, v bigint, price decimal(8,2)")


def with_column(name: str, values: pa.Array, at: int | None = None) -> pa.Table:
    """The batch with another column, or with other values of one."""
    if name in ROWS.schema.names:
        return ROWS.set_column(ROWS.schema.get_field_index(name), name, values)
    return ROWS.add_column(ROWS.num_columns if at is None else at, name, values)


UNSEEN = {
    "the same": ROWS,
    "a new column": with_column("channel", pa.nulls(4, pa.string())),
    "a new first column": with_column("_dlt_load_id", pa.array(["17"] * 4), at=0),
    "another value of a column that nobody reads": with_column("note", pa.array(["y"] * 4)),
    "another type of a column that nobody reads": with_column("note", pa.array([1, 2, 3, 4])),
    "a column that nobody reads is gone": ROWS.select(["k", "v", "price"]),
    "a wider type": with_column("v", ROWS["v"].cast(pa.int64())),
    "a narrower type that holds all values": with_column("v", ROWS["v"].cast(pa.int8())),
    "a decimal with more digits": with_column("price", ROWS["price"].cast(pa.decimal128(12, 4))),
    "another order of rows and columns": ROWS.take([3, 1, 0, 2]).select(["v", "price", "k"]),
    "a new column of a type that Spark lacks": with_column(
        "took", pa.array([timedelta(seconds=1)] * 4)
    ),
}
SEEN = {
    "no column 'v' (int)": ROWS.select(["k", "price", "note"]),
    "'v' is string and was int": with_column("v", ROWS["v"].cast(pa.string())),
    "'v' is double and was int": with_column("v", ROWS["v"].cast(pa.float64())),
    "a value does not fit the type of its column then: 'v' is bigint and was int": with_column(
        "v", pa.array([1, 2, 3, 1 << 40])
    ),
    "a value does not fit the type of its column then: 'price' is decimal(12,4) and was "
    "decimal(6,2)": with_column(
        "price", pa.array(["1.5", "2", "0.2501", None]).cast(pa.decimal128(12, 4))
    ),
    "its 4 rows have other values in 'k', 'price', 'v'": with_column(
        "v", pa.array([1, 2, 3, None], pa.int32())
    ),
    "expected 4 rows, got 3 rows": ROWS.slice(1),
}
"""What a message says to a batch under the committed id."""
