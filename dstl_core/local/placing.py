"""Sends every row of a batch to the subtask that owns its key, in the order in which it applies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.errors import ConfigError
from dstl_core.job.rows.placement import Placement, spooled
from dstl_core.job.rows.spool import Spool
from dstl_core.job.spec.fingerprint import FINGERPRINT_COLUMN
from dstl_core.job.spec.input_checks import check_order, is_ordered, needed_columns
from dstl_core.job.spec.job_spec import JobSpec
from dstl_core.job.spec.operators import Operator
from dstl_core.job.spec.row_hashes import RowHash
from dstl_core.local.rows import ArrowRows


def placed_rows(
    rows: ArrowRows,
    operator: Operator,
    order_by: Sequence[str],
    job: JobSpec,
    memory: int,
    folder: str | None,
) -> dict[int, Spool]:
    """The rows of each subtask that has some: the columns that it needs, and a hash of each row.

    Args:
        rows: The rows.
        operator: The operator that reads them.
        order_by: The columns that order the rows of a key.
        job: The job.
        memory: The bytes of rows that stay in memory.
        folder: The folder of temporary files; None: the system's.
    """
    row_hash = RowHash.of_schema(rows.schema)
    needed = needed_columns(operator, order_by)
    names = [name for name in rows.schema.names if needed is None or name in needed]
    columns = [rows.schema.field(name) for name in names]
    schema = pa.schema([*columns, pa.field(FINGERPRINT_COLUMN, pa.int64())])
    placement = Placement(operator.key_by, operator.key_type, job.parallelism, job.max_parallelism)
    sent = (
        pa.RecordBatch.from_arrays(
            [*(batch.column(name) for name in names), row_hash.of(batch)], schema=schema
        )
        for batch in rows.batches()
    )
    return spooled(sent, FINGERPRINT_COLUMN, placement, memory, folder)


def in_order(rows: Spool, operator: Operator, order_by: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a subtask: sorted by ``order_by``, then by the other columns and by their hash.

    They are read once. For an order-insensitive function ties are not broken, and without
    ``order_by`` nothing is sorted. Nulls come first, and NaN last. Columns of lists break no tie.
    """
    # Declared aggregates do not depend on columns that only order rows, and these are not sent.
    order = [name for name in order_by if name in rows.schema.names]
    if not operator.function.order_insensitive:
        others = (field for field in rows.schema if field.name not in order)
        order += [field.name for field in others if is_ordered(field.type)]
    yield from sorted_rows(rows, order)


def check_sorts(schema: pa.Schema, order_by: Sequence[str]) -> None:
    """Raises ConfigError if rows cannot be sorted by a column here."""
    check_order(schema, order_by)
    for column in order_by:
        if _has_lists(schema.field(column).type):
            raise ConfigError(
                f"The column {column!r} of order_by has lists, which only Spark sorts; order by "
                f"another column."
            )


def _has_lists(kind: pa.DataType) -> bool:
    parts = (kind.field(at).type for at in range(kind.num_fields))
    return bool(pa.types.is_list(kind)) or any(map(_has_lists, parts))


def sorted_rows(rows: Spool, order: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows sorted by columns, as ``in_order``; in the order of the spool without any."""
    if not order:
        yield from rows.drain()
        return
    table = pa.Table.from_batches(rows.drain(), rows.schema)
    keys = [key for name in order for key in _sort_keys(table.column(name).combine_chunks())]
    names = [str(number) for number in range(len(keys))]
    places = pc.sort_indices(
        pa.Table.from_arrays(keys, names), sort_keys=[(name, "ascending") for name in names]
    )
    del keys
    table = table.take(places)
    yield from table.to_batches()


def _sort_keys(column: pa.Array) -> Iterator[pa.Array]:
    """Columns without nulls and NaN that sort as Spark sorts a column."""
    if column.null_count:
        yield column.is_valid()
    if pa.types.is_struct(column.type):
        for part in column.flatten():
            yield from _sort_keys(part)
    elif pa.types.is_floating(column.type):
        yield pc.fill_null(pc.is_nan(column), False)
        yield pc.if_else(pc.is_nan(column), 0.0, column)
    elif not pa.types.is_list(column.type):
        yield column
