"""A Delta table that takes the output of a job, by the ``deltalake`` package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dstl_core.extras import require
from dstl_core.job.downstream.output_changes import DELETE
from dstl_core.job.downstream.output_source import CHANGE, CHECKPOINT
from dstl_core.job.downstream.sink import check_position, check_types, foreign_table, set_back

_OLD, _NEW = "kept", "changes"
_MARK = "dstl.position"
"""What the commit of a merge has in the history of the table."""


@dataclass(frozen=True)
class DeltaSink:
    """A Delta table. The position is an application transaction of its log: Delta commits it with
    the rows, and refuses one of two concurrent merges.

    Args:
        path: A folder or a URL.
        storage_options: Options of the ``deltalake`` package for the store.

    Raises:
        MissingPackageError: The package ``deltalake`` is not installed.
    """

    path: str
    storage_options: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        require("deltalake", "A DeltaSink")

    def position(self, reader: str) -> int | None:
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(self.path, self._options):
            return None
        position = self._position_of(self._table(), reader)
        if position is None:
            raise foreign_table(self.path, reader)
        return position

    def _position_of(self, table: Any, reader: str) -> int | None:
        """The position of the rows. A table that was set back keeps its application transactions,
        so this is the position of the version whose rows it has now.
        """
        version = self._version_of_rows(table)
        held = table if version == table.version() else self._at(version)
        position: int | None = held.transaction_version(reader)
        return position

    def _version_of_rows(self, table: Any) -> int:
        """The version of the last merge, or a later one that nobody has set back.

        A merge of an earlier release has no mark. If a table was set back before it, its changes
        are merged again, which changes nothing.
        """
        version: int = table.version()
        for limit in (1, None):  # mostly the last commit is a merge
            for commit in table.history(limit):
                if commit["version"] > version:
                    continue
                if _MARK in commit:
                    return version
                if commit.get("operation") == "RESTORE":
                    target = commit.get("operationParameters", {})
                    restored = target.get("version")
                    version = (
                        self._at(target.get("datetime")).version()
                        if restored is None
                        else int(restored)
                    )
        return version

    def _at(self, version: int | str) -> Any:
        from deltalake.exceptions import DeltaError

        table = self._table()
        try:
            table.load_as_version(version)
        except DeltaError as error:
            raise set_back(self.path, f"version {version}: {error}") from error
        return table

    def replace(self, rows: pa.Table, reader: str, position: int) -> None:
        self._overwrite(rows, reader, position, schema_mode="overwrite")

    def merge(
        self, changes: pa.Table, keys: tuple[str, ...], reader: str, since: int, position: int
    ) -> None:
        table = self._table()  # Delta refuses the commit if another one follows this version
        check_position(self.path, since, self._position_of(table, reader))
        self._check_types(table, changes)
        columns = [each for each in changes.column_names if each != CHANGE]
        values = {_quoted(each): f"{_NEW}.{_quoted(each)}" for each in columns}
        deleted = f"{_NEW}.{CHANGE} = '{DELETE}'"
        (
            table.merge(
                changes,
                " AND ".join(f"{_OLD}.{_quoted(each)} = {_NEW}.{_quoted(each)}" for each in keys),
                source_alias=_NEW,
                target_alias=_OLD,
                commit_properties=_commit(reader, position),
            )
            .when_matched_delete(deleted)
            .when_matched_update(values)
            .when_not_matched_insert(values, f"NOT ({deleted})")
            .execute()
        )

    def append(self, rows: pa.Table | None, after: int, reader: str, position: int) -> None:
        later = f"{CHECKPOINT} > {after}"
        if rows is None:
            self._table().delete(later, commit_properties=_commit(reader, position))
        elif self.position(reader) is None:
            self._overwrite(rows, reader, position)
        else:
            self._check_types(self._table(), rows)
            self._overwrite(rows, reader, position, predicate=later, schema_mode="merge")

    def _check_types(self, table: Any, rows: pa.Table) -> None:
        from deltalake import Schema

        check_types(self.path, _flat(table.schema()), _flat(Schema.from_arrow(rows.schema)))

    @property
    def _options(self) -> dict[str, str] | None:
        return None if self.storage_options is None else dict(self.storage_options)

    def _table(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(self.path, storage_options=self._options)

    def _overwrite(self, rows: pa.Table, reader: str, position: int, **options: Any) -> None:
        from deltalake import write_deltalake

        write_deltalake(
            self.path,
            rows,
            mode="overwrite",
            storage_options=self._options,
            commit_properties=_commit(reader, position),
            **options,
        )


def _commit(reader: str, position: int) -> Any:
    from deltalake import CommitProperties, Transaction

    return CommitProperties(
        app_transactions=[Transaction(reader, position)], custom_metadata={_MARK: str(position)}
    )


def _flat(schema: Any) -> dict[str, str]:
    """The types of the columns that are no lists, maps or structs."""
    from deltalake.schema import PrimitiveType

    return {
        field.name: field.type.type
        for field in schema.fields
        if isinstance(field.type, PrimitiveType)
    }


def _quoted(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'
