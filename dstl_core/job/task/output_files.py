"""Output of a subtask: Parquet files of a checkpoint, which the commit makes visible."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from dstl_core.codec.columnar.types.input import NO_FIT
from dstl_core.errors import UserFunctionError
from dstl_core.functions import Row
from dstl_core.job.spec.output_types import INSERTED_ROWS, as_stored, stored_arrow_schema
from dstl_core.storage.file_io import FileIO
from dstl_core.storage.location import Location

OUTPUT_ROWS_PER_FILE = 1_000_000


@dataclass
class OutputFiles:
    """The files of one attempt of a subtask.

    Their names are random, so the files of a failed attempt are unreferenced.

    Args:
        file_io: The file system.
        folder: The folder of the output.
        schema: The columns of the output; None if there is none.
        subtask: The index of the subtask.
        operator: The uid of the operator, for errors.
    """

    file_io: FileIO
    folder: Location
    schema: pa.Schema | None
    subtask: int
    operator: str = ""
    names: list[str] = field(default_factory=list)
    rows: int = 0
    buffer: list[Row] = field(default_factory=list)

    @property
    def _what(self) -> str:
        return f"The output of operator {self.operator!r}" if self.operator else "The output"

    def add(self, rows: Iterable[Row]) -> None:
        if self.schema is None:
            return
        self.buffer.extend(rows)
        if len(self.buffer) >= OUTPUT_ROWS_PER_FILE:
            self.flush()

    def add_parts(self, rows: Iterable[Row]) -> None:
        """As ``add``, but takes only the columns of the schema from each row."""
        schema = self.schema
        if schema is not None:
            self.add({name: row[name] for name in schema.names if name in row} for row in rows)

    def add_columns(
        self, rows: pa.RecordBatch | pa.Table | None, *, inserted: int | None = None
    ) -> None:
        """As ``add``, for columns.

        Args:
            rows: The rows.
            inserted: How many rows, the first ones, are of keys that had no state before; None if
                that is not known.

        Raises:
            UserFunctionError: The columns do not fit the schema.
        """
        if rows is None or self.schema is None:
            return
        if not isinstance(rows, pa.RecordBatch | pa.Table):
            raise UserFunctionError(
                f"{self._what}, whose function works on columns, has to be a record batch or a "
                f"table, got {type(rows).__name__}."
            )
        if not rows.num_rows:
            return
        try:
            arrays = [rows.column(field.name).cast(field.type) for field in self.schema]
            table = pa.Table.from_arrays(arrays, schema=self.schema)
        except (KeyError, *NO_FIT) as error:
            raise UserFunctionError(
                f"{self._what} does not fit its schema ({error}): expected "
                f"{', '.join(self.schema.names)}, got {', '.join(rows.schema.names)}."
            ) from error
        self._write(table, inserted)

    def flush(self) -> None:
        """Writes the added rows.

        Raises:
            UserFunctionError: A row does not fit the schema. A column that a row lacks is null.
        """
        if not self.buffer or self.schema is None:
            return
        _check_rows(self.buffer, self.schema, self._what)
        try:
            table = pa.Table.from_pylist([dict(row) for row in self.buffer], schema=self.schema)
        except (OverflowError, *NO_FIT) as error:
            raise UserFunctionError(
                f"{self._what} does not fit its schema: {_misfit(self.buffer, self.schema, error)}."
            ) from error
        self._write(table)
        self.buffer = []

    def _write(self, table: pa.Table, inserted: int | None = None) -> None:
        raw = io.BytesIO()
        try:
            stored = as_stored(table, stored_arrow_schema(table.schema))
            if inserted is not None:
                stored = stored.replace_schema_metadata({INSERTED_ROWS: str(inserted)})
            pq.write_table(stored, raw)
        except NO_FIT as error:  # e.g. a time between two microseconds
            raise UserFunctionError(
                f"{self._what} has a value that Spark cannot store ({error}); round or cast it."
            ) from error
        name = f"part-{self.subtask:05d}-{uuid4().hex}.parquet"
        self.file_io.write_new(self.folder.child(name), raw.getvalue())
        self.names.append(name)
        self.rows += table.num_rows


def _misfit(rows: Sequence[Row], schema: pa.Schema, error: Exception) -> str:
    """The first column that has a value of another type."""
    for column in schema:
        for row in rows:
            value = row.get(column.name)
            try:
                pa.array([value], column.type)
            except (OverflowError, *NO_FIT):
                kind = type(value).__name__
                return f"column {column.name!r} is {column.type}, got a value of type {kind}"
    return str(error)


def _check_rows(rows: Sequence[Row], schema: pa.Schema, what: str) -> None:
    """Raises UserFunctionError for values that Arrow would drop silently."""
    names = set(schema.names)
    for row in rows:
        if not isinstance(row, Mapping):
            raise UserFunctionError(
                f"{what} has to be rows, each a dictionary with a value per "
                f"column, got {type(row).__name__}."
            )
        if not row.keys() <= names:
            raise UserFunctionError(
                f"{what} does not fit its schema: expected "
                f"{', '.join(schema.names)}, got {', '.join(row)}."
            )
    for column in schema:
        if pa.types.is_integer(column.type):
            for row in rows:
                value = row.get(column.name)
                if isinstance(value, float) and not value.is_integer():
                    raise UserFunctionError(
                        f"{what} does not fit its schema: column {column.name!r} "
                        f"is {column.type}, got {value}."
                    )
