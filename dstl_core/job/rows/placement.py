"""Which subtask gets which rows of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dstl_core.codec.columnar.keyed.key_group_columns import key_groups_of
from dstl_core.codec.serializers import AnySerializer
from dstl_core.job.rows.keys import fitted_keys
from dstl_core.job.rows.spool import Spool

Subtasks = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Placement:
    """Finds the subtask of a row: that of the key group of its key, or one by its hash.

    Args:
        key_by: The column with the key; None: the hash of a row selects its subtask.
        key_type: The type of the key.
        parallelism: Number of subtasks.
        max_parallelism: Number of key groups.
    """

    key_by: str | None
    key_type: AnySerializer | None
    parallelism: int
    max_parallelism: int

    def split(
        self, batch: pa.RecordBatch, hashes: pa.Array | None
    ) -> Iterator[tuple[int, pa.Array | None]]:
        """The positions of the rows of each subtask that has some, in order; None: of all rows.

        Args:
            batch: The rows, with their keys.
            hashes: A hash of each row; None if all rows have a key.

        Raises:
            ConfigError: A key is null, or does not fit its type.
        """
        owners = self._owners(batch, hashes)
        counts = np.bincount(owners, minlength=self.parallelism)
        receivers = np.flatnonzero(counts)
        if len(receivers) == 1:
            yield int(receivers[0]), None
            return
        rows = np.argsort(owners.astype(np.uint16), kind="stable")
        ends = np.cumsum(counts)
        for subtask in receivers.tolist():
            end = int(ends[subtask])
            yield subtask, pa.array(rows[end - int(counts[subtask]) : end])

    def _owners(self, batch: pa.RecordBatch, hashes: pa.Array | None) -> Subtasks:
        if self.key_by is None or self.key_type is None:
            assert hashes is not None  # rows without a key have them
            of_hashes: Subtasks = np.mod(hashes.to_numpy(), self.parallelism)
            return of_hashes
        fitted = fitted_keys(batch.column(self.key_by), self.key_by, self.key_type)
        groups = key_groups_of(fitted, self.key_type, self.max_parallelism)
        # As compute_operator_index_for_key_group, for many groups.
        of_groups: Subtasks = groups.astype(np.int64) * self.parallelism // self.max_parallelism
        return of_groups


def spooled(
    batches: Iterable[pa.RecordBatch],
    hashes: str | None,
    placement: Placement,
    memory: int,
    folder: str | None = None,
) -> dict[int, Spool]:
    """The rows of each subtask that has some.

    Args:
        batches: The rows, with the columns that subtasks get.
        hashes: The column with a hash of each row; None if all rows have a key.
        placement: Finds the subtask of a row.
        memory: The bytes of rows that stay in memory.
        folder: The folder of temporary files; None: the system's.
    """
    spools: dict[int, Spool] = {}
    for batch in batches:
        of_rows = None if hashes is None else batch.column(hashes)
        for subtask, places in placement.split(batch, of_rows):
            if subtask not in spools:
                spools[subtask] = Spool(batch.schema, memory // placement.parallelism, folder)
            spools[subtask].add(batch if places is None else batch.take(places))
    return spools
