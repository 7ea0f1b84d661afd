"""An Iceberg table that takes the output of a job, by the ``pyiceberg`` package."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.cached_property import cached_property
from dstl_core.errors import CheckpointError, ConfigError
from dstl_core.extras import require
from dstl_core.job.downstream.output_changes import DELETE
from dstl_core.job.downstream.output_source import CHANGE, CHECKPOINT
from dstl_core.job.downstream.sink import check_position, check_types, foreign_table, set_back

READER, POSITION, SNAPSHOT = "dstl.reader", "dstl.position", "dstl.snapshot"
"""Properties of the table; the summary of a merge's last snapshot has the position, too."""
_RETRIES = "commit.retry.num-retries"
"""A commit that is tried again on top of another merge would add rows that the other one has."""


@dataclass(frozen=True)
class IcebergSink:
    """An Iceberg table. The position is a property of the table, which one commit of the catalog
    changes with the rows. The catalog refuses one of two concurrent merges.

    Args:
        table: The name of the table in the catalog, after its namespace: ``db.totals``. The
            namespace exists.
        catalog: The name of the catalog, as ``pyiceberg.catalog.load_catalog`` takes it.
        properties: Its properties, besides those of pyiceberg's configuration.

    Raises:
        MissingPackageError: The package ``pyiceberg`` is not installed.
    """

    table: str
    catalog: str = "default"
    properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require("pyiceberg", "An IcebergSink")

    @property
    def path(self) -> str:
        return self.table

    def position(self, reader: str) -> int | None:
        if not self._catalog.table_exists(self.table):
            return None
        return self._position_of(self._table(), reader)

    def replace(self, rows: pa.Table, reader: str, position: int) -> None:
        from pyiceberg.expressions import AlwaysTrue

        rows = _stored(rows)
        if not self._catalog.table_exists(self.table):
            self._create(rows, reader, position)
            return
        table = self._table()
        with self._committed(table, reader, position) as transaction:
            held = _types(table.schema().as_arrow())
            gone = [name for name, kind in held.items() if _types(rows.schema).get(name) != kind]
            with transaction.update_schema(allow_incompatible_changes=True) as update:
                for name in gone:
                    update.delete_column(name)
            with transaction.update_schema() as update:
                update.union_by_name(rows.schema)
            transaction.delete(AlwaysTrue())
            transaction.append(rows, _mark(position))

    def merge(
        self, changes: pa.Table, keys: tuple[str, ...], reader: str, since: int, position: int
    ) -> None:
        from pyiceberg.table.upsert_util import create_match_filter

        table = self._table()
        check_position(self.path, since, self._position_of(table, reader))
        changed = changes.filter(pc.not_equal(changes.column(CHANGE), DELETE))
        rows = _stored(changed.drop_columns([CHANGE]))
        self._check_types(table, rows)
        with self._committed(table, reader, position) as transaction:
            matched = create_match_filter(_stored(changes), list(keys))
            transaction.delete(matched, {} if rows.num_rows else _mark(position))
            if rows.num_rows:
                transaction.append(rows, _mark(position))

    def append(self, rows: pa.Table | None, after: int, reader: str, position: int) -> None:
        if rows is not None and self.position(reader) is None:
            self.replace(rows, reader, position)
            return
        table = self._table()
        stored = None if rows is None else _stored(rows)
        if stored is not None:
            self._check_types(table, stored)
        with self._committed(table, reader, position) as transaction:
            transaction.delete(f"{CHECKPOINT} > {after}", _mark(position) if stored is None else {})
            if stored is not None:
                with transaction.update_schema() as update:
                    update.union_by_name(stored.schema)
                transaction.append(stored, _mark(position))

    @cached_property
    def _catalog(self) -> Any:
        from pyiceberg.catalog import load_catalog

        try:
            return load_catalog(self.catalog, **self.properties)
        except ValueError as error:
            raise ConfigError(
                f"The catalog {self.catalog!r} of the table {self.table} cannot be loaded: "
                f"expected its type and its place in properties, or in the configuration of "
                f"pyiceberg; got: {error}."
            ) from error

    def _create(self, rows: pa.Table, reader: str, position: int) -> None:
        """Makes the table.

        Raises:
            ConfigError: There is no such namespace.
            CheckpointError: Another merge was faster.
        """
        from pyiceberg.exceptions import (
            CommitFailedException,
            NoSuchNamespaceError,
            TableAlreadyExistsError,
        )

        try:
            with self._catalog.create_table_transaction(self.table, rows.schema) as made:
                made.append(rows, _mark(position))
                made.set_properties(_place(made, reader, position))
        except NoSuchNamespaceError as error:
            raise ConfigError(
                f"The catalog {self.catalog!r} has no namespace for the table {self.table}: "
                f"expected one that exists; make it first (create_namespace)."
            ) from error
        except (CommitFailedException, TableAlreadyExistsError) as error:
            raise self._overtaken(error) from error

    def _table(self) -> Any:
        return self._catalog.load_table(self.table)

    def _position_of(self, table: Any, reader: str) -> int:
        from pyiceberg.table.snapshots import ancestors_of

        if table.properties.get(READER) != reader:
            raise foreign_table(self.path, reader)
        stated = int(table.properties[POSITION])
        merged = int(table.properties.get(SNAPSHOT, -1))
        if table.snapshot_by_id(merged) is None:
            return stated  # it has expired, or an earlier release has not noted it
        line = list(ancestors_of(table.current_snapshot(), table.metadata))
        if any(snapshot.snapshot_id == merged for snapshot in line):
            return stated
        # The table was set back, and its properties were not.
        positions = [snapshot.summary.get(POSITION) for snapshot in line if snapshot.summary]
        known = next((position for position in positions if position is not None), None)
        if known is None:
            raise set_back(self.path, "a snapshot of something else")
        return int(known)

    @contextmanager
    def _committed(self, table: Any, reader: str, position: int) -> Iterator[Any]:
        """One commit of a table, with its position.

        Raises:
            CheckpointError: Another commit was faster.
        """
        from pyiceberg.exceptions import CommitFailedException, ValidationException

        transaction = table.transaction()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Delete operation did not match", UserWarning)
            yield transaction
        transaction.set_properties(_place(transaction, reader, position))
        try:
            transaction.commit_transaction()
        except (CommitFailedException, ValidationException) as error:
            raise self._overtaken(error) from error

    def _overtaken(self, error: Exception) -> CheckpointError:
        return CheckpointError(
            f"The table {self.path} was changed while a merge wrote it: {error}; nothing is "
            f"written. Run the merge again."
        )

    def _check_types(self, table: Any, rows: pa.Table) -> None:
        check_types(self.path, _types(table.schema().as_arrow()), _types(rows.schema))


def _place(transaction: Any, reader: str, position: int) -> dict[str, str]:
    snapshot = transaction.table_metadata.current_snapshot_id
    noted = {} if snapshot is None else {SNAPSHOT: str(snapshot)}
    return {READER: reader, **_mark(position), **noted, _RETRIES: "0"}


def _mark(position: int) -> dict[str, str]:
    return {POSITION: str(position)}


def _stored(rows: pa.Table) -> pa.Table:
    """Rows whose columns may be null, as those of Iceberg's tables are."""
    return rows.cast(pa.schema([column.with_nullable(True) for column in rows.schema]))


def _types(schema: pa.Schema) -> dict[str, str]:
    """The types of the columns that are no lists, maps or structs, as Iceberg has them."""
    return {
        column.name: _type(column.type) for column in schema if not pa.types.is_nested(column.type)
    }


def _type(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind) and kind.bit_width < 32:
        kind = pa.int32()
    if pa.types.is_timestamp(kind):
        kind = pa.timestamp("us", kind.tz)
    return str(kind).removeprefix("large_")
