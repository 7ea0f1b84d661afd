"""A Parquet file that takes the output of a job."""

from __future__ import annotations

import io
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dstl_core.job.downstream.output_changes import DELETE, without
from dstl_core.job.downstream.output_source import CHANGE, CHECKPOINT
from dstl_core.job.downstream.sink import check_position, check_types, foreign_table
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location

READER, POSITION = b"dstl.reader", b"dstl.position"
"""Metadata of the file."""


@dataclass(frozen=True)
class ParquetSink:
    """One Parquet file. Each merge writes it anew and replaces it as a whole, with the position in
    its metadata, so it is for tables that fit in memory.

    Of two concurrent merges the later one wins. The next merge goes on from whichever is there.

    Args:
        path: A file or a URL.
    """

    path: str

    def position(self, reader: str) -> int | None:
        rows = self._read()
        return None if rows is None else self._position_of(rows, reader)

    def _position_of(self, rows: pa.Table, reader: str) -> int:
        metadata = rows.schema.metadata or {}
        if metadata.get(READER) != reader.encode():
            raise foreign_table(self.path, reader)
        return int(metadata[POSITION])

    def replace(self, rows: pa.Table, reader: str, position: int) -> None:
        place = {READER: reader.encode(), POSITION: str(position).encode()}
        raw = io.BytesIO()
        pq.write_table(rows.replace_schema_metadata(place), raw)
        location = Location.parse(self.path)
        open_file_io(location).replace(location, raw.getvalue())

    def merge(
        self, changes: pa.Table, keys: tuple[str, ...], reader: str, since: int, position: int
    ) -> None:
        changed = changes.filter(pc.not_equal(changes.column(CHANGE), DELETE))
        held = self._read()
        check_position(self.path, since, None if held is None else self._position_of(held, reader))
        kept = [] if held is None else [without(held, changes, keys)]
        self._replace([*kept, changed.drop_columns([CHANGE])], reader, position)

    def append(self, rows: pa.Table | None, after: int, reader: str, position: int) -> None:
        held = self._read()
        kept = [] if held is None else [held.filter(pc.less_equal(held.column(CHECKPOINT), after))]
        self._replace([*kept, *([] if rows is None else [rows])], reader, position)

    def _replace(self, parts: list[pa.Table], reader: str, position: int) -> None:
        for rows in parts[1:]:
            check_types(self.path, _flat(parts[0].schema), _flat(rows.schema))
        self.replace(pa.concat_tables(parts, promote_options="default"), reader, position)

    def _read(self) -> pa.Table | None:
        location = Location.parse(self.path)
        files = open_file_io(location)
        if files.size(location) is None:
            return None
        with files.open_input(location) as source, pq.ParquetFile(source) as file:
            return file.read()


def _flat(schema: pa.Schema) -> dict[str, pa.DataType]:
    """The types of the columns that are no lists, maps or structs."""
    return {each.name: each.type for each in schema if not pa.types.is_nested(each.type)}
