"""The local engine with the few methods of a Spark session that tests of jobs call.

The rules of a job are one code on both engines, and ``tests/integration/spark/test_engines.py``
holds that. So tests of these rules run here, where an epoch takes a tenth of a core's second.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from dstl_core import LocalEngine, Snapshot
from dstl_core.codec.columnar.types.declared_schema import schema_of
from dstl_core.local.rows import FileRows


class Row(tuple[Any, ...]):
    """The values of a row, which have names, too."""

    names: tuple[str, ...]

    def __new__(cls, row: dict[str, Any]) -> Row:
        made = super().__new__(cls, row.values())
        made.names = tuple(row)
        return made

    def __getattr__(self, name: str) -> Any:
        try:
            return self[self.names.index(name)]
        except ValueError:
            raise AttributeError(name) from None

    def __getitem__(self, at: Any) -> Any:
        return super().__getitem__(self.names.index(at) if isinstance(at, str) else at)

    def asDict(self) -> dict[str, Any]:
        return dict(zip(self.names, self, strict=True))


class StoredRows(FileRows):
    """The output of an epoch."""

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    def collect(self) -> list[Row]:
        return [Row(row) for row in self.to_arrow().to_pylist()]

    def count(self) -> int:
        return int(self.to_arrow().num_rows)


class LocalSession(LocalEngine):
    """An engine that makes batches as a session does."""

    def createDataFrame(self, rows: Iterable[Sequence[Any]], schema: Any) -> pa.Table:
        """Rows with columns declared as DDL."""
        columns = schema_of(schema, "The batch")
        dicts = [dict(zip(columns.names, row, strict=True)) for row in rows]
        return pa.Table.from_pylist(dicts, columns)

    def read(self, files: Sequence[str], schema: pa.Schema) -> StoredRows:
        return StoredRows(files, super().read(files, schema).schema)


def state_rows(path: str, uid: str | None = None) -> list[Row]:
    """The keyed state of an operator, a row per key; of the only one, if no uid is given."""
    snapshot = Snapshot.load(path)
    [operator] = [each for each in snapshot.operators if uid in (None, each.uid)]
    return [Row(row) for batch in operator.keyed().read() for row in batch.to_pylist()]
