"""The fingerprint of a batch of input, and the columns that an engine adds to the batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.checkpoint.store.epoch_facts import InputFacts
from dstl_core.errors import ConfigError, FormatError, InvariantViolation

RESERVED = "__dstl_"
"""Prefix of the columns that a runner adds to a batch."""
FINGERPRINT_COLUMN = "__dstl_row_hash"
SUBTASK_COLUMN = "__dstl_subtask"
ROWS_COLUMN = "__dstl_rows"
"""In a reduced batch: how many rows one row replaces. Its hash is their sum."""
OWN_COLUMNS = (FINGERPRINT_COLUMN, SUBTASK_COLUMN, ROWS_COLUMN)
"""Columns that a runner adds for the job."""
HASHES = 1 << 64

FINGERPRINT_VERSION = 2
"""Number of the rule that hashes rows. A record without a version has version 1, which hashes the
values in the order of the columns, without names, types and the sign of zero.
"""


@dataclass(frozen=True)
class Fingerprint:
    """Identity of a batch, independent of the order of rows and columns.

    It is the number of rows and the sum of their 64-bit hashes. A hash covers the names, types and
    values of the columns. Fingerprints of different versions cannot be compared.
    """

    rows: int
    hash_sum: int
    version: int = FINGERPRINT_VERSION

    @classmethod
    def of_column(cls, hashes: pa.Array) -> Fingerprint:
        """The fingerprint of rows with these hashes. Summing halves of 32 bits cannot overflow."""
        high = pc.sum(pc.shift_right(hashes, 32)).as_py() or 0
        low = pc.sum(pc.bit_wise_and(hashes, 0xFFFFFFFF)).as_py() or 0
        return cls(len(hashes), ((high << 32) + low) % HASHES)

    @classmethod
    def of_batch(cls, batch: pa.RecordBatch) -> Fingerprint:
        """The fingerprint of rows that a runner sends, by their hashes."""
        fingerprint = cls.of_column(batch.column(FINGERPRINT_COLUMN))
        if ROWS_COLUMN not in batch.schema.names:
            return fingerprint
        return cls(pc.sum(batch.column(ROWS_COLUMN)).as_py() or 0, fingerprint.hash_sum)

    @classmethod
    def of_committed(cls, stored: InputFacts) -> Fingerprint:
        """The fingerprint in a commit record.

        Raises:
            ConfigError: This release does not know the version of the fingerprint.
            FormatError: The record is damaged.
        """
        version = stored.fingerprint_version
        if not 1 <= version <= FINGERPRINT_VERSION:
            raise ConfigError(
                f"A newer release of dstl committed the input {stored.id!r}: expected a "
                f"fingerprint of version {FINGERPRINT_VERSION} at most, got {version}; use that "
                f"release."
            )
        try:
            hash_sum = int(stored.hash_sum, 16)
        except ValueError as error:
            raise FormatError(
                f"The commit record of the input {stored.id!r} is damaged",
                field="facts.input.hash_sum",
                expected="hexadecimal digits",
                got=repr(stored.hash_sum),
            ) from error
        return cls(stored.rows, hash_sum, version)

    def of_input(self, input_id: str | int, columns: Mapping[str, str] | None = None) -> InputFacts:
        """The facts of an input with this fingerprint, of these columns, in a commit record."""
        return InputFacts(
            id=input_id,
            rows=self.rows,
            hash_sum=f"{self.hash_sum:016x}",
            fingerprint_version=self.version,
            columns=columns,
        )

    def __add__(self, other: Fingerprint) -> Fingerprint:
        if self.version != other.version:
            raise InvariantViolation("fingerprints of different versions were added")
        hash_sum = (self.hash_sum + other.hash_sum) % HASHES
        return Fingerprint(self.rows + other.rows, hash_sum, self.version)

    def __str__(self) -> str:
        return f"{self.rows} rows, hash {self.hash_sum:016x}"
