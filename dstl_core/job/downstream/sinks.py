"""Tables that take the output of a job.

The rows of a table and its position, the id of a checkpoint, change in one commit of the table. So
a merge that is repeated changes nothing, and one that was killed is made whole by the next one.
"""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from dstl_core.errors import ConfigError


class Sink(Protocol):
    """A table behind a job. A *reader* is the name of a pipeline and its output."""

    @property
    def path(self) -> str:
        """Where the table is."""
        ...

    def position(self, reader: str) -> int | None:
        """The checkpoint id that the table stands at; None if there is no table.

        Raises:
            ConfigError: There is a table that something else has filled.
        """
        ...

    def replace(self, rows: pa.Table, reader: str, position: int) -> None:
        """Replaces all rows and columns, or makes the table."""
        ...

    def merge(self, changes: pa.Table, keys: tuple[str, ...], reader: str, position: int) -> None:
        """Applies changes of keys: rows with the column ``change``."""
        ...

    def append(self, rows: pa.Table | None, after: int, reader: str, position: int) -> None:
        """Deletes the rows whose ``dstl_checkpoint`` is greater than ``after``, and adds rows."""
        ...


def foreign_table(path: str, reader: str) -> ConfigError:
    """The error for a table that something else has filled."""
    return ConfigError(
        f"The table {path} has rows, and it does not say that {reader} filled it; give the path of "
        f"a new table."
    )
