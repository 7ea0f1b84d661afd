"""Tables that take the output of a job.

The rows of a table and its position, the id of a checkpoint, change in one commit of the table. So
a merge that is repeated changes nothing, and one that was killed is made whole by the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import pyarrow as pa

from dstl_core.errors import CheckpointError, ConfigError


class Sink(Protocol):
    """A table behind a job. A *reader* is the name of a pipeline and its output, the time of its
    first commit, and the keys of the table.
    """

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

    def merge(
        self, changes: pa.Table, keys: tuple[str, ...], reader: str, since: int, position: int
    ) -> None:
        """Applies changes of keys since a position: rows with the column ``change``.

        Raises:
            CheckpointError: The table stands at another position: another merge has changed it.
        """
        ...

    def append(self, rows: pa.Table | None, after: int, reader: str, position: int) -> None:
        """Deletes the rows whose ``dstl_checkpoint`` is greater than ``after``, and adds rows."""
        ...


def check_position(path: str, since: int, actual: int | None) -> None:
    """Raises CheckpointError: another merge has changed a table since its position was read."""
    if actual != since:
        raise CheckpointError(
            f"Another merge has changed the table {path}: expected it at checkpoint {since}, got "
            f"{actual}; nothing is written. Run the merge again."
        )


def check_types(path: str, held: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raises ConfigError if a column of a table has another type than the rows for it, which a
    store may cast: 9.5 would become 9.
    """
    for name, kind in wanted.items():
        if held.get(name, kind) != kind:
            raise ConfigError(
                f"The table {path} has the column {name!r} as {held[name]}, and the output now has "
                f"it as {kind}; run the earlier inputs again (rewind=True), into a new table."
            )


def set_back(path: str, why: str) -> ConfigError:
    """The error for a table that was set back to rows of which nobody knows the position."""
    return ConfigError(
        f"The table {path} was set back, and the checkpoint of its rows is not known: expected "
        f"rows that a merge has written, got {why}; give the path of a new table."
    )


def foreign_table(path: str, reader: str) -> ConfigError:
    return ConfigError(
        f"The table {path} has rows, and it does not say that {reader} filled it: something else "
        f"did, or by other keys, or the pipeline began anew; give the path of a new table."
    )
